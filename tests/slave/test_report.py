"""What a slave reports of itself.

It tells its mean backlog and its shares of time when it is asked, and it writes a record for each epoch, with the
delays after the warm-up.
"""

import random
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

import oracle
from join_harness import Harness, Stream, groups_of, numbered
from mpijoin.coordinator.master import MasterCore
from mpijoin.coordinator.reorganization import Loaded, Reorganization
from mpijoin.coordinator.setup import MasterSetup
from mpijoin.messages import encode_message, parse
from mpijoin.operators.base import Memory, Totals
from mpijoin.partitioning.table import PartitionTable
from mpijoin.policy.plan import Plan
from mpijoin.producer.events import Ingested
from mpijoin.records import SpillFigures
from mpijoin.slave.report import RECORD_S, TUPLE_WORK, EpochMeter, LoadMeter
from mpijoin.transport.base import TransportStats
from pacings import new_pacing

NO_TURNS = {"turn_s": 0.0, "turn_offset_s": 0.0}  # No message waited for its turn.


class Desk:
    """A rank whose times the test sets."""

    def __init__(self, number=1):
        self.number = number
        self.clock = SimpleNamespace(wall_s=0.0, cpu_s=0.0)
        self.comm_s = self.idle_s = 0.0
        self.transport = SimpleNamespace(stats=TransportStats())

    def passes(self, wall_s, cpu_s=0.0, comm_s=0.0, idle_s=0.0):
        self.clock.wall_s += wall_s
        self.clock.cpu_s += cpu_s
        self.comm_s += comm_s
        self.idle_s += idle_s


class Counted:
    """An operator that has only counts: the comparisons, results and live bytes of each group, and running totals."""

    def __init__(self, partitions=4):
        self.comparisons, self.live_bytes = np.zeros(partitions, np.int64), np.zeros((partitions, 2), np.int64)
        self.results = np.zeros(partitions, np.int64)
        self.totals = Totals(*[(0, 0)] * 8, *[0] * 7, *[(0, 0)] * 2)
        self.held_bytes = 0

    def memory(self):
        return Memory(1 << 20, self.held_bytes, (1 << 20) - self.held_bytes)

    def count(self, **totals):
        self.totals = self.totals._replace(**totals)

    def info(self, groups):
        columns = {name: getattr(self, name)[groups] for name in ("comparisons", "results", "live_bytes")}
        return SimpleNamespace(**columns)


def meter_of(partitions=4):
    desk, operator = Desk(), Counted(partitions)
    return desk, operator, LoadMeter(desk, operator, partitions)


# These tests are about LoadMeter.


def test_backlog_is_the_mean_over_the_distribution_epochs_since_the_last_answer():
    """WSJ, section IV-C: "A slave node records the buffer size at the end of each distribution epoch within current
    reorganization interval and calculate their average." """
    _, _, meter = meter_of()
    for backlog_bytes in (100, 0, 500):
        meter.epoch_ended(backlog_bytes)
        assert meter.occupancy_bytes == backlog_bytes
    assert meter.answer(0, groups_of(), 10**6, 0.0).backlog_bytes == 200.0
    meter.epoch_ended(40)
    assert meter.answer(1, groups_of(), 10**6, 0.0).backlog_bytes == 40.0


def test_without_an_epoch_since_then_it_is_what_is_there_now():
    _, _, meter = meter_of()
    assert meter.answer(0, groups_of(), 77, 0.0).backlog_bytes == 77.0
    assert isinstance(meter.answer(1, groups_of(), 77, 0.0).backlog_bytes, float)


@pytest.mark.parametrize("load_buffer_bytes", [1000, 250])
def test_occupancy_is_the_mean_backlog_by_the_buffer_s_size(load_buffer_bytes):
    """WSJ, section IV-C: "The average buffer occupancy metric is obtained by dividing the calculated average buffer
    size by the total buffer size (i.e., memory allotted to the buffer)"."""
    views = []
    reorganization = Reorganization(lambda view: views.append(view) or Plan(), 1, 2, 5, load_buffer_bytes, 1 << 20)
    table, pacing = PartitionTable.even(4, (1, 2)), new_pacing()
    master = MasterCore(MasterSetup(table, (1, 2), 1000, 1 << 30, pacing=pacing, reorganization=reorganization))
    master.step(Ingested({1: 0, 2: 0}, {}, (0, 0)))
    for slave, samples in ((1, (300, 500, 100)), (2, (0, 0, 30))):
        meter = LoadMeter(Desk(slave), Counted(), 4)
        for sample in samples:
            meter.epoch_ended(sample)
        answer = parse(encode_message(meter.answer(0, groups_of(), 0, 0.0)))
        master.step(Loaded(slave, answer.period, answer.backlog_bytes, answer.busy, answer.communication, ()))
    assert [one.occupancy for one in views[0].slaves] == pytest.approx(
        [300 / load_buffer_bytes, 10 / load_buffer_bytes]
    )


def test_shares_are_of_the_time_since_the_last_answer():
    desk, _, meter = meter_of()
    desk.passes(4.0, comm_s=1.0)
    first = meter.answer(0, groups_of(), 0, busy_s=3.0)
    assert (first.busy, first.communication) == (0.75, 0.25)
    desk.passes(2.0, comm_s=0.5)
    second = meter.answer(1, groups_of(), 0, busy_s=3.5)
    assert (second.busy, second.communication) == (0.25, 0.25)
    desk.passes(1.0)
    assert meter.answer(2, groups_of(), 0, busy_s=3.5).busy == 0.0


def test_a_slave_made_slow_is_never_busy_for_more_than_all_its_time():
    desk, _, meter = meter_of()
    desk.passes(1.0, comm_s=2.0)
    answer = meter.answer(0, groups_of(), 0, busy_s=5.0)
    assert answer.busy == answer.communication == 1.0
    assert meter.answer(1, groups_of(), 0, busy_s=5.0).busy == 0.0  # No time has passed.


@pytest.mark.parametrize("seed", range(5))
def test_shares_stay_within_0_and_1_and_add_up_to_the_time_spent(seed):
    chance, (desk, _, meter) = random.Random(seed), meter_of()
    busy_s, sums = 0.0, np.zeros(2)
    for period in range(30):
        wall_s = chance.choice([1e-6, 0.01, 2.0])
        spent = chance.random()
        busy_s += wall_s * spent
        desk.passes(wall_s, comm_s=wall_s * (1 - spent))
        answer = meter.answer(period, groups_of(), 0, busy_s)
        assert 0 <= answer.busy <= 1 and 0 <= answer.communication <= 1
        sums += wall_s * np.array([answer.busy, answer.communication])
    assert sums == pytest.approx([busy_s, desk.comm_s])
    assert busy_s + desk.comm_s == pytest.approx(desk.clock.wall_s)


def test_the_work_of_a_group_is_its_comparisons_and_its_tuples_since_the_last_answer():
    _, operator, meter = meter_of()
    meter.arrived(groups_of(0, 2), np.array([3, 1]))
    meter.arrived(groups_of(2, 3), np.array([4, 0]))
    operator.comparisons += [10, 20, 30, 0]
    operator.live_bytes[2] = 40, 5
    answer = meter.answer(6, groups_of(0, 2, 3), 0, 0.0)
    assert answer.groups.tolist() == [0, 2, 3] and (answer.rank, answer.period) == (1, 6)
    assert answer.work.tolist() == [10 + 3 * TUPLE_WORK, 30 + 5 * TUPLE_WORK, 0]
    assert answer.live_bytes.tolist() == [0, 45, 0]
    operator.comparisons += [1, 2, 0, 7]
    assert meter.answer(7, groups_of(0, 1, 2, 3), 0, 0.0).work.tolist() == [1, 22, 0, 7]


def test_the_results_of_a_group_are_those_since_the_last_answer_and_since_it_came():
    _, operator, meter = meter_of()
    operator.results += [10, 20, 30, 40]
    meter.installed(3)
    operator.results[3] += 5
    assert meter.answer(0, groups_of(0, 2, 3), 0, 0.0).results.tolist() == [10, 30, 5]
    operator.results[0] += 7
    assert meter.answer(1, groups_of(0, 2, 3), 0, 0.0).results.tolist() == [7, 0, 0]


def test_a_slave_tells_what_it_holds_of_its_memory():
    _, operator, meter = meter_of()
    operator.held_bytes = 4096
    answer = meter.answer(0, groups_of(1), 0, 0.0)
    assert (answer.held_bytes, answer.limit_bytes) == (4096, 1 << 20) and answer.disk_bytes.tolist() == [0]
    answer = meter.answer(0, groups_of(1, 3), 0, 0.0, np.array([0, 700]))
    assert answer.disk_bytes.tolist() == [0, 700]


def test_what_was_compared_before_a_group_came_is_not_this_slave_s_work():
    _, operator, meter = meter_of()
    operator.comparisons[1] = 10**9  # These came with it.
    meter.installed(1)
    meter.arrived(groups_of(1), np.array([2]))
    operator.comparisons[1] += 5
    assert meter.answer(0, groups_of(1), 0, 0.0).work.tolist() == [5 + 2 * TUPLE_WORK]


def test_a_group_that_went_and_came_back_does_not_count_what_others_compared():
    _, operator, meter = meter_of()
    operator.comparisons[1] = 500
    meter.answer(0, groups_of(1), 0, 0.0)
    operator.comparisons[1] = 0  # The group was dropped.
    assert meter.answer(1, groups_of(), 0, 0.0).work.tolist() == []
    operator.comparisons[1] = 900
    meter.installed(1)
    operator.comparisons[1] = 910
    assert meter.answer(2, groups_of(1), 0, 0.0).work.tolist() == [10]


def test_work_is_never_negative_though_an_operator_forgets_a_dropped_group():
    _, operator, meter = meter_of()
    operator.comparisons[0] = 500
    meter.answer(0, groups_of(0), 0, 0.0)
    operator.comparisons[0] = 3
    assert meter.answer(1, groups_of(0), 0, 0.0).work.tolist() == [0]


def test_the_answer_of_a_real_join_sums_to_its_totals_and_travels_as_it_is():
    harness = Harness([Stream(50), Stream(50)], partitions=4)
    meter, groups = LoadMeter(Desk(), harness.operator, 4), groups_of(0, 1, 2, 3)
    for first in (0, 300):
        rows = numbered([(first + at, at % 20) for at in range(200)], first_row=first)
        meter.arrived(groups, np.array([count_of(rows, group) for group in range(4)]) * 2)
        before = harness.operator.totals.comparisons
        harness.round(groups, rows, rows, (first, first))
        answer = meter.answer(first, groups, 0, 0.0)
        assert answer.work.sum() == harness.operator.totals.comparisons - before + TUPLE_WORK * 400
        assert answer.live_bytes.sum() == harness.operator.totals.live_bytes
        arrived = parse(encode_message(answer))
        assert arrived.work.tolist() == answer.work.tolist() and arrived.busy == answer.busy


def count_of(rows, group):
    return sum(oracle.partition(row.key, 4) == group for row in rows)


# These tests are about EpochMeter.


def epochs_of(tmp_path, warmup_s=0.0, paced=True, rank=3):
    desk, operator = Desk(rank), Counted()
    return (
        desk,
        operator,
        EpochMeter(desk, operator, SimpleNamespace(metrics=tmp_path), ("left", "right"), warmup_s, paced),
    )


def written(tmp_path, meter, rank=3):
    meter.close()
    return pq.read_table(tmp_path / f"rank-{rank}.parquet").to_pylist()


def test_a_record_has_what_happened_in_its_epoch_alone(tmp_path):
    desk, operator, meter = epochs_of(tmp_path)
    desk.passes(1.0, 0.5, 0.25, 0.125)
    operator.count(comparisons=70, joined=(5, 6), expired=(1, 2), live_bytes=900, blocks=4)
    desk.transport.stats.sent_bytes, desk.transport.stats.received_bytes = 10, 20
    meter.epoch_ended(4, results=8, buffer_bytes=33, occupancy_bytes=44, busy_s=0.5)
    desk.passes(2.0, 1.0, 0.5, 0.25)
    operator.count(comparisons=100, joined=(5, 7), splits=2, merges=1, live_bytes=300, blocks=3)
    desk.transport.stats.sent_bytes = 15
    meter.epoch_ended(6, results=9, buffer_bytes=0, occupancy_bytes=1, busy_s=1.0)
    first, second = written(tmp_path, meter)
    names = (
        "rank",
        "role",
        "epoch",
        "end_us",
        "wall_us",
        "cpu_us",
        "comm_us",
        "idle_us",
        "tuples_left",
        "tuples_right",
        "results",
    )
    assert [first[name] for name in names] == [3, "slave", 4, 1_000_000, 1_000_000, 500_000, 250_000, 125_000, 5, 6, 8]
    assert [second[name] for name in names] == [
        3,
        "slave",
        6,
        3_000_000,
        2_000_000,
        1_000_000,
        500_000,
        250_000,
        0,
        1,
        1,
    ]
    rest = (
        "comparisons",
        "window_bytes",
        "blocks",
        "buffer_bytes",
        "occupancy_bytes",
        "sent_bytes",
        "received_bytes",
        "expired",
    )
    assert [first[name] for name in rest] == [70, 900, 4, 33, 44, 10, 20, 3]
    assert [second[name] for name in rest] == [30, 300, 3, 0, 1, 5, 0, 0]
    assert (second["splits"], second["merges"], second["delay_count"]) == (2, 1, 0)
    assert meter.window_bytes_max == 900


def test_delays_belong_to_the_epoch_in_which_they_were_found_and_all_are_kept(tmp_path):
    desk, _, meter = epochs_of(tmp_path)
    meter.delayed(np.array([10, 50]), np.array([3, 1]))
    meter.delayed(np.array([90]), np.array([1]))
    desk.passes(1.0)
    meter.epoch_ended(0, 5, 0, 0, 0.0)
    meter.epoch_ended(1, 5, 0, 0, 0.0)
    meter.delayed(np.array([7]), np.array([2]))
    meter.epoch_ended(2, 7, 0, 0, 0.0)
    rows = written(tmp_path, meter)
    assert [row["delay_count"] for row in rows] == [5, 0, 2]
    assert [row["delay_sum_us"] for row in rows] == [170, 0, 14] and [row["delay_max_us"] for row in rows] == [90, 0, 7]
    assert [row["delay_p50_us"] for row in rows] == [10, 0, 7] and rows[0]["delay_p95_us"] == rows[0][
        "delay_p99_us"
    ] == 90
    assert (meter.delays.count, meter.delays.sum_us, meter.delays.max_us) == (7, 184, 90)
    file = pq.read_table(tmp_path / "delay-3.parquet").to_pylist()
    assert [(row["rank"], row["epoch"], row["bucket_us"], row["count"]) for row in file] == [
        (3, 0, 10, 3), (3, 0, 50, 1), (3, 0, 90, 1), (3, 2, 7, 2),
    ]  # fmt: skip


def test_what_lies_before_the_warm_up_s_end_is_left_out_but_for_the_state_s_peak(tmp_path):
    desk, operator, meter = epochs_of(tmp_path, warmup_s=2.0)
    desk.passes(1.0, 1.0, 0.5, 0.25)
    assert not meter.is_warm
    meter.delayed(np.array([1000]), np.array([9]))
    operator.count(live_bytes=5000, comparisons=10)
    meter.epoch_ended(0, 100, 0, 0, 1.0)
    operator.count(live_bytes=10, comparisons=12)
    desk.passes(1.5, 0.5, 0.25, 0.25)
    assert meter.is_warm
    meter.delayed(np.array([5]), np.array([1]))
    meter.epoch_ended(1, 130, 0, 0, 1.5)
    desk.passes(1.0, 0.75, 0.125, 0.5)
    meter.epoch_ended(2, 135, 0, 0, 2.0)
    assert meter.times_after_warmup(2.25) == {**NO_TURNS, "cpu_s": 0.75, "comm_s": 0.125, "idle_s": 0.5, "busy_s": 0.75}
    rows = written(tmp_path, meter)
    assert [(row["epoch"], row["results"], row["comparisons"], row["delay_count"]) for row in rows] == [
        (1, 30, 2, 1),
        (2, 5, 0, 0),
    ]
    assert meter.delays.max_us == 5 and meter.window_bytes_max == 5000


def test_without_a_warm_up_times_count_from_the_start(tmp_path):
    desk, _, meter = epochs_of(tmp_path)
    desk.passes(1.0, 0.5, 0.25, 0.125)
    meter.epoch_ended(0, 0, 0, 0, 0.5)
    assert meter.times_after_warmup(0.75) == {**NO_TURNS, "cpu_s": 0.5, "comm_s": 0.25, "idle_s": 0.125, "busy_s": 0.75}


def test_a_run_that_ends_before_it_is_warm_gives_all_its_time_and_an_empty_table(tmp_path):
    desk, _, meter = epochs_of(tmp_path, warmup_s=9.0)
    desk.passes(1.0, 0.5)
    meter.epoch_ended(0, 0, 0, 0, 0.25)
    assert meter.times_after_warmup(0.25) == {**NO_TURNS, "cpu_s": 0.5, "comm_s": 0.0, "idle_s": 0.0, "busy_s": 0.25}
    assert written(tmp_path, meter) == [] and not (tmp_path / "delay-3.parquet").exists()


def test_without_a_directory_nothing_is_written_and_delays_are_kept():
    desk = Desk()
    meter = EpochMeter(desk, Counted(), None, ("left", "right"), 0.0, True)
    meter.delayed(np.array([5]), np.array([2]))
    meter.epoch_ended(0, 2, 0, 0, 0.0)
    meter.close()
    assert meter.delays.count == 2


def test_as_fast_as_possible_there_are_no_delays_and_no_file_of_them(tmp_path):
    _, _, meter = epochs_of(tmp_path, paced=False)
    meter.epoch_ended(0, 2, 0, 0, 0.0)
    assert len(written(tmp_path, meter)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["rank-3.parquet"]


@pytest.mark.parametrize("seed", range(5))
def test_records_add_up_to_the_totals(tmp_path, seed):
    chance, (desk, operator, meter) = random.Random(seed), epochs_of(tmp_path)
    results = 0
    for epoch in range(40):
        desk.passes(*(chance.randrange(1000) / 1024 for _ in range(4)))
        for name in ("comparisons", "splits", "merges"):
            operator.count(**{name: getattr(operator.totals, name) + chance.randrange(1000)})
        for name in ("joined", "expired"):
            operator.count(**{name: tuple(count + chance.randrange(1000) for count in getattr(operator.totals, name))})
        results += chance.randrange(50)
        meter.epoch_ended(epoch, results, 0, 0, 0.0)
    rows = written(tmp_path, meter)
    sums = {name: sum(row[name] for row in rows) for name in rows[0] if name != "role"}
    totals = operator.totals
    assert (sums["results"], sums["comparisons"], sums["splits"]) == (results, totals.comparisons, totals.splits)
    assert (sums["tuples_left"], sums["tuples_right"]) == totals.joined
    assert sums["expired"] == sum(totals.expired)
    for name, seconds in (
        ("wall_us", desk.clock.wall_s),
        ("cpu_us", desk.clock.cpu_s),
        ("comm_us", desk.comm_s),
        ("idle_us", desk.idle_s),
    ):
        assert sums[name] == int(seconds * 1e6)  # Nothing is lost to rounding.
    assert rows[-1]["end_us"] == sums["wall_us"]


def test_a_spill_and_a_clean_up_cut_an_epoch_into_records(tmp_path):
    desk, operator, meter = epochs_of(tmp_path)
    desk.passes(1.0)
    operator.held_bytes = 900
    meter.meanwhile(0, 10, 5, 0.5, SpillFigures())
    desk.passes(0.5)
    operator.held_bytes = 600
    spilled = SpillFigures(1, 0.5, 0.25, 400, 0, 400, 400, owed_groups=3, owed_bytes=400)
    meter.meanwhile(0, 10, 5, 0.5, spilled)
    desk.passes(0.5)
    operator.held_bytes = 700
    meter.delayed(np.array([7]), np.array([2]))
    meter.epoch_ended(0, 12, 0, 77, 1.0, spilled)
    desk.passes(2.0)
    meter.delayed(np.array([9]), np.array([8]))
    cleaned = spilled._replace(read_back_bytes=400, disk_bytes=0, cleanup_s=1.75, cleanup_results=8)
    meter.meanwhile(0, 20, 0, 3.0, cleaned._replace(owed_groups=0, owed_bytes=0))
    rows = written(tmp_path, meter)
    delays = pq.read_table(tmp_path / "delay-3.parquet").to_pylist()
    assert [(row["end_us"], row["bucket_us"], row["count"]) for row in delays] == [(2_000_000, 7, 2), (4_000_000, 9, 8)]
    names = ("end_us", "wall_us", "results", "memory_bytes")
    assert [[row[name] for name in names] for row in rows] == [
        [1_000_000, 1_000_000, 10, 900],
        [1_500_000, 500_000, 0, 600],
        [2_000_000, 500_000, 2, 700],
        [4_000_000, 2_000_000, 8, 700],
    ]
    names = ("spills", "spill_us", "write_us", "spilled_bytes", "disk_bytes")
    assert [[row[name] for name in names] for row in rows] == [
        [0, 0, 0, 0, 0],
        [1, 500_000, 250_000, 400, 400],
        [0, 0, 0, 0, 400],
        [0, 0, 0, 0, 0],
    ]
    names = ("owed_groups", "owed_bytes", "read_back_bytes", "cleanup_us", "cleanup_results", "memory_limit_bytes")
    assert [[row[name] for name in names] for row in rows[2:]] == [
        [3, 400, 0, 0, 0, 1 << 20],
        [0, 0, 400, 1_750_000, 8, 1 << 20],
    ]
    assert [row["occupancy_bytes"] for row in rows] == [0, 0, 77, 77] and meter.memory_bytes_max == 900


def test_before_and_after_a_spill_there_is_a_record_however_short_it_is(tmp_path):
    desk, operator, meter = epochs_of(tmp_path)
    for spills, held_bytes in ((0, 900), (1, 600), (1, 850), (2, 500)):
        desk.passes(RECORD_S / 100)
        operator.held_bytes = held_bytes
        meter.meanwhile(0, 0, 0, 0.0, SpillFigures(spills))
    rows = written(tmp_path, meter)
    assert [(row["spills"], row["memory_bytes"]) for row in rows] == [(0, 900), (1, 600), (0, 850), (1, 500)]


def test_what_a_clean_up_finds_is_no_run_time_result(tmp_path):
    desk, _, meter = epochs_of(tmp_path)
    desk.passes(1.0)
    meter.epoch_ended(0, 10, 0, 0, 0.0)
    desk.passes(0.5)
    meter.meanwhile(1, 15, 0, 0.0, SpillFigures(cleanup_results=5))
    assert meter.last_runtime_result_s == 1.0
    desk.passes(0.5)
    meter.meanwhile(1, 17, 0, 0.0, SpillFigures(cleanup_results=6))
    assert meter.last_runtime_result_s == 2.0
    desk.passes(0.5)
    meter.epoch_ended(2, 20, 0, 0, 0.0, SpillFigures(cleanup_results=9))
    assert meter.last_runtime_result_s == 2.0


def test_a_long_clean_up_has_a_record_now_and_then(tmp_path):
    desk, _, meter = epochs_of(tmp_path)
    for step in range(1, 101):
        desk.passes(RECORD_S / 8)
        if meter.is_record_due:
            meter.meanwhile(0, step, 0, 0.0, SpillFigures(cleanup_results=step))
    rows = written(tmp_path, meter)
    assert len(rows) == 100 // 8 and {row["wall_us"] for row in rows} == {int(RECORD_S * 1e6)}
    assert {row["cleanup_results"] for row in rows} == {8}
