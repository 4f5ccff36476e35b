"""What the master orders slaves to do or asks of them beside joining, and what they answer: messages of messages.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijoin.named import NamedTuple
from mpijoin.partitioning.table import NO_STREAM
from mpijoin.records import Transfer

Content = tuple[dict[str, Any], list[np.ndarray]]  # The meta and the buffers of a frame.
PER_GROUP = ("groups", "work", "live_bytes", "results", "disk_bytes")  # These fields of `Loads` are int64[m].


class AskLoads(NamedTuple):
    """`period` is the number of the reorganization epoch that ends."""

    period: int


class Loads(NamedTuple):
    """The loads since the last answer. `backlog_bytes` is what was left in the stream buffer at the end of each
    distribution epoch, in the mean. `busy` and `communication` are shares of the wall time. `groups`, `work` (in
    comparisons), `results`, and as of now `live_bytes` and `disk_bytes` are int64[m]. As of now the slave holds
    `held_bytes` of its memory, of `limit_bytes` that it may."""

    rank: int
    period: int
    backlog_bytes: float
    busy: float
    communication: float
    groups: np.ndarray
    work: np.ndarray
    live_bytes: np.ndarray
    results: np.ndarray
    disk_bytes: np.ndarray
    held_bytes: int
    limit_bytes: int

    def content(self) -> Content:
        values = self._asdict()
        return values, [values.pop(name) for name in PER_GROUP]

    @classmethod
    def of(cls, meta: dict[str, Any], buffers: list[np.ndarray]) -> Loads:
        return cls(**{**meta, **dict(zip(PER_GROUP, buffers))})


class ComputePartitions(NamedTuple):
    """Step 1 of a relocation (LAD-TR, section 5.1): the slave shall choose groups that take at most `octets` of its
    memory, the first ones by this ranking (spill/ranking.py)."""

    relocation: int
    octets: int
    ranking: str


class Partitions(NamedTuple):
    """Step 2: `chosen` are the groups. There may be none."""

    relocation: int
    slave: int
    chosen: tuple[int, ...]


class SpillOrder(NamedTuple):
    """The slave shall put groups of about so many `octets` on its disk, the first ones by this ranking."""

    octets: int
    ranking: str


class Order(NamedTuple):
    """`step` is "ship", "freeze", "drop", "restore" or "deal". All go to the supplier, and `peer` is the consumer."""

    move: int
    step: str
    group: int
    peer: int


class Step(NamedTuple):
    """The supplier sends the `step` "shipped" (the rest fits one slot), "dropped" or "restored". The consumer sends
    "installed" or "refused". `figures` are those of the transfer. Stream `dealt` is dealt of a group that is spread."""

    move: int
    slave: int
    step: str
    reason: str = ""
    figures: Transfer = Transfer()
    dealt: int = NO_STREAM
