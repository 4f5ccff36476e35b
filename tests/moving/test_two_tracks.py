"""Moves by PTLB (DCAPE, section 3): a group's input goes to two slaves, until the first one's old tuples are purged."""

from collections import Counter

import numpy as np
import pytest

import oracle
from join_harness import NEVER, Harness, groups_of, numbered
from mover_harness import CONSUMER, STREAM, SUPPLIER, Desk, steps_in
from mpijoin.config.moves import PTLB
from mpijoin.coordinator.events import Stepped, StopAsked
from mpijoin.coordinator.master import MasterCore
from mpijoin.coordinator.reorganization import Loaded, Reorganization
from mpijoin.coordinator.setup import MasterSetup
from mpijoin.errors import ProtocolError
from mpijoin.join.window_join import window_join
from mpijoin.messages import Slot
from mpijoin.moving import steps
from mpijoin.partitioning.table import SHARED, Copy, PartitionTable
from mpijoin.policy.plan import Move, Plan
from mpijoin.producer.events import Command, Consumed, Cut, Deliver, Hold, Ingested, Serve, SourceEnded, TellCopy
from mpijoin.producer.views import never
from mpijoin.rank import MASTER
from mpijoin.slave.tracks import Tracks

GROUP, MOVE, WINDOW = 1, 7, 200


class Side:
    """A slave that has only an operator and its tracks. It is fed by so many producers."""

    def __init__(self, number, producers=1):
        layout = (STREAM.record_words, STREAM.has_blob, STREAM.window)
        self.desk = Desk(number)
        operator = window_join(2, 1 << 22, 256, 600, (layout, layout), tracks=True)
        self.harness = Harness([STREAM, STREAM], 2, operator=operator)
        self.tracks = Tracks(self.desk, operator, tuple(range(producers)))
        self.marks = np.full((producers, 2), NEVER)

    def join(self, parts, until, step, producer=0):
        """Joins these rows of both streams, of a slot that says this. Returns the group if it is left with that."""
        self.marks[producer] = np.maximum(self.marks[producer], until)
        own = [list(part) for part in parts]
        self.harness.round_of(groups_of(GROUP), own, self.marks.min(axis=0).tolist(), new=step == steps.DUPLICATE)
        return self.tell(step, until, producer) if step else None

    def tell(self, step, until=NEVER, producer=0, group=GROUP):
        return self.tracks.joined(Slot(producer, 0, (until, until), np.array([group]), (), move=MOVE, step=step))

    @property
    def said(self):
        return [step for to, step in steps_in(self.desk.taken()) if to == MASTER]


def rows(low, high):
    """Returns rows of the group in both streams, one for each moment from `low` to before `high`."""
    keys = [key for key in range(40) if oracle.partition(key, 2) == GROUP][:3]
    return [numbered([(at, keys[at % 3]) for at in range(low, high)], STREAM, (0, 7), low)] * 2


def results(*sides):
    return Counter(tuple(one.row for one in pair) for side in sides for pair in side.harness.pairs)


def expected(high):
    both = [[(row.time, row.key, row.row) for row in own] for own in rows(0, high)]
    return Counter(oracle.join(both, [WINDOW, WINDOW]))


def doubled(old, high, step=50):
    """Returns a supplier that had the rows before `old` for itself, a consumer, and both have joined those to `high`.

    Then they find all results together."""
    supplier, consumer = Side(SUPPLIER), Side(CONSUMER)
    for low in range(0, old, step):
        supplier.join(rows(low, low + step), low + step, "")
    for low in range(old, high, step):
        supplier.join(rows(low, low + step), low + step, steps.DUPLICATE)
        consumer.join(rows(low, low + step), low + step, steps.COPY)
    return supplier, consumer


def test_the_supplier_says_once_that_all_old_ones_are_purged_one_window_later():
    """Section 3.1: "the join operator must process new tuples from another input that arrive in the next W time units.
    Therefore relocation time T_PT = W"."""
    supplier, consumer = doubled(400, 400 + WINDOW - 50)
    assert supplier.said == consumer.said == []
    supplier.join(rows(550, 600), 600, steps.DUPLICATE)
    assert supplier.said == [steps.ALL_OLD_PURGED]
    supplier.join(rows(600, 650), 650, steps.DUPLICATE)
    assert supplier.said == []
    consumer.join(rows(550, 650), 650, steps.COPY)
    assert supplier.tell(steps.LEAVE) == GROUP and consumer.tell(steps.KEEP) is None
    assert (supplier.said, consumer.said) == ([steps.DROPPED], [steps.INSTALLED])
    assert supplier.harness.operator.memory().held == 0 and sum(supplier.harness.operator.totals.discarded) > 0
    consumer.join(rows(650, 900), 900, "")
    assert results(supplier, consumer) == expected(900)


@pytest.mark.parametrize("refused", [False, True])
def test_a_move_that_is_given_up_leaves_all_to_the_supplier_and_can_begin_again(refused, monkeypatch):
    """Section 3.2: "if both tuples are marked as new, they are not joined together". The consumer has joined them, and
    what comes after that is not marked."""
    supplier, consumer = doubled(400, 500)
    if refused:
        monkeypatch.setattr("mpijoin.slave.tracks.ROOM_SHARE", 1.0)
        supplier.join(rows(500, 520), 520, steps.DUPLICATE)
        consumer.join(rows(500, 520), 520, steps.COPY)
        consumer.join(([], []), 520, steps.COPY)
        assert consumer.said == [steps.REFUSED]
        monkeypatch.undo()
    high = 520 if refused else 500
    assert supplier.tell(steps.KEEP) is None and consumer.tell(steps.LEAVE) == GROUP
    assert (supplier.said, consumer.said) == ([steps.RESTORED], [steps.DISCARDED])
    supplier.join(rows(high, 600), 600, "")
    assert consumer.harness.operator.memory().held == 0
    for low in range(600, 900, 50):  # What was new once is old for the next move.
        supplier.join(rows(low, low + 50), low + 50, steps.DUPLICATE)
        consumer.join(rows(low, low + 50), low + 50, steps.COPY)
    assert results(supplier, consumer) == expected(900)


def test_only_what_all_producers_send_to_both_is_known_to_be_new():
    """Section 3.1: "a tuple is old if it exists in any partition before the load balance starts". Rows of a producer
    that has not begun yet are old, however late they come."""
    supplier = Side(SUPPLIER, producers=2)
    supplier.join(rows(0, 100), 100, "", 0)
    supplier.join(([], []), 100, "", 1)
    for low in range(100, 700, 100):
        supplier.join(rows(low, low + 100), low + 100, steps.DUPLICATE, 0)
        supplier.join(([], []), low + 100, "", 1)
    assert supplier.said == []
    supplier.tell(steps.DUPLICATE, producer=1)
    assert supplier.said == [steps.ALL_OLD_PURGED]
    assert supplier.tell(steps.LEAVE) is None and supplier.said == []
    assert supplier.tell(steps.LEAVE, producer=1) == GROUP and supplier.said == [steps.DROPPED]


@pytest.mark.parametrize("told, group, wanted", [
    ((steps.LEAVE,), GROUP, "told to leave group 1 in move 7 by producer 0"),
    ((steps.DUPLICATE, steps.COPY), GROUP, "told to copy group 1"),
    ((steps.DUPLICATE,), 0, "told to keep group 0"),
    ((steps.DUPLICATE, steps.LEAVE), GROUP, "move 7 is doubled at its supplier and got 'leave'"),
])  # fmt: skip
def test_what_is_out_of_turn_is_refused_by_name(told, group, wanted):
    side = Side(SUPPLIER)
    with pytest.raises(ProtocolError, match=wanted):
        for step in told:
            side.tell(step)
        side.tell(steps.KEEP, group=group)


def core(**settings):
    """Returns a master in which the policy wants group 0 moved from slave 1 to slave 2."""
    reorganization = Reorganization(lambda view: Plan((Move(0, 1, 2),) if view.period == 0 else ()), 1, 1)
    setup = MasterSetup(PartitionTable((1, 1, 2)), (1, 2), 1000, 10_000, reorganization=reorganization, **settings)
    return MasterCore(setup._replace(move_kind=PTLB))


def begun(**settings):
    """Returns the same master after the move has begun, and what was then to be done. A message of 10 bytes waits for
    each slave: there was no credit left."""
    master = core(**settings)
    master.step(Ingested({1: 900, 2: 900}, {}, (1, 1)))
    master.step(Ingested({1: 200, 2: 200}, {}, (2, 2)))
    for slave in (1, 2):
        acts = master.step(Loaded(slave, 0, 0.0, 0.5, 0.0, ()))
    return master, acts


def test_the_group_is_never_paused_and_what_waits_for_the_supplier_is_old():
    """Section 3.2: "It also has the advantage of not having to stop the query execution in the to-be-moved partitions
    at any point of time"."""
    master, acts = begun()
    assert not [act for act in acts if isinstance(act, (Hold, Deliver, Command))]
    told = [act for act in acts if isinstance(act, TellCopy)]
    assert told == [TellCopy(0, 1, 0, steps.DUPLICATE), TellCopy(0, 2, 0, steps.COPY)]
    assert master.table.copies_of(0) == (Copy(1, 0, steps.DUPLICATE), Copy(2, 0, steps.COPY))
    assert master.table.owner_of(0) == SHARED and master.table.groups_of(1).tolist() == [1]
    assert [item.octets for item in master.slaves[1].waiting] == [200, 0], "behind what waits"
    master.step(Ingested({1: 5, 2: 5}, {}, (3, 3), shared=((1, 3), (2, 3))))
    assert [item.octets for item in master.slaves[2].waiting] == [200, 0, 3, 5]


def test_items_of_a_shared_group_go_alone_with_the_watermarks_of_all_that_came_before():
    master, _ = begun()
    master.step(Ingested({1: 5, 2: 5}, {}, (3, 3), shared=((1, 3), (2, 3))))
    sent = [act for octets in (900, 200) for act in master.step(Consumed(1, octets)) if isinstance(act, Serve)]
    assert [(one.items, one.watermarks) for one in sent] == [(1, (2, 2)), (1, (2, 2)), (1, (3, 3)), (1, (3, 3))]


def test_the_input_goes_to_the_consumer_alone_when_all_old_ones_are_purged():
    """Section 3.2, step 5: "Each active split operator will then remove the entries that map the to-be-moved partition
    IDs to the sender machine. This allows the split operator to forward new tuples belonging to these partitions to
    the receiver machine only"."""
    master, _ = begun()
    told = [act for act in master.step(Stepped(0, 1, steps.ALL_OLD_PURGED)) if isinstance(act, TellCopy)]
    assert told == [TellCopy(0, 2, 0, steps.KEEP), TellCopy(0, 1, 0, steps.LEAVE)]
    assert master.table.owner_of(0) == master.coordinator.table.owner_of(0) == 2 and master.open_moves == 1
    master.step(Stepped(0, 2, steps.INSTALLED))
    (closed,) = [act for act in master.step(Stepped(0, 1, steps.DROPPED)) if type(act).__name__ == "Moved"]
    assert closed.outcome == "moved" and master.open_moves == 0


@pytest.mark.parametrize("why", ["stop", "end", "refused"])
def test_a_move_that_takes_a_window_is_given_up_for_a_stop_the_end_and_a_refusal(why):
    master, _ = begun()
    events = {"stop": StopAsked("SIGTERM"), "end": SourceEnded((9, 9)), "refused": Stepped(0, 2, steps.REFUSED)}
    acts = master.step(events[why])
    assert [act for act in acts if isinstance(act, TellCopy)] == [
        TellCopy(0, 1, 0, steps.KEEP), TellCopy(0, 2, 0, steps.LEAVE),
    ]  # fmt: skip
    assert master.table.owner_of(0) == 1 and not [act for act in acts if isinstance(act, Cut)]
    master.step(Stepped(0, 1, steps.RESTORED))
    acts = master.step(Stepped(0, 2, steps.DISCARDED))
    assert [act.outcome for act in acts if type(act).__name__ == "Moved"] == ["cancelled"]
    if why == "stop":
        acts += master.step(Ingested({1: 1, 2: 1}, {}, (4, 4)))
        assert [act.stops for act in acts if isinstance(act, Cut)] == ["SIGTERM"]


def test_a_group_that_goes_to_two_slaves_is_dealt_with_at_both():
    table = PartitionTable((1, 1, 2, 3))
    table.share(0, Copy(1, 5, steps.DUPLICATE), Copy(4, 5, steps.COPY))
    assert table.owners == (1, 2, 3) and table.active == (1, 2, 3, 4)
    assert table.groups_of(1).tolist() == [1] and table.groups_of(SHARED).tolist() == [0]
    assert table.copy().copies_of(0) == table.copies_of(0) and table.copy().active == table.active
    table.route(0, 4)
    assert table.owners == table.active == (1, 2, 3, 4) and table.copies_of(0) == ()


def test_before_anything_is_joined_nobody_is_told_that_it_is_over():
    """Watermarks that nobody has sent yet prove nothing, also for a group without any tuple."""
    supplier = Side(SUPPLIER)
    supplier.tell(steps.DUPLICATE)
    assert supplier.said == [] and supplier.marks.tolist() == [list(never(2))]
    supplier.join(([], []), 5, steps.DUPLICATE)
    assert supplier.said == [steps.ALL_OLD_PURGED]
    assert supplier.harness.operator.totals.discarded == (0, 0)
