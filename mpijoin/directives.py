"""What the coordinator and producers on other ranks say to each other: messages of messages.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijoin.named import NamedTuple
from mpijoin.orders import Content


class Share(NamedTuple):
    """`position` is the frame from which the producer reads on (sources/position.py). `owners` are the slaves of the
    partitions. `complete` are the watermarks and `slots` the number of slots at the checkpoint `part`, which is 0 where
    the run begins."""

    position: np.ndarray
    owners: tuple[int, ...]
    complete: tuple[int, ...]
    slots: int
    part: int

    def content(self) -> Content:
        meta = {"owners": self.owners, "complete": self.complete, "slots": self.slots, "part": self.part}
        return meta, [self.position]

    @classmethod
    def of(cls, meta: dict[str, Any], buffers: list[np.ndarray]) -> Share:
        (position,) = buffers
        return cls(position, tuple(meta["owners"]), tuple(meta["complete"]), meta["slots"], meta["part"])


class Directive(NamedTuple):
    """`name` is that of an event of the producer's core, which has these `values`. `number` and `anew` are as in
    `Marker`, if it asks for a checkpoint."""

    name: str
    values: tuple[Any, ...]
    number: int = 0
    anew: bool = False


class Notes(NamedTuple):
    """What a producer's core has told since the last message. `came` and `joined` are pairs of a slave and bytes. The
    others are the values of its last notes of that name, and None if there was none."""

    came: tuple[tuple[int, int], ...] = ()
    joined: tuple[tuple[int, int], ...] = ()
    slot: tuple[Any, ...] | None = None
    begins: tuple[Any, ...] | None = None
    ended: bool = False
    behind_s: float = 0.0
