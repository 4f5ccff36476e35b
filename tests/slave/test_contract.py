"""A slave asks nothing of its operator except what operators/base.py declares."""

import numpy as np
import pyarrow as pa
import pytest

from engine_harness import Stream, section
from join_harness import Stream as Stored
from join_harness import groups_of, numbered, pack
from mpijoin.config.check import resolve
from mpijoin.config.load import load_job
from mpijoin.errors import MemoryBudgetError
from mpijoin.launch.roles import Roles, RunSetup
from mpijoin.messages import Columns, Finished, Piece, Slot
from mpijoin.operators.base import Operator, Progress
from mpijoin.rank import MASTER
from mpijoin.slave.joining import new_operator
from mpijoin.slave.runtime import Slave
from slave_desk import Desk

DECLARED = {name for name in dir(Operator) if not name.startswith("_")}
END = (1 << 63) - 1


class Declared:
    """An operator that fails if it is asked for anything that is not in the contract."""

    def __init__(self, operator):
        self._operator = operator

    def __getattr__(self, name):
        assert name in DECLARED, f"{name} is not in the contract of operators"
        return getattr(self._operator, name)


class FindsLate(Declared):
    """When it expires, it gives a tuple of the first stream without a partner, three times."""

    given = 0

    def expire(self, groups, watermarks, out):
        if self.given == 3:
            return self._operator.expire(groups, watermarks, out)
        self.given += 1
        out.slots[:, out.count] = int(self.words[:4096].argmax()), -1
        out.count += 1
        out.counted(1, 7)
        return Progress.OUT_FULL if self.given % 2 else Progress.BUDGET


class Noted:
    """A consumer that keeps what it is given."""

    def __init__(self):
        self.seen = []

    def consume(self, out, rows, epoch):
        self.seen += [(epoch, *column) for column in out.filled.T.tolist()]

    def end_epoch(self, epoch, last):
        self.seen.append("end")


def joined(wrap, memory_bytes=1 << 24, rows=20):
    """Lets a slave join one slot of so many rows of both streams.

    Returns its operator, what it sent, and what was consumed.
    """
    sides = [Stream(name, ([],), "ms", pa.int64(), (pa.int64(),), form="table") for name in ("left", "right")]
    output = {"path": "none", "results": "collect"}
    job = load_job({
        **{side.name: section(side, None) for side in sides},
        "output": output,
        "cluster": {"partitions": 4},
    })
    schema, desk, noted = resolve(job), Desk(), Noted()
    operator = wrap(new_operator(job, schema, memory_bytes))
    slave = Slave(RunSetup(job, schema, Roles(4, True), None), desk, operator)
    slave._outlets._consumers = [noted]
    fresh = pack(numbered([(time, 5) for time in range(rows)]), Stored())
    piece = Piece(np.array([[rows], [rows]]), (Columns(*fresh), Columns(*fresh)))
    desk.inbox.append((MASTER, Slot(MASTER, 0, (END, END), groups_of(2), (piece,), last=True)))
    while slave.turn() == 0.0:
        pass
    return operator, desk.sent, noted.seen


def test_a_whole_run_asks_for_nothing_that_is_not_declared():
    operator, sent, seen = joined(Declared)
    assert isinstance(sent[-1], Finished)
    assert len(seen) == 20 + 1 and operator.totals.joined == operator.totals.expired == (20, 20)
    assert operator.totals.results == 20 and operator.memory().held == 0


def test_what_is_found_at_expiry_is_consumed_in_its_epoch_before_the_rest_goes():
    operator, _, seen = joined(FindsLate)
    assert seen[-1] == "end" and [one[0] for one in seen[:-1]] == [0] * 23
    assert [one[2] for one in seen[:-1]] == [seen[i][2] for i in range(20)] + [-1] * 3
    assert operator.totals.expired == (20, 20) and operator.totals.results == 20


def test_without_memory_the_run_fails_and_says_what_is_held():
    with pytest.raises(MemoryBudgetError, match="budget 0.0041 MB, held 0 MB, largest groups: none"):
        joined(Declared, memory_bytes=4096, rows=400)
