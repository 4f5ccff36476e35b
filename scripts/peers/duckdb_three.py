"""DuckDB: the join of three Parquet files, counted.

    python duckdb_three.py bucketed|wide|plain ONE TWO THREE WINDOW_US THREADS
"""

from __future__ import annotations

import argparse

import duckdb

from measured import measure
from sql import THREE_FORMS, join_three


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("form", choices=THREE_FORMS)
    parser.add_argument("files", nargs=3)
    parser.add_argument("window_us", type=int)
    parser.add_argument("threads", type=int)
    options = parser.parse_args()
    connection = duckdb.connect(config={"threads": options.threads, "preserve_insertion_order": False})
    query = join_three(options.form, options.files, options.window_us)
    measure(lambda: connection.execute(query).fetchone(), duckdb.__version__)


if __name__ == "__main__":
    main()
