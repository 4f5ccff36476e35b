"""DuckDB: the join of two Parquet or Arrow files, counted, or written to Parquet with all columns of both sides.

    python duckdb_join.py bucketed|plain LEFT RIGHT WINDOW_US THREADS [--output FOLDER [--no-dictionary]]
        [--memory BYTES] [--scratch FOLDER]
"""

from __future__ import annotations

import argparse

import duckdb

from limited import add_limits, duckdb_settings
from measured import measure
from opened import table_of
from sql import COUNT, FORMS, join

# As mpijoin writes integers: no codec. A file per thread and any order of rows: the fastest that DuckDB has.
PARQUET = "format parquet, compression uncompressed, per_thread_output true"
NO_DICTIONARY = ", dictionary_size_limit 1"  # a third faster and half as large again


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("form", choices=FORMS)
    parser.add_argument("left")
    parser.add_argument("right")
    parser.add_argument("window_us", type=int)
    parser.add_argument("threads", type=int)
    parser.add_argument("--output", help="write the pairs into this folder instead of counting them")
    parser.add_argument("--no-dictionary", action="store_true", help="write plain values, whatever repeats")
    add_limits(parser)
    options = parser.parse_args()
    settings = {"threads": options.threads, "preserve_insertion_order": False, **duckdb_settings(options)}
    connection = duckdb.connect(config=settings)

    def query(tables: list[str], select: str) -> str:
        return join(options.form, "duckdb", *tables, options.window_us, select)

    def opened() -> list[str]:
        return [table_of(connection, file) for file in (options.left, options.right)]

    def count() -> tuple[int, int]:
        return connection.execute(query(opened(), COUNT)).fetchone()

    def write() -> tuple[int, int]:
        tables = opened()
        described = connection.execute(f"describe select * from {tables[0]}").fetchall()
        names = [name for name, *_ in described if name != "key"]
        columns = [
            "l.key as key",
            *(f"{side[0]}.{name} as {side}_{name}" for side in ("left", "right") for name in names),
        ]
        pairs = query(tables, ", ".join(columns))
        how = PARQUET + (NO_DICTIONARY if options.no_dictionary else "")
        return connection.execute(f"copy ({pairs}) to '{options.output}' ({how})").fetchone()[0], 0

    measure(write if options.output else count, duckdb.__version__)


if __name__ == "__main__":
    main()
