"""A thousand real kills: jobs under mpirun are killed at random moments and resumed on other ranks until they are done.

    python scripts/soak_kills.py                              1000 kills: some two hours on two cores
    python scripts/soak_kills.py --kills 50 --seed 7
    python scripts/soak_kills.py --kills 1 --seed 7 --first 12    the twelfth job of that seed, by itself
    python scripts/soak_kills.py --kills 100 --spilling 1         only jobs that need more than their memory

Each job is drawn from the seed: its streams, policy (groups move at random), outputs and checkpoints. Some have far
less memory than they need, and spill in one form or the other. A kill hits a rank or the launcher. An undisturbed run
on one slave tells what the job must give. Certificate, results, ledger, late rows and the rows on disk are compared.
The first difference ends the soak with 1, and so does a run that fails for another reason than the kill; its run
directory is kept. The moments of kills are of the wall clock, so a seed repeats the jobs but not the course of events.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from subprocess import TimeoutExpired

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(1, str(Path(__file__).parents[1] / "tests/harness"))

import pyarrow.parquet as pq

import mpijoin
from launching import ROOT, Run

# The option "mpijoin" tells `Run.pids` which processes belong to a run.
RANDOM_MOVES = [sys.executable, "-X", "mpijoin", "-m", "mpi4py", str(ROOT / "tests/harness/run_with_random_moves.py")]
RANKS = range(2, 6)
KILLS_PER_JOB = 4  # After so many kills, a job is left alone.
END_S = 240.0  # A run that nobody kills must have ended by then.
START_S = 2.0  # Ranks need about so long to load.
TUPLES = (150_000, 500_000)
SPILLING_TUPLES = (20_000, 60_000)
WINDOWS = ("200 ms", "1500 ms")
SPILLING_WINDOWS = ("1500 ms", "10 s")
SCRATCH = "scratch"
SPILLING = 0.4  # This share of the jobs spills, unless it is said otherwise.
TOLD = (
    "launchers", "resumed from a checkpoint", "moves", "spilling jobs", "kills of spilling jobs", "spills",
    "results of clean-ups", "ends for want of memory",
)  # fmt: skip


class Difference(Exception):
    """Says that something is not as it must be."""


def job_text(chance: random.Random, spills: bool) -> str:
    """Returns a job that runs for a few seconds on a few ranks. spills: whether it needs more than its memory."""
    tuples, windows = (SPILLING_TUPLES, SPILLING_WINDOWS) if spills else (TUPLES, WINDOWS)
    streams = "".join(_stream_text(name, chance, tuples, windows) for name in ("left", "right"))
    epoch_ms = chance.choice([50, 100, 200])
    when = chance.choice(
        ["epochs = 1", "epochs = 5", 'every = "50 ms"', 'every = "300 ms"', 'every = "100 ms"\nkeep = 1']
    )
    policy = chance.choice(["none", "balance"])
    return f"""{streams}
[cluster]
partitions = {chance.choice([5, 13, 60])}
distribution_epoch = "{epoch_ms} ms"
reorganization_epoch = "{2 * epoch_ms} ms"
subgroups = {chance.choice([1, 2])}
buffer = "{chance.choice(["64 KiB", "64 MiB"])}"
[memory]
{_memory_text(chance) if spills else 'limit = "128 MiB"'}
[tuning]
block = "{chance.choice(["256 B", "256 B" if spills else "4 KiB"])}"
theta = "{chance.choice(["auto", "2 KB"])}"
[balance]
policy = "{policy}"
[checkpoint]
{when}
[output]
path = "out"
part = "{chance.choice(["20 KB", "1 MB"])}"
results = "{chance.choice(["parquet", "parquet", "collect", "count"])}"
"""


def _memory_text(chance: random.Random) -> str:
    return f"""limit = "{chance.choice([128, 256, 512])} KiB"
path = "{SCRATCH}"
spill = "{chance.choice(["generations", "generations", "rotate"])}"
threshold = {chance.choice([0.2, 0.9])}
share = {chance.choice([0.1, 0.3, 1.0])}
cleanup = {chance.choice(['"idle"', '"end"'])}"""


def _stream_text(name: str, chance: random.Random, tuples: tuple[int, ...], windows: tuple[str, ...]) -> str:
    return f"""
[{name}]
kind = "synthetic"
rate = 2000
bias = {chance.choice([0.5, 0.7])}
domain = {chance.choice([3000, 50000])}
tuples = {chance.choice(tuples)}
window = "{chance.choice(windows)}"
payload_bytes = {chance.choice([0, 40])}
disorder = "20 ms"
lateness = "{chance.choice([0, 15, 30])} ms"
seed = {chance.randrange(1000)}
"""


def wanted_of(folder: Path, text: str) -> dict:
    """Returns the summary of an undisturbed run."""
    path = folder / "undisturbed.toml"
    path.write_text(text)
    settings = [
        f'output.path="{folder}/undisturbed"',
        'output.results="count"',
        'balance.policy="none"',
        'memory.spill="off"',
        'memory.limit="128 MiB"',
        'checkpoint.every="off"',
    ]
    return mpijoin.run(path, [*settings, 'checkpoint.epochs="off"'], slaves=1).summary


def survive(folder: Path, text: str, chance: random.Random, seen: Counter) -> dict:
    """Runs the job to its end through kills, and returns its summary.

    Groups that change hands cannot spill, and these may be all that a slave has. A run that ends for want of memory
    goes on with more of it, as its message says.
    """
    more: list[str] = []
    attempt, before = 0, seen["runs"]
    while True:
        options = ["--resume"] * (seen["runs"] > before) + more
        seed = str(chance.randrange(1000))
        with Run(folder, text, chance.choice(RANKS), options, program=[*RANDOM_MOVES, seed]) as run:
            if attempt < KILLS_PER_JOB:
                kill(run, chance, seen)
            try:
                run.finish(END_S)
            except TimeoutExpired as error:
                raise Difference(f"a run had not ended after {END_S:.0f} s") from error
        seen["runs"] += 1
        if run.code == 0:
            return json.loads((run.out / "summary.json").read_text())
        if "give each slave more memory" in run.err and not more:
            seen["ends for want of memory"] += 1
            more = ["--set", 'memory.limit="128 MiB"']
            continue
        if attempt == KILLS_PER_JOB or not seen.pop("killed just now", 0):
            raise Difference(f"it failed, though nobody killed it: exit code {run.code}\n{run.err}")
        attempt += 1


def kill(run: Run, chance: random.Random, seen: Counter) -> None:
    """Kills a rank or the launcher at some moment, unless the run has ended by then."""
    seen.pop("killed just now", None)
    moment_s = time.monotonic() + chance.uniform(0.0, 2 * START_S)
    # In this way more of the kills come while tuples are joined.
    if chance.random() < 0.5:
        _wait_for_first_checkpoint(run, time.monotonic() + 5 * START_S)
        moment_s = time.monotonic() + chance.uniform(0.0, START_S / 2)
    while time.monotonic() < moment_s and run.process.poll() is None:
        time.sleep(0.002)
    victims = [run.process.pid, *run.pids()] if chance.random() < 0.2 else list(run.pids())
    if run.process.poll() is not None or not victims:
        return
    victim = chance.choice(victims)
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:  # It has just ended by itself.
        return
    seen["kills"] += 1
    seen["killed just now"] = 1
    seen["launchers"] += victim == run.process.pid


def _wait_for_first_checkpoint(run: Run, until_s: float) -> None:
    while time.monotonic() < until_s and run.process.poll() is None and not any(run.out.glob("checkpoint/[0-9]*.json")):
        time.sleep(0.005)


def compare(folder: Path, summary: dict, wanted: dict) -> None:
    """Compares a run with what it must give. Raises Difference."""
    for name in ("results", "certificate", "streams"):
        if summary[name] != wanted[name]:
            raise Difference(f"{name}: got {summary[name]}, wanted {wanted[name]}")
    for name in ("left", "right"):
        late = pq.read_metadata(folder / f"out/late/{name}.parquet").num_rows
        if late != wanted["streams"][name]["late"]:
            raise Difference(f"late/{name}.parquet: got {late} rows, wanted {wanted['streams'][name]['late']}")
    # Ranks whose launcher was killed may still be ending.
    until_s = time.monotonic() + START_S
    while left := list((folder / SCRATCH).glob("mpijoin-*")):
        if time.monotonic() > until_s:
            raise Difference(f"the end of the run has left {left} on the disk")
        time.sleep(0.01)
    if parts := list(folder.glob("out/results/*.parquet")):
        pairs = pq.read_table(parts, columns=["left_row", "right_row"])
        distinct = pairs.group_by(["left_row", "right_row"]).aggregate([]).num_rows
        if not pairs.num_rows == distinct == wanted["results"]:
            raise Difference(f"rows: got {pairs.num_rows}, {distinct} of them distinct, wanted {wanted['results']}")


def one_job(seed: int, number: int, spilling: float, seen: Counter) -> str:
    """Returns what is wrong with the job, or an empty text. Its folder stays only if something is wrong. spilling: such
    a share of all jobs spills."""
    chance, folder = random.Random(f"{seed} {number}"), Path(tempfile.mkdtemp(prefix="soak-kills-"))
    spills = random.Random(f"spills {seed} {number}").random() < spilling
    text, kills = job_text(chance, spills), seen["kills"]
    try:
        wanted = wanted_of(folder, text)
        summary = survive(folder, text, chance, seen)
        compare(folder, summary, wanted)
    except Exception as error:  # The soak is for errors of every kind.
        return f"{type(error).__name__}: {error}\njob {number} of seed {seed} is kept: {folder}"
    seen["jobs"] += 1
    seen["resumed from a checkpoint"] += summary["checkpoints"]["resumed_from"] is not None
    seen["moves"] += summary["moves"]
    seen["spilling jobs"] += spills
    seen["kills of spilling jobs"] += spills and seen["kills"] - kills
    seen["spills"] += summary["memory"]["spills"]
    seen["results of clean-ups"] += summary["memory"]["cleanup_results"]
    shutil.rmtree(folder)
    return ""


def soak(kills: int, seed: int, first: int, spilling: float) -> int:
    """Runs jobs until there were so many kills, and returns the exit code."""
    seen: Counter = Counter()
    start_s, number = time.monotonic(), first
    while seen["kills"] < kills:
        fault = one_job(seed, number, spilling, seen)
        passed_s = time.monotonic() - start_s
        print(
            f"{seen['kills']} of {kills} kills, {seen['jobs']} jobs, {seen['runs']} runs, {passed_s:.0f} s", flush=True
        )
        if fault:
            print(fault)
            return 1
        number += 1
    print(", ".join(f"{name} {seen[name]}" for name in TOLD))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, metavar="N", default=1000, help="default: 1000")
    parser.add_argument("--seed", type=int, metavar="N", default=0, help="default: 0")
    parser.add_argument("--first", type=int, metavar="N", default=0, help="number of the first job; default: 0")
    parser.add_argument(
        "--spilling", type=float, metavar="SHARE", default=SPILLING, help=f"of the jobs that spill; default: {SPILLING}"
    )
    options = parser.parse_args()
    return soak(options.kills, options.seed, options.first, options.spilling)


if __name__ == "__main__":
    sys.exit(main())
