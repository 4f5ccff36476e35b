"""theta = "auto": measured once per machine, remembered, and never more than a guess as far as results go."""

import doctest
import json
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from config_jobs import small
from mpijoin.config.load import load_job
from mpijoin.data.schema import Column, JoinSchema, StreamSchema
from mpijoin.join import tuning
from mpijoin.join.trial import GROUPS, HELD_TUPLES, WINDOW, Trial, _join
from mpijoin.join.tuning import (
    CANDIDATES,
    GROUP_TUPLES,
    choose,
    mean_tuple_bytes,
    measured_group_tuples,
    remember,
    remembered,
    theta_bytes,
)
from mpijoin.join.window_join import window_join
from mpijoin.launch import sharing, warmup
from mpijoin.slave.joining import new_operator
from mpijoin.store.state import THETA_OFF

QUIET = [[100.0, 98.0, 120.0, 110.0, 150.0]] * 2


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A machine on which nothing was measured yet."""
    for module in (tuning, sharing):
        monkeypatch.setattr(module, "cache_folder", lambda: tmp_path)
    return tmp_path


@pytest.fixture
def measured(monkeypatch):
    """The widths that were measured, without the time it takes."""
    widths = []

    def measure(width):
        widths.append(width)
        return QUIET

    monkeypatch.setattr(tuning, "measure", measure)
    return widths


def schema(payload=()):
    columns = tuple(Column(f"c{i}", kind) for i, kind in enumerate(payload))
    key = Column("key", pa.int64())
    return JoinSchema(
        tuple(StreamSchema(name, Column("ts", pa.int64()), 1, (key,), False, columns) for name in ("left", "right")),
        "ns",
    )


def theta_of(job, of_schema):
    """Of the join that a slave begins with."""
    return new_operator(job, of_schema, 1 << 24, measured_group_tuples(of_schema)).theta_bytes


def test_the_examples_hold():
    assert doctest.testmod(tuning).failed == 0


def test_what_was_measured_is_remembered_by_processor_and_width(cache, measured):
    assert remembered(8) is None
    remember(8)
    remember(8)
    assert measured == [8] and remembered(8) == 480 and remembered(16) is None
    (file,) = cache.iterdir()
    facts = json.loads(file.read_text())
    assert (facts["tuple_words"], facts["group_tuples"], facts["rounds_ns"]) == (8, 480, QUIET)


def test_another_processor_is_measured_anew(cache, measured, monkeypatch):
    remember(8)
    monkeypatch.setattr(tuning, "processor_model", lambda: "another")
    assert remembered(8) is None
    remember(8)
    assert measured == [8, 8] and len(list(cache.iterdir())) == 2


@pytest.mark.parametrize("text", ["", "{", "[480]", "480", '{"group_tuples": 7}', '{"group_tuples": "480"}'])
def test_a_damaged_file_is_measured_over(cache, measured, text):
    remember(8)
    (file,) = cache.iterdir()
    file.write_text(text)
    assert remembered(8) is None
    remember(8)
    assert remembered(8) == 480


def test_where_nothing_can_be_written_nothing_is_measured_and_the_default_holds(cache, measured, monkeypatch):
    monkeypatch.setattr(tuning, "cache_folder", lambda: cache / "missing")
    remember(8)
    assert measured == [] and remembered(8) is None
    assert measured_group_tuples(schema()) is None
    job = load_job(small(tuning__block="1 KiB"))
    assert theta_of(job, schema()) == theta_bytes("auto", 24, 1024) == GROUP_TUPLES * 24


@pytest.mark.parametrize(
    "rounds, wanted",
    [
        ([], GROUP_TUPLES),
        ([[1.0] * 5], GROUP_TUPLES),
        ([[1.0] * 5] * 2, GROUP_TUPLES),
        ([[100, 109, 109, 109, 109]] * 2, GROUP_TUPLES),
        ([[100, 109, 111, 109, 109]] * 2, 340),
        ([[120, 120, 120, 120, 100]] * 2, 1360),
        ([[100, 120, 120, 120, 120], [117, 120, 120, 120, 120], [114, 120, 120, 120, 120]], 340),
        ([[100, 120, 120, 120, 120], [117, 120, 120, 120, 120]], GROUP_TUPLES),
    ],
)
def test_the_usual_size_is_kept_unless_another_is_clearly_better_in_rounds_that_agree(rounds, wanted):
    assert choose(rounds) == wanted


def test_ranks_that_start_together_measure_once(cache, measured):
    job = load_job(small())
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: warmup.measure_theta(job, schema()), range(4)))
    assert measured == [4]


@pytest.mark.parametrize("theta, wanted", [("auto", 480 * 24), ("1 MB", 1_000_000), ("off", THETA_OFF)])
def test_only_an_automatic_theta_is_replaced(cache, measured, theta, wanted):
    job = load_job(small(tuning__theta=theta, tuning__block="1 KiB"))
    warmup.measure_theta(job, schema())
    assert len(measured) == (theta == "auto")
    assert theta_of(job, schema()) == wanted


def test_wide_tuples_count_with_all_their_words(cache, measured):
    job, wide = load_job(small()), schema((pa.int64(), pa.string()))
    tuple_bytes = mean_tuple_bytes(wide)
    assert tuple_bytes > mean_tuple_bytes(schema()) == 24
    warmup.measure_theta(job, wide)
    assert theta_of(job, wide) == max(480 * tuple_bytes, 4 * 4096)


def test_a_trial_is_a_steady_join_of_the_candidates_sizes():
    """Groups are between theta and 2 theta for each candidate; nothing is lost and old tuples leave."""
    trial = Trial(4)
    for tuples in CANDIDATES:
        operator = window_join(GROUPS, 256 << 20, 4096, 32 * tuples, [(1, False, WINDOW)] * 2)
        for epoch in trial._epochs:
            _join(operator, epoch)
        totals, info = operator.totals, operator.info(np.arange(GROUPS))
        rows = sum(len(fresh.tuples) for epoch in trial._epochs for fresh, _ in epoch.streams)
        assert totals.joined[0] + totals.joined[1] == rows
        assert totals.expired[0] > 0
        held = totals.held[0] + totals.held[1]
        assert HELD_TUPLES <= held < 1.6 * HELD_TUPLES
        assert tuples < held / info.buckets.sum() < 2 * tuples


def test_a_measurement_stops_in_time_and_a_start_after_it_only_reads(cache, monkeypatch):
    """The measurement looks at two clocks; here a slow machine's, on which the third round would come too late."""
    rounds = []

    def run(trial: Trial, theta: int) -> float:
        rounds.append(theta)
        return 50.0

    monkeypatch.setattr(Trial, "run", run)
    monkeypatch.setattr(tuning, "WAIT_S", 60)
    monkeypatch.setattr(tuning.time, "thread_time", lambda: len(rounds) / len(CANDIDATES) * 0.4 * tuning.BUDGET_S)
    warmup.measure_theta(load_job(small()), schema())
    assert len(rounds) == 2 * len(CANDIDATES)
    warmup.measure_theta(load_job(small()), schema())
    assert len(rounds) == 2 * len(CANDIDATES)
    assert remembered(4) in CANDIDATES
    assert all(re.fullmatch(r"theta-4-[0-9a-f]{8}\.json|theta_4\.(done|lock)", file.name) for file in cache.iterdir())
