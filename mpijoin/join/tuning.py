"""The size of mini-partition-groups that suits this processor: `theta = "auto"`."""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path

from mpijoin.compiled import cache_folder
from mpijoin.config.job import AUTO, OFF
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import JoinSchema
from mpijoin.machine import processor_model
from mpijoin.store.pool import tuple_words
from mpijoin.store.state import THETA_OFF

# Of both streams, where nothing better was measured. Small groups are many buckets to visit in short epochs, and much
# memory in blocks that are half empty (pages are 1.6 times their tuples, twice as much for half the size); large ones
# are long scans. The floor in blocks is for tuples so wide that a block holds few of them.
GROUP_TUPLES = 680
GROUP_BLOCKS = 4
# Groups of any other number of streams hold so many times as much of each stream, because the m-way probe does more for
# each group that it visits. Measured with 3 and 4 streams of 2 M tuples, it takes 0.84 to 0.94 of the time; twice as
# much takes longer again.
MWAY_GROUPS = 1.5

CANDIDATES = (340, 480, 680, 960, 1360)
WIDTHS = (4, 8, 16, 32)  # words of the tuples that are measured; those of others count as the next wider
BUDGET_S = 0.28  # of a core: a round over the candidates is begun while it is likely to end within this,
WAIT_S = 0.45  # ... and within this of the wall clock, where others use the core too
TOLERANCE = 1.1  # what is usual is kept unless the best is better by more than this
TRUST = 1.15  # how far the second best round of a candidate may be from its best on a machine quiet enough to measure


def mean_tuple_bytes(schema: JoinSchema) -> int:
    """Bytes of a tuple as the join stores it, the mean of all streams."""
    layouts = [RecordLayout(stream) for stream in schema.streams]
    return 8 * sum(tuple_words(layout.record_words, layout.has_blob) for layout in layouts) // len(layouts)


def theta_bytes(
    theta: int | str, tuple_bytes: int, block_bytes: int, group_tuples: int | None = None, streams: int = 2
) -> int:
    """What the field `[tuning] theta` means, in bytes, for tuples of so many bytes (the streams' mean).

    theta: bytes, "auto" or "off" · group_tuples: what was measured for "auto" with two streams on this processor, None:
    nothing.

    >>> theta_bytes("auto", 48, 4096), theta_bytes("auto", 48, 4096, 340), theta_bytes(1_500_000, 48, 4096)
    (32640, 16384, 1500000)
    """
    if theta == OFF:
        return THETA_OFF
    if theta == AUTO:
        tuples = (group_tuples or GROUP_TUPLES) * streams / 2 * (1 if streams == 2 else MWAY_GROUPS)
        return max(int(tuples * tuple_bytes), GROUP_BLOCKS * block_bytes)
    return int(theta)


def width_of(tuple_bytes: int) -> int:
    """Which of WIDTHS stands for tuples of so many bytes.

    >>> width_of(48), width_of(4000)
    (8, 32)
    """
    return next((width for width in WIDTHS if 8 * width >= tuple_bytes), WIDTHS[-1])


def measured_group_tuples(schema: JoinSchema) -> int | None:
    """What was measured on this processor for tuples of this schema; None: nothing yet."""
    return remembered(width_of(mean_tuple_bytes(schema)))


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
        rounds = measure(width)
        facts = {
            "processor": processor_model(),
            "tuple_words": width,
            "group_tuples": choose(rounds),
            "rounds_ns": rounds,
        }
        aside.write_text(json.dumps(facts))
        aside.replace(file)


def measure(width: int) -> list[list[float]]:
    """Rounds over the candidates, as many as fit the time there is: nanoseconds per tuple with each."""
    from mpijoin.join.trial import Trial

    clocks = ((time.thread_time, BUDGET_S), (time.perf_counter, WAIT_S))
    starts = [clock() for clock, _ in clocks]
    trial = Trial(width)
    rounds: list[list[float]] = []
    # The first round includes what making the trial took: it stands for the longest to come.
    while all(
        (clock() - start) * (1 + 1 / max(1, len(rounds))) < limit for (clock, limit), start in zip(clocks, starts)
    ):
        rounds.append([round(trial.run(8 * width * tuples), 1) for tuples in CANDIDATES])
    return rounds


def choose(rounds: list[list[float]]) -> int:
    """Of CANDIDATES the one with the best round, if it clearly beats GROUP_TUPLES; GROUP_TUPLES too where rounds differ
    so much that they measure something else.

    >>> choose([[100, 98, 109, 120, 150], [101, 99, 110, 125, 150]])
    480
    >>> choose([[100, 98, 105, 120, 150], [101, 99, 105, 125, 150]])
    680
    """
    ordered = {tuples: sorted(times) for tuples, times in zip(CANDIDATES, zip(*rounds))}
    if len(rounds) < 2 or any(times[1] > TRUST * times[0] for times in ordered.values()):
        return GROUP_TUPLES
    best = min(ordered, key=ordered.__getitem__)
    return best if ordered[GROUP_TUPLES][0] > TOLERANCE * ordered[best][0] else GROUP_TUPLES


def _file(width: int) -> Path:
    model = hashlib.sha256(processor_model().encode()).hexdigest()[:8]
    return cache_folder() / f"theta-{width}-{model}.json"
