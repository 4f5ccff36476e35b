"""The join as SQL, as one writes it first and as an expert does, in the dialects of three engines.

plain     equal keys, then the range; it joins all of history per key
bucketed  time cut into buckets of a window, left tuples copied into three: equal key and bucket, then the range
"""

from __future__ import annotations

COUNT = "count(*), sum(l.id * 31 + r.id)"
# A time's bucket, a row for each of three buckets, and which side comes first: the other order takes DuckDB a fifth
# more time and twice the memory, and DataFusion, which builds its hash table of the first, 1.7 times as long.
DIALECTS = {
    "duckdb": ("ts // {window}", "unnest([{0} - 1, {0}, {0} + 1])", "copies l join cut r"),
    "datafusion": ("ts / {window}", "unnest(make_array({0} - 1, {0}, {0} + 1))", "cut r join copies l"),
    "spark": ("ts div {window}", "explode(array({0} - 1, {0}, {0} + 1))", "copies l join cut r"),
}
FORMS = ("bucketed", "plain")


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
