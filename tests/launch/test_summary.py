"""What a run says at its end: to people in a few lines, to programs in summary.json."""

import json
import time

import numpy as np
import pyarrow as pa
import pytest

import mpijoin
from mpijoin.config.moves import MSLB
from mpijoin.config.units import DURATION_NS, INT64_MAX, duration_ns, rounded_duration
from mpijoin.coordinator.movelog import MoveLog
from mpijoin.errors import InputError
from mpijoin.launch import ready
from mpijoin.launch.summary import RunOutcome, _memory, _moves, _spill_texts, summary_text
from mpijoin.records import Figures, MoveTotals, SpillFigures
from mpijoin.simulate.engine import SimulatedClock
from mpijoin.sinks.collector import Collector

FIELDS = {
    "results", "certificate", "streams", "ranks", "slaves", "wall_s", "compile_s", "tuples_per_s", "delay_s", "moves",
    "splits", "merges", "declustering", "peak_master_buffer_bytes", "per_slave", "provenance", "memory",
    "last_runtime_result_s",
}
SLAVE_FIELDS = {
    "cpu_s", "comm_s", "idle_s", "window_bytes_max", "blocks_max", "results", "memory_bytes_max", "spilled_bytes",
}


def run(left, right, path, **stream):
    common = {"time": "ts", "time_unit": "s", "key": "key", "window": "5 s", **stream}
    sides = {
        name: {"table": pa.table({"ts": pa.array(times, pa.int64()), "key": pa.array(keys, pa.string())}), **common}
        for name, (times, keys) in (("left", left), ("right", right))
    }
    return mpijoin.run({**sides, "memory": {"limit": "16 MiB"}, "output": {"path": str(path)}}, slaves=2)


def test_the_file_has_what_is_promised_and_is_what_python_gets(tmp_path):
    done = run(([1, 2], "ab"), ([1, 9], "aa"), tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary == done.summary
    assert FIELDS <= set(summary)
    assert set(summary["per_slave"]) == {"1", "2"}
    assert all(SLAVE_FIELDS <= set(slave) for slave in summary["per_slave"].values())
    assert (summary["ranks"], summary["slaves"], summary["delay_s"]) == (3, 2, None)
    assert summary["declustering"] == {"min": 2, "mean": 2.0, "max": 2}
    assert summary["tuples_per_s"] == pytest.approx(4 / summary["wall_s"], rel=0.05)


def test_compiling_is_told_of_the_rank_that_was_ready_last(tmp_path, monkeypatch):
    real = ready.warmup.warm_up
    monkeypatch.setattr(ready.warmup, "warm_up", lambda role, number, use: real(role, number, use) + 10_000 * number)
    summary = run(([1], "a"), ([1], "a"), tmp_path / "run").summary
    assert 20_000 < summary["compile_s"] < 25_000


def test_memory_is_told_against_its_limit_and_spilling_only_where_there_was_any(tmp_path):
    summary = run(([1, 2], "ab"), ([1, 9], "aa"), tmp_path / "run").summary
    memory = summary["memory"]
    assert memory["limit_bytes"] == 16 << 20 and 0 < memory["bytes_max"] < 1 << 20
    assert memory["bytes_max"] == max(one["memory_bytes_max"] for one in summary["per_slave"].values())
    assert (memory["spills"], memory["spilled_bytes"], memory["cleanup_results"]) == (0, 0, 0)
    assert 0 < summary["last_runtime_result_s"] <= summary["wall_s"]
    assert "spilled" not in summary_text(RunOutcome(0, summary))


def test_what_was_spilled_is_told_over_all_slaves_and_its_time_of_the_slowest():
    figures = Figures(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64_000_000, 60_000_000, 12.0)
    one = SpillFigures(9, 0.25, 0.2, 800_000_000, 900_000_000, 0, 700_000_000, 3.104, 12_000)
    other = SpillFigures(5, 0.5, 0.1, 400_000_000, 300_000_000, 0, 400_000_000, 1.0, 345)
    memory = _memory([figures._replace(spilling=one), figures._replace(spilling=other, memory_bytes_max=63_000_000)])
    assert _spill_texts(memory, 12.3) == [
        "spilled 1.2 GB in 14 pushes, which took 0.50 s; to write took 0.20 s, and clean-up 3.10 s for 12,345 results",
        (
            "the last result before clean-up came after 12.30 s; a slave had up to 63 MB of 64 MB in memory, and all"
            " had up to 1.1 GB on disk"
        ),
    ]
    once = _spill_texts({**memory, "spills": 1, "cleanup_results": 1}, 12.3)[0]
    assert " in 1 push," in once and once.endswith("for 1 result")


def test_the_lateness_that_is_named_covers_exactly_all_late_rows(tmp_path):
    left, right = ([10, 7, 3], "aaa"), ([10], "a")
    done = run(left, right, tmp_path / "run")
    text = summary_text(RunOutcome(0, done.summary))
    assert (
        'warning: 2 late rows of left did not join, see late/left.parquet; lateness = "7 s" would have covered them'
        in text
    )
    assert run(left, right, tmp_path / "more", lateness="7 s").summary["streams"]["left"]["late"] == 0
    assert run(left, right, tmp_path / "less", lateness="6 s").summary["streams"]["left"]["late"] == 1


def test_no_lateness_covers_a_row_without_time(tmp_path):
    text = summary_text(RunOutcome(0, run(([10, None], "aa"), ([10], "a"), tmp_path / "run").summary))
    assert "warning: 1 late row of left did not join, see late/left.parquet\n" in text + "\n"


def test_null_keys_and_empty_inputs_are_told(tmp_path):
    text = summary_text(RunOutcome(0, run(([1, 2], ["a", None]), ([], []), tmp_path / "one").summary))
    assert "1 row of left has no key and matches nothing" in text and text.startswith(
        "0 results from 2 left and 0 right"
    )
    assert summary_text(RunOutcome(0, run(([], []), ([], []), tmp_path / "none").summary)).startswith(
        "the input holds no rows\n"
    )


def test_the_slave_that_paused_the_source_is_told(tmp_path):
    summary = run(([1], "a"), ([1], "a"), tmp_path / "run").summary
    assert "had to pause" not in summary_text(RunOutcome(0, summary))
    held = {**summary, "held_back_by": {"1": 2, "2": 9}}
    assert "the source had to pause for slave 2" in summary_text(RunOutcome(0, held))


def test_long_runs_and_fine_units_are_told_in_words(tmp_path):
    summary = run(([1], "a"), ([1], "a"), tmp_path / "run").summary
    late = {**summary["streams"]["left"], "late": 3, "lateness_needed": 199_843_155}
    streams = {**summary["streams"], "left": late}
    text = summary_text(RunOutcome(0, {**summary, "wall_s": 259_215.0, "streams": streams, "time_unit": "ns"}))
    assert "\nin 72 h 00 min (" in text and 'lateness = "200 ms" would have covered them' in text
    text = summary_text(RunOutcome(0, {**summary, "wall_s": 12.345678, "tuples_per_s": 4321.0}))
    assert "\nin 12.35 s (4.32 k tuples/s) on" in text


@pytest.mark.parametrize(
    "count", [1, 7, 99, 100, 101, 999, 1_001, 59_999, 60_001, 199_843_155, 3_600_000_000_001, 86_400 * 10**9 + 1]
)
@pytest.mark.parametrize("unit", ["ns", "us", "ms", "s"])
def test_a_lateness_that_is_named_is_never_too_short_and_hardly_too_long(count, unit):
    wanted_ns = count * DURATION_NS[unit]
    if wanted_ns > INT64_MAX // 2:
        pytest.skip("no time lies so far from another")
    named_ns = duration_ns(rounded_duration(count, unit))
    assert wanted_ns <= named_ns <= 1.11 * wanted_ns


def test_a_failed_run_says_why():
    assert summary_text(RunOutcome(2, {}, "left.csv: no rows", InputError("x"))) == "mpijoin: left.csv: no rows"


def test_a_slow_collector_is_not_taken_for_a_slow_slave(tmp_path, monkeypatch):
    """The disk at the collector is slow: slaves wait for it with results in their hands, and the source for them."""
    take = Collector.take

    def slowly(collector, message):
        time.sleep(0.02)
        take(collector, message)

    monkeypatch.setattr(Collector, "take", slowly)
    monkeypatch.setattr("mpijoin.slave.runtime.UNSENT_BYTES_MAX", 1 << 16)
    rows = 4000
    table = pa.table({"ts": list(range(rows)), "key": [1] * rows, "more": ["x" * 400] * rows})
    stream = {"table": table, "time": "ts", "time_unit": "s", "key": "key", "window": "5 s"}
    cluster = {
        "partitions": 1,
        "buffer": "64 KiB",
        "master_buffer": "256 KiB",
        "distribution_epoch": "50 s",
    }
    output = {"path": str(tmp_path / "run"), "results": "collect"}
    sections = {"cluster": cluster, "memory": {"limit": "64 MiB"}, "output": output}
    summary = mpijoin.run({"left": stream, "right": stream, **sections}, slaves=1).summary
    (slave,) = summary["per_slave"].values()
    assert slave["blocked_s"] > slave["busy_s"] and summary["held_back_by"]
    told = summary_text(RunOutcome(0, summary))
    assert (
        "for the collector; the collector writes slower than slaves find results" in told and "joins slower" not in told
    )
    behind = {"slowest_slave": 1, "behind_s_max": 2.0, "behind_s_end": 1.0, "lag_s_max": 0.0, "overloaded": True}
    told = summary_text(RunOutcome(0, {**summary, "overload": behind}))
    assert "the collector writes slower" in told and "use more slaves" not in told


def test_the_summary_tells_what_plans_each_slave_has_followed(tmp_path):
    summary = run(([1, 2], ["a", "b"]), ([1], ["a"]), tmp_path / "run").summary
    assert "plans" not in summary and "joined" not in summary_text(RunOutcome(0, summary))
    stream = {"kind": "synthetic", "tuples": 1000, "rate": 100, "domain": 50, "window": "1 s"}
    streams = {name: {**stream, "seed": seed} for seed, name in enumerate("abc")}
    job = {"streams": streams, "join": {"plan": "((a c) b)"}, "output": {"results": "count"}}
    planned = mpijoin.run(job, slaves=2).summary
    given = {"tuples": 0, "plan": "((a c) b)", "took_ns": 0.0, "takes_ns": 0.0}
    assert planned["plans"] == {slave: [given] for slave in "12"}
    assert "\nslave 2 joined by ((a c) b)" in summary_text(RunOutcome(0, planned))
    planned["plans"]["1"] += [
        {"tuples": 70_000, "plan": "mway", "took_ns": 0.0, "takes_ns": 0.0},
        {"tuples": 90_000, "plan": "((b c) a)", "took_ns": 1310.4, "takes_ns": 262.5},
    ]
    assert (
        "slave 1 joined by ((a c) b), then m-way from its tuple 70,000 on, then by ((b c) a) from its tuple 90,000 on"
        " (a tuple took 1,310 ns, and 262 were expected)"
    ) in summary_text(RunOutcome(0, planned))


def test_a_slave_that_changes_its_plan_tells_what_a_tuple_took(tmp_path):
    """The keys of a and b are never equal, and each of their rows has many partners in c."""
    random, rows = np.random.default_rng(1), 400_000
    tables = {
        name: pa.table({"ts": pa.array(np.arange(rows)), "key": random.integers(low, high, rows)})
        for name, low, high in (("a", 0, 300), ("b", 300, 600), ("c", 0, 600))
    }
    own = {"time_unit": "ms", "window": "20 s"}
    job = {
        "streams": {name: {"table": one, **own} for name, one in tables.items()},
        "output": {"path": str(tmp_path / "run"), "results": "count"},
        "join": {"plan": "auto"},
    }
    done = mpijoin.run(job, slaves=1)
    first, *later = done.summary["plans"]["1"]
    assert (first["plan"], first["took_ns"], first["takes_ns"]) == ("mway", 0, 0)
    assert later and all(0 < one["takes_ns"] < one["took_ns"] for one in later)
    assert f"(a tuple took {later[0]['took_ns']:,.0f} ns, and " in summary_text(RunOutcome(0, done.summary))


def test_the_summary_tells_of_which_kind_moves_were_and_how_long_they_took(tmp_path):
    summary = run(([1, 2], ["a", "b"]), ([1], ["a"]), tmp_path / "run").summary
    assert (summary["moves"], summary["move_kind"], summary["move_s_mean"], summary["move_s_max"]) == (
        0,
        "precopy",
        0.0,
        0.0,
    )
    assert "of groups" not in summary_text(RunOutcome(0, summary))
    log = MoveLog(None, SimulatedClock(), MSLB)
    log.totals, log.took_us, log.pause_us_max = MoveTotals(2, 1, 0, 3_400_000), [250_000, 750_000], 40_000
    assert _moves(log) == {
        "moves": 2, "move_kind": "mslb", "moved_bytes": 3_400_000, "moves_refused": 1, "move_s_mean": 0.5,
        "spread": 0, "gathered": 0, "shared": [], "move_s_max": 0.75, "move_pause_s_max": 0.04,
    }  # fmt: skip
    assert (
        "\n2 moves of groups by mslb, 3.4 MB, which took 0.500 s in the mean and 0.750 s at most; the input of a group"
        " was held for 0.040 s at most"
    ) in summary_text(RunOutcome(0, {**summary, **_moves(log)}))
