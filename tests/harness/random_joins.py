"""Random joins for property tests: streams, their tuples, and all settings that must not change the result."""

from collections import Counter
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as some

import oracle
from join_harness import EVER, NEVER, Stream, clamp, numbered
from mpijoin.config.plan import Binary
from mpijoin.store import state as st

# The most rows of a stream, by the number of streams. With one key, all of them may be combined.
ROWS_MAX = {1: 90, 2: 90, 3: 26, 4: 12, 5: 7}
KEYS = [
    some.just(7),
    some.integers(0, 3),
    some.integers(0, 30),
    some.integers(NEVER, EVER),
    some.sampled_from([NEVER, EVER, 0]),
    some.one_of(some.just(1), some.integers(0, 9)),  # These keys are skewed.
]
STARTS = some.sampled_from([0, 0, -50, NEVER, NEVER + 20, EVER - 60, EVER])
WINDOWS = some.one_of(some.integers(0, 12), some.sampled_from([0, 10**6, EVER - 1, st.FOREVER]))


class Setup(NamedTuple):
    """Settings that must not change the result.

    slice_groups: how many groups are joined at a time · holders: the number of operators among which groups move.
    """

    partitions: int = 1
    block: int = 64
    theta: int = 200
    result_buffer: int = 1000
    budget: int = 1 << 40
    slice_groups: int = 7
    pieces: int = 1
    holders: int = 1


SETUPS = some.builds(
    Setup,
    partitions=some.integers(1, 7),
    block=some.sampled_from([8, 64, 100, 256, 1024, 4096]),
    theta=some.sampled_from([1, 60, 200, 1000, 20_000, st.THETA_OFF]),
    result_buffer=some.one_of(some.integers(1, 5), some.integers(1, 1000)),
    budget=some.one_of(some.integers(1, 40), some.integers(1, 10**6)),
    slice_groups=some.integers(1, 7),
    pieces=some.integers(1, 3),
    holders=some.integers(1, 3),
)
LAYOUTS = some.tuples(some.integers(0, 3), some.booleans())
# For each round, how many rows of each stream are still to come when it ends, and how far its watermarks stay below
# what they could be.
REST = some.lists(some.integers(0, 60), min_size=5, max_size=5)
CUTS = some.lists(some.tuples(REST, some.integers(0, 5)), max_size=5)


@some.composite
def joins(draw, counts=some.integers(1, 5)):
    """Draws (streams, the tuples of each).

    Tuples are not in order of time and have ties, keys that are few or hot, and times at the ends of int64.
    """
    count = draw(counts)
    windows = draw(some.lists(WINDOWS, min_size=count, max_size=count))
    layouts = draw(some.lists(LAYOUTS, min_size=count, max_size=count))
    streams = [Stream(window, *layout) for window, layout in zip(windows, layouts)]
    start, keys = draw(STARTS), draw(some.sampled_from(KEYS))
    history = some.lists(some.tuples(some.integers(-4, 8), keys), max_size=ROWS_MAX[count])
    rows = []
    for stream, history_of in zip(streams, draw(some.lists(history, min_size=count, max_size=count))):
        times = np.cumsum([gap for gap, _ in history_of]).tolist()
        pairs = [(clamp(start + time), key) for time, (_, key) in zip(times, history_of)]
        rows.append(numbered(pairs, stream, [0, 5, 300]))
    return streams, rows


@some.composite
def trees(draw, streams):
    """Any tree: two neighbours in any order of the streams are joined, then again."""
    plans = list(draw(some.permutations(range(streams))))
    while len(plans) > 1:
        at = draw(some.integers(0, len(plans) - 2))
        plans[at : at + 2] = [Binary(*plans[at : at + 2])]
    return plans[0]


def expected(streams, rows):
    windows = [None if stream.window == st.FOREVER else stream.window for stream in streams]
    return Counter(oracle.join([[(row.time, row.key, row.row) for row in own] for own in rows], windows))


def rounds(rows, cuts):
    """Yields for each round the rows of each stream, and watermarks that are valid for what follows."""
    lows = [0] * len(rows)
    for rests, slack in [*sorted(cuts, reverse=True), ([0] * 5, 0)]:
        parts, marks = [], []
        for stream, (own, rest) in enumerate(zip(rows, rests)):
            low, lows[stream] = lows[stream], max(lows[stream], len(own) - rest)
            parts.append(own[low : lows[stream]])
            marks.append(clamp(min((row.time for row in own[lows[stream] :]), default=EVER + slack) - slack))
        yield parts, marks
