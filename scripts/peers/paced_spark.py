"""Spark's stream-stream join of a replay: Parquet files that are moved into two watched folders when their last tuple
is due.

    python -m peers.paced_spark REPLAY.json FILES SLICE_S WINDOW_US CORES STORE SEEN.json

FILES/SIDE/*.parquet are the files in order: the lead (which may be empty), then a slice of SLICE_S seconds of the wall
clock each. STORE is one of STORES. SEEN.json gets the fields of Seen. Environment: spark.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from peers.paced_replay import Clock, Replay

SIDES = ("left", "right")
SCHEMA = "ts timestamp, key long, id long"
BIN_MS = 10  # results are counted by due time in steps of this
SETTINGS = {
    "spark.driver.memory": "10g",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # they would only drop state, which the next batch does as well
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
}
STATE = "org.apache.spark.sql.execution.streaming.state"
STORES = {
    "heap": {},
    # Its newest layout finds state that has expired by time, without a look at all of it.
    "rocksdb": {
        "spark.sql.streaming.stateStore.providerClass": f"{STATE}.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.join.stateFormatVersion": "4",
    },
}


class Delays:
    """foreachBatch: counts a batch's results by the time at which they were due; the clock starts after the first
    batch."""

    def __init__(self, replay: Replay):
        self._replay = replay
        self.results = 0
        self.counts: Counter[tuple[int, int]] = Counter()
        self.clock: Clock | None = None
        self.started = threading.Event()

    def start(self) -> None:
        self.clock = Clock(self._replay, time.monotonic_ns())
        self.started.set()

    def add(self, batch: DataFrame, number: int) -> None:
        bin_us = BIN_MS * 1000 * self._replay.speed
        due = F.floor((F.unix_micros("later") - self._replay.lead_us) / bin_us)
        rows = batch.groupBy(due.alias("bin")).count().collect()
        self.results += sum(row["count"] for row in rows)
        if self.clock is None:
            self.start()
            return
        now_ms = self.clock.now_s() * 1e3
        for row in rows:
            due_ms = row["bin"] * BIN_MS
            if due_ms >= 0:
                self.counts[due_ms // 1000, max(0, int(now_ms - due_ms))] += row["count"]


class Mover:
    """Moves both sides' files into the watched folders: the first one at once, the others by the clock."""

    def __init__(self, files: Path, watched: Path, slice_s: float):
        self._slice_s, self.lags_ms = slice_s, {}
        self._moves = []
        for numbers in zip(*(sorted((files / side).glob("*.parquet")) for side in SIDES)):
            self._moves.append([(file, watched / side / file.name) for side, file in zip(SIDES, numbers)])

    def move_first(self) -> None:
        self._move(self._moves[0])

    def run(self, clock: Clock) -> None:
        for number, pair in enumerate(self._moves[1:], 1):
            due_s = number * self._slice_s
            time.sleep(max(0.0, due_s - clock.now_s()))
            now_s = clock.now_s()
            self._move(pair)
            self.lags_ms[int(now_s)] = max(self.lags_ms.get(int(now_s), 0.0), 1e3 * (now_s - due_s))

    def _move(self, pair: list[tuple[Path, Path]]) -> None:
        for source, target in pair:
            source.rename(target)


def stream(spark: SparkSession, folder: Path, prefix: str) -> DataFrame:
    rows = spark.readStream.schema(SCHEMA).parquet(str(folder)).withWatermark("ts", "1 second")
    return rows.select(F.col("ts").alias(f"{prefix}_ts"), F.col("key").alias(f"{prefix}_key"))


def joined(spark: SparkSession, watched: Path, window_us: int) -> DataFrame:
    left, right = (stream(spark, watched / side, side) for side in SIDES)
    near = (
        f"right_ts between left_ts - interval {window_us} microseconds and left_ts + interval {window_us} microseconds"
    )
    return left.join(right, F.expr(f"left_key = right_key and {near}")).selectExpr(
        "greatest(left_ts, right_ts) as later"
    )


def session(cores: int, store: str, scratch: str) -> SparkSession:
    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.sql.shuffle.partitions", cores)
    for name, value in (SETTINGS | STORES[store] | {"spark.local.dir": scratch}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main() -> None:
    values, files, slice_s, window_us, cores, store, seen_path = sys.argv[1:]
    replay = Replay(**json.loads(Path(values).read_text()))
    # checkpoints, which Spark insists on, cost no disk there
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as scratch:
        watched = Path(files, "watched")
        for side in SIDES:
            (watched / side).mkdir(parents=True)
        delays, mover = Delays(replay), Mover(Path(files), watched, float(slice_s))
        spark = session(int(cores), store, scratch)
        writer = joined(spark, watched, int(window_us)).writeStream.foreachBatch(delays.add)
        mover.move_first()
        query = writer.option("checkpointLocation", f"{scratch}/checkpoint").start()
        while not delays.started.wait(0.1):
            if query.exception():
                raise SystemExit(str(query.exception()))
        mover.run(delays.clock)
        query.processAllAvailable()
        query.stop()
        counts = [[second, ms, count] for (second, ms), count in sorted(delays.counts.items())]
        seen = {"results": delays.results, "delays": counts, "lags": sorted(mover.lags_ms.items())}
        Path(seen_path).write_text(json.dumps(seen))
        spark.stop()


if __name__ == "__main__":
    main()
