"""Spark: the join of two folders of Parquet files, counted: as a batch, or as streams with watermarks.

    python spark_join.py bucketed|streaming LEFT RIGHT WINDOW_US THREADS HEAP_GB SCRATCH

`streaming` takes one file of each stream per micro-batch, until all are read. SCRATCH holds state and shuffle files.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession

from measured import measure
from sql import COUNT, join

# A row is late if its time is at most the newest one of the batches before: of rows with one time, some may come later.
LATENESS = "1 millisecond"
HASH_JOIN = "/*+ shuffle_hash(r) */"  # the default, sorting and merging, takes half as long again


def session(threads: int, heap_gb: int, scratch: str) -> SparkSession:
    settings = {
        "spark.driver.memory": f"{heap_gb}g",
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": scratch,
        # One task per core: with the default of 200 each micro-batch would open 200 state stores.
        "spark.sql.shuffle.partitions": threads,
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
    }
    builder = SparkSession.builder.master(f"local[{threads}]").appName("join")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # the first query of a session starts what later ones find running
    spark.range(1000).selectExpr("sum(id)").collect()
    return spark


def batch_join(spark: SparkSession, left: str, right: str, window_us: int) -> tuple[int, int]:
    tables = (f"parquet.`{Path(path).resolve()}`" for path in (left, right))
    return tuple(spark.sql(join("bucketed", "spark", *tables, window_us, f"{HASH_JOIN} {COUNT}")).first())


def streaming_join(spark: SparkSession, left: str, right: str, window_us: int, scratch: str) -> tuple[int, int]:
    near = (
        f"l_key = r_key and r_ts between l_ts - interval {window_us} microseconds and l_ts + interval {window_us}"
        " microseconds"
    )
    streams = [stream(spark, path, side) for path, side in ((left, "l"), (right, "r"))]
    pairs = streams[0].join(streams[1], on=pyspark.sql.functions.expr(near)).selectExpr("l_id * 31 + r_id as value")
    totals = [0, 0]

    def add(batch: DataFrame, number: int) -> None:
        results, total = batch.selectExpr("count(*)", "sum(value)").first()
        totals[0] += results
        totals[1] += total or 0

    writer = pairs.writeStream.foreachBatch(add).option("checkpointLocation", f"{scratch}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
    return totals[0], totals[1]


def stream(spark: SparkSession, path: str, side: str) -> DataFrame:
    rows = spark.readStream.schema("ts long, key long, id long").option("maxFilesPerTrigger", 1).parquet(path)
    named = rows.selectExpr(f"timestamp_micros(ts) as {side}_ts", f"key as {side}_key", f"id as {side}_id")
    return named.withWatermark(f"{side}_ts", LATENESS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("form", choices=("bucketed", "streaming"))
    parser.add_argument("left")
    parser.add_argument("right")
    parser.add_argument("window_us", type=int)
    parser.add_argument("threads", type=int)
    parser.add_argument("heap_gb", type=int)
    parser.add_argument("scratch")
    options = parser.parse_args()
    spark = session(options.threads, options.heap_gb, options.scratch)
    files = (options.left, options.right, options.window_us)

    def count() -> tuple[int, int]:
        return (
            batch_join(spark, *files) if options.form == "bucketed" else streaming_join(spark, *files, options.scratch)
        )

    java = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    measure(count, pyspark.__version__, processes=[int(java)])
    spark.stop()


if __name__ == "__main__":
    main()
