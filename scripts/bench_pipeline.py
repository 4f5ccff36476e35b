"""How fast the pipeline is: rows per second of generate, prepare and profile on two cores, and memory as the data grows.

    python scripts/bench_pipeline.py [--rows 10e6 100e6] [--steps generate,prepare,profile] [-o FILE.json] [--folder FOLDER]

For each number of rows: `mpijoin generate` makes two streams of half as many (Poisson, b-model keys); one of them becomes
shuffled CSV and goes through `mpijoin prepare`, whose output must hold the same rows, counted and summed; `mpijoin profile`
looks at both. Times are of whole commands, start of Spark included (about 5 s). Memory is the greatest sum of proportional set
sizes of the Java and Python processes; Spark's own heap is at most 2 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset as ds

from benching.launch import MemorySampler, command, environment, pin

CORES = 2
STEPS = ("generate", "prepare", "profile")
TIMEOUT_S = 3600
CSV_FILES = 8
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


def measure(rows: int, steps: list[str], folder: Path) -> dict[str, dict[str, float]]:
    job, streams = folder / "job.toml", folder / "streams"
    job.write_text(JOB.format(tuples=rows // 2))
    found = {}
    made = timed("generate", str(job), "-o", str(streams))
    if "generate" in steps:
        found["generate"] = figures(rows, made)
    if "prepare" in steps:
        raw = folder / "raw"
        write_raw(streams / "left", raw)
        arguments = ("--time", "ts", "--unit", "ns", "--key", "key", "--columns", "ts,key:int")
        done = timed("prepare", str(raw), "-o", str(folder / "prepared"), *arguments)
        check_same(streams / "left", folder / "prepared/data")
        found["prepare"] = figures(rows // 2, done)
    if "profile" in steps:
        found["profile"] = figures(rows, timed("profile", str(streams / "job.toml"), "-o", str(folder / "profile"), "--no-figures"))
    return found


def timed(*arguments: str) -> tuple[float, int]:
    """Runs a command of mpijoin on CORES cores; the seconds it took and its greatest memory. SystemExit if it fails."""
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    start_s = time.monotonic()
    with subprocess.Popen(
        command(0, *arguments), env=environment(), preexec_fn=pin(cores), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        sampler = MemorySampler(process.pid, ("python", "java"))
        text, _ = process.communicate(timeout=TIMEOUT_S)
    took_s, most_bytes = time.monotonic() - start_s, sampler.stop()
    if process.returncode:
        raise SystemExit(f"mpijoin {' '.join(arguments)} ended with {process.returncode}:\n{text}")
    return took_s, most_bytes


def figures(rows: int, done: tuple[float, int]) -> dict[str, float]:
    took_s, most_bytes = done
    return {"rows": rows, "seconds": round(took_s, 1), "rows_per_s": round(rows / took_s), "memory_mb": round(most_bytes / 1e6)}


def write_raw(streams: Path, raw: Path) -> None:
    """The stream as CSV files, its blocks of rows shuffled and dealt to the files at random."""
    raw.mkdir()
    random = np.random.default_rng(1)
    writers = [pa.csv.CSVWriter(raw / f"{number}.csv", pa.schema([("ts", pa.int64()), ("key", pa.int64())])) for number in range(CSV_FILES)]
    for batch in ds.dataset(streams).to_batches(batch_size=1 << 18):
        table = pa.table({"ts": batch["ts"].cast(pa.int64()), "key": batch["key"]})
        writers[random.integers(CSV_FILES)].write_table(table.take(random.permutation(len(table))))
    for writer in writers:
        writer.close()


def check_same(streams: Path, prepared: Path) -> None:
    """SystemExit unless rows, sums and order are those of the stream."""
    wanted, found = (ds.dataset(path).to_table(columns=["ts", "key"]) for path in (streams, prepared))
    times = [np.asarray(table["ts"].cast(pa.int64())) for table in (wanted, found)]
    keys = [pc.sum(table["key"]).as_py() for table in (wanted, found)]
    if not (np.array_equal(*times) and keys[0] == keys[1]):
        raise SystemExit("mpijoin prepare lost or changed rows")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", type=float, default=[10e6, 100e6], help="of both streams together")
    parser.add_argument("--steps", default=",".join(STEPS), help="some of generate, prepare, profile (default: all)")
    parser.add_argument("--folder", help="where the data goes, gone afterwards (default: the temporary folder)")
    parser.add_argument("-o", "--output", help="where to write the figures as JSON")
    arguments = parser.parse_args()
    found = {}
    for rows in map(int, arguments.rows):
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            found[rows] = measure(rows, arguments.steps.split(","), Path(folder))
        for step, one in found[rows].items():
            print(f"{step:9} {one['rows']:13,} rows {one['seconds']:8.1f} s {one['rows_per_s']:11,} rows/s {one['memory_mb']:6,} MB", flush=True)
    if arguments.output:
        Path(arguments.output).write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
