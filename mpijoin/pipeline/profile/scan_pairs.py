"""Counts the pairs of two streams and the tuples with and without any, and collects what a condition says of a sample
of them. As in scan_results.py, Spark's workers do it in groups of bounded size."""

from __future__ import annotations

from typing import Sequence

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from mpijoin.config.job import SEMI, Join
from mpijoin.pipeline.profile.condition import Condition
from mpijoin.pipeline.profile.estimates import Asked, Counted
from mpijoin.pipeline.profile.pairing import (
    COUNTED,
    LONE,
    MET,
    PAIRED,
    PAIRS,
    PAIRS_SAMPLED,
    ROWS_SAMPLED,
    pair_counter,
)
from mpijoin.pipeline.profile.scan import collected
from mpijoin.pipeline.profile.scan_results import Tuples
from mpijoin.pipeline.profile.seeking import OPEN, YES

SPARE = 0.05  # of a sample stays unused, because by chance one group could have too many of the lowest priorities


def sides_of(join: Join) -> tuple[int, ...]:
    """The streams of which rows with or without partner make results."""
    return (0,) if join.type == SEMI or join.answers_rows else join.alone


def count_pairs(tuples: Tuples, sides: Sequence[int], condition: Condition | None) -> Counted:
    """Counts in the chosen ranges. sides: the streams whose tuples with and without partner are counted."""
    made = pair_counter(tuples.ranges, tuples.reached, sides, condition)
    found = tuples.frame.groupBy("block", "part").applyInPandas(made, PAIRED)
    found = found.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        slots = tuples.ranges.count * tuples.ranges.slots
        numbers = _numbers(found, slots)
        asked = {} if condition is None else _asked(found, numbers)
    finally:
        found.unpersist()
    met, lone = ({side: numbers[what + side] for side in sides} for what in (MET, LONE))
    return Counted(numbers[PAIRS], met, lone, asked.get(PAIRS), {side: asked[MET + side] for side in sides if asked})


def _numbers(found: DataFrame, slots: int) -> np.ndarray:
    """float64[LONE + 2, slots]: how many there are of each."""
    by_slot = found.where(F.col("priority") == COUNTED).groupBy("what", "slot").agg(F.sum("number").alias("number"))
    numbers = np.zeros((LONE + 2, slots))
    _put(numbers, collected(by_slot))
    return numbers


def _asked(found: DataFrame, numbers: np.ndarray) -> dict[int, Asked]:
    """What is in the sample of all groups together, by what it is a sample of."""
    most = {PAIRS: PAIRS_SAMPLED, MET: ROWS_SAMPLED, MET + 1: ROWS_SAMPLED}
    below = F.lit(0.0)
    for what, size in most.items():
        number = float(numbers[what].sum())
        share = 1.0 if number <= size else (1 - SPARE) * size / number
        below = F.when(F.col("what") == what, F.lit(share)).otherwise(below)
    drawn = found.where((F.col("priority") != COUNTED) & (F.col("priority") < below))
    by_slot = collected(drawn.groupBy("what", "slot", "held").agg(F.sum("number").alias("number")))
    taken, held, undecided = (np.zeros_like(numbers) for _ in range(3))
    _put(taken, by_slot)
    _put(held, by_slot[by_slot["held"] == YES])
    _put(undecided, by_slot[by_slot["held"] == OPEN])
    return {what: Asked(taken[what], held[what], undecided[what]) for what in most}


def _put(numbers: np.ndarray, rows: pd.DataFrame) -> None:
    np.add.at(numbers, (rows["what"].to_numpy(), rows["slot"].to_numpy()), rows["number"].to_numpy())
