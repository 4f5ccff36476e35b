"""The Operator contract: all that distribution, moving, spill, checkpoints, simulation and tests know of a join.

An operator holds the state of *groups* (partitions) of several streams. It is driven in rounds: `insert` batches of any
streams as fresh tuples, `probe` until DONE, then `expire`. Groups are tuned, read out, installed or dropped only while
they hold no fresh tuple. Nothing here blocks, reads a clock or touches a file; memory is what the constructor was
given.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol, Sequence

import numpy as np


class Progress(IntEnum):
    """How a bounded piece of work ended: all done, the budget is spent, or the result buffer must be consumed first."""

    DONE = 0
    BUDGET = 1
    OUT_FULL = 2


class Results(NamedTuple):
    """Matched tuples by slot id, int64[n] per stream (-1: none, for outer joins); valid until the operator's next
    call."""

    left: np.ndarray
    right: np.ndarray


class GroupInfo(NamedTuple):
    """Statistics per group, int64[m] each; tuples and live_bytes are int64[m, streams], watermarks likewise."""

    tuples: np.ndarray
    live_bytes: np.ndarray
    watermarks: np.ndarray
    blocks: np.ndarray
    buckets: np.ndarray
    depth: np.ndarray
    comparisons: np.ndarray
    results: np.ndarray
    splits: np.ndarray
    merges: np.ndarray


class Operator(Protocol):
    def insert(self, groups: np.ndarray, stream: int, batch, bounds: np.ndarray) -> int:
        """Appends rows bounds[i, 0]:bounds[i, 1] of `batch` to groups[i] as fresh tuples.

        Returns how many leading groups are in: len(groups), or fewer when memory for the next one is lacking. The
        caller makes room (or fails) and calls again with the rest; a group is inserted whole or not at all.
        """

    def probe(self, groups: np.ndarray, budget: int) -> Progress:
        """Joins the groups' fresh tuples for about `budget` comparisons. `results()` holds what was found, each pair
        once.

        Unless DONE it must be called again with the same groups before anything else is asked of them.
        """

    def results(self) -> Results:
        """What probing has found since the last `clear_results`; nothing where results are only counted."""

    def clear_results(self) -> None: ...

    @property
    def found(self) -> int:
        """How many pairs `results` has."""

    @property
    def found_in_all(self) -> int:
        """How many pairs probing has found since this operator began."""

    @property
    def certificate(self) -> int:
        """Of these pairs (DESIGN, section 1), modulo 2**64."""

    def later_times(self) -> tuple[np.ndarray, np.ndarray]:
        """The later times of the pairs found, in the join's unit, and how many pairs have each: int64[k] both."""

    def expire(self, groups: np.ndarray, watermarks: Sequence[int]) -> Progress:
        """Advances each group's watermark per stream and lets go of what no tuple to come can join."""

    def info(self, groups: np.ndarray) -> GroupInfo: ...

    def get(self, group: int, since: int, octets_max: int | None = None, checksum: bool = False) -> list[np.ndarray]:
        """The group's state as encoded frames: sealed blocks with an id above `since`, then what still changes.

        octets_max: of about so many bytes of sealed blocks, the oldest first; what still changes only if none is left
        out · checksum: for frames that rest on a disk.
        """

    def blocks_of(self, frame: np.ndarray) -> np.ndarray:
        """int64[n]: ids of the blocks in a frame of `get`; of the last one: of all blocks that count."""

    def reached(self, frames: Sequence[np.ndarray]) -> tuple[int, bool]:
        """Of the frames of a `get`: the id with which the next one goes on, and whether nothing was left out."""

    def install(self, parts: Sequence[np.ndarray]) -> int:
        """Takes over a group from the frames of `get`, all in one; returns the group."""

    @property
    def free_bytes(self) -> int:
        """What is left of the memory account."""

    @property
    def theta_bytes(self) -> int:
        """Groups above twice this are split, below it merged."""

    def drop(self, group: int) -> None:
        """Forgets a group and returns its memory."""
