"""What a slave keeps of several producers: aligned marks, acknowledged pauses, and the least of all watermarks."""

import numpy as np
import pytest

from mpijoin.errors import ProtocolError
from mpijoin.messages import Marker, Slot
from mpijoin.moving import steps
from mpijoin.orders import Order
from mpijoin.slave.inputs import NOBODY, Inputs
from mpijoin.store.state import TIME_MIN_VALUE as NEVER

GROUPS = np.array([0, 2])


def slot(producer, watermarks=(0, 0), last=False):
    return Slot(producer, 0, watermarks, GROUPS, (), last)


def inputs(producers=3):
    return Inputs(range(producers), 4, 2)


def test_a_row_expires_by_the_least_watermark_of_all_producers():
    own = inputs(2)
    assert own.joined([slot(0, (50, 60))], GROUPS).tolist() == [[NEVER, NEVER]] * 2, "the other has not been heard"
    assert own.joined([slot(1, (10, 90))], GROUPS).tolist() == [[10, 60]] * 2
    assert own.joined([slot(1, (30, 20))], GROUPS).tolist() == [[30, 60]] * 2, "a watermark never goes back"


def test_a_group_that_moves_takes_its_watermarks_of_each_producer_along():
    """Rows of a slot count for the group once they are joined, so those that go with it count at its consumer."""
    supplier, consumer = inputs(2), inputs(2)
    supplier.joined([slot(0, (50, 60))], GROUPS)
    supplier.joined([slot(1, (10, 90))], GROUPS)
    assert supplier.reached(slot(1, (20, 91)), 2) == (20, 60)
    assert supplier.reached(slot(1, (70, 95)), 2) == (50, 60), "behind each slot"
    marks = supplier.goes(2)
    assert marks == ((50, 60), (70, 95))
    consumer.comes(2, marks)
    consumer.joined([slot(0, (5, 5))], np.array([0]))
    told = consumer.joined([slot(0, (80, 80))], GROUPS).tolist()
    assert told == [[NEVER, NEVER], [70, 80]], "the other group has heard of one producer only"


def test_input_of_all_producers_has_the_watermarks_of_all():
    own = inputs(2)
    own.joined([slot(0, (50, 60))], GROUPS)
    own.joined([slot(1, (10, 90))], GROUPS)
    spooled = own.diverted(slot(0, (55, 61)), 2, ())
    assert (spooled.producer, spooled.watermarks) == (NOBODY, (10, 61))
    own.joined([slot(1, (99, 99))], GROUPS)
    assert own.joined([spooled], np.array([2])) == (10, 61), "what was spooled before is joined before"


def test_with_one_producer_the_slot_says_it_all():
    own = inputs(1)
    assert own.joined([slot(0, (5, 6))], GROUPS) == own.reached(slot(0, (5, 6)), 2) == (5, 6) and own.goes(0) == ()
    assert own.diverted(slot(0, (5, 6)), 2, ()).producer == 0


def test_the_last_slot_is_that_of_the_last_producer():
    own = inputs(2)
    assert not own.slot(slot(1, last=True)).last and own.slot(slot(0, last=True)).last


def test_a_checkpoint_cuts_between_what_all_sent_before_their_marks_and_what_came_after():
    own, marker = inputs(3), Marker(7)
    assert own.mark(1, marker) == [] and not own.is_aligned
    after = [slot(1, (1, 1)), slot(1, (2, 2))]
    assert [own.slot(one) for one in after] == [None, None], "it came after a mark that others have not sent"
    assert own.slot(slot(0)) is not None and own.mark(0, marker) == []
    assert own.slot(slot(0, (3, 3))) is None
    assert own.mark(2, marker) == [*after, slot(0, (3, 3))] and own.is_aligned
    with pytest.raises(ProtocolError, match="producer 0 has sent the mark of checkpoint 8 twice"):
        own.mark(0, Marker(8))
        own.mark(0, Marker(8))


def test_a_group_is_frozen_when_all_producers_have_acknowledged_the_pause():
    """ "Assuming ordered message delivery, once the originating Flux-Cons instance receives all acknowledgements, all
    in-flight tuples for the candidate partition have been received and processed. At this point, the candidate
    partition is successfully quiesced" (Flux, section 5.1)."""
    own, freeze = inputs(3), Order(4, steps.FREEZE, 2, 5)
    assert own.order(0, Order(4, steps.SHIP, 2, 5)) == [Order(4, steps.SHIP, 2, 5)]
    assert own.order(1, freeze) == own.order(0, freeze) == []
    assert own.order(1, freeze) == [], "one producer says it for itself alone"
    assert own.order(2, freeze) == [freeze]


def test_a_group_is_not_taken_back_before_all_have_paused_it():
    """Else an acknowledgement would come for a move that is over."""
    own, freeze, restore = inputs(2), Order(4, steps.FREEZE, 2, 5), Order(4, steps.RESTORE, 2, 5)
    assert own.order(0, freeze) == own.order(0, restore) == []
    assert own.order(1, freeze) == [freeze, restore]
    assert own.order(0, Order(5, steps.RESTORE, 2, 5)) == [Order(5, steps.RESTORE, 2, 5)], "nobody has paused it"
