"""Counts the pairs of two streams and the tuples without any, and asks a condition of a sample of both. Spark's workers
run it on groups of tuples."""

from __future__ import annotations

from typing import Callable, Iterator, Sequence

import numpy as np
import pandas as pd

from mpijoin.named import NamedTuple
from mpijoin.pipeline.profile.condition import Condition
from mpijoin.pipeline.profile.results import Ranges, Reach, numbered, reach
from mpijoin.pipeline.profile.seeking import OPEN, seeking_kernel

PAIRS_SAMPLED = 100_000  # pairs that a condition is asked of: a share of 1 % is then known to a fifteenth of itself
ROWS_SAMPLED = 20_000  # and tuples of each stream, with their partners
ASKED_MAX = 20_000_000  # pairs that are asked for the sake of one group's tuples: a fraction of a second
COUNTED = -1.0  # the priority of what is counted and not drawn

PAIRS, MET, LONE = 0, 1, 3  # what a row of the answer counts; of a stream MET and LONE are so many more as its number
PAIRED = "what long, slot long, number double, priority double, held long"


class Draw(NamedTuple):
    """A sample without replacement. chosen: int64[k] · priority: float64[k] in [0, 1).

    Every item has a random priority, and those with the lowest are drawn. So the items with a priority below p, in the
    draws of several groups together, are a fair sample of all items, as long as each draw reaches up to p.
    """

    chosen: np.ndarray
    priority: np.ndarray


def draw(count: int, most: int, generator: np.random.Generator) -> Draw:
    """Draws `most` of `count` items, or all of them if they are fewer."""
    if count <= most:
        return Draw(np.arange(count), generator.random(count))
    gaps = generator.standard_exponential(most)
    # The k lowest of n uniform numbers lie as the arrivals of a Poisson process do before its next n + 1 - k.
    length = gaps.sum() + generator.standard_gamma(count + 1 - most)
    return Draw(generator.choice(count, most, replace=False), np.cumsum(gaps) / length)


class Group(NamedTuple):
    """The tuples of one call, each int64[n] or bool[n]. together: a number for each range and key."""

    together: np.ndarray
    time: np.ndarray
    slot: np.ndarray
    stream: np.ndarray
    is_own: np.ndarray

    def reach(self, side: int, since: int, until: int) -> tuple[np.ndarray, Reach]:
        """The own tuples of a stream, by key and time, and whom of the other stream they meet, from `since` ticks
        before themselves to `until` ticks after."""
        own, others = np.flatnonzero(self.is_own & (self.stream == side)), np.flatnonzero(self.stream == 1 - side)
        found = reach(self.together, self.time, others, own, self.time[own] - since, self.time[own] + until)
        return own[found.order], found._replace(low=found.low[found.order], high=found.high[found.order])


class Asking(NamedTuple):
    """Asks the condition. words: of a group's tuples · size: words of a tuple · seek: the kernel."""

    words: np.ndarray
    size: int
    seek: Callable[..., None]
    generator: np.random.Generator

    def of(self, side: int, own: np.ndarray, others: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """int64[n]: whether own tuples of a stream have a partner among others[low:high]: NO, YES or OPEN."""
        found, most = np.empty(len(own), np.int64), ASKED_MAX // max(1, len(own))
        self.seek(self.words, self.size, side, own, others, low, high, most, found)
        return found


def pair_counter(
    ranges: Ranges, windows: Sequence[int], sides: Sequence[int], condition: Condition | None
) -> Callable[[tuple[int, int], pd.DataFrame], pd.DataFrame]:
    """A function of a group's (block, part) and its tuples (range, hash, time, stream, is_own, and the condition's
    slots). It gives rows of PAIRED: for each slot what was counted, with priority COUNTED; and what was drawn, with its
    priority and the answer of the condition (NO, YES or OPEN).

    windows: of both streams, in ticks · sides: the streams of which tuples with and without partner are counted.
    """

    def matched(key: tuple[int, int], rows: pd.DataFrame) -> pd.DataFrame:
        columns = {str(name): rows[name].to_numpy() for name in rows.columns}
        time, stream, is_own = (columns[name] for name in ("time", "stream", "is_own"))
        slot = (time - ranges.start) // ranges.slot_length
        group = Group(numbered(columns["range"], columns["hash"]), time, slot, stream, is_own)
        asking = None
        if condition is not None:
            generator = np.random.default_rng([int(part) for part in key])  # the same draw in every profile
            asking = Asking(condition.words(columns), condition.size, seeking_kernel(condition.source), generator)
        found = list(_pairs(group, windows, asking))
        for side in sides:
            found += _rows(group, side, windows, asking)
        return pd.concat(found, ignore_index=True)

    return matched


def _pairs(group: Group, windows: Sequence[int], asking: Asking | None) -> Iterator[pd.DataFrame]:
    """Pairs are counted for their latest tuple; of tuples of one time that of the second stream is the latest."""
    found = [group.reach(0, windows[1], -1), group.reach(1, windows[0], 0)]
    for own, met in found:
        yield _counted(PAIRS, group.slot[own], met.met)
    if asking is None:
        return
    ends = [np.cumsum(met.met) for _, met in found]
    counts = [int(met.met.sum()) for _, met in found]
    drawn = draw(sum(counts), PAIRS_SAMPLED, asking.generator)
    for side, ((own, met), upto) in enumerate(zip(found, ends)):
        place = drawn.chosen - sum(counts[:side])
        is_here = (place >= 0) & (place < counts[side])
        chosen = place[is_here]
        latest = np.searchsorted(upto, chosen, "right")
        low = met.high[latest] - (upto[latest] - chosen)
        held = asking.of(side, own[latest], met.others, low, low + 1)
        yield _drawn(PAIRS, group.slot[own[latest]], drawn.priority[is_here], held)


def _rows(group: Group, side: int, windows: Sequence[int], asking: Asking | None) -> Iterator[pd.DataFrame]:
    own, met = group.reach(side, windows[1 - side], windows[side])
    yield _counted(LONE + side, group.slot[own], met.met == 0)
    yield _counted(MET + side, group.slot[own], met.met > 0)
    if asking is None:
        return
    some = np.flatnonzero(met.met)
    drawn = draw(len(some), ROWS_SAMPLED, asking.generator)
    chosen = some[drawn.chosen]
    held = asking.of(side, own[chosen], met.others, met.low[chosen], met.high[chosen])
    yield _drawn(MET + side, group.slot[own[chosen]], drawn.priority, held)


def _counted(what: int, slot: np.ndarray, number: np.ndarray) -> pd.DataFrame:
    slots, place = np.unique(slot, return_inverse=True)
    sums = np.bincount(place, number, len(slots))
    return _frame(what, slots, sums, np.full(len(slots), COUNTED), np.full(len(slots), OPEN))


def _drawn(what: int, slot: np.ndarray, priority: np.ndarray, held: np.ndarray) -> pd.DataFrame:
    return _frame(what, slot, np.ones(len(slot)), priority, held)


def _frame(what: int, slot: np.ndarray, number: np.ndarray, priority: np.ndarray, held: np.ndarray) -> pd.DataFrame:
    columns = {"what": np.full(len(slot), what), "slot": slot, "number": number, "priority": priority, "held": held}
    return pd.DataFrame(columns)
