"""The size of mini-partition-groups that suits this processor: `theta = "auto"`."""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from mpijoin.compiled import cache_folder
from mpijoin.machine import processor_model

# Of both streams, where nothing was measured. Small groups are many buckets to visit in short epochs, and much memory in blocks
# that are half empty (pages are 1.6 times their tuples, twice as much for half the size); large ones are long scans. The floor
# in blocks is for tuples so wide that a block holds few of them.
GROUP_TUPLES = 680
GROUP_BLOCKS = 4

CANDIDATES = (340, 480, 680, 960, 1360)
WIDTHS = (4, 8, 16, 32)  # words of the tuples that are measured; those of others count as the next wider
BUDGET_S = 0.28  # a round over the candidates is begun while it is likely to end within this
TOLERANCE = 1.05  # the largest candidate within this of the best is taken: it needs the least memory


def auto_theta(tuple_bytes: int, block_bytes: int, group_tuples: int = GROUP_TUPLES) -> int:
    """Theta in bytes for tuples of so many bytes (mean of both streams).

    >>> auto_theta(48, 4096)
    32640
    """
    return max(group_tuples * tuple_bytes, GROUP_BLOCKS * block_bytes)


def width_of(tuple_bytes: int) -> int:
    """Which of WIDTHS stands for tuples of so many bytes.

    >>> width_of(48), width_of(4000)
    (8, 32)
    """
    return next((width for width in WIDTHS if 8 * width >= tuple_bytes), WIDTHS[-1])


def remembered(width: int) -> int | None:
    """The group size in tuples that was measured on this processor before; None: not yet."""
    with suppress(OSError, ValueError):
        found = json.loads(_file(width).read_text())
        if isinstance(found, dict) and found.get("group_tuples") in CANDIDATES:
            return found["group_tuples"]
    return None


def remember(width: int) -> None:
    """Measures, unless that was done before, and writes down what was found; where nothing can be written, nothing."""
    if remembered(width) is not None:
        return
    file = _file(width)
    aside = file.with_name(f"{file.name}.{os.getpid()}")
    with suppress(OSError):
        aside.touch()
        scores = measure(width)
        facts = {"processor": processor_model(), "tuple_words": width, "group_tuples": choose(scores), "ns_per_tuple": scores}
        aside.write_text(json.dumps(facts))
        aside.replace(file)


def measure(width: int) -> dict[int, float]:
    """Nanoseconds per tuple for each candidate: the mean (geometric) over long and short epochs, of the best of the rounds."""
    from mpijoin.join.trial import Trial

    start = time.perf_counter()
    trial = Trial(width)
    best = dict.fromkeys(CANDIDATES, np.inf)
    longest_s = 0.0
    while time.perf_counter() - start + longest_s < BUDGET_S or longest_s == 0:
        round_start = time.perf_counter()
        for tuples in CANDIDATES:
            best[tuples] = np.minimum(best[tuples], trial.run(8 * width * tuples))
        longest_s = max(longest_s, time.perf_counter() - round_start)
    return {tuples: round(float(np.exp(np.log(times).mean())), 1) for tuples, times in best.items()}


def choose(scores: dict[int, float]) -> int:
    """The largest group size whose score is within a few percent of the best.

    >>> choose({340: 100.0, 480: 98.0, 680: 102.0, 960: 120.0})
    680
    """
    limit = min(scores.values()) * TOLERANCE
    return max(tuples for tuples, score in scores.items() if score <= limit)


def _file(width: int) -> Path:
    model = hashlib.sha256(processor_model().encode()).hexdigest()[:8]
    return cache_folder() / f"theta-{width}-{model}.json"
