"""What a policy may ask for: a plan is data, carried out by the master."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, NamedTuple

from mpijoin.policy.view import ClusterView


class Move(NamedTuple):
    """A group changes hands. gain: by how much the supplier's load is expected to fall."""

    group: int
    supplier: int
    consumer: int
    gain: float = 0.0


@dataclass(frozen=True)
class Plan:
    """active: the slaves that shall be active from now on, None: those that are. Moves must leave no group with one that
    is not. A slave counts as active while it has groups, whatever the plan says."""

    moves: tuple[Move, ...] = ()
    active: tuple[int, ...] | None = None


Policy = Callable[[ClusterView], Plan]
