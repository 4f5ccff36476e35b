"""The two forms of `[memory] spill`, as whoever saves, restores or runs a slave meets them.

Both say what a group has on disk (`marks`, then `parts`), and take it back frame by frame (`take_aside`), until `adopt`
gives all of it to the group. `settle` comes before a group is saved: it brings to disk what is on its way there or
back.
"""

from __future__ import annotations

from typing import Collection

from mpijoin.config.job import GENERATIONS, OFF, ROTATE, Job
from mpijoin.join.window_join import WindowJoin
from mpijoin.operators.stored import TableOperator
from mpijoin.spill.rotator import INACTIVE_KIND, Rotator
from mpijoin.spill.runs import Runs
from mpijoin.spill.spiller import DEBT_KIND, Spiller
from mpijoin.store.rows import ROWS_KIND

AnySpiller = Spiller | Rotator


def new_spiller(job: Job, operator: TableOperator, runs: Runs) -> AnySpiller:
    """A spiller for the operator. runs: where it writes."""
    if job.memory.spill == ROTATE:
        gap_ns = job.memory.gap_ns
        return Rotator(operator, runs, None if gap_ns is None else gap_ns / 1e9)
    assert isinstance(operator, WindowJoin)  # Of other jobs, `check` refuses generations.
    return Spiller(operator, operator.beside(1), runs, job.run.seed, job.memory.threshold)


def form_of(kinds: Collection[int | None]) -> str:
    """The form of spilling which a group needs whose frames are of these kinds."""
    if INACTIVE_KIND in kinds:
        return ROTATE
    return GENERATIONS if is_of_generations(*kinds) else OFF


def is_of_generations(*kinds: int | None) -> bool:
    """Whether a frame of one of these kinds tells of generations on disk."""
    return ROWS_KIND in kinds or DEBT_KIND in kinds
