"""How much of the stream buffer a waiting message takes follows what is joined of it, and what is taken out."""

from collections import deque

import numpy as np

from mpijoin.slave.slices import Unjoined, take_out


def test_the_backlog_is_counted_anew_when_a_group_leaves_the_message():
    message = Unjoined(0, 100, np.array([3, 5]), np.array([6, 4]), False, 10)
    assert message.backlog_bytes == 100
    message.rows_joined = 2
    assert message.backlog_bytes == 80
    assert take_out(5, [message], 0, deque()) == ((0, 1),)
    assert message.backlog_bytes == 40
