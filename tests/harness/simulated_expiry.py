"""What slaves of a simulated run must hold of each group, and what they must have let go."""

import numpy as np

from mpijoin.data.batch import KEYLESS
from mpijoin.operators.base import Progress
from mpijoin.store.state import (
    DEPTH,
    DIRECTORY,
    FIRST,
    GROUP_STREAM_WORDS,
    GROUP_TUPLES,
    MERGED,
    NONE,
    ROW,
    SPLIT,
    STREAM_WORDS,
    TIME,
    TIME_MAX,
    TIME_MAX_VALUE,
    WATERMARK,
    WINDOW,
)


class Expiry:
    """Checks what slaves hold of each group, wherever it is.

    They must hold all tuples that may still find partners, and no block of tuples that cannot.
    """

    def __init__(self, made):
        # Rows of several files are numbered file by file, so they need not come in order. Nor need those of several
        # producers.
        self._answers_rows, self._has_queries = made.match != "all", bool(made.queries)
        self._in_order = [len(side.files) == 1 and made.producers == 1 for side in made.sides]
        self._wanted = {}  # {(group, stream): times of tuples that may still find partners}
        self._newest = {}  # {(group, stream): row}
        self._watermarks = {}  # {group: the furthest of both streams that it was told}
        # These groups moved. Input that follows may have been cut before the tick that they have reached.
        self._delivered = set()

    def _looking_back(self, join):
        """The windows of left rows that look back, one for each query."""
        if self._has_queries:
            both = zip(join.queries, join.views)
            return [int(view.layout[0, WINDOW]) for query, view in both if query.question]
        return [int(join._table.layout[0, WINDOW])] if self._answers_rows else []

    def delivered(self, deliver, group, slave):
        self._delivered.add(group)
        return deliver(group, slave)

    def inserted(self, insert, groups, stream, fresh, bounds, new=False):
        taken = insert(groups, stream, fresh, bounds, new)
        for group, (low, high) in zip(groups[: taken.groups].tolist(), bounds.tolist()):
            rows = (fresh.tuples[low:high, ROW] & ~KEYLESS).tolist()
            self._wanted.setdefault((group, stream), []).extend(fresh.tuples[low:high, TIME].tolist())
            if self._in_order[stream] and rows:
                arrived = [self._newest.get((group, stream), -1), *rows]
                assert arrived == sorted(arrived), "a group's rows come in their order, whoever held them back"
                self._newest[group, stream] = rows[-1]
        return taken

    def expired(self, join, expire, groups, watermarks, out):
        tuned = join._table.counters[[SPLIT, MERGED]].tolist()
        progress = expire(groups, watermarks, out)
        if progress is not Progress.DONE:
            return progress
        # A split comes last, and may part a tuple that can go from the one that kept their block.
        is_same = tuned == join._table.counters[[SPLIT, MERGED]].tolist()
        told = np.broadcast_to(np.atleast_2d(watermarks), (len(groups), 2)).tolist()
        for group, own in zip(groups.tolist(), told):
            before = self._watermarks.get(group, own)
            furthest = self._watermarks[group] = tuple(map(max, before, own))
            assert group in self._delivered or furthest == tuple(own), "a group's watermarks never go back"
            for stream in range(2):
                reached = furthest[1 - stream]
                if stream == 1 and furthest[1] != TIME_MAX_VALUE:
                    # Left rows look at right ones when their own windows are over.
                    reached = min(reached, *(furthest[1] - window for window in self._looking_back(join)), reached)
                bound = reached - int(join._table.layout[stream, WINDOW])
                self._check_held(join._table, group, stream, bound)
                assert not is_same or is_clear(join._table, group, stream, bound), "what cannot find partners is let go"
            held = tuple(join._table.groups[group, WATERMARK :: GROUP_STREAM_WORDS].tolist())
            assert held == furthest, "a group keeps the furthest watermarks that it was told"
        return progress

    def _check_held(self, state, group, stream, bound):
        times = self._wanted[group, stream] = [time for time in self._wanted.get((group, stream), ()) if time >= bound]
        assert state.groups[group, GROUP_TUPLES + stream * GROUP_STREAM_WORDS] >= len(times), (
            "what may find partners is held"
        )


def is_clear(state, group, stream, bound):
    """Whether no chain of the group begins with a block all of whose times lie below the bound."""
    region, entries = state.groups[group, DIRECTORY], 1 << int(state.groups[group, DEPTH])
    buckets = state.directory[region : region + entries]
    pages = state.buckets[buckets, stream * STREAM_WORDS + FIRST]
    return bool((state.heads[pages[pages != NONE], TIME_MAX] >= bound).all())
