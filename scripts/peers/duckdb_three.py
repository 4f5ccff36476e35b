"""DuckDB: the join of three Parquet or Arrow files, counted.

    python duckdb_three.py bucketed|wide|plain ONE TWO THREE WINDOW_US THREADS [--memory BYTES] [--scratch FOLDER]
"""

from __future__ import annotations

import argparse

import duckdb

from limited import add_limits, duckdb_settings
from measured import measure
from opened import table_of
from sql import THREE_FORMS, join_three


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("form", choices=THREE_FORMS)
    parser.add_argument("files", nargs=3)
    parser.add_argument("window_us", type=int)
    parser.add_argument("threads", type=int)
    add_limits(parser)
    options = parser.parse_args()
    settings = {"threads": options.threads, "preserve_insertion_order": False, **duckdb_settings(options)}
    connection = duckdb.connect(config=settings)

    def count() -> tuple[int, int]:
        tables = [table_of(connection, file) for file in options.files]
        return connection.execute(join_three(options.form, tables, options.window_us)).fetchone()

    measure(count, duckdb.__version__)


if __name__ == "__main__":
    main()
