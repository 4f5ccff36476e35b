"""How much of the stream buffer is taken follows what comes, what is joined, and what leaves: a sum that every change
keeps must be what counting all anew gives."""

from collections import deque

import numpy as np
import pytest

from mpijoin.slave.events import Marked
from mpijoin.slave.slices import Messages, Unjoined


def message_of(rows, octets=100, groups=(3, 5)):
    rows = np.array(rows)
    return Unjoined(0, octets, np.array(groups), rows, False, int(rows.sum()))


def test_a_message_takes_less_when_a_part_of_it_is_joined_or_leaves():
    messages = Messages()
    messages.add(message_of([6, 4]))
    assert messages.backlog_bytes == 100
    messages.joined(1, 0, 1)
    assert messages.backlog_bytes == 40
    assert messages.take_out(5, 1, deque([(1, 2)])) == ((0, 1),)
    assert messages.backlog_bytes == 0


def test_a_group_that_is_joined_already_does_not_leave_its_message():
    messages = Messages()
    messages.add(message_of([6, 4]))
    messages.joined(1, 0, 1)
    assert messages.take_out(3, 1, deque([(1, 2)])) == ()
    assert messages.backlog_bytes == 40


@pytest.mark.parametrize("seed", range(20))
def test_the_sum_is_what_counting_all_anew_gives(seed):
    chance = np.random.default_rng(seed)
    messages, low, most = Messages(), 0, 0
    for _ in range(300):
        oldest = messages.oldest if len(messages) else None
        match chance.integers(8):
            case 0 | 1 | 2:
                rows = chance.integers(0, 50, chance.integers(1, 6))
                messages.add(message_of(rows, int(chance.integers(1000)), chance.permutation(9)[: len(rows)]))
            case 3:
                messages.add(Marked(0, False, False, False))
            case 4 if isinstance(oldest, Unjoined) and low < len(oldest.groups):
                messages.joined(1, low, low + 1)
                low += 1
            case 5 if low == 0:
                messages.add_oldest(message_of([7], 30, [2]))
            case 6:
                left = len(oldest.groups) if isinstance(oldest, Unjoined) else 0
                messages.take_out(int(chance.integers(9)), int(low > 0), deque([(low, left)] if low < left else []))
            case 7 if oldest is not None:
                messages.pop_oldest()
                low = 0
        most = max(most, messages.backlog_bytes)
        assert messages.backlog_bytes == sum(one.backlog_bytes for one in messages.unjoined())
    assert most > 0
    messages.clear()
    assert messages.backlog_bytes == 0 and not len(messages)
