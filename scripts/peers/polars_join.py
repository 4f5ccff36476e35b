"""Polars, streaming engine: the join of two Parquet or Arrow files, counted.

    python polars_join.py bucketed|plain LEFT RIGHT WINDOW_US     (POLARS_MAX_THREADS says how many)
"""

from __future__ import annotations

import argparse

import polars as pl

from measured import measure
from opened import scan
from sql import FORMS


def pairs(form: str, left: pl.LazyFrame, right: pl.LazyFrame, window_us: int) -> pl.LazyFrame:
    """Pairs of equal keys with times in the window; `sql.py` says what the forms are."""
    keys = ["key"]
    if form == "bucketed":
        keys = ["key", "bucket"]
        left, right = (side.with_columns(bucket=pl.col("ts") // window_us) for side in (left, right))
        left = pl.concat([left.with_columns(bucket=pl.col("bucket") + step) for step in (-1, 0, 1)])
    joined = left.join(right, on=keys, suffix="_right")
    return joined.filter(pl.col("ts_right").is_between(pl.col("ts") - window_us, pl.col("ts") + window_us))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("form", choices=FORMS)
    parser.add_argument("left")
    parser.add_argument("right")
    parser.add_argument("window_us", type=int)
    options = parser.parse_args()

    def count() -> tuple[int, int]:
        streams = map(scan, (options.left, options.right))
        figures = (pl.len().alias("results"), (pl.col("id") * 31 + pl.col("id_right")).sum().alias("sum"))
        return pairs(options.form, *streams, options.window_us).select(*figures).collect(engine="streaming").row(0)

    measure(count, pl.__version__)


if __name__ == "__main__":
    main()
