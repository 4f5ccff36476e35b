"""What a policy may ask for: a plan is data, carried out by the master."""

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


@dataclass(frozen=True)
class Plan:
    """active: the slaves that shall be active from now on, None: those that are. Moves must leave no group with one
    that is not. A slave counts as active while it has groups, whatever the plan says. memory: an immutable value that
    the next view brings back; plans that want the same are equal whatever the policy remembers."""

    moves: tuple[Move, ...] = ()
    active: tuple[int, ...] | None = None
    memory: Any = field(default=None, compare=False)


Policy = Callable[[ClusterView], Plan]
