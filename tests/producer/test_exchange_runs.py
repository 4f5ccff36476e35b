"""Whole runs with either exchange: the answer is the same, and slaves tell how long they waited for their turns."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

import mpijoin
from mpijoin.config.check import resolve
from mpijoin.config.load import load_job
from mpijoin.messages import Slot
from mpijoin.producer.exchange import Ordered
from mpijoin.simulate.cluster import Manner, simulate
from mpijoin.simulate.costs import load_costs

SLAVES = 3


def job_values(path, exchange, rate=1000, speed="max"):
    stream = {
        "kind": "synthetic", "rate": rate, "domain": 2000, "duration": "20 s", "window": "2 s",
    }  # fmt: skip
    return {
        "left": {**stream, "seed": 1},
        "right": {**stream, "seed": 2},
        "cluster": {"exchange": exchange, "distribution_epoch": "500 ms", "subgroups": 1},
        "memory": {"limit": "128 MiB"},
        "output": {"results": "count", "path": str(path)},
        "run": {"speed": speed},
    }


def turns_of(summary, name="turn_s"):
    return [summary["per_slave"][str(slave)][name] for slave in range(1, SLAVES + 1)]


@pytest.fixture(scope="module")
def overlapped(tmp_path_factory):
    path = tmp_path_factory.mktemp("overlapped")
    return mpijoin.run(job_values(path / "run", "overlapped"), slaves=SLAVES).summary


def test_the_answer_is_the_same_in_either_exchange_and_the_order_is_kept(tmp_path, overlapped, monkeypatch):
    taken, serve = [], Ordered._serve

    def watched(exchange, slave):
        served = exchange._served
        unsent = exchange._rank.transport.unsent_bytes(served) if served is not None else 0
        slots = [message for message, _ in exchange._waiting[slave] if isinstance(message, Slot)]
        taken.append((slave, unsent, len(slots)))
        serve(exchange, slave)

    monkeypatch.setattr(Ordered, "_serve", watched)
    ordered = mpijoin.run(job_values(tmp_path / "run", "ordered"), slaves=SLAVES).summary
    for name in ("results", "certificate", "streams"):
        assert ordered[name] == overlapped[name], name
    assert all(unsent == 0 for _, unsent, _ in taken)
    assert sum(slots for *_, slots in taken) > SLAVES * 20
    assert turns_of(ordered)[-1] > 0 and min(turns_of(overlapped)) >= 0


def test_a_column_of_its_own_adds_up_to_the_summary(tmp_path):
    mpijoin.run(job_values(tmp_path / "run", "ordered"), slaves=SLAVES)
    turns = turns_of(json.loads((tmp_path / "run/summary.json").read_text()))
    for slave, turn_s in enumerate(turns, 1):
        (file,) = (tmp_path / "run/metrics").glob(f"rank-{slave}.parquet")
        column = pq.read_table(file, columns=["turn_us"])["turn_us"].to_numpy()
        assert column.min() >= 0 and column.sum() / 1e6 == pytest.approx(turn_s, abs=1e-4)


def test_simulated_slaves_wait_for_those_before_them(tmp_path):
    """WSJ, section VI-B: "The communication time is not uniform across the slaves, as the tuples are distributed to the
    slaves, during a distribution epoch, in a serial order." With "the slave node can delay its connection initiation
    according to its position in the sequence" most of that wait goes."""
    summaries = {}
    for exchange in ("overlapped", "ordered"):
        job = load_job(job_values(tmp_path / exchange, exchange, speed=1), [])
        manner = Manner(load_costs("wsj_2005"))
        summaries[exchange] = simulate(job, resolve(job), SLAVES, manner, overwrite=True).summary
    turns = turns_of(summaries["ordered"])
    assert summaries["ordered"]["streams"] == summaries["overlapped"]["streams"]
    assert turns[0] < turns[1] < turns[2]
    assert turns[2] > turns_of(summaries["overlapped"])[2]
    assert turns_of(summaries["ordered"], "turn_offset_s")[2] < turns[2] / 2
