"""How fast the pipeline is: rows per second of generate, prepare and profile on two cores, and memory as the data
grows.

    python scripts/bench_pipeline.py [--rows 10e6 100e6] [--steps generate,prepare,profile] [--repeat N] [-o FILE.json]
        [--folder FOLDER]

For each number of rows: `mpijoin generate` makes two streams of half as many (Poisson, b-model keys); one of them
becomes shuffled CSV and goes through `mpijoin prepare`, whose output must hold the same rows, counted and summed;
`mpijoin profile` looks at both. Beside prepare, and alternating with it, the same job without checks is done by hand in
Spark (scripts/peers: CSV with a schema, times parsed, filtered, sorted, written) and in DuckDB; CPU seconds are of
whole process trees. Times are of whole commands, start of Spark included (about 5 s). Memory is the greatest sum of
proportional set sizes of the Java and Python processes; Spark's own heap is at most 2 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset as ds

from benching.launch import ROOT, MemorySampler, command, environment, pin

CORES = 2
STEPS = ("generate", "prepare", "profile")
TIMEOUT_S = 3600
CSV_FILES = 8
TIMES = ("ns", "iso")  # how the raw files write them
JOB = """
[left]
kind = "synthetic"
tuples = {tuples}
window = "600 s"
[right]
kind = "synthetic"
tuples = {tuples}
[output]
results = "count"
"""


def measure(rows: int, steps: list[str], repeat: int, folder: Path) -> Iterator[tuple[str, dict[str, float]]]:
    """(step, its figures), one after the other."""
    job, streams = folder / "job.toml", folder / "streams"
    job.write_text(JOB.format(tuples=rows // 2))
    made = timed(mpijoin("generate", str(job), "-o", str(streams)))
    if "generate" in steps:
        yield "generate", figures(rows, [made])
    for times in TIMES if "prepare" in steps else ():
        yield from measure_prepare(rows // 2, times, repeat, streams / "left", folder).items()
    if "profile" in steps:
        command = mpijoin("profile", str(streams / "job.toml"), "-o", str(folder / "profile"), "--no-figures")
        yield "profile", figures(rows, [timed(command)])


def measure_prepare(rows: int, times: str, repeat: int, stream: Path, folder: Path) -> dict[str, dict[str, float]]:
    """prepare, Spark and DuckDB in turn, `repeat` times."""
    raw, output = folder / f"raw-{times}", folder / "prepared"
    write_raw(stream, raw, times)
    unit = ["--unit", "ns"] if times == "ns" else ["--precision", "us"]
    arguments = ["--time", "ts", *unit, "--key", "key", "--columns", "ts,key:int", "--where", "key >= 0"]
    by_hand = [sys.executable, str(ROOT / "scripts/peers/prepare_by_hand.py")]
    done: dict[str, list[Done]] = {}
    for _ in range(repeat):
        for system in ("mpijoin", "spark", "duckdb"):
            own = [*by_hand, system, times, str(raw), str(output), str(CORES)]
            command = mpijoin("prepare", str(raw), "-o", str(output), *arguments) if system == "mpijoin" else own
            done.setdefault(system, []).append(timed(command))
            if system == "mpijoin":
                check_same(stream, output / "data", times)
            shutil.rmtree(output, ignore_errors=True)
    return {f"prepare {times} {system}": figures(rows, own) for system, own in done.items()}


@dataclass(frozen=True)
class Done:
    seconds: float
    cpu_s: float
    memory_bytes: int


def mpijoin(*arguments: str) -> list[str]:
    return command(0, *arguments)


def timed(arguments: list[str]) -> Done:
    """Runs a command on CORES cores. SystemExit if it fails."""
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    start_s = time.monotonic()
    with subprocess.Popen(
        [sys.executable, str(ROOT / "scripts/peers/cpu_of.py"), *arguments], env=environment(), preexec_fn=pin(cores),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:
        sampler = MemorySampler(process.pid, ("python", "java"))
        text, _ = process.communicate(timeout=TIMEOUT_S)
    took_s, most_bytes = time.monotonic() - start_s, sampler.stop()
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {process.returncode}:\n{text}")
    return Done(took_s, float(text.split()[-1]), most_bytes)


def figures(rows: int, done: list[Done]) -> dict[str, float]:
    """Medians."""
    took_s = statistics.median(one.seconds for one in done)
    cpu_s = statistics.median(one.cpu_s for one in done)
    memory_mb = round(max(one.memory_bytes for one in done) / 1e6)
    speed = {"seconds": round(took_s, 1), "cpu_s": round(cpu_s, 1), "rows_per_s": round(rows / took_s)}
    return {"rows": rows, **speed, "memory_mb": memory_mb}


def write_raw(stream: Path, raw: Path, times: str) -> None:
    """The stream as CSV files, its blocks of rows shuffled and dealt to the files at random."""
    raw.mkdir()
    random = np.random.default_rng(1)
    kind = pa.int64() if times == "ns" else pa.string()
    schema = pa.schema([("ts", kind), ("key", pa.int64())])
    writers = [pa.csv.CSVWriter(raw / f"{number}.csv", schema) for number in range(CSV_FILES)]
    for batch in ds.dataset(stream).to_batches(batch_size=1 << 18):
        moments = batch["ts"].cast(pa.int64())
        if times == "iso":
            moments = pc.strftime(
                moments.cast(pa.timestamp("ns")).cast(pa.timestamp("us"), safe=False), "%Y-%m-%dT%H:%M:%S"
            )
        table = pa.table({"ts": moments, "key": batch["key"]})
        writers[random.integers(CSV_FILES)].write_table(table.take(random.permutation(len(table))))
    for writer in writers:
        writer.close()


def check_same(stream: Path, prepared: Path, times: str) -> None:
    """SystemExit unless rows, sums and order are those of the stream."""
    wanted, found = (ds.dataset(path).to_table(columns=["ts", "key"]) for path in (stream, prepared))
    moments = [np.asarray(table["ts"].cast(pa.int64())) for table in (wanted, found)]
    if times == "iso":
        moments[0] = moments[0] // 1000
    keys = [pc.sum(table["key"]).as_py() for table in (wanted, found)]
    if not (np.array_equal(*moments) and keys[0] == keys[1]):
        raise SystemExit("mpijoin prepare lost or changed rows")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", type=float, default=[10e6, 100e6], help="of both streams together")
    parser.add_argument("--steps", default=",".join(STEPS), help="some of generate, prepare, profile (default: all)")
    parser.add_argument(
        "--repeat", type=int, default=3, help="how often prepare and its peers run; medians count (default: 3)"
    )
    parser.add_argument("--folder", help="where the data goes, gone afterwards (default: the temporary folder)")
    parser.add_argument("-o", "--output", help="where to write the figures as JSON")
    arguments = parser.parse_args()
    found: dict[int, dict[str, dict[str, float]]] = {}
    for rows in map(int, arguments.rows):
        found[rows] = {}
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            for step, one in measure(rows, arguments.steps.split(","), arguments.repeat, Path(folder)):
                found[rows][step] = one
                print(
                    f"{step:19} {one['rows']:13,} rows {one['seconds']:8.1f} s {one['cpu_s']:8.1f} CPU s "
                    f"{one['rows_per_s']:11,} rows/s {one['memory_mb']:6,} MB",
                    flush=True,
                )
    if arguments.output:
        Path(arguments.output).write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
