"""What a slave knows of its streams: their rates, and the partners of some of their tuples."""

from __future__ import annotations

import numpy as np

from mpijoin.plans.costs import Sample
from mpijoin.plans.sample import sample_fresh
from mpijoin.store.state import GROUP_TUPLES, StoreState, words_of

# So many tuples of each stream are looked at between two decisions, and fewer while the plan is as good as any. Those
# of the period before count as well.
SAMPLED, SAMPLED_CALM = 128, 32
KEPT = 2 * SAMPLED
# Looking once at many is cheaper than looking often at few.
AT_ONCE = 32
# What came before a decision counts so much at the next one.
MEMORY = 0.5
# Decisions are at least this share of the held tuples apart: to look for partners takes the longer the more are held.
PERIOD_SHARE = 0.25
# While the plan is as good as any, the time to the next decision doubles up to so many times as much.
CALM_MAX = 4
# The windows still fill if so many times as many tuples are held as at the last decision.
FILLING = 1.1


class Statistics:
    """Looks at some of the fresh tuples of each probe."""

    def __init__(self, table: StoreState, period: int):
        """period: how many tuples there are between two decisions, at least."""
        self._table, self._period_min = table, period
        streams = len(table.layout)
        self._words = words_of(GROUP_TUPLES, streams)
        self._sample = sample_fresh.bound(table)
        self._partners, self._counts = np.ones((streams, KEPT, streams), np.int64), np.zeros(streams, np.int64)
        self._found = np.zeros((SAMPLED, streams), np.int64)
        self._fresh, self._rates = np.zeros((2, streams))
        self._seen, self._owed, self._period, self._calm = 0.0, 0.0, float(period), 1
        self._held, self._wanted = 0.0, SAMPLED
        self._spent_s, self._is_pure = 0.0, True
        # How many had been looked at when the last two periods began.
        self._began = np.zeros((2, streams), np.int64)

    def came(self, stream: int, tuples: int) -> None:
        """So many fresh tuples of a stream were inserted."""
        self._fresh[stream] += tuples

    def spent(self, seconds: float) -> None:
        """So long was worked on the tuples that came."""
        self._spent_s += seconds

    def mixed(self) -> None:
        """Says that what is done in this period does not all belong to the plan of now."""
        self._is_pure = False

    @property
    def tuple_ns(self) -> float:
        """What a tuple has taken in this period by the plan of now, in nanoseconds; 0: that is not known."""
        return self._spent_s / self._seen * 1e9 if self._is_pure and self._seen else 0.0

    def look(self, groups: np.ndarray) -> bool:
        """Looks at some of the fresh tuples of the groups, before these are probed. Returns whether it is time to
        decide."""
        came = float(self._fresh.sum())
        self._owed = min(self._owed + came * self._wanted / self._period, self._wanted)
        if self._owed >= AT_ONCE:
            wanted, fresh = int(self._owed), self._fresh.astype(np.int64).tolist()
            # A probe may have fewer fresh tuples than that.
            self._owed -= max(self.take(groups, stream, own, wanted) for stream, own in enumerate(fresh))
        self._rates += self._fresh
        self._fresh[:] = 0
        self._seen += came
        return self._seen >= self._period

    def known(self) -> Sample:
        """Returns what is known now."""
        held = self._table.groups[:, self._words].sum(axis=0).astype(float)
        begun = np.clip(self._began[0], self._counts - KEPT, self._counts - 1)
        places = (np.arange(first, end) % KEPT for first, end in zip(begun.tolist(), self._counts.tolist()))
        return Sample(self._rates.copy(), held, [own[at].astype(float) for own, at in zip(self._partners, places)])

    def decided(self, held: float, is_content: bool) -> None:
        """Begins a new period. held: how many tuples are held · is_content: whether the plan is as good as any. Then
        the period is longer than the one before, unless the windows still fill."""
        self._rates *= MEMORY
        is_calm = is_content and held < FILLING * self._held
        self._held, self._calm = held, min(2 * self._calm, CALM_MAX) if is_calm else 1
        self._seen, self._period = 0.0, self._calm * max(self._period_min, PERIOD_SHARE * held)
        self._wanted = SAMPLED if self._calm == 1 else SAMPLED_CALM
        self._spent_s, self._is_pure = 0.0, True
        self._began = np.stack([self._began[1], self._counts])

    def take(self, groups: np.ndarray, stream: int, fresh: int, wanted: int) -> int:
        """Looks at up to `wanted` of the so many fresh tuples of a stream. Returns how many these are."""
        step = max(1, fresh // wanted)
        taken = int(self._sample(groups, stream, step, step // 2, wanted, self._found))
        places = (self._counts[stream] + np.arange(taken)) % KEPT
        self._partners[stream, places] = self._found[:taken]
        self._counts[stream] += taken
        return taken
