"""What `mpijoin prepare` does, written by hand without its checks: CSV with a known schema is read, its times are
parsed, rows filtered and sorted by time, and Parquet is written.

    python prepare_by_hand.py spark|duckdb ns|iso FOLDER OUTPUT THREADS
"""

from __future__ import annotations

import argparse

SCHEMAS = {"ns": "ts bigint, key bigint", "iso": "ts string, key bigint"}
SPARK_TIMES = {"ns": "timestamp_micros(ts div 1000)", "iso": "cast(ts as timestamp)"}
DUCKDB_TIMES = {"ns": "make_timestamp(ts // 1000)", "iso": "cast(ts as timestamp)"}
DUCKDB_TYPES = {"ns": "{'ts': 'BIGINT', 'key': 'BIGINT'}", "iso": "{'ts': 'VARCHAR', 'key': 'BIGINT'}"}


def by_spark(times: str, folder: str, output: str, threads: int) -> None:
    from mpijoin.pipeline.session import spark_session

    with spark_session("by hand", f"local[{threads}]") as spark:
        raw = spark.read.schema(SCHEMAS[times]).option("header", True).csv(folder)
        rows = raw.where("key >= 0").selectExpr(f"{SPARK_TIMES[times]} as ts", "key")
        rows.orderBy("ts").write.option("compression", "zstd").parquet(output)


def by_duckdb(times: str, folder: str, output: str, threads: int) -> None:
    import duckdb

    connection = duckdb.connect(config={"threads": threads})
    raw = f"read_csv('{folder}/*.csv', header = true, columns = {DUCKDB_TYPES[times]})"
    rows = f"select {DUCKDB_TIMES[times]} as ts, key from {raw} where key >= 0 order by ts"
    connection.execute(f"copy ({rows}) to '{output}.parquet' (format parquet, compression zstd)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system", choices=("spark", "duckdb"))
    parser.add_argument("times", choices=tuple(SCHEMAS))
    parser.add_argument("folder")
    parser.add_argument("output")
    parser.add_argument("threads", type=int)
    options = parser.parse_args()
    run = by_spark if options.system == "spark" else by_duckdb
    run(options.times, options.folder, options.output, options.threads)


if __name__ == "__main__":
    main()
