"""Pathway: the interval join of two CSV files, read as static tables, counted.

    python pathway_join.py LEFT RIGHT WINDOW_US     (PATHWAY_THREADS says how many)
"""

from __future__ import annotations

import argparse

import pathway as pw

from measured import measure


class Row(pw.Schema):
    ts: int
    key: int
    row: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("left")
    parser.add_argument("right")
    parser.add_argument("window_us", type=int)
    options = parser.parse_args()

    def count() -> tuple[int, int]:
        left, right = (pw.io.csv.read(file, schema=Row, mode="static") for file in (options.left, options.right))
        window = pw.temporal.interval(-options.window_us, options.window_us)
        pairs = pw.temporal.interval_join(left, right, left.ts, right.ts, window, left.key == right.key)
        values = pairs.select(value=left.row * 31 + right.row)
        totals = values.reduce(results=pw.reducers.count(), total=pw.reducers.sum(values.value))
        found = {"results": 0, "total": 0}  # no pair, no row of totals
        pw.io.subscribe(
            totals, on_change=lambda key, row, time, is_addition: found.update(row) if is_addition else None
        )
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)
        return found["results"], found["total"]

    measure(count, pw.__version__)


if __name__ == "__main__":
    main()
