"""The yardstick: the same join in DuckDB, as the obvious SQL and as an expert writes it.

    python scripts/bench_duckdb.py FORM THREADS WINDOW_US LEFT RIGHT [--in-memory]

FORM is plain or bucketed. Prints one line of JSON: seconds, results and the sum of l.id * 31 + r.id.
"""

from __future__ import annotations

import argparse
import json
import time

import duckdb

COUNT = "count(*), sum(l.id * 31 + r.id)"


def plain(left: str, right: str, window_us: int, select: str) -> str:
    """What one writes first: equal keys, then the range; it joins all of history per key."""
    return f"""
        select {select} from {left} l join {right} r
        on l.key = r.key and r.ts between l.ts - {window_us} and l.ts + {window_us}"""


def bucketed(left: str, right: str, window_us: int, select: str) -> str:
    """Time cut into buckets of a window, left tuples copied into three: equal key and bucket, then the range."""
    return f"""
        with copies as (
            select ts, key, id, unnest([ts // {window_us} - 1, ts // {window_us}, ts // {window_us} + 1]) as bucket from {left}
        ), cut as (
            select ts, key, id, ts // {window_us} as bucket from {right}
        )
        select {select} from copies l join cut r
        on l.key = r.key and l.bucket = r.bucket and r.ts between l.ts - {window_us} and l.ts + {window_us}"""


FORMS = {"plain": plain, "bucketed": bucketed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("form", choices=FORMS)
    parser.add_argument("threads", type=int)
    parser.add_argument("window_us", type=int)
    parser.add_argument("left")
    parser.add_argument("right")
    parser.add_argument("--in-memory", action="store_true", help="load both files into tables before the clock starts")
    options = parser.parse_args()
    connection = duckdb.connect(config={"threads": options.threads})
    tables = [f"'{options.left}'", f"'{options.right}'"]
    if options.in_memory:
        for name, file in zip(("l0", "r0"), tables):
            connection.execute(f"create table {name} as from {file}")
        tables = ["l0", "r0"]
    start = time.perf_counter()
    results, total = connection.execute(FORMS[options.form](*tables, options.window_us, COUNT)).fetchone()
    print(json.dumps({"seconds": time.perf_counter() - start, "results": results, "sum": int(total or 0)}))


if __name__ == "__main__":
    main()
