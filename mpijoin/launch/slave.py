"""How a slave begins: with nothing, or with its groups of a checkpoint."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Callable

from mpijoin.join.tuning import measured_group_tuples
from mpijoin.launch.memory import memory_of_slave
from mpijoin.launch.roles import RunSetup
from mpijoin.operators.stored import TableOperator
from mpijoin.rank import Rank
from mpijoin.slave.joining import new_operator
from mpijoin.slave.runtime import Slave

if TYPE_CHECKING:  # Few runs spill, and few go on from a checkpoint.
    from mpijoin.spill.forms import AnySpiller

# The blocks of all slaves together take so much memory in every run of some size. It is touched before the clock
# starts, because the first write to a page was half of an insert's time until the blocks had been used once.
BLOCKS_TOUCHED_BYTES = 64 << 20


def new_slave(setup: RunSetup, rank: Rank, things: ExitStack) -> Slave:
    """Makes the slave, and meets the other ranks. things: what is closed when the rank's life ends."""
    memory = memory_of_slave(setup, rank)
    make_operator = partial(new_operator, setup.job, setup.schema, memory.octets, measured_group_tuples(setup.schema))
    make_spiller = _spills(setup, rank, things) if setup.job.memory.spills else None
    groups: list[int] = []
    number = 0
    if setup.resumes:
        operator, spiller, groups, number = _restored(setup, rank, make_operator, make_spiller)
    else:
        operator = make_operator()
        spiller = make_spiller(operator) if make_spiller else None
        operator.touch(BLOCKS_TOUCHED_BYTES // len(setup.roles.slaves))
    rank.meet()
    return Slave(setup, rank, operator, groups, number, spiller, memory.allowed)


def _spills(setup: RunSetup, rank: Rank, things: ExitStack) -> Callable[[TableOperator], AnySpiller]:
    """Opens the slave's folder for rows on disk, and returns what makes a spiller that writes there."""
    from mpijoin.spill.forms import new_spiller
    from mpijoin.spill.runs import Runs
    from mpijoin.spill.scratch import open_scratch

    scratch = things.enter_context(open_scratch(setup.job.memory.path, f"rank-{rank.number}"))
    rank.log.info("%s", scratch.told)
    runs = Runs(scratch)
    return lambda operator: new_spiller(setup.job, operator, runs)


def _restored(
    setup: RunSetup,
    rank: Rank,
    make_operator: Callable[[], TableOperator],
    make_spiller: Callable[[TableOperator], AnySpiller] | None,
) -> tuple[TableOperator, AnySpiller | None, list[int], int]:
    """Returns the operator and the spiller that hold the groups of a checkpoint, the groups' numbers, and the
    checkpoint's."""
    from mpijoin.checkpoint.restore import Holder, restore_own

    def make_holder() -> Holder:
        operator = make_operator()
        return Holder(operator, make_spiller(operator) if make_spiller else None)

    # The run continues from what lies in these folders.
    assert setup.directory and setup.checkpoints
    start_s = time.perf_counter()
    holder, groups, number = restore_own(rank, setup.checkpoints, setup.directory, make_holder)
    rank.log.info("%d groups of checkpoint %d taken out in %.3f s", len(groups), number, time.perf_counter() - start_s)
    return holder.operator, holder.spiller, groups, number
