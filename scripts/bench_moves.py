"""Measures what a move of a partition group costs: its transfer, beside raw MPI, and the pause of its input.

    mpirun -n 3 python scripts/bench_moves.py [--rate N] [--seconds N] [-o FILE.json]

The run is paced (64-byte tuples, epochs of 1 s, reorganization every 4 s). A policy made for this measurement moves a
group to and fro, one at each reorganization. The raw bandwidth is measured just before, between ranks 1 and 2, in
messages as large as a State message and with the plain blocking calls of mpi4py. Like the state of a group, the memory
that is sent and filled is in no cache. For comparison, it is also measured from one buffer into one buffer, which are.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from mpi4py import MPI

import mpijoin.coordinator.start
from mpijoin.config.check import resolve
from mpijoin.config.load import load_job
from mpijoin.launch.processes import run_mpi
from mpijoin.launch.setup import prepare
from mpijoin.policy.plan import Move, Plan
from mpijoin.policy.view import ClusterView
from mpijoin.signals import SignalFlag

MESSAGE_BYTES = 8 << 20
RAW_MESSAGES = 32
RAW_ROUNDS = 3
EPOCH_S = 1
MOVES = 1  # Each reorganization moves so many groups.


def raw_bandwidth(world: MPI.Comm, buffers: int) -> float:
    """Returns the bytes per second from rank 1 to rank 2, and 0 on other ranks.

    So many buffers are sent in turn, and filled in turn.
    """
    memory = np.ones((buffers, MESSAGE_BYTES), np.uint8)
    world.Barrier()
    if world.rank not in (1, 2):
        return 0.0
    start_s = time.perf_counter()
    for message in range(RAW_MESSAGES):
        if world.rank == 1:
            world.Send(memory[message % buffers], 2)
        else:
            world.Recv(memory[message % buffers], 1)
    if world.rank == 1:
        world.Recv(memory[0, :1], 2)
    else:
        world.Send(memory[0, :1], 1)
    return RAW_MESSAGES * MESSAGE_BYTES / (time.perf_counter() - start_s)


def to_and_fro(view: ClusterView) -> Plan:
    """Moves some groups from the slave that has more of them to the other one."""
    supplier, consumer = sorted(view.active, key=lambda slave: -len(slave.groups))
    largest = sorted(supplier.groups, key=lambda group: (view.moved.get(group.group, -1), -group.state_bytes))[:MOVES]
    return Plan(tuple(Move(group.group, supplier.slave, consumer.slave) for group in largest))


def job_of(rate: int, seconds: int, path: str) -> dict:
    window_s = seconds // 3
    stream = {"kind": "synthetic", "rate": rate, "bias": 0.5, "duration": f"{seconds} s", "payload_bytes": 40}
    return {
        "left": {**stream, "window": f"{window_s} s", "seed": 1},
        "right": {**stream, "window": f"{window_s} s", "seed": 2},
        "cluster": {"partitions": 4, "distribution_epoch": f"{EPOCH_S} s", "reorganization_epoch": f"{4 * EPOCH_S} s"},
        "balance": {"policy": "balance"},
        "run": {"speed": 1},
        "output": {"path": path, "columns": ["left_row", "left_payload", "right_row", "right_payload"]},
    }


def figures(path: Path, raw: list[float], cached: list[float]) -> dict:
    moves = [one for one in pq.read_table(path / "metrics" / "moves.parquet").to_pylist() if one["outcome"] == "moved"]
    large = [one for one in moves if one["bytes"] >= MESSAGE_BYTES]
    rates = [one["bytes"] / (one["transfer_us"] / 1e6) for one in large]
    pauses_s = [(one["delivered_us"] - one["frozen_us"]) / 1e6 for one in moves]
    return {
        "moves": len(moves),
        "moved_mb": round(sum(one["bytes"] for one in moves) / 1e6, 1),
        "group_mb_max": round(max(one["bytes"] for one in moves) / 1e6, 1),
        "raw_mb_per_s": [round(rate / 1e6) for rate in raw],
        "raw_in_cache_mb_per_s": [round(rate / 1e6) for rate in cached],
        "transfer_mb_per_s_median": round(statistics.median(rates) / 1e6),
        "share_of_raw": round(statistics.median(rates) / statistics.median(raw), 2),
        "share_of_raw_wanted": 0.5,
        "pause_epochs_median": round(statistics.median(pauses_s) / EPOCH_S, 3),
        "pause_epochs_max": round(max(pauses_s) / EPOCH_S, 3),
        "pause_epochs_wanted": 2,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=60_000, help="tuples per second and stream")
    parser.add_argument("--seconds", type=int, default=45)
    parser.add_argument("-o", "--output", help="where to write the figures as JSON")
    arguments = parser.parse_args()
    world, rank = MPI.COMM_WORLD, MPI.COMM_WORLD.rank
    if world.size != 3:
        parser.error(f"got {world.size} ranks, wanted a master and two slaves: mpirun -n 3 python {sys.argv[0]}")
    raw, cached = (
        world.bcast([raw_bandwidth(world, buffers) for _ in range(RAW_ROUNDS)], 1) for buffers in (RAW_MESSAGES, 1)
    )
    mpijoin.coordinator.start.make_policy = lambda *settings: to_and_fro
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        job = load_job(job_of(arguments.rate, arguments.seconds, str(path)), [])
        exit_code = run_mpi(lambda size: prepare(job, resolve(job), size, False), SignalFlag(), False)
        if rank == 0 and exit_code == 0:
            found = json.dumps(figures(path, raw, cached), indent=1)
            print(found)
            if arguments.output:
                Path(arguments.output).write_text(found + "\n")
    return exit_code


if __name__ == "__main__":
    raise SystemExit(main())
