"""Measures what checkpoints cost at state sizes from 10 MB to 2 GB: lost throughput, and the time to resume after a
kill.

    python scripts/bench_checkpoint.py [--sizes MB ...] [--pairs N] [--folder FOLDER] [-o FILE.json]

Two slaves under mpirun join two synthetic streams of uniform keys with 40 bytes of payload as fast as they can. The
window is as long as it takes for their state to reach the size. Runs with and without checkpoints alternate. The cost
of a checkpoint is the difference of the wall times, divided by the number of checkpoints written. With one checkpoint a
minute, the loss is that cost divided by 60 s.

The last run is killed (SIGKILL) after a checkpoint of the whole state, and the page cache is told to forget the files.
The time to restore everything from them is compared with the time to read the same bytes, just as cold, in the same
number of processes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Sequence

from benching.launch import TIMEOUT_S, command, environment, launch
from mpijoin.checkpoint.manifest import Manifest, numbers_in, read_manifest

SLAVES = 2
RATE = 50_000  # Each stream has so many tuples per second of event time.
# The join stores so many bytes for each tuple: time, key, row, 40 bytes of payload, and where they lie.
TUPLE_BYTES = 72
# A run is at least so many windows long, so that it has its whole state for half of its time.
FILLED = 2.0
TUPLES_LEAST = 6_000_000  # A stream has so many tuples or more, so that a run takes some seconds.
CHECKPOINTS = 4  # A run writes so many checkpoints.
SIZES_MB = (10, 100, 500, 2000)
READER_STARTS_S = 0.5  # The processes that read need this to start. It is not counted.
TARGET_LOSS, TARGET_RESTORE = 0.10, 2.0
STREAM = """\
[{name}]
kind = "synthetic"
bias = 0.5
domain = 50_000_000
rate = {rate}
payload_bytes = 40
seed = {seed}
tuples = {tuples}
window = "{window_s:.3f} s"
"""
COLUMNS = 'columns = ["left_row", "left_payload", "right_row", "right_payload"]\n'
READER = """\
import json, sys
for name, offset, octets in json.loads(sys.stdin.read()):
    with open(name, "rb", buffering=0) as file:
        file.seek(offset)
        while octets > 0:
            octets -= len(file.read(min(octets, 1 << 20)))
"""


@dataclass(frozen=True)
class Size:
    """A job whose state reaches so many bytes."""

    octets: int

    @property
    def job(self) -> str:
        # The window of a stream, in tuples.
        window = max(1000, self.octets // TUPLE_BYTES // 2)
        values = {"rate": RATE, "tuples": max(int(FILLED * window), TUPLES_LEAST), "window_s": window / RATE}
        streams = [STREAM.format(name=name, seed=seed, **values) for name, seed in (("left", 1), ("right", 2))]
        return "".join(streams) + '[memory]\nlimit = "6 GB"\n[output]\n' + COLUMNS


def measure(size: Size, folder: Path, pairs: int) -> dict[str, float]:
    """Measures one size: `pairs` pairs of runs, then a kill and a resume."""
    job, cores = folder / "job.toml", sorted(os.sched_getaffinity(0))
    job.write_text(size.job)
    plain = [launch(job, folder / "run", SLAVES + 1, cores).summary["wall_s"]]
    every = f"checkpoint.every={max(50, round(1000 * plain[0] / (CHECKPOINTS + 1)))} ms"
    saving = []
    for number in range(pairs):
        saving.append(launch(job, folder / "run", SLAVES + 1, cores, (every,)).summary)
        if number + 1 < pairs:
            plain.append(launch(job, folder / "run", SLAVES + 1, cores).summary["wall_s"])
    cost_s = [(one["wall_s"] - statistics.median(plain)) / max(1, one["checkpoints"]["written"]) for one in saving]
    return {
        "state_mb": max(sum(slave["window_bytes_max"] for slave in one["per_slave"].values()) for one in saving) / 1e6,
        "wall_s": statistics.median(plain),
        "checkpoints": statistics.median(one["checkpoints"]["written"] for one in saving),
        "written_mb": statistics.median(one["checkpoints"]["bytes"] for one in saving) / 1e6,
        "pause_s_max": max(one["checkpoints"]["pause_s_max"] for one in saving),
        "cost_s": statistics.median(cost_s),
        "loss_at_one_a_minute": statistics.median(cost_s) / 60,
        **restart(job, folder / "run", cores, every),
    }


def restart(job: Path, output: Path, cores: Sequence[int], every: str) -> dict[str, float]:
    """Kills a run once the newest checkpoint holds the whole state, and resumes it."""
    options = ["--set", f"output.path={json.dumps(str(output))}", "--set", every]
    kill = subprocess.Popen(
        command(SLAVES + 1, "run", str(job), "--overwrite", *options), env=environment(), stderr=subprocess.PIPE
    )
    wait_for_checkpoint(output, CHECKPOINTS - 1, kill)
    kill.kill()  # The ranks of mpirun die with it.
    kill.wait(TIMEOUT_S)
    folder = output / "checkpoint"
    manifest = read_manifest(folder, numbers_in(folder)[0])
    read_s = min(read_cold(folder, manifest) for _ in range(2))
    forget(folder, manifest)
    done = subprocess.run(
        command(SLAVES + 1, "run", str(job), "--resume", *options),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if done.returncode:
        raise SystemExit(f"the resumed run ended with {done.returncode}:\n{done.stderr}")
    restore_s = json.loads((output / "summary.json").read_text())["checkpoints"]["restore_s"]
    return {
        "restored_mb": manifest.octets / 1e6,
        "read_s": read_s,
        "restore_s": restore_s,
        "restore_to_read": restore_s / read_s,
    }


def wait_for_checkpoint(output: Path, number: int, process: subprocess.Popen) -> None:
    manifest = output / "checkpoint" / f"{number:05d}.json"
    while not manifest.exists():
        if process.poll() is not None:
            raise SystemExit(f"the run ended before checkpoint {number}:\n{process.stderr.read().decode()}")
        time.sleep(0.01)


def forget(folder: Path, manifest: Manifest) -> None:
    """Makes the page cache drop a checkpoint's files, so that whoever reads them next reads from the disk."""
    for name in manifest.files:
        handle = os.open(folder / name, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def read_cold(folder: Path, manifest: Manifest) -> float:
    """Returns the seconds to read a checkpoint from the disk, in as many processes as there are slaves."""
    forget(folder, manifest)
    spans: list[list] = [[] for _ in range(SLAVES)]
    for group in manifest.groups:
        spans[group.slave - 1] += [[str(folder / span.file), span.offset, span.octets] for span in group.spans]
    readers = [subprocess.Popen([sys.executable, "-c", READER], stdin=subprocess.PIPE, text=True) for _ in spans]
    time.sleep(READER_STARTS_S)
    start_s = time.perf_counter()
    for reader, own in zip(readers, spans):
        reader.stdin.write(json.dumps(own))
        reader.stdin.close()
    for reader in readers:
        reader.wait(TIMEOUT_S)
    return time.perf_counter() - start_s


def text_of(found: dict[int, dict[str, float]]) -> str:
    head = "| state MB | checkpoint MB | cost s | longest pause s | loss at one a minute | restore s | / reading |"
    lines = [head, "|---|---|---|---|---|---|---|"]
    for one in found.values():
        each_mb = one["written_mb"] / max(1, one["checkpoints"])
        figures = f"{one['state_mb']:.0f} | {each_mb:.0f} | {one['cost_s']:.2f} | {one['pause_s_max']:.2f}"
        loss = f"{100 * one['loss_at_one_a_minute']:.1f} %"
        lines.append(f"| {figures} | {loss} | {one['restore_s']:.2f} | {one['restore_to_read']:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=SIZES_MB, metavar="MB", help="state of both slaves together"
    )
    parser.add_argument("--pairs", type=int, default=3, help="pairs of runs with and without checkpoints (default: 3)")
    parser.add_argument("--folder", help="where runs are written (default: a temporary folder)")
    parser.add_argument("-o", dest="output", help="all figures as JSON")
    options = parser.parse_args()
    found: dict[int, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for size in options.sizes:
            found[size] = measure(Size(size * 1_000_000), Path(folder), options.pairs)
            print(f"{size} MB: {json.dumps(found[size])}", file=sys.stderr, flush=True)
    print(text_of(found))
    worst_loss = max(one["loss_at_one_a_minute"] for one in found.values())
    worst_restore = max(one["restore_to_read"] for one in found.values())
    print(f"loss at one a minute: at most {100 * worst_loss:.1f} %, wanted under {100 * TARGET_LOSS:.0f} %")
    print(f"restore / reading: at most {worst_restore:.2f}, wanted at most {TARGET_RESTORE:g}")
    if options.output:
        Path(options.output).write_text(json.dumps({"command": " ".join(sys.argv), "sizes": found}, indent=2))


if __name__ == "__main__":
    main()
