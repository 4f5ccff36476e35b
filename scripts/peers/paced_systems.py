"""Makes a replay by each system.

It prepares what the system reads, starts it beside its feeder on the same cores, and collects what was seen.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Mapping, Sequence

import numpy as np
import pyarrow.parquet as pq

from benching.data import RATE_PER_S, WINDOW_US
from benching.launch import ROOT, launch, pin
from mpijoin.metrics.buckets import STARTS_US
from peers.environments import environment, flink_classpath, java
from peers.paced_data import SIDES, Streams
from peers.paced_replay import Replay, Seen

SCRIPTS = ROOT / "scripts"
FEEDER_S = 3000.0  # The feeder alone is measured with so much event time.
# A replay may take so much longer, for starting, the lead and a backlog. Then it is ended.
GRACE_S = 120.0
JOB = """\
[{side}]
path = "{path}"
time = "ts"
time_unit = "us"
key = "key"
window = "{window_us} us"

"""
HEAP = "12g"
# Flink looks into these packages of java.base.
OPENED = ("lang", "util", "lang.invoke", "nio", "net", "time", "util.concurrent")


class Unfinished(Exception):
    """Says that a replay had not ended long after its time, or that the system broke down."""


@dataclass(frozen=True)
class Place:
    """Where replays run. home: a folder for scratch files · environments: the folder of the peers' environments."""

    streams: Streams
    home: Path
    environments: Path
    cores: Sequence[int]

    def clean(self) -> Path:
        """Empties the scratch folder and returns it."""
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        return self.home


@dataclass(frozen=True)
class Mpijoin:
    """mpijoin. ranks: 0 means local · epoch_ms: the distribution epoch.

    At thousands of times the streams' pace, a few tenths of a second bring more than a window holds. With 200 ms three
    ranks kept a speed of 4900, with 50 ms they kept 8000.
    """

    ranks: int
    epoch_ms: int = 50

    def replay(self, replay: Replay, place: Place) -> Seen:
        if replay.lead_us:
            raise Unfinished("a job is paced from its first tuple on: the warm-up is too short to fill the windows")
        home = place.clean()
        place.streams.arrow(home, replay.until_us)
        job = home / "job.toml"
        job.write_text("".join(JOB.format(side=side, path=home / side, window_us=WINDOW_US) for side in SIDES))
        settings = (
            f"run.speed={replay.speed}",
            f'cluster.distribution_epoch="{self.epoch_ms} ms"',
            'output.results="count"',
        )
        os.sync()
        try:
            done = launch(job, home / "run", self.ranks, place.cores, settings)
        except SystemExit as error:
            raise Unfinished(str(error).strip().splitlines()[-1]) from error
        return seen_by_mpijoin(home / "run/metrics", done.summary["results"])


def seen_by_mpijoin(metrics: Path, results: int) -> Seen:
    """Returns what a run's metrics tell.

    The seconds are those in which an epoch was joined or sent, and not those in which it was due.
    """
    lags, delays = [], []
    for file in metrics.glob("rank-*.parquet"):
        for row in pq.read_table(file, columns=["role", "end_us", "lag_us"]).to_pylist():
            if row["role"] == "master":
                lags.append((row["end_us"] // 1_000_000, row["lag_us"] / 1e3))
    for file in metrics.glob("delay-*.parquet"):
        for row in pq.read_table(file).to_pylist():
            bucket = int(np.searchsorted(STARTS_US, row["bucket_us"]))
            middle_ms = (int(STARTS_US[bucket]) + int(STARTS_US[bucket + 1])) / 2e3
            delays.append((row["end_us"] // 1_000_000, middle_ms, row["count"]))
    return Seen(results, delays, lags)


@dataclass(frozen=True)
class Flink:
    """The interval join of the DataStream API.

    collector: of garbage, "Parallel" or "G1" · watermark_ms: the time between two watermarks · buffer_ms: the time
    after which a buffer goes out even if it is not full.
    """

    collector: str
    watermark_ms: int = 100
    buffer_ms: int = 20

    def replay(self, replay: Replay, place: Place) -> Seen:
        classpath = flink_classpath(place.environments)
        home = place.clean()
        place.streams.binary(home, replay.until_us)
        line = [str(java()), f"-Xms{HEAP}", f"-Xmx{HEAP}", f"-XX:+Use{self.collector}GC", "-cp", classpath]
        line[1:1] = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in OPENED]
        values = (
            WINDOW_US,
            replay.lead_us,
            replay.speed,
            replay.wall_s,
            self.watermark_ms,
            self.buffer_ms,
            len(place.cores),
        )
        seen = home / "seen.json"
        line += ["PacedJoin", *(str(home / f"{side}.bin") for side in SIDES), *map(str, values), str(seen)]
        finish([start(line, place)], replay, place)
        return seen_in(seen)


@dataclass(frozen=True)
class DataFusion:
    """The symmetric hash join of two unbounded, ordered streams.

    batch_s: it collects so much of a stream before it goes on. It looks for expired rows once a batch, so that short
    batches cost much. With its default of 8192 rows it kept a speed of 194; with 32,768 (0.07 s) it kept a speed of 300
    at a p99 of 0.21 s.
    """

    batch_s: float = 0.15

    def replay(self, replay: Replay, place: Place) -> Seen:
        python = environment("sql", place.environments)
        home = place.clean()
        place.streams.csv(replay.until_us)
        values, clock, seen, lags = (home / name for name in ("replay.json", "clock", "seen.json", "lags.json"))
        values.write_text(json.dumps(asdict(replay)))
        clock.write_bytes(bytes(8))
        for side in SIDES:
            os.mkfifo(home / side)
        module = [str(python), "-m"]
        feeder = [
            *module,
            "peers.paced_feeder",
            str(values),
            str(place.streams.folder),
            str(home),
            str(clock),
            str(lags),
        ]
        numbers = (WINDOW_US, len(place.cores), round(RATE_PER_S * replay.speed * self.batch_s))
        join = [*module, "peers.paced_datafusion", str(values), str(home), str(clock), *map(str, numbers), str(seen)]
        finish([start(join, place), start(feeder, place)], replay, place)
        return replace(seen_in(seen), lags=json.loads(lags.read_text())["lags"])


@dataclass(frozen=True)
class Spark:
    """The stream-stream join of Structured Streaming, with watermarks.

    store: where its state is, "heap" or "rocksdb" · slice_s: how many seconds of the wall clock a file holds.
    """

    store: str
    slice_s: float = 0.5

    def replay(self, replay: Replay, place: Place) -> Seen:
        python = environment("spark", place.environments)
        java_home = java().resolve().parents[1]
        home = place.clean()
        slices = round(replay.wall_s / self.slice_s)
        borders_us = np.linspace(replay.lead_us, replay.until_us, slices + 1).round().astype(int)
        place.streams.slices(home, [0, *borders_us.tolist()])
        values, seen = home / "replay.json", home / "seen.json"
        values.write_text(json.dumps(asdict(replay)))
        options = (replay.wall_s / slices, WINDOW_US, len(place.cores), self.store)
        line = [str(python), "-m", "peers.paced_spark", str(values), str(home), *map(str, options), str(seen)]
        finish([start(line, place, {"JAVA_HOME": str(java_home)})], replay, place)
        return seen_in(seen)


def feeder_rate(place: Place) -> float:
    """Returns how many tuples per second, of both streams, the CSV feeder hands over if nobody makes it wait."""
    streams = place.streams
    replay = Replay(1.0, round(FEEDER_S * 1e6), 0.0, 0.0)
    home = place.clean()
    streams.csv(replay.until_us)
    values, clock, lags = (home / name for name in ("replay.json", "clock", "lags.json"))
    values.write_text(json.dumps(asdict(replay)))
    clock.write_bytes(bytes(8))
    for side in SIDES:
        os.mkfifo(home / side)
    python = str(environment("sql", place.environments))
    feeder = [python, "-m", "peers.paced_feeder", str(values), str(streams.folder), str(home), str(clock), str(lags)]
    readers = [start(["dd", f"if={home / side}", "of=/dev/null", "bs=1M"], place) for side in SIDES]
    finish([*readers, start(feeder, place)], replay, place)
    return streams.tuples(replay.until_us) / json.loads(lags.read_text())["wall_s"]


def start(line: Sequence[str], place: Place, extra: Mapping[str, str] = {}) -> subprocess.Popen:
    """Starts a command on the cores of the place. extra: further variables of its environment."""
    os.sync()  # What was prepared must not be on its way to the disk while time is measured.
    with open(place.home / "log", "ab") as log:
        return subprocess.Popen(
            line, stdout=log, stderr=subprocess.STDOUT, preexec_fn=pin(place.cores), cwd=place.home,
            env=os.environ | {"PYTHONPATH": str(SCRIPTS)} | extra,
        )


def finish(processes: Sequence[subprocess.Popen], replay: Replay, place: Place) -> None:
    """Waits for all processes, and leaves none behind. Unfinished: one of them fails or takes too long."""
    try:
        for process in processes:
            if process.wait(timeout=replay.wall_s + GRACE_S):
                said = (place.home / "log").read_text(errors="replace").split("\n")[-4:]
                raise Unfinished(f"{Path(process.args[0]).name} ended with {process.returncode}: {' '.join(said)}")
    except subprocess.TimeoutExpired as error:
        raise Unfinished(f"not ended {GRACE_S:.0f} s after its time") from error
    finally:
        for process in processes:
            process.kill()
            process.wait()


def seen_in(file: Path) -> Seen:
    return Seen(**{"lags": (), **json.loads(file.read_text())})
