"""How much memory a slave has for its windows, and where its rows on disk lie: as told before a run, and at its
start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, Iterator, Mapping

from mpijoin.config.job import AT_END, GENERATIONS, Job
from mpijoin.config.units import format_duration, format_size
from mpijoin.launch.roles import RunSetup
from mpijoin.limits import address_space_share
from mpijoin.named import NamedTuple
from mpijoin.node_memory import (
    LEAST_BYTES,
    ROOT,
    Allowed,
    Needs,
    held_bytes,
    node_memory,
    ranks_on_node,
    slave_memory_bytes,
)
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


class SlaveMemory(NamedTuple):
    """octets: of a slave for its windows, at the start · allowed: says how many bytes the node allows it now; None
    where the job itself sets the limit."""

    octets: int
    allowed: Callable[[], int] | None = None


def memory_of_slave(setup: RunSetup, rank: Rank, root: Path = ROOT) -> SlaveMemory:
    """Returns the memory of this slave, and logs why it is so much. It is the job's limit, or the slave's share of what
    the node, the control groups and Slurm allow. root: as for `node_memory`."""
    limit_bytes = setup.job.memory.limit_bytes
    if limit_bytes is not None:
        rank.log.info("memory for windows: %.3g MB, as the job says", limit_bytes / 1e6)
        return SlaveMemory(limit_bytes)
    share = NodeShare(setup, rank, root)
    return SlaveMemory(share.now(), share.now)


class NodeShare:
    """A slave's share of the memory that the ranks of its node may take, which may change while they run."""

    def __init__(self, setup: RunSetup, rank: Rank, root: Path = ROOT):
        cluster = setup.job.cluster
        self._log, self._root = rank.log, root
        self._ranks = ranks_on_node(os.environ, setup.roles.size)
        processes = self._ranks if launched_by_mpi(os.environ) else 1
        slaves = min(self._ranks, len(setup.roles.slaves))
        self._needs = Needs(held_bytes(), processes, slaves, cluster.master_buffer_bytes, cluster.buffer_bytes)
        self._address_space = max(LEAST_BYTES, address_space_share(slaves if processes == 1 else 1))
        self._node: Allowed | None = None

    def now(self) -> int:
        """Returns the bytes for this slave's windows. Logs them, and the reason, if they are others than before."""
        node, needs = node_memory(os.environ, self._root), self._needs
        octets = int(min(slave_memory_bytes(node.octets, self._ranks, needs), self._address_space))
        if node != self._node:
            self._node = node
            self._log.info(
                "memory for windows: %.3g MB; the %d ranks here may take %.3g MB (%s), and %.3g MB of it are for all"
                " else",
                *(octets / 1e6, self._ranks, node.octets / 1e6, node.by, needs.total_bytes / 1e6),
            )
            if needs.total_bytes + needs.slaves * octets > node.octets:
                self._log.warning("that may be too little: give the job more memory, fewer ranks, or smaller buffers")
        return octets
