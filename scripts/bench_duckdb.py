"""The yardstick: runs the same join in DuckDB, either as the obvious SQL or as an expert would write it.

    python scripts/bench_duckdb.py FORM THREADS WINDOW_US LEFT RIGHT [--in-memory]

FORM is plain or bucketed (peers/sql.py). It prints one line of JSON: seconds, results and the sum of l.id * 31 + r.id.
"""

from __future__ import annotations

import argparse
import json
import time

import duckdb

from peers.sql import FORMS, join


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
    results, total = connection.execute(join(options.form, "duckdb", *tables, options.window_us)).fetchone()
    print(json.dumps({"seconds": time.perf_counter() - start, "results": results, "sum": int(total or 0)}))


if __name__ == "__main__":
    main()
