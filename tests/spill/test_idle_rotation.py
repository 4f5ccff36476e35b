"""What a slave whose groups rotate does while no message comes."""

import numpy as np
import pytest

from mpijoin.slave.core import IDLE_S
from mpijoin.slave.events import Arrived, Diverted, Rotate, Rotated
from mpijoin.slave.rotating import RotatingCore
from mpijoin.slave.rule import SpillRule
from mpijoin.time_events import Rest, Ticked


def core_with_pending(groups, paced=False):
    """A core at rest, after input has come for so many groups on disk."""
    core = RotatingCore(paced, SpillRule(0.9, 0.3, "largest", 64, True, rotates=True))
    core.step(arrived(4))
    core.step(Rotated(False))
    core.step(Diverted((0,), open_groups=groups))
    return core


def arrived(group):
    return Arrived(0, 24, np.array([group]), np.array([3]), False)


def test_an_idle_slave_that_has_no_room_rests_before_it_looks_again():
    core = core_with_pending(1)
    assert core.step(Ticked(0.0)) == [Rest(IDLE_S)]
    assert core.step(Ticked(1.0)) == [Rotate(at_once=True)]
    assert core.step(Rotated(False, 1, is_blocked=True)) == []
    assert core.step(Ticked(1.0)) == [Rest(pytest.approx(IDLE_S))]
    assert core.step(Ticked(1.5)) == [Rotate(at_once=True)]


def test_an_idle_slave_activates_group_after_group_until_a_message_comes():
    core = core_with_pending(3)
    assert core.step(Ticked(0.0)) == [Rest(IDLE_S)]
    assert core.step(Ticked(IDLE_S)) == [Rotate(at_once=True)]
    assert core.step(Rotated(False, open_groups=2)) == []
    assert core.step(Ticked(IDLE_S)) == [Rotate(at_once=True)]
    core.step(Rotated(False, open_groups=1))
    core.step(arrived(7))
    core.step(Rotated(False, open_groups=1))
    core.step(Diverted((0,), open_groups=2))
    assert core.step(Ticked(1.0)) == [Rest(pytest.approx(IDLE_S))]


def test_a_paced_run_uses_every_pause():
    """It has the time, and its results are to come soon."""
    core = core_with_pending(1, paced=True)
    assert core.step(Ticked(1.0)) == [Rest(0.0)]
    assert core.step(Ticked(1.0)) == [Rotate(at_once=True)]
