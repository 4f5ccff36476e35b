"""What a policy may ask for: a plan is data, which the master carries out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable

from mpijoin.config.job import LARGEST, LEAST_PRODUCTIVE, MOST_PRODUCTIVE, RANDOM
from mpijoin.named import NamedTuple
from mpijoin.policy.view import ClusterView

# The orders in which a slave may choose groups (spill/ranking.py).
RANKINGS = (LEAST_PRODUCTIVE, MOST_PRODUCTIVE, LARGEST, RANDOM)


class Move(NamedTuple):
    """A group changes hands. gain: by how much the supplier's load is expected to fall."""

    group: int
    supplier: int
    consumer: int
    gain: float = 0.0


class Relocate(NamedTuple):
    """About so many bytes of state change hands. The supplier chooses the groups: the first ones by this ranking,
    so far as they fit. LAD, section 2: the coordinator decides "how many states to relocate from one processor to the
    other but not which partition groups"."""

    supplier: int
    consumer: int
    octets: int
    ranking: str


class Spill(NamedTuple):
    """A slave puts groups of about so many bytes on its disk, the first ones by this ranking."""

    slave: int
    octets: int
    ranking: str


class Spread(NamedTuple):
    """More slaves, the consumers, get parts of a group, one after the other: producers deal the rows of one stream
    among all slaves that have parts. The supplier has the group, or was the first to have it. why: in words."""

    group: int
    supplier: int
    consumers: tuple[int, ...]
    why: str = ""


class Gather(NamedTuple):
    """A member of a group that is spread gives its part back to the first one. why: in words, for the log."""

    group: int
    member: int
    why: str = ""


class Resize(NamedTuple):
    """These slaves shall be active from now on. Moves of the same plan must leave no group with another slave. A slave
    counts as active while it has groups, whatever a plan says."""

    active: tuple[int, ...]


Change = Move | Relocate | Spill | Spread | Gather | Resize


class Collect(NamedTuple):
    """For how long loads are measured next. Flux, section 5.3: "The duration of the next collection phase is set to the
    length of the previous move phase", which is known when the plan's moves have ended."""

    unmoved_s: float
    """... where the plan moves nothing."""
    least_s: float
    """It is never shorter than this."""


@dataclass(frozen=True)
class Plan:
    """What shall change, in the order in which it begins; at most one `Resize`. memory: an immutable value that the
    next view brings back; plans that want the same are equal, whatever the policy remembers."""

    changes: tuple[Change, ...] = ()
    memory: Any = field(default=None, compare=False)
    collect: Collect | None = None  # None: the next reorganization epoch is as long as the job says.

    @property
    def moves(self) -> tuple[Move, ...]:
        return tuple(change for change in self.changes if isinstance(change, Move))

    @property
    def spreads(self) -> tuple[Spread, ...]:
        return tuple(change for change in self.changes if isinstance(change, Spread))

    @property
    def gathers(self) -> tuple[Gather, ...]:
        return tuple(change for change in self.changes if isinstance(change, Gather))

    @property
    def relocations(self) -> tuple[Relocate, ...]:
        return tuple(change for change in self.changes if isinstance(change, Relocate))

    @property
    def spills(self) -> tuple[Spill, ...]:
        return tuple(change for change in self.changes if isinstance(change, Spill))

    @property
    def active(self) -> tuple[int, ...] | None:
        """The slaves that shall be active from now on, None: those that are."""
        return next((change.active for change in self.changes if isinstance(change, Resize)), None)


Policy = Callable[[ClusterView], Plan]
