"""Polars, streaming engine: the join of three Parquet or Arrow files, counted.

    python polars_three.py bucketed|wide|plain ONE TWO THREE WINDOW_US     (POLARS_MAX_THREADS says how many)
"""

from __future__ import annotations

import argparse

import polars as pl

from measured import measure
from opened import scan
from sql import THREE_FORMS


def copied(rows: pl.LazyFrame, first: pl.Expr, last: pl.Expr, bucket_us: int, copies: int) -> pl.LazyFrame:
    """A copy of each row per bucket from that of time `first` to that of `last`, at most so many."""
    low, high = first // bucket_us, last // bucket_us
    return pl.concat([
        rows.with_columns(bucket=low + step).filter(pl.col("bucket") <= high) if step else rows.with_columns(bucket=low)
        for step in range(copies)
    ])


def results(form: str, one: pl.LazyFrame, two: pl.LazyFrame, three: pl.LazyFrame, window_us: int) -> pl.LazyFrame:
    """Results with equal keys and all times within a window, as earlier id * 31 + id and the third's id_last; `sql.py`
    says what the forms are."""
    keys, windows = ["key"], THREE_FORMS[form]
    if windows:
        keys, bucket_us, copies = ["key", "bucket"], windows * window_us, 3 if windows == 1 else 2
        two, three = (rows.with_columns(bucket=pl.col("ts") // bucket_us) for rows in (two, three))
        one = copied(one, pl.col("ts") - window_us, pl.col("ts") + window_us, bucket_us, copies)
    near = (pl.col("ts_right") - pl.col("ts")).is_between(-window_us, window_us)
    pairs = one.join(two, on=keys, suffix="_right").filter(near)
    times = {"earliest": pl.min_horizontal("ts", "ts_right"), "latest": pl.max_horizontal("ts", "ts_right")}
    pairs = pairs.select("key", id=pl.col("id") * 31 + pl.col("id_right"), **times)
    first, last = pl.col("latest") - window_us, pl.col("earliest") + window_us
    if windows:
        pairs = copied(pairs, first, last, bucket_us, copies)
    return pairs.join(three, on=keys, suffix="_last").filter(pl.col("ts").is_between(first, last))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("form", choices=THREE_FORMS)
    parser.add_argument("files", nargs=3)
    parser.add_argument("window_us", type=int)
    options = parser.parse_args()

    def count() -> tuple[int, int]:
        streams = map(scan, options.files)
        figures = (pl.len().alias("results"), (pl.col("id") * 31 + pl.col("id_last")).sum().alias("sum"))
        return results(options.form, *streams, options.window_us).select(*figures).collect(engine="streaming").row(0)

    measure(count, pl.__version__)


if __name__ == "__main__":
    main()
