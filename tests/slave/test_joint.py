"""Messages that several producers have sent for the same groups are joined together. Each is accounted for alone."""

import random

import numpy as np
import pytest

import oracle
from join_harness import Stream, encode, groups_of, numbered
from mpijoin.join.window_join import window_join
from mpijoin.messages import Columns, Piece, Slot
from mpijoin.operators.base import Memory, Out, Progress, Taken
from mpijoin.slave.batches import Batches
from mpijoin.slave.core import SlaveCore
from mpijoin.slave.events import (
    Arrived,
    Carry,
    Consume,
    EndMessage,
    Expire,
    Expired,
    Insert,
    Inserted,
    Marked,
    Ordered,
    Pause,
    Paused,
    Probe,
    Probed,
    Save,
)
from mpijoin.slave.inputs import Inputs
from mpijoin.slave.inserting import Inserter

DONE = [Inserted(Taken(1 << 30)), Probed(Progress.DONE), Expired(Progress.DONE)]
PROBE = (Probe(0, 2, 5), Consume())


def message(*rows, epoch=0, octets=24, joint=True, groups=None):
    groups = np.arange(10, 10 + len(rows)) if groups is None else np.array(groups)
    return Arrived(epoch, octets, groups, np.array(rows, np.int64), False, not joint, joint)


def core_of(*events, slice_rows=10, joint_max=3):
    """Returns a core that is busy with a first message while these arrive."""
    core = SlaveCore(slice_rows, 5, joint_max=joint_max)
    for event in (message(1), *events):
        core.step(event)
    return core


def joined(core, slices):
    return [action for event in DONE * slices for action in core.step(event)]


def test_what_waits_of_several_producers_is_joined_slice_by_slice_and_ended_message_by_message():
    core = core_of(message(3, 2, 1, epoch=4, octets=50), message(4, 1, 1, epoch=5, octets=60))
    assert joined(core, 1)[-1] == Insert(0, 2, messages=2), "these groups of both make up a slice"
    assert core.backlog_bytes == 110
    assert joined(core, 1) == [Probe(0, 2, 5), Consume(), Expire(0, 2, 2), Insert(2, 3, messages=2)]
    assert core.backlog_bytes == 50 // 6 + 60 // 6
    assert joined(core, 1)[-2:] == [EndMessage(4, 50, False), EndMessage(5, 60, False)]
    assert not core.busy and core.backlog_bytes == 0


def test_only_as_many_as_there_are_producers_are_joined_together():
    core = core_of(*[message(1)] * 4)
    assert joined(core, 1)[-1] == Insert(0, 1, messages=3)
    assert joined(core, 1)[-1] == Insert(0, 1)
    alone = core_of(*[message(1)] * 2, joint_max=1)
    assert joined(alone, 1)[-1] == Insert(0, 1) == joined(alone, 1)[-1]


@pytest.mark.parametrize(
    "between",
    [message(1, joint=False), message(1, 1), message(1, groups=[11]), Marked(3)],
    ids=["own", "more groups", "another group", "mark"],
)
def test_what_has_a_place_of_its_own_keeps_it(between):
    core = core_of(message(1), between, message(1))
    assert joined(core, 1)[-1] == Insert(0, 1)
    following = joined(core, 1)[-1]
    assert following == Save(3) if isinstance(between, Marked) else following.messages == 1


def test_a_group_that_leaves_is_taken_out_of_all_that_are_joined_together_and_of_what_waits():
    core = core_of(message(5, 9, 9), message(5, 9, 9), message(1, 1, 1), joint_max=2)
    joined(core, 1)
    core.step(Ordered(1, "freeze", 11))
    actions = joined(core, 1)
    assert Carry(1, "freeze", 11, ((0, 1), (1, 1), (2, 1))) in actions and actions[-1] == Insert(1, 2, messages=2)
    core.step(Ordered(2, "freeze", 10))
    assert Carry(2, "freeze", 10, ((2, 0),)) in joined(core, 1), "in the two it is joined"


def test_a_run_that_stops_saves_what_is_not_joined_of_each():
    core = core_of(message(9, 9), message(9, 9), message(1, 1), joint_max=2)
    joined(core, 1)
    assert core.step(DONE[0]) == [Probe(0, 1, 5)]
    core.step(Marked(7, stops=True))
    assert core.step(Probed(Progress.BUDGET)) == [Consume(), Pause(5)]
    assert core.step(Paused(Progress.DONE)) == [Consume(), Save(7, unjoined=(1, 1, 0))]


class Cramped:
    """An operator that takes rows of one group until it has had `room`; it notes all that it took."""

    def __init__(self, room):
        self.room, self.rows = room, []

    def insert(self, groups, stream, fresh, bounds, new):
        for at, (low, high) in enumerate(bounds.tolist()):
            if len(self.rows) + high - low > self.room:
                return Taken(at, 1)
            self.rows += fresh.tuples[low:high, 2].tolist()
        return Taken(len(groups))

    def memory(self):
        return Memory(0, 0, 0)


def test_where_memory_is_short_no_row_of_any_message_goes_in_twice():
    messages = [Batches(slot_of(producer, numbered([(0, 0)] * 10, first_row=100 * producer))) for producer in range(3)]
    operator = Cramped(15)
    inserter = Inserter(operator)
    short = inserter.insert(messages, 0, 1)
    assert short.taken.groups == 0 and short.progressed and len(operator.rows) == 10
    assert not inserter.insert(messages, 0, 1).progressed
    operator.room = 30
    assert inserter.insert(messages, 0, 1).taken.groups == 1
    assert sorted(operator.rows) == [100 * producer + at for producer in range(3) for at in range(10)]


def slot_of(producer, *sides, until=0, partitions=1):
    """Returns a producer's slot with these rows of each stream."""
    groups = groups_of(*range(partitions))
    encoded = [encode(groups, rows, Stream(), partitions) for rows in sides]
    counts = np.stack([bounds[:, 1] - bounds[:, 0] for _, bounds in encoded])
    piece = Piece(counts, tuple(Columns(*own) for own, _ in encoded))
    return Slot(producer, 0, (until,) * len(sides), groups, (piece,))


TICK, TICKS, WINDOWS, PARTITIONS = 50, 8, (70, 40), 4


def ticks_of_producers(seed):
    """Yields, for one tick after the other, the slot of each of three producers. Their rows are of the same time."""
    chance, row = random.Random(seed), 0
    for tick in range(TICKS):
        slots = []
        for producer in range(3):
            sides = []
            for _ in range(2):
                count = chance.randrange(30)
                times = sorted(TICK * tick + chance.randrange(TICK) for _ in range(count))
                sides.append(numbered([(time, chance.randrange(6)) for time in times], first_row=row))
                row += count
            slots.append((slot_of(producer, *sides, until=TICK * (tick + 1), partitions=PARTITIONS), sides))
        yield slots


def found(seed, insert=Inserter.insert, joined=Inputs.joined):
    """Joins the ticks, those of one time together. Returns the number of results and their certificate."""
    operator = window_join(PARTITIONS, 1 << 22, 512, 1 << 20, [(0, False, window) for window in WINDOWS])
    inserter, inputs, out = Inserter(operator), Inputs(range(3), PARTITIONS, 2), Out(2, 1 << 16)
    for slots in ticks_of_producers(seed):
        messages = [Batches(slot) for slot, _ in slots]
        groups = messages[0].groups
        for low in range(PARTITIONS):
            insert(inserter, messages, low, low + 1)
            assert operator.probe(groups[low : low + 1], 1 << 30, out) is Progress.DONE
            out.clear()
            watermarks = joined(inputs, [one.slot for one in messages], groups[low : low + 1])
            operator.expire(groups[low : low + 1], watermarks, out)
    return out.found, f"{out.certificate:016x}"


def wanted(seed):
    sides = [[], []]
    for slots in ticks_of_producers(seed):
        for _, own in slots:
            for stream, rows in enumerate(own):
                sides[stream] += rows
    pairs = oracle.join([[row[:3] for row in own] for own in sides], WINDOWS)
    return len(pairs), oracle.certificate(pairs)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_joined_together_finds_what_the_oracle_finds(seed):
    assert found(seed) == wanted(seed)


def only_the_first(inserter, messages, low, high):
    return Inserter.insert(inserter, messages[:1], low, high)


def twice_the_last(inserter, messages, low, high):
    return Inserter.insert(inserter, [*messages, messages[-1]], low, high)


def of_the_next_tick(inputs, slots, groups):
    """As if the slots of the next tick had been joined, too."""
    return np.asarray(Inputs.joined(inputs, slots, groups)) + TICK


@pytest.mark.parametrize(
    "broken",
    [{"insert": only_the_first}, {"insert": twice_the_last}, {"joined": of_the_next_tick}],
    ids=["only the first", "twice the last", "too early"],
)
def test_a_slave_that_does_it_wrong_would_be_noticed(broken):
    assert all(found(seed, **broken) != wanted(seed) for seed in range(4))
