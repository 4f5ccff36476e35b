"""What a policy may know: the loads of the slaves and their groups over the reorganization epoch that just ended."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Mapping

from mpijoin.named import NamedTuple


class GroupView(NamedTuple):
    """One partition group."""

    group: int
    load: float
    """The share of its slave's wall time that it took, 0 to 1."""
    state_bytes: int
    """What its tuples of all streams take."""
    work: float = 0.0
    """What it took in comparisons, a unit that does not depend on how fast the slave is."""
    results: int = 0
    """So many were found in it."""
    disk_bytes: int = 0
    """What lies of it on its slave's disk."""

    @property
    def on_disk(self) -> bool:
        return self.disk_bytes > 0


class SlaveView(NamedTuple):
    """One slave."""

    slave: int
    active: bool
    """Whether it may have groups; other slaves wait idle."""
    occupancy: float
    """f_i of WSJ, section IV-C: the mean, over the distribution epochs, of what was left in the buffer / buffer memory.
    It may exceed 1 where the master holds the rest. In a run as fast as possible it is `load`."""
    load: float
    """The share of its wall time that it spent joining, 0 to 1."""
    communication: float
    """The share that it spent on communication."""
    groups: tuple[GroupView, ...]
    inflow: float = 1.0
    """Bytes that came for its groups over the epoch / bytes that it joined. Above 1 its backlog grew, below 1 it
    shrank."""
    held_bytes: int = 0
    """What it takes of its memory now: the pages of its groups, full or not."""
    memory_bytes: int | None = None
    """What it may take at most, as of now; None: it is not known."""
    parts: tuple[GroupView, ...] = ()
    """What it has of groups that are spread, which do not move."""

    @property
    def state_bytes(self) -> int:
        return sum(group.state_bytes for group in (*self.groups, *self.parts))

    @property
    def disk_bytes(self) -> int:
        return sum(group.disk_bytes for group in self.groups)

    @property
    def results(self) -> int:
        return sum(group.results for group in self.groups)


class Moving(NamedTuple):
    """What the moves of the last plan took that had any."""

    groups: int
    state_bytes: int
    periods: float
    """Reorganization epochs from the first order until the last group was at its new place."""


class ClusterView(NamedTuple):
    """All that a policy is shown."""

    period: int
    """The number of the reorganization epoch that has ended. No group changed hands within it."""
    slaves: tuple[SlaveView, ...]
    """All that there are, by rank."""
    slaves_min: int
    """So many must stay active."""
    seed: int = 0
    """The run's: "random" choices are hashes of (seed, period, slave)."""
    moved: Mapping[int, int] = MappingProxyType({})
    """Of each group the period in which it last changed hands or was refused."""
    resized: int = -1
    """The period of the last change of the degree of declustering; -1: there was none."""
    moving: Moving | None = None
    """None: nothing has moved since the last plan."""
    now_s: float = 0.0
    """The second of the run."""
    collected_s: float = 0.0
    """For so many seconds the loads were measured."""
    spread: Mapping[int, tuple[int, ...]] = MappingProxyType({})
    """Of each group of which several slaves have parts, these slaves, the first owner first."""
    may_spread: bool = False
    """Whether a policy may spread groups."""
    memory: Any = None
    """What the policy wanted to be told again; None: this is its first look."""

    @property
    def active(self) -> tuple[SlaveView, ...]:
        return tuple(slave for slave in self.slaves if slave.active)
