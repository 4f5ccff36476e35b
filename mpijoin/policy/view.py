"""What a policy may know: the loads of the slaves and their groups over the reorganization epoch that just ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, NamedTuple


class GroupView(NamedTuple):
    """One partition group. load: the share of its slave's wall time that it took, 0 to 1 · state_bytes: of both windows
    · work: what it took, in units that do not depend on the slave (comparisons)."""

    group: int
    load: float
    state_bytes: int
    work: float = 0.0


class SlaveView(NamedTuple):
    """One slave. active: it may have groups; others wait idle · occupancy: f_i of WSJ, section IV-C: mean over the
    epoch's distribution epochs of what was left in the buffer / buffer memory; may exceed 1 where the master holds the
    rest; in a run as fast as possible it is `load` · load: share of wall time spent joining, 0 to 1 · communication:
    likewise · inflow: bytes that came for its groups over the epoch / bytes that it joined; above 1 its backlog grew,
    below 1 it shrank."""

    slave: int
    active: bool
    occupancy: float
    load: float
    communication: float
    groups: tuple[GroupView, ...]
    inflow: float = 1.0

    @property
    def state_bytes(self) -> int:
        return sum(group.state_bytes for group in self.groups)


class Moving(NamedTuple):
    """What the moves of the last plan that had any took: so many groups and bytes were under way, from the first order
    to the last group at its new place, for so many reorganization epochs."""

    groups: int
    state_bytes: int
    periods: float


@dataclass(frozen=True)
class ClusterView:
    """period: number of the reorganization epoch that ended; no group changed hands within it · slaves: all there are,
    by rank · slaves_min: as many must stay active · seed: of the run: "random" choices are hashes of (seed, period,
    slave) · moved: group -> period in which it last changed hands or was refused · resized: period of the last change
    of the degree of declustering, -1: none yet · memory_bytes: budget of a slave's state, None: unknown · moving: None:
    nothing has moved since the last plan · memory: what the policy wanted to be told again, None: this is its first
    look."""

    period: int
    slaves: tuple[SlaveView, ...]
    slaves_min: int
    seed: int = 0
    moved: Mapping[int, int] = field(default_factory=dict)
    resized: int = -1
    memory_bytes: int | None = None
    moving: Moving | None = None
    memory: Any = None

    @property
    def active(self) -> tuple[SlaveView, ...]:
        return tuple(slave for slave in self.slaves if slave.active)
