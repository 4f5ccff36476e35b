"""A stream's rate and skew may change. This module says which values hold from which time on, and how operational time
becomes event time."""

from __future__ import annotations

import numpy as np

from mpijoin.config.job import SyntheticSource
from mpijoin.named import NamedTuple

TIME_MAX = np.iinfo(np.int64).max


class Segment(NamedTuple):
    """The values that hold from `start_ns` until the next segment starts. Their names are those of `SyntheticSource`.
    """

    start_ns: int
    rate: float
    bias: float
    exponent: float
    permute: int | None


def segments_of(source: SyntheticSource) -> tuple[Segment, ...]:
    """Returns the segments of a source. The first one has the source's own values, from 0 on. Each further one changes
    some values of the one before it."""
    found = [Segment(0, source.rate, source.bias, source.exponent, source.permute)]
    for change in source.changes:
        new = {name: getattr(change, name) for name in Segment._fields}
        found.append(found[-1]._replace(**{name: value for name, value in new.items() if value is not None}))
    return tuple(found)


class OperationalTime:
    """Turns operational time into the event time of a Poisson process whose rate changes.

    On average, an operational nanosecond brings as many arrivals as a nanosecond of event time at the source's own
    rate. So gaps can be drawn and summed before it is known when they fall (time change of a Poisson process).
    """

    def __init__(self, segments: tuple[Segment, ...]):
        self._rates = np.array([segment.rate for segment in segments]) / segments[0].rate
        self._starts = np.array([segment.start_ns for segment in segments], np.int64)
        spans = np.rint(np.diff(self._starts) * self._rates[:-1]).astype(np.int64)
        # These are the operational times at which the segments start.
        self._marks = np.concatenate([[0], np.cumsum(spans)])

    def event_ns(self, operational: np.ndarray) -> np.ndarray:
        """Returns the int64[n] event times of int64[n] operational times, in the same order. They are TIME_MAX where
        they do not fit 64 bits."""
        if len(self._starts) == 1:
            return operational
        at = np.searchsorted(self._marks, operational, "right") - 1
        offset = np.rint((operational - self._marks[at]) / self._rates[at])
        ends = np.append(self._starts[1:], TIME_MAX)[at]
        room = (ends - self._starts[at]).astype(np.float64)
        # Rounding must not carry a tuple over the start of the next segment.
        return np.where(offset >= room, ends, self._starts[at] + np.minimum(offset, room).astype(np.int64))
