"""The parts of ticks that a producer has read and scattered, and that are not in the mini-buffers yet."""

from __future__ import annotations

import math
from collections import deque

from mpijoin.named import NamedTuple
from mpijoin.producer.events import HandOver, Input, PartReady, Read
from mpijoin.producer.pacing import TIME_MIN
from mpijoin.time_events import Rest


class Now(NamedTuple):
    """What the decision depends on beside the stock itself. wants_input: whether a part may be handed out · has_room:
    whether what was read ahead and what waits leave room to read on · wait_s: for so long the sources have nothing."""

    now_s: float
    wants_input: bool
    has_room: bool
    wait_s: float


class Stock:
    """Of a run as fast as possible: parts that may not go yet, since this producer is too far ahead of the slowest one.

    So producers decode and hash side by side, however long their shares are, and slaves get all rows of about the same
    time together. What they would get long before would only make their windows larger.
    """

    def __init__(self) -> None:
        self.octets = 0  # of all parts
        self.border = TIME_MIN  # of the newest one that ever was
        self._parts: deque[PartReady] = deque()

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def prepared(self, part: PartReady) -> None:
        self._parts.append(part)
        self.octets += part.octets
        self.border = part.border

    def handed_over(self, now_s: float) -> PartReady:
        """The oldest part has gone to the mini-buffers."""
        part = self._parts.popleft()
        self.octets -= part.octets
        return part

    def next(self, at: Now) -> Input:
        """What shall be done about the input."""
        if at.wants_input:
            return HandOver(at.now_s) if self._parts else read_within(math.inf, at, ahead=False)
        return read_within(math.inf, at) if at.has_room else Rest(math.inf)


def read_within(seconds: float, at: Now, ahead: bool = True) -> Input:
    """Reads on where the sources have something, or rests until they do, at most so long."""
    return Read(ahead) if at.wait_s <= 0 else Rest(min(seconds, at.wait_s))
