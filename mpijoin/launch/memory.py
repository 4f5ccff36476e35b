"""How much memory a slave has for its windows, and where its rows on disk lie: as told before a run, and at its
start."""

from __future__ import annotations

import os
from typing import Iterator, Mapping

from mpijoin.config.job import AT_END, GENERATIONS, Job
from mpijoin.config.units import format_duration, format_size
from mpijoin.launch.setup import RunSetup
from mpijoin.limits import address_space_share
from mpijoin.node_memory import LEAST_BYTES, Needs, held_bytes, node_memory, ranks_on_node, slave_memory_bytes
from mpijoin.rank import Rank
from mpijoin.spill.scratch import choose_root
from mpijoin.transport.guard import launched_by_mpi


def memory_lines(job: Job, environ: Mapping[str, str] = os.environ) -> Iterator[str]:
    """What `mpijoin check` says of [memory], on this node."""
    memory = job.memory
    if memory.limit_bytes is None:
        node = node_memory(environ)
        yield f"memory  auto: the ranks of a node like this one share {node.octets / 1e9:.3g} GB ({node.by})"
    else:
        yield f"memory  {format_size(memory.limit_bytes)} for the windows of each slave"
    if not memory.spills:
        return
    if memory.spill == GENERATIONS:
        later = "clean-up at the end" if memory.cleanup == AT_END else "clean-up when idle, and at the end"
    else:
        gap = "as long as the last one took" if memory.gap_ns is None else format_duration(memory.gap_ns)
        later = f"between two activations {gap}"
    root = choose_root(memory.path, environ)
    yield f"spill   {memory.spill}, to {root.path} ({root.why}); {later}"
    yield f"        from {memory.threshold:.0%} of the memory on, {memory.share:.0%} at once, {memory.rank} first"


def memory_of_slave(setup: RunSetup, rank: Rank) -> int:
    """Returns the bytes that this slave may use for its windows, and logs why: those of the job, or its share of the
    memory that the node, the control groups and Slurm allow."""
    if setup.job.memory.limit_bytes is None:
        return _memory_left(setup, rank)
    rank.log.info("memory for windows: %.3g MB, as the job says", setup.job.memory.limit_bytes / 1e6)
    return setup.job.memory.limit_bytes


def _memory_left(setup: RunSetup, rank: Rank) -> int:
    cluster = setup.job.cluster
    ranks = ranks_on_node(os.environ, setup.roles.size)
    processes = ranks if launched_by_mpi(os.environ) else 1
    slaves = min(ranks, len(setup.roles.slaves))
    needs = Needs(held_bytes(), processes, slaves, cluster.master_buffer_bytes, cluster.buffer_bytes)
    node = node_memory(os.environ)
    share = max(LEAST_BYTES, address_space_share(slaves if processes == 1 else 1))
    memory_bytes = int(min(slave_memory_bytes(node.octets, ranks, needs), share))
    rank.log.info(
        "memory for windows: %.3g MB; the %d ranks here may take %.3g MB (%s), and %.3g MB of it are for all else",
        *(memory_bytes / 1e6, ranks, node.octets / 1e6, node.by, needs.total_bytes / 1e6),
    )
    if needs.total_bytes + slaves * memory_bytes > node.octets:
        rank.log.warning("that may be too little: give the job more memory, or it fewer ranks, or smaller buffers")
    return memory_bytes
