"""Finds the size of mini-partition-groups that suits this processor, for `theta = "auto"`."""

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

# The size of a mini-partition-group, in tuples of both streams, where nothing better was measured. With small ones
# there are many buckets to visit in short epochs, and much memory goes to half-empty blocks: pages take 1.6 times the
# bytes of their tuples, and twice as much at half the size. Large ones mean long scans. The least number of blocks is
# for tuples that are so wide that a block holds few of them.
GROUP_TUPLES = 680
GROUP_BLOCKS = 4
# With any other number of streams, a mini-partition-group holds so many times as much of each stream, because the m-way
# probe does more for each one that it visits. Measured with 3 and 4 streams of 2 M tuples, a join then takes 0.84 to
# 0.94 of the time. Twice as much takes longer again.
MWAY_GROUPS = 1.5

# Sizes that are tried, in tuples of both streams.
CANDIDATES = (340, 480, 680, 960, 1360)
# Tuples of so many words are measured. Those of other widths count as the next wider ones.
WIDTHS = (4, 8, 16, 32)
# A round over the candidates is begun only if it is likely to end within this time of a core, and within this time of
# the wall clock, because others may use the core, too.
BUDGET_S = 0.28
WAIT_S = 0.45
# The usual size is kept unless the best one is faster by more than this factor.
TOLERANCE = 1.1
# A machine is quiet enough to measure if the second best round of each candidate is this close to its best one.
TRUST = 1.15


def mean_tuple_bytes(schema: JoinSchema) -> int:
    """Returns the bytes of a tuple as the join stores it, as the mean of all streams."""
    layouts = [RecordLayout(stream) for stream in schema.streams]
    return 8 * sum(tuple_words(layout.record_words, layout.has_blob) for layout in layouts) // len(layouts)


def theta_bytes(
    theta: int | str, tuple_bytes: int, block_bytes: int, group_tuples: int | None = None, streams: int = 2
) -> int:
    """Returns what the field `[tuning] theta` means, in bytes, for tuples of so many bytes (the streams' mean).

    theta: bytes, "auto" or "off" · group_tuples: what was measured for "auto" with two streams on this processor. None:
    nothing was measured.

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
    """Returns which of WIDTHS stands for tuples of so many bytes.

    >>> width_of(48), width_of(4000)
    (8, 32)
    """
    return next((width for width in WIDTHS if 8 * width >= tuple_bytes), WIDTHS[-1])


def measured_group_tuples(schema: JoinSchema) -> int | None:
    """Returns the size in tuples that was measured on this processor for tuples of this schema. None: not yet."""
    return remembered(width_of(mean_tuple_bytes(schema)))


def remembered(width: int) -> int | None:
    """Returns the size in tuples that was measured on this processor for tuples of so many words. None: not yet."""
    with suppress(OSError, ValueError):
        found = json.loads(_file(width).read_text())
        if isinstance(found, dict) and found.get("group_tuples") in CANDIDATES:
            return found["group_tuples"]
    return None


def remember(width: int) -> None:
    """Measures, unless that was done before, and writes down what was found. Where nothing can be written, it does
    nothing.
    """
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
    """Returns the nanoseconds per tuple with each candidate, for as many rounds over all of them as time allows."""
    from mpijoin.join.trial import Trial

    clocks = ((time.thread_time, BUDGET_S), (time.perf_counter, WAIT_S))
    starts = [clock() for clock, _ in clocks]
    trial = Trial(width)
    rounds: list[list[float]] = []
    # The first round includes the time that it took to make the trial, so later ones are expected to be shorter.
    while all(
        (clock() - start) * (1 + 1 / max(1, len(rounds))) < limit for (clock, limit), start in zip(clocks, starts)
    ):
        rounds.append([round(trial.run(8 * width * tuples), 1) for tuples in CANDIDATES])
    return rounds


def choose(rounds: list[list[float]]) -> int:
    """Returns the candidate with the best round if it clearly beats GROUP_TUPLES, else GROUP_TUPLES.

    It is also GROUP_TUPLES where rounds differ so much that they measure something else.

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
