"""Checks that every rank stays within the memory that the job's fields name, however wide the rows are.

    python scripts/bench_memory.py                          payloads of 0, 500, 2000 and 8000 bytes: some minutes
    python scripts/bench_memory.py --widths 8000 --megabytes 200

There are two streams of strings. For every width they have the same number of megabytes, and all rows of a file are in
one row group. They are joined locally and under mpirun, as fast as possible and paced.

A rank may hold what the fields of the job add up to, and 150 MB for Python and its libraries. The master may hold
`master_buffer` and what is on its way to the slaves (a `buffer` for each), and a slave its `limit` and its `buffer`.
If the ranks are threads of one process, it may hold all of these together. The program prints the greatest proportional
set size of each rank, the second of the first results, and the bound. It exits with 1 if a rank exceeds its bound.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Iterator, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benching.launch import TIMEOUT_S, command, environment, family, pss_bytes, rank_of

RATE_PER_S, SPAN_KEYS, WINDOW_S = 1000, 50_000, 1.0
MASTER_BUFFER, BUFFER, MEMORY = 64 << 20, 32 << 20, 128 << 20
RANK_BYTES = 150_000_000  # Python, the libraries and the kernels of one process take so much.
SLAVES = 2
NARROW_BYTES = 24  # A row without payload has so many bytes: time, key, number.
PACED_S = 12  # A paced run should take so long.
SAMPLE_S = 0.05
KEY_CHARACTERS = 12  # So many characters of each payload differ from those of the others.
JOB = """\
[left]
path = {left}
key = "key"
window = "{window} s"
[right]
path = {right}
key = "key"
window = "{window} s"
[cluster]
master_buffer = "{master_buffer} B"
buffer = "{buffer} B"
[memory]
limit = "{memory} B"
"""


class Case(NamedTuple):
    """One run. width: bytes of payload · ranks: 0 means local · speed: "max", or event seconds per second."""

    width: int
    ranks: int
    speed: str


class Found(NamedTuple):
    """What was found in one run.

    pss: the greatest proportional set size of each process, by its rank · first_s: the seconds from the clock's start
    to the first results, by the metrics.
    """

    pss: dict[int, int]
    wall_s: float
    first_s: float


def write_stream(path: Path, width: int, rows: int, seed: int) -> None:
    """Writes rows in the order of time.

    Their payloads differ, so that no dictionary can hold them, but compress well, so that they need little disk.
    """
    random = np.random.default_rng(seed)
    schema = pa.schema([("ts", pa.timestamp("us")), ("key", pa.int64()), ("text", pa.string())])
    with pq.ParquetWriter(path, schema if width else schema.remove(2)) as writer:
        times = np.sort(random.integers(0, rows * 1_000_000 // RATE_PER_S, rows)).astype("M8[us]")
        keys = random.integers(0, SPAN_KEYS, rows)
        columns = [pa.array(times), pa.array(keys)]
        if width:
            columns.append(pa.chunked_array(list(_texts(rows, width))))
        writer.write_table(pa.Table.from_arrays(columns, schema=writer.schema), row_group_size=rows)


def _texts(rows: int, width: int, block: int = 10_000) -> Iterator[pa.Array]:
    for start in range(0, rows, block):
        yield pa.array(
            [f"{number:0>{KEY_CHARACTERS}}".ljust(width, "x") for number in range(start, min(rows, start + block))]
        )


def bound_bytes(ranks: int, rank: int) -> int:
    """Returns the bytes that the process of this rank may hold."""
    master, slave = MASTER_BUFFER + SLAVES * BUFFER, MEMORY + BUFFER
    if not ranks:
        return RANK_BYTES + master + SLAVES * slave
    return RANK_BYTES + (slave if rank else master)


def run(case: Case, job: Path, folder: Path) -> Found:
    """Runs the job and samples its processes."""
    options = ["--set", f"run.speed={case.speed}", "--set", f"output.path={json.dumps(str(folder))}"]
    started = time.monotonic()
    line = command(case.ranks, "run", str(job), *options)
    with subprocess.Popen(
        line, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        pss: dict[int, int] = {}
        try:
            while process.poll() is None and time.monotonic() - started < TIMEOUT_S:
                for one in family(process.pid):
                    rank = rank_of(one) if case.ranks else 0
                    pss[rank] = max(pss.get(rank, 0), pss_bytes(one, ("python", "mpijoin")))
                time.sleep(SAMPLE_S)
        finally:
            process.kill()  # The ranks of mpirun die with it.
        text = process.stdout.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(line)} ended with {process.returncode}:\n{text}")
    pss.pop(-1, None)
    return Found(pss, time.monotonic() - started, first_results_s(folder))


def first_results_s(folder: Path) -> float:
    """Returns when the first epoch ended that brought results to any slave."""
    ends = []
    for path in (folder / "metrics").glob("rank-*.parquet"):
        table = pq.read_table(path, columns=["role", "end_us", "results"]).to_pylist()
        ends += [row["end_us"] / 1e6 for row in table if row["role"] == "slave" and row["results"]][:1]
    return min(ends, default=float("nan"))


def cases(widths: list[int], rows: dict[int, int]) -> Iterator[Case]:
    for width in widths:
        for ranks in (0, 1 + SLAVES):
            yield Case(width, ranks, '"max"')
            yield Case(width, ranks, f"{rows[width] / RATE_PER_S / PACED_S:.6g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--widths", type=int, nargs="+", default=[0, 500, 2000, 8000], help="bytes of payload per row")
    parser.add_argument("--megabytes", type=int, default=800, help="of each stream, whatever the width")
    parser.add_argument("--results", default="parquet", choices=("parquet", "collect", "count"))
    arguments = parser.parse_args()
    # Narrow rows get a tenth of the bytes. Even so they are many.
    rows = {
        width: arguments.megabytes * 10**6 // (width + NARROW_BYTES) // (1 if width else 10)
        for width in arguments.widths
    }
    exceeded = False
    print("payload B       rows  launch     speed   master MB (bound)  slaves MB (bound)  first s  wall s")
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
        folder = Path(name)
        compile_kernels(folder, arguments.results)
        for case in cases(arguments.widths, rows):
            job = make_job(folder, case.width, rows[case.width], arguments.results)
            found = run(case, job, folder / "run")
            shutil.rmtree(folder / "run")
            print(line_of(case, rows[case.width], found), flush=True)
            exceeded |= any(held > bound_bytes(case.ranks, rank) for rank, held in found.pss.items())
    sys.exit(1 if exceeded else 0)


def compile_kernels(folder: Path, results: str) -> None:
    """Compiles the kernels before anything is measured, because compiling takes more memory than joining."""
    job = make_job(folder, KEY_CHARACTERS, 1000, results)
    run(Case(KEY_CHARACTERS, 0, '"max"'), job, folder / "run")
    shutil.rmtree(folder / "run")


def make_job(folder: Path, width: int, rows: int, results: str) -> Path:
    """Returns the job of a width. Its streams are written once, and those of other widths are removed."""
    job = folder / f"job-{width}.toml"
    if not job.exists():
        for old in folder.glob("*.parquet"):
            old.unlink()
        files = {}
        for seed, name in enumerate(("left", "right")):
            files[name] = json.dumps(str(folder / f"{name}-{width}.parquet"))
            write_stream(Path(json.loads(files[name])), width, rows, seed)
        fields = {"window": WINDOW_S, "master_buffer": MASTER_BUFFER, "buffer": BUFFER, "memory": MEMORY}
        job.write_text(JOB.format(**files, **fields) + f'[output]\nresults = "{results}"\n')
    return job


def line_of(case: Case, rows: int, found: Found) -> str:
    master, slaves = found.pss[0], [held for rank, held in found.pss.items() if rank]
    own = f"{master / 1e6:9.0f} ({bound_bytes(case.ranks, 0) / 1e6:.0f})"
    theirs = f"{max(slaves) / 1e6:9.0f} ({bound_bytes(case.ranks, 1) / 1e6:.0f})" if slaves else "in the same"
    launch, speed = f"mpirun -n {case.ranks}" if case.ranks else "local", "max" if "max" in case.speed else "paced"
    return (
        f"{case.width:9} {rows:10}  {launch:11} {speed:6} {own:>17} {theirs:>18} {found.first_s:8.2f}"
        f" {found.wall_s:7.1f}"
    )


if __name__ == "__main__":
    main()
