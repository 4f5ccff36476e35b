"""Virtual time: who has a turn when, what a rank's clock says, and what was idle."""

import itertools

import pytest

from mpijoin.errors import SimulationError
from mpijoin.transport.base import Channel
from mpijoin.transport.simulated import Disturbance, LinkCosts
from simulated_ranks import REST_S, Ranks, once


def resting(endpoint, clock):
    endpoint.poll()
    return REST_S


def test_a_turn_that_worked_comes_again_when_the_clock_has_caught_up():
    seen = []

    def turn(endpoint, clock):
        seen.append(clock.wall_s)
        clock.charge(2.0)
        return 0.0

    ranks = Ranks([turn])
    ranks.engine.run(lambda: len(seen) == 3)
    assert seen == [0.0, 2.0, 4.0]
    assert ranks.processes[0].clock.cpu_s == 6.0 and ranks.processes[0].idle_s == 0.0


def test_a_pause_is_idle_time_and_a_long_one_lasts_until_something_arrives():
    seen = []

    def turn(endpoint, clock):
        seen.append((clock.wall_s, len(endpoint.poll())))
        return 0.05 if len(seen) == 1 else REST_S

    def send(endpoint, clock):
        clock.charge(7.0)
        endpoint.hand_over(0, Channel.DATA, "thing", 10)

    ranks = Ranks([turn, once(send)])
    ranks.engine.run(lambda: len(seen) == 3)
    assert seen == [(0.0, 0), (0.05, 0), (7.0, 1)]
    assert ranks.processes[0].idle_s == pytest.approx(7.0) and ranks.processes[0].clock.cpu_s == 0.0


def test_sleep_while_a_message_is_on_its_way_counts_as_communication():
    costs = LinkCosts(latency_s=1.0, bytes_per_s=100.0)
    arrived = []

    def turn(endpoint, clock):
        arrived.extend(endpoint.poll())
        return REST_S

    def send(endpoint, clock):
        clock.charge(5.0)
        endpoint.hand_over(0, Channel.DATA, "thing", 200)

    ranks = Ranks([turn, once(send)], costs)
    ranks.engine.run(lambda: bool(arrived))
    receiver = ranks.processes[0]
    assert receiver.clock.wall_s == pytest.approx(5.0 + 1.0 + 2.0)
    assert (receiver.idle_s, receiver.waited_s) == (pytest.approx(5.0), pytest.approx(3.0))


def test_what_arrives_during_a_turn_is_seen_after_it():
    seen = []

    def busy(endpoint, clock):
        seen.append((clock.wall_s, len(endpoint.poll())))
        clock.charge(1.0)
        return REST_S

    def send(endpoint, clock):
        clock.charge(0.5)
        endpoint.hand_over(0, Channel.DATA, "thing", 1)

    ranks = Ranks([busy, once(send)])
    ranks.engine.run(lambda: len(seen) == 2)
    assert seen == [(0.0, 0), (1.0, 1)]


def test_a_run_in_which_nothing_can_happen_any_more_is_ended():
    ranks = Ranks([resting, resting])
    with pytest.raises(SimulationError, match="all 2 ranks sleep, and nothing is on its way"):
        ranks.engine.run(lambda: False)


def test_a_run_is_ended_at_its_limit():
    ranks = Ranks([lambda endpoint, clock: 0.05])
    with pytest.raises(SimulationError, match="not ended after 3 virtual seconds"):
        ranks.engine.run(lambda: False, limit_s=3.0)


def test_a_rank_cannot_block_within_a_turn():
    ranks = Ranks([lambda endpoint, clock: endpoint.wait(1.0)])
    with pytest.raises(SimulationError, match="rank 0 wanted to sleep for 1.0 s within a turn"):
        ranks.engine.run(lambda: False)


def test_a_stalled_rank_has_no_turns_and_its_stall_is_not_its_work():
    seen = []

    def turn(endpoint, clock):
        seen.append(clock.wall_s)
        clock.charge(0.01)
        return 0.0

    disturbance = Disturbance(seed=3, stall_s=0.5, stall_every_s=1.0)
    ranks = Ranks([turn], disturbance=disturbance)
    ranks.engine.run(lambda: len(seen) == 1000)
    gaps = [later - sooner for sooner, later in itertools.pairwise(seen)]
    assert max(gaps) > 0.2 and ranks.processes[0].clock.cpu_s == pytest.approx(10.0)
    assert 0.15 < 1 - 10.0 / ranks.processes[0].clock.wall_s < 0.6, "half a second of every one and a half, in the mean"
