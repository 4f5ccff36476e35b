"""The join as SQL, as one writes it first and as an expert does, in the dialects of three engines.

plain     equal keys, then the range; it joins all of history per key
bucketed  time cut into buckets of a window, left tuples copied into three: equal key and bucket, then the range
wide      (three streams) as bucketed, with buckets of four windows: fewer copies, more that is out of range
"""

from __future__ import annotations

from typing import Iterable

COUNT = "count(*), sum(l.id * 31 + r.id)"
# A time's bucket, a row for each of three buckets, and which side comes first: the other order takes DuckDB a fifth
# more time and twice the memory, and DataFusion, which builds its hash table of the first, 1.7 times as long.
DIALECTS = {
    "duckdb": ("ts // {window}", "unnest([{0} - 1, {0}, {0} + 1])", "copies l join cut r"),
    "datafusion": ("ts / {window}", "unnest(make_array({0} - 1, {0}, {0} + 1))", "cut r join copies l"),
    "spark": ("ts div {window}", "explode(array({0} - 1, {0}, {0} + 1))", "copies l join cut r"),
}
FORMS = ("bucketed", "plain")
THREE_FORMS = {"bucketed": 1, "wide": 4, "plain": 0}  # of three streams: how many windows make a bucket
COUNT_THREE = "count(*), sum((l.id * 31 + r.id) * 31 + m.id)"


def join(form: str, dialect: str, left: str, right: str, window_us: int, select: str = COUNT) -> str:
    """The query over two tables of ts (us), key, id and whatever else `select` takes from l and r."""
    near = f"l.key = r.key and r.ts between l.ts - {window_us} and l.ts + {window_us}"
    if form == "plain":
        return f"select {select} from {left} l join {right} r on {near}"
    time, copies, sides = DIALECTS[dialect]
    bucket = time.format(window=window_us)
    return f"""
        with copies as (select *, {copies.format(bucket)} as bucket from {left}),
            cut as (select *, {bucket} as bucket from {right})
        select {select} from {sides} on l.bucket = r.bucket and {near}"""


def join_three(form: str, tables: Iterable[str], window_us: int, select: str = COUNT_THREE) -> str:
    """The query over three tables of ts (us), key and id, for DuckDB: all three times within a window.

    Where time is cut, the pairs of the first two are copied again for the third, by how early and late it may be then.
    """
    one, two, three = tables
    near = f"l.key = r.key and r.ts between l.ts - {window_us} and l.ts + {window_us}"
    if form == "plain":
        low, high = f"greatest(l.ts, r.ts) - {window_us}", f"least(l.ts, r.ts) + {window_us}"
        third = f"m.key = l.key and m.ts between {low} and {high}"
        return f"select {select} from {one} l join {two} r on {near} join {three} m on {third}"
    bucket = THREE_FORMS[form] * window_us
    copied = "select *, unnest(range({0} // {2}, {1} // {2} + 1)) as bucket from {3}"
    low, high = f"(latest - {window_us})", f"(earliest + {window_us})"
    return f"""
        with copies as ({copied.format(f"(ts - {window_us})", f"(ts + {window_us})", bucket, one)}),
            cut as (select *, ts // {bucket} as bucket from {two}),
            pairs as (select l.key, l.id * 31 + r.id as id,
                             least(l.ts, r.ts) as earliest, greatest(l.ts, r.ts) as latest
                      from copies l join cut r on l.bucket = r.bucket and {near}),
            again as ({copied.format(low, high, bucket, "pairs")}),
            last as (select *, ts // {bucket} as bucket from {three})
        select count(*), sum(p.id * 31 + m.id) from again p join last m
        on p.key = m.key and p.bucket = m.bucket and m.ts between {low} and {high}"""
