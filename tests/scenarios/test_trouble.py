"""Whole runs under stress, on threads: nobody hangs, memory stays bounded, and the answer is the same."""

import threading
import time
from unittest import mock

import pytest

import mpijoin
import mpijoin.slave.runtime
from mpijoin.api import TableWriter
from mpijoin.slave.runtime import Slave

HANG_S = 60.0
KIB = 1024


def job(tuples=(8000, 8000), **sections):
    """Two synthetic streams of 2000 tuples a second over few keys."""

    def stream(index):
        common = {"kind": "synthetic", "rate": 2000, "bias": 0.5, "domain": 300, "seed": index + 1, "window": "200 ms"}
        return {**common, "tuples": tuples[index], "payload_bytes": 40}

    tight = {
        "partitions": 12,
        "buffer": "64 KiB",
        "master_buffer": "128 KiB",
        "distribution_epoch": "50 ms",
    }
    cluster = tight | sections.pop("cluster", {})
    return {"left": stream(0), "right": stream(1), "cluster": cluster, "memory": {"limit": "64 MiB"}, **sections}


def run(*arguments, **keywords):
    """mpijoin.run, which must end in time."""
    outcome = []

    def target():
        try:
            outcome.append(mpijoin.run(*arguments, **keywords))
        except Exception as error:  # raised again where the test can see it
            outcome.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    thread.join(HANG_S)
    assert outcome, f"the run was not over after {HANG_S} s"
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


@pytest.fixture(autouse=True, scope="module")
def compiled():
    """Compiles first, where that was never done: it takes longer than any run here may."""
    mpijoin.run(job(tuples=(10, 10)), slaves=1)


@pytest.fixture(scope="module")
def wanted(compiled):
    """The answer of a run with room for everything."""
    roomy = {"buffer": "64 MiB", "master_buffer": "256 MiB", "distribution_epoch": "auto"}
    summary = run(job(cluster=roomy), slaves=1).summary
    assert summary["results"] > 10_000
    return summary["results"], summary["certificate"]


def answer(done):
    return done.summary["results"], done.summary["certificate"]


@pytest.mark.parametrize("subgroups", [1, 2, 3])
def test_a_slow_slave_holds_back_its_own_partitions_first_and_is_named(wanted, subgroups):
    slow = {"slow": {"2": 0.05}}
    done = run(job(cluster={"subgroups": subgroups}, inject=slow), slaves=3)
    assert answer(done) == wanted
    held = done.summary["held_back_by"]
    assert max(held, key=held.get) == "2"
    assert done.summary["peak_master_buffer_bytes"] < 3 * 128 * KIB


def test_the_other_slaves_go_on_while_one_is_slow():
    """What is sent ahead to others before the slow slave's share fills the master's buffer."""
    order = []
    receive = Slave._end_message

    def noted(slave, epoch, *others):
        order.append((slave._rank.number, epoch))
        receive(slave, epoch, *others)

    with mock.patch.object(Slave, "_end_message", noted):
        done = run(job(inject={"slow": {"2": 0.05}}, cluster={"master_buffer": "512 KiB"}), slaves=2)
    assert done.summary["slaves"] == 2
    ahead, reached = 0, {1: -1, 2: -1}
    for slave, epoch in order:
        reached[slave] = epoch
        ahead = max(ahead, reached[1] - reached[2])
    assert ahead >= 5


@pytest.mark.parametrize("subgroups, slaves", [(1, 1), (2, 2), (4, 3), (5, 2)])
def test_buffers_smaller_than_an_epoch(wanted, subgroups, slaves):
    done = run(job(cluster={"distribution_epoch": "9 h", "subgroups": subgroups}), slaves=slaves)
    assert answer(done) == wanted
    assert done.summary["epochs"] == 1


def test_a_collector_that_is_behind_makes_slaves_wait_and_memory_stays_bounded(wanted):
    """A row of 70,000 results takes some hundred bytes; of those, little more than the bound is ever on its way."""
    unsent, write, blocked = [], TableWriter.write, Slave._blocked

    def slow_write(writer, table):
        time.sleep(0.004)
        write(writer, table)

    def watched(slave):
        unsent.append(slave._rank.transport.unsent_bytes(slave._collector))
        return blocked(slave)

    bound = mock.patch("mpijoin.slave.runtime.UNSENT_BYTES_MAX", 100_000)
    small = {"result_buffer": 500}
    with bound, mock.patch.object(TableWriter, "write", slow_write), mock.patch.object(Slave, "_blocked", watched):
        done = run(job(tuning=small), slaves=2)
    assert answer(done) == wanted
    assert done.table().num_rows == wanted[0]
    assert 100_000 < max(unsent) < 300_000


@pytest.mark.parametrize("held_bytes_max", [0, 50_000])
def test_a_collector_that_holds_nothing_ahead_still_ends_every_epoch(wanted, held_bytes_max, monkeypatch):
    from mpijoin.sinks.collector import Collector

    monkeypatch.setattr(Collector.__init__, "__defaults__", (held_bytes_max,))
    done = run(job(inject={"slow": {"1": 0.2}}, cluster={"subgroups": 2}), slaves=3)
    assert answer(done) == wanted
    assert done.table().num_rows == wanted[0]


@pytest.mark.parametrize("tuples", [(8000, 0), (0, 8000), (0, 0), (8000, 1), (50, 8000)])
def test_a_stream_that_ends_early_does_not_hold_the_other(tuples):
    done = run(job(tuples=tuples, cluster={"subgroups": 2}), slaves=2)
    counts = [done.summary["streams"][name]["joined"] for name in ("left", "right")]
    assert tuple(counts) == tuples
    if 0 in tuples:
        assert done.results == 0


def test_everything_expires_once_the_other_stream_has_passed(wanted):
    """Held at the end is nothing but what the last window keeps: the state does not grow with the history."""
    done = run(job(tuples=(40_000, 40_000)), slaves=2)
    short = run(job(), slaves=2)
    state = [sum(slave["window_bytes_max"] for slave in one.summary["per_slave"].values()) for one in (done, short)]
    assert state[0] < 1.3 * state[1]
