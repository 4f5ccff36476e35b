"""One of several producers that is too far ahead of the slowest prepares its ticks, and sends them when it may."""

import math

import pytest

from mpijoin.coordinator.setup import MasterSetup
from mpijoin.partitioning.table import PartitionTable
from mpijoin.producer.core import ProducerCore
from mpijoin.producer.events import (
    Begin,
    BeginsAt,
    Cut,
    CutAsked,
    Floor,
    HandedOver,
    HandOver,
    Ingested,
    InputEnded,
    PartReady,
    Read,
    Rested,
    Serve,
    SourceEnded,
)
from mpijoin.producer.pacing import TIME_MAX
from mpijoin.time_events import Rest, Ticked

TICK, START, WAITING = 10, 500, 1000


def new_core(producers=2):
    return ProducerCore(MasterSetup(PartitionTable.even(4, (2,)), (2,), 1000, WAITING, producers=producers).producer)


def prepare(core, at, octets=10, completes=True):
    return core.step(PartReady(at + TICK, completes, octets, 0.0, 0.0, (at, at)))


def hand_over(core, at, octets=10, completes=True):
    core.step(HandedOver())
    marks = (at + TICK, at + TICK) if completes else None
    return core.step(Ingested({2: octets}, {}, marks, at + TICK, at + TICK))


def begun(floor=START):
    """Returns a core whose first tick is ready, and which knows where the slowest producer begins."""
    core = new_core()
    prepare(core, START)
    core.step(Begin(floor, 0.0))
    return core


def test_the_first_tick_is_prepared_and_says_where_the_input_begins_to_the_coordinator_and_to_slaves():
    core = new_core()
    assert core.next_input() == Read(ahead=True)
    begins, rested, served = prepare(core, START)
    assert begins == BeginsAt(0, START, 0.0) and isinstance(rested, Rested)
    assert served == Serve(2, 1, 0, (START, START), False), "what the others send can expire without this one"
    assert core.next_input() == Rest(math.inf), "nobody has said yet that it may send"
    core.step(Begin(START, 0.0))
    assert core.next_input() == HandOver(0.0)
    assert prepare(new_core(), START) != [] == prepare(core, START + TICK), "it says so once"


def test_it_sends_when_the_slowest_has_come_near_and_prepares_on_until_then():
    core = begun(floor=0)
    for at in range(START + TICK, START + 50, TICK):
        assert core.next_input() == Read(ahead=True)
        prepare(core, at)
    core.step(Floor(START - TICK))
    assert core.next_input() == HandOver(0.0)
    assert hand_over(core, START)[1:2] == [Serve(2, 1, 0, (START + TICK, START + TICK), False)]
    assert core.next_input() == Read(ahead=True), "it is too far ahead again"
    core.step(Floor(TIME_MAX))
    assert core.next_input() == HandOver(0.0)


def test_once_nothing_is_prepared_it_reads_for_the_slaves_at_once():
    core = begun()
    hand_over(core, START)
    core.step(Floor(START + TICK))
    assert core.next_input() == Read()


def test_where_its_share_does_not_fit_it_sends_what_it_has_to_go_on():
    core = begun(floor=0)
    prepare(core, START + TICK, octets=WAITING)
    assert core.next_input() == HandOver(0.0)
    hand_over(core, START)
    assert core.next_input() == HandOver(0.0)
    hand_over(core, START + TICK, octets=WAITING)
    assert core.next_input() == Rest(math.inf), "the slave has not taken that yet"


def test_it_prepares_no_more_than_the_next_share():
    """Shares of two producers lie in turn. The other one is at the first, which is as long as the second."""
    core, at = begun(floor=0), START + TICK
    while core.next_input() == Read(ahead=True):
        prepare(core, at, octets=1)
        at += TICK
    assert 2 * START <= at <= 3 * START + 2 * TICK
    core.step(Floor(2 * TICK))
    assert core.next_input() == Read(ahead=True)


def test_one_producer_prepares_nothing():
    core = new_core(producers=1)
    assert core.next_input() == Read()
    for at in (0, 1):
        core.step(Ingested({2: 500}, {}, (at, at), at, at))
    assert core.next_input() == Rest(math.inf), "slaves have enough"


def test_a_checkpoint_is_cut_behind_all_that_is_prepared_and_nothing_is_prepared_meanwhile():
    core = begun(floor=0)
    prepare(core, START + TICK)
    assert core.step(CutAsked()) == []
    assert core.next_input() == HandOver(0.0), "however far it is ahead"
    assert not any(isinstance(action, Cut) for action in hand_over(core, START))
    assert core.next_input() == HandOver(0.0)
    cut = next(action for action in hand_over(core, START + TICK) if isinstance(action, Cut))
    assert cut.complete == (START + 2 * TICK,) * 2
    assert core.next_input() == Read(ahead=True)


def test_a_checkpoint_waits_for_the_end_of_a_tick_that_is_prepared_in_part():
    core = begun(floor=0)
    prepare(core, START + TICK, completes=False)
    core.step(CutAsked())
    hand_over(core, START)
    hand_over(core, START + TICK, completes=False)
    assert core.next_input() == Read()
    actions = core.step(Ingested({2: 10}, {}, (START + 2 * TICK,) * 2, START + 2 * TICK, START + 2 * TICK))
    assert any(isinstance(action, Cut) for action in actions)


@pytest.mark.parametrize("left", [0, 1])
def test_the_input_ends_when_all_that_is_prepared_is_sent(left):
    core = begun()
    if not left:
        hand_over(core, START)
    ended = core.step(SourceEnded((TIME_MAX, TIME_MAX)))
    assert any(isinstance(action, InputEnded) for action in ended) == (not left)
    if left:
        assert core.next_input() == HandOver(0.0)
        hand_over(core, START)
        assert core.next_input() == Rest(math.inf)
        assert any(isinstance(action, InputEnded) for action in core.step(Ticked(1.0)))
