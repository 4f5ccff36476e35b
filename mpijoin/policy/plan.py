"""What a policy may ask for: a plan is data, which the master carries out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, NamedTuple

from mpijoin.policy.view import ClusterView


class Move(NamedTuple):
    """A group changes hands. gain: by how much the supplier's load is expected to fall."""

    group: int
    supplier: int
    consumer: int
    gain: float = 0.0


class Spill(NamedTuple):
    """A slave puts groups of about so many bytes on its disk, the first ones by this ranking, which the slave knows."""

    slave: int
    octets: int
    ranking: str


class Resize(NamedTuple):
    """These slaves shall be active from now on. Moves of the same plan must leave no group with another slave. A slave
    counts as active while it has groups, whatever a plan says."""

    active: tuple[int, ...]


Change = Move | Spill | Resize


@dataclass(frozen=True)
class Plan:
    """What shall change, in the order in which it begins; at most one `Resize`. memory: an immutable value that the
    next view brings back; plans that want the same are equal, whatever the policy remembers."""

    changes: tuple[Change, ...] = ()
    memory: Any = field(default=None, compare=False)

    @property
    def moves(self) -> tuple[Move, ...]:
        return tuple(change for change in self.changes if isinstance(change, Move))

    @property
    def active(self) -> tuple[int, ...] | None:
        """The slaves that shall be active from now on, None: those that are."""
        return next((change.active for change in self.changes if isinstance(change, Resize)), None)


Policy = Callable[[ClusterView], Plan]
