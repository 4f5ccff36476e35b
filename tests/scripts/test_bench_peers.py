"""scripts/bench_peers.py: its arithmetic, and small real runs of the harness; Flink, Spark and the like are not
needed."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"
SMALL = 500  # so many times fewer tuples than the benchmark's


@pytest.fixture(autouse=True)
def _import_scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def workload(data):
    from peers.workloads import make

    return lambda name, scale=SMALL: make(name, data, ROOT / "tests/data", scale)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """A bench whose peers run in the environment of the tests."""
    from bench_peers import Bench

    monkeypatch.setattr("peers.catalogue.environment", lambda name, home: Path(sys.executable))
    return Bench(tmp_path, tmp_path / "environments", rounds=2, limit_s=300)


def peer(name):
    from peers.catalogue import PEERS

    return next(one for one in PEERS if one.name == name)


def compare(bench, *arguments):
    *_, cases = bench.compare(*arguments)
    return cases


def program(code, family="Other"):
    """A peer that is this Python code; it may print `answer`, a right one but for its time."""
    from peers.catalogue import Peer

    def line(start):
        right = dataclasses.asdict(start.workload.answer) | {"seconds": 0.5, "cpu_s": 0.1, "version": "1"}
        return [sys.executable, "-c", f"import json, time\nanswer = {right!r}\n{code}"]

    return Peer(family.lower(), f"{family} itself", family, line)


# Figures


def case(name, family, times_s=(), workload="A", **further):
    from peers.tables import Case

    figures = {"cpu_s": [2 * one for one in times_s], "pss_bytes": 500_000_000}
    return Case(workload, 2, name, name, family, 10_000_000, list(times_s), **(figures | further))


def test_ratios_are_to_the_best_launch():
    from peers.tables import Ratio, ratio

    launches = [case("local", "mpijoin", [2.0, 9.0, 4.0]), case("two", "mpijoin", [3.0, 3.0, 3.0])]
    among = [*launches, case("slow", "Flink", [60.0, 90.0, 120.0])]
    assert ratio(among[2], among) == Ratio(30.0)
    assert ratio(among[2], among, "median_s") == Ratio(30.0)
    assert ratio(among[1], among) == Ratio(1.5)
    assert ratio(among[2], among[2:]) is None


def test_a_peer_out_of_time_has_a_bound_and_others_in_trouble_have_no_ratio():
    from peers.tables import ratio, rows

    own = case("local", "mpijoin", [2.0])
    late = case("late", "Pathway", trouble="time", limit_s=300.0)
    wrong = case("wrong", "Polars", [0.1], trouble="wrong", reason="results 3, not 4")
    assert str(ratio(late, [own, late])) == "> 150 x"
    assert ratio(wrong, [own, wrong]) is None
    _, ours, theirs, bad = rows([own, late, wrong])
    assert ours == ["local", "2.00", "2.00", "5", "0.4", "500", "1 x", "1 x"]
    assert theirs == ["late", "> 300", "", "< 0.033", "", "500", "> 150 x", "> 150 x"]
    assert bad == ["wrong", "wrong: results 3, not 4", "", "", "", "", "", ""]


@pytest.mark.parametrize(
    ("theirs", "state"),
    [
        ({"times_s": [30.0]}, "met"),
        ({"times_s": [24.0]}, "MISSED"),
        ({"trouble": "time", "limit_s": 30.0}, "met"),
        ({"trouble": "time", "limit_s": 20.0}, "unknown"),
        ({"trouble": "absent", "reason": "no java"}, "unknown"),
        ({"times_s": [1.0], "trouble": "wrong"}, "unknown"),
    ],
)
def test_targets_of_time(theirs, state):
    from peers.tables import targets

    found = targets([case("local", "mpijoin", [1.0]), case("flink", "Flink", **theirs)])
    assert [one.state for one in found if "Flink" in one.what] == [state]


def test_the_best_form_of_a_family_counts():
    from peers.tables import Ratio, best_ratio

    cases = [case("local", "mpijoin", [1.0]), case("bucketed", "DuckDB", [2.0]), case("plain", "DuckDB", [3.0])]
    assert best_ratio(cases, "A", "DuckDB") == Ratio(2.0)
    assert best_ratio(cases, "A", "Polars") is None


def test_targets_of_memory_are_about_each_launch():
    from peers.tables import targets

    cases = [
        case("local", "mpijoin", [1.0], pss_bytes=450_000_000),
        case("three", "mpijoin", [2.0], pss_bytes=700_000_000),
        case("plain", "DuckDB", [2.0], pss_bytes=400_000_000),
        case("bucketed", "DuckDB", [1.5]),
        case("symmetric", "DataFusion streaming", [6.0], pss_bytes=300_000_000),
    ]
    states = {one.what: one.state for one in targets(cases) if "memory" in one.what}
    assert states == {
        "A: memory of local : DuckDB": "MISSED",
        "A: memory of three : DuckDB": "MISSED",
        "A: memory of local : DataFusion streaming": "met",
        "A: memory of three : DataFusion streaming": "MISSED",
    }


def test_ratios_must_not_shrink_from_a_to_c():
    from peers.tables import targets

    a = [case("local", "mpijoin", [1.0]), case("grows", "DuckDB", [2.0]), case("shrinks", "Polars", [2.0])]
    a.append(case("late", "Flink", [30.0]))
    c = [
        case("local", "mpijoin", [4.0], "C"),
        case("grows", "DuckDB", [9.0], "C"),
        case("shrinks", "Polars", [7.0], "C"),
    ]
    late = case("late", "Flink", workload="C", trouble="time", limit_s=100.0)
    states = {one.what.split()[5]: one.state for one in targets([*a, *c, late]) if "shrink" in one.what}
    assert states == {"grows": "met", "shrinks": "MISSED", "late": "unknown"}


def test_time_per_tuple_as_history_grows():
    from peers.tables import growth_rows

    cases = [case("local", "mpijoin", [1.0]), case("local", "mpijoin", [5.0], "C")]
    cases.append(case("late", "Flink", workload="C", trouble="time", limit_s=60.0))
    assert growth_rows(cases) == [
        ["ns per tuple", "A, 10 M", "C, 10 M"],
        ["local", "100", "500"],
        ["late", "", "> 6000"],
    ]
    assert growth_rows(cases[:1]) == []


def test_markdown_is_a_table():
    from peers.tables import aligned, markdown

    table = [["", "s"], ["one", "1"]]
    assert markdown(table) == "|  | s |\n|---|---|\n| one | 1 |"
    assert aligned(table) == "     s\none  1"


# Data


def test_every_format_holds_the_same_tuples(workload):
    a = workload("A")
    for side in range(2):
        forms = ("parquet", "arrow", "csv", "binary", "split")
        parquet, arrow, csv, binary, split = (a.files(form)[side] for form in forms)
        assert pa.ipc.open_file(arrow).read_all().equals(pq.read_table(parquet))
        wanted = np.column_stack([column.to_numpy() for column in pq.read_table(parquet).columns])
        assert csv.read_text().splitlines()[:2] == ['"ts","key","row"', ",".join(map(str, wanted[0]))]
        assert np.array_equal(np.fromfile(binary, "<i8").reshape(-1, 3), wanted)
        assert pq.read_table(split).equals(pq.read_table(parquet))


def test_real_sets_repeat_without_pairs_across_copies(workload):
    once, thrice = workload("F2", 1000), workload("F2", 40)
    assert (once.tuples, once.answer.results) == (85_289, 53_869)  # as tests/data/italy_picks/ABOUT.md says
    assert (thrice.tuples, thrice.answer.results) == (3 * 85_289, 3 * 53_869)


def test_a_real_set_that_is_not_here_is_said_to_be_absent(tmp_path):
    from peers.workloads import Missing, make

    with pytest.raises(Missing, match="no folder mooncake_kv"):
        make("F1", tmp_path, tmp_path)


def test_skew_of_keys(workload):
    uniform, skewed = (len(pq.read_table(workload(name).files()[0])["key"].unique()) for name in ("D", "E"))
    assert uniform > 9_900 and skewed < 8_500


# Runs


@pytest.mark.parametrize(
    "name, names",
    [
        ("A", ["mpijoin-local", "duckdb-bucketed", "polars-bucketed"]),
        ("G", ["mpijoin-local", "duckdb-plain"]),
        ("I5", ["mpijoin-local", "duckdb-three-wide", "polars-three-plain"]),
    ],
)
def test_arrow_files_are_read_by_all_and_give_the_right_answer(bench, workload, tmp_path, name, names):
    from peers.catalogue import Start

    arrow = dataclasses.replace(workload(name, 100), form="arrow")
    peers = [peer(one) for one in names if "polars" not in one or find_spec("polars")]
    for one in peers:
        line = " ".join(one.line(Start(arrow, 1, tmp_path, tmp_path)))
        read = (tmp_path / "job.toml").read_text() if one.ranks is not None else line
        assert read.count(".arrow") == len(arrow.streams) and ".parquet" not in read
    for one in compare(bench, arrow, peers, 1):
        assert one.measured, one.reason


def test_duckdb_takes_turns_and_is_checked(bench, workload):
    a = workload("A")
    cases = compare(bench, a, [peer("duckdb-bucketed"), peer("duckdb-plain")], 1)
    for one in cases:
        assert one.measured and len(one.times_s) == 2 and one.pss_bytes > 0 and one.version
    assert sorted(os.sched_getaffinity(0)) == bench.cores


def test_polars_where_it_is_installed(bench, workload):
    pytest.importorskip("polars")
    for one in compare(bench, workload("A"), [peer("polars-bucketed"), peer("polars-plain")], 1):
        assert one.measured, one.reason


@pytest.mark.parametrize("engine", ["duckdb", "polars"])
@pytest.mark.parametrize("name", ["I5", "I7"])
def test_all_forms_of_the_join_of_three_streams_give_the_same_answer(bench, workload, engine, name):
    pytest.importorskip(engine)
    three = workload(name, 100)
    peers = [peer(f"{engine}-three-{form}") for form in ("bucketed", "wide", "plain")]
    assert not any(one.runs(workload("B"), 2) for one in peers) and all(one.runs(three, 2) for one in peers)
    cases = compare(bench, three, peers, 2)
    assert [case.trouble for case in cases] == ["", "", ""] and three.answer.results > 10
    assert not peer(f"{engine}-bucketed").runs(three, 2)


def test_written_pairs_are_read_again(bench, workload):
    g = workload("G")
    (one,) = compare(bench, g, [peer("duckdb-plain"), peer("pathway")], 1)
    assert one.measured, one.reason
    other = dataclasses.replace(g, answer=dataclasses.replace(g.answer, sum=1))
    (one,) = compare(bench, other, [peer("duckdb-plain")], 1)
    assert (one.trouble, one.measured) == ("wrong", False)


def test_pairs_with_columns_of_other_rows_are_wrong(workload, tmp_path):
    from peers.workloads import read_back

    g = workload("G")
    left, right = (pq.read_table(file) for file in g.files())
    names = [f"{side}_{column}" for side in ("left", "right") for column in left.column_names]
    pairs = pq.read_table(g.files()[0]).from_arrays([*left.columns, *right.columns], names=names)
    pq.write_table(pairs, tmp_path / "pairs.parquet")
    assert read_back(tmp_path, g) == (10_000, 32 * 10_000 * 9_999 // 2)
    pq.write_table(pairs.set_column(names.index("right_e"), "right_e", left["e"]), tmp_path / "pairs.parquet")
    with pytest.raises(ValueError, match="right_e"):
        read_back(tmp_path, g)


def test_mpijoin_is_checked_too(bench, workload):
    local = peer("mpijoin-local")
    for name in ("A", "G"):
        one = case("local", "mpijoin", workload=name)
        bench.add_run(local, one, workload(name))
        assert one.measured and 0 < one.cpu_s[0] < 20, one.reason


def test_mpirun_is_not_for_one_core(workload):
    a = workload("A")
    assert peer("mpijoin-local").runs(a, 1) and not peer("mpijoin-3").runs(a, 1) and peer("mpijoin-3").runs(a, 2)


def test_peers_in_trouble_say_why_and_run_once(bench, workload):
    from peers.catalogue import Peer
    from peers.environments import Absent

    def absent(start):
        raise Absent("no such package")

    peers = [
        program("print('hello'); print(json.dumps(answer))", "Right"),
        program("print(json.dumps(answer | {'results': -1}))", "Wrong"),
        program("raise SystemExit('out of luck')", "Failed"),
        Peer("absent", "absent", "Absent", absent),
    ]
    right, wrong, failed, missing = compare(bench, workload("A"), peers, 1)
    assert right.measured and right.times_s == [0.5, 0.5]
    assert wrong.trouble == "wrong" and wrong.reason.startswith("results -1, not ") and not wrong.times_s
    assert (failed.trouble, failed.reason) == ("failed", "exit code 1: out of luck")
    assert (missing.trouble, missing.reason) == ("absent", "no such package")


def test_a_slow_peer_runs_once(bench, workload):
    (one,) = compare(bench, workload("A"), [program("print(json.dumps(answer | {'seconds': 61.0}))", "Slow")], 1)
    assert one.times_s == [61.0]


def test_limits_end_a_command_with_all_it_started(tmp_path):
    from peers.watch import Limits, is_alive, watch

    child = f"import time, os; open({str(tmp_path / 'child')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    start = time.monotonic()
    over_time = watch([sys.executable, "-c", parent], [0], Limits(1.5, 1e12))
    assert over_time.over == "time" and time.monotonic() - start < 30
    assert not is_alive(int((tmp_path / "child").read_text()))
    over_memory = watch(
        [sys.executable, "-c", "import time; held = bytearray(10**8); time.sleep(60)"], [0], Limits(30, 5e7)
    )
    assert over_memory.over == "memory" and over_memory.pss_bytes > 5e7


def test_cpu_time_between_two_moments():
    from peers.watch import Watched

    run = Watched(0, "", "", "", 0, [(10.0, 0.0), (11.0, 2.0), (12.0, 2.0)])
    assert run.cpu_s(10.5, 1.0) == 1.0
    assert run.cpu_s(10.0, 60.0) == 2.0


def test_the_command_itself(tmp_path, data):
    """A program in pieces: earlier figures join the tables, absent workloads are named."""
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    line = [
        sys.executable,
        str(SCRIPTS / "bench_peers.py"),
        "--cores",
        "1",
        "--data",
        str(data),
        "--real",
        str(tmp_path),
    ]
    absent = [*line, "--quick", "--workloads", "F1", "--json", str(first)]
    done = subprocess.run(absent, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "F1: absent, no folder mooncake_kv" in done.stdout, done.stderr
    report = json.loads(first.read_text())
    report["titles"]["A"] = "one"
    report["cases"] = [
        dataclasses.asdict(one) for one in (case("local", "mpijoin", [1.0]), case("plain", "DuckDB", [1.4]))
    ]
    first.write_text(json.dumps(report))
    table = tmp_path / "table.md"
    further = ["--workloads", "--earlier", str(first), "--json", str(second), "--markdown", str(table)]
    done = subprocess.run([*line, *further], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "- MISSED   A: time of DuckDB : mpijoin: 1.4 x (wanted >= 1.5 x)" in table.read_text()
    assert "F1: absent" in table.read_text()
    assert {one["state"] for one in json.loads(second.read_text())["targets"]} >= {"MISSED", "unknown"}
    done = subprocess.run([*line, *further, "--files", "arrow"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "of parquet files, not of arrow" in done.stderr
