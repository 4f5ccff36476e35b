"""Measures MPI's bandwidth between two ranks: mpirun -n 2 python bandwidth.py TOTAL_BYTES MESSAGE_BYTES...

Rank 0 prints one line of JSON: bytes per second for each size of message. TOTAL_BYTES are sent three times, and the
best time counts.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from mpi4py import MPI

ROUNDS = 3
UNDER_WAY = 2  # So many messages are under way at a time, as in a run: one to join, and one that waits.


def seconds_of(world: MPI.Comm, size: int, messages: int) -> float:
    """Returns the seconds to send so many messages from rank 0 to rank 1, once both are ready."""
    buffers, peer = np.ones((UNDER_WAY, size), np.uint8), 1 - world.rank
    begin = world.Isend if world.rank == 0 else world.Irecv
    world.Barrier()
    start = time.perf_counter()
    requests = [begin([buffer, MPI.BYTE], peer) for buffer in buffers]
    for number in range(messages):
        requests[number % UNDER_WAY].Wait()
        if number + UNDER_WAY < messages:
            requests[number % UNDER_WAY] = begin([buffers[number % UNDER_WAY], MPI.BYTE], peer)
    world.Barrier()
    return time.perf_counter() - start


def main(total: int, *sizes: int) -> None:
    world = MPI.COMM_WORLD
    counts = {size: max(UNDER_WAY, total // size) for size in sizes}
    best_s = {size: min(seconds_of(world, size, count) for _ in range(ROUNDS)) for size, count in counts.items()}
    if world.rank == 0:
        print(json.dumps({size: size * counts[size] / seconds for size, seconds in best_s.items()}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
