"""What a run will owe whose windows do not fit into the memory of its slaves, if it spills generations."""

from __future__ import annotations

import numpy as np

from mpijoin.config.job import Memory
from mpijoin.named import NamedTuple
from mpijoin.pipeline.profile.findings import Profile

PAGES_SHARE = 1.6  # pages are so many times the tuples in them, with theta "auto"


class Debt(NamedTuple):
    """octets: of all rows that go to the disk · share: of all results, found by a clean-up. Neither is more, and both
    are less where the most productive groups stay in memory."""

    octets: float
    share: float


def expected_debt(profile: Profile, budget_bytes: float, memory: Memory) -> Debt | None:
    """Returns None where the windows fit into `budget_bytes`, the memory of all slaves together.

    Of the windows, the newest part lies in memory: on average what is there midway between two spills. A row finds
    those of its partners that lie in it, and a result is found at once if all but its latest row do.
    """
    slots = profile.expected.per_slot
    edges_s = profile.start_s + profile.slot_s * np.arange(len(slots) + 1)
    tuples_bytes = sum(side.state_within(edges_s) for side in profile.sides)
    needed_bytes = np.maximum(tuples_bytes * PAGES_SHARE, 1.0)
    if needed_bytes.max() <= budget_bytes:
        return None
    held_bytes = budget_bytes * memory.threshold * (1 - memory.share / 2)
    in_memory = np.where(needed_bytes > budget_bytes * memory.threshold, np.minimum(1, held_bytes / needed_bytes), 1.0)
    come_bytes = sum(np.diff(side.arrivals.before(edges_s)) * side.tuple_bytes for side in profile.sides)
    counted = np.nan_to_num(slots)
    owed = float((counted * (1 - in_memory ** (len(profile.sides) - 1))).sum())
    return Debt(float((come_bytes * (1 - in_memory)).sum()), owed / counted.sum() if owed else 0.0)
