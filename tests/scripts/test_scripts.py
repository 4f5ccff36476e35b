"""The scripts and the jobs they come with: nothing here measures time or installs anything."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import mpijoin
from mpijoin.config.check import resolve
from mpijoin.config.load import load_job
from mpijoin.verify import verify

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"
README = (ROOT / "README.md").read_text(encoding="utf-8")
QUICKSTART_RESULTS = 32_799  # DuckDB: r.ts BETWEEN l.ts AND l.ts + 20 s


@pytest.fixture(autouse=True)
def _import_scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))


@pytest.mark.parametrize(
    "script", sorted([*SCRIPTS.glob("*.sh"), ROOT / "slurm/join.sbatch", ROOT / ".ci/run"]), ids=lambda path: path.name
)
def test_shell_scripts_parse_and_stop_at_the_first_error(script):
    assert subprocess.run(["bash", "-n", str(script)], timeout=60).returncode == 0
    if script.name != "environment.sh":  # sourced: its caller has said so
        assert "set -euo pipefail" in script.read_text()


def test_the_fast_lane_names_tests_that_there_are():
    text = (SCRIPTS / "test.sh").read_text().partition("fast=(")[2].partition("\n)")[0]
    named = [word.strip('"').partition("::") for word in text.split()]
    assert len(named) > 20
    for path, _, function in named:
        assert (ROOT / path).exists(), path
        assert not function or f"def {function.partition('[')[0]}(" in (ROOT / path).read_text(), (path, function)


def test_the_python_of_the_environment_does_not_make_the_environment_anew(tmp_path):
    """It would be gone before it can: where .venv is active, another python is found, or none."""
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python3").symlink_to(sys.executable)
    functions = (SCRIPTS / "environment.sh").read_text().partition("\nmake_environment\n")[0]
    text = f'cd "{tmp_path}"\n' + functions.replace('cd "$(dirname "${BASH_SOURCE[0]}")/.."', "") + "\nfind_python"
    environ = {"PATH": f"{tmp_path}/.venv/bin:/usr/bin:/bin", "PYTHON": "python3"}
    found = subprocess.run(["bash", "-c", text], env=environ, capture_output=True, text=True, timeout=60)
    assert ".venv" not in found.stdout


def test_find_python_refuses_what_is_too_old(tmp_path):
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    functions = (SCRIPTS / "environment.sh").read_text().partition("\nmake_environment\n")[0]
    text = functions.replace('cd "$(dirname "${BASH_SOURCE[0]}")/.."', "") + "\nfind_python"
    for python, exit_code in ((str(old), 1), (sys.executable, 0)):
        done = subprocess.run(
            ["bash", "-c", text],
            env={"PATH": "/usr/bin:/bin", "PYTHON": python},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == exit_code
        assert (done.stdout.strip() == python) if exit_code == 0 else ("no Python 3.11" in done.stderr)


@pytest.mark.parametrize("path", sorted((SCRIPTS / "jobs").glob("*.toml")), ids=lambda path: path.name)
def test_jobs_have_no_fault(path):
    resolve(load_job(path))


def test_quickstart_job_and_its_report(tmp_path, capsys):
    from seismic_report import report

    run = mpijoin.run(SCRIPTS / "jobs/seismic.toml", [f"output.path={tmp_path}/out"], slaves=2)
    assert run.results == QUICKSTART_RESULTS
    report(str(tmp_path / "out"))
    text = capsys.readouterr().out
    assert "IV.T1202  00:00:06.850  00:00:13.890      7.04    56.3" in text
    assert "22,333 of 35,435 P picks found at least one of the 49,854 S picks." in text
    assert (
        "  0-1    11,310  ##################################################\n  1-2     3,042  #############\n" in text
    )
    for line in text.splitlines()[:5]:
        assert line in README, "the README shows what the quickstart prints"


def test_report_of_a_run_without_pairs(tmp_path, capsys):
    from seismic_report import report

    mpijoin.run(SCRIPTS / "jobs/seismic.toml", [f"output.path={tmp_path}/out", "left.window=0s"], slaves=1)
    (tmp_path / "out/summary.json").write_text(json.dumps({"streams": {"left": {"read": 0}, "right": {"read": 0}}}))
    for part in (tmp_path / "out/results").glob("*.parquet"):
        pq.write_table(pq.read_table(part).slice(0, 0), part)
    report(str(tmp_path / "out"))
    assert "0 of 0 P picks" in capsys.readouterr().out


PROGRAMS = sorted(SCRIPTS.glob("*.py"))
HELP = """
import runpy, sys
for path in sys.argv[1:]:
    sys.argv = [path, "--help"]
    try:
        runpy.run_path(path, run_name="__main__")
        sys.exit(f"{path} goes on after --help")
    except SystemExit as end:
        assert not end.code, (path, end.code)
"""


def test_every_script_is_a_program_that_explains_itself():
    """What programs share lies in folders, so that a reader sees which is which."""
    names = {path.stem for path in PROGRAMS}
    for path in PROGRAMS:
        imported = set(re.findall(r"^\s*(?:from|import) (\w+)", path.read_text(), re.MULTILINE))
        assert not names & imported, f"{path.name} imports a program"
    command = [sys.executable, "-c", HELP, *map(str, PROGRAMS)]
    environment = {"PYTHONPATH": f"{ROOT}:{SCRIPTS}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and done.stdout.count("usage: ") == len(PROGRAMS), done.stderr


def test_bench_data_is_the_same_everywhere():
    from benching.data import tables

    left, right = tables(1000)
    assert (left["ts"][:3].to_pylist(), left["key"][:3].to_pylist()) == ([471, 1155, 1534], [5008021, 947948, 6045532])
    assert (right["ts"][:3].to_pylist(), right["key"][:3].to_pylist()) == ([762, 891, 2211], [1562509, 159416, 1250067])
    assert left["id"].to_pylist() == list(range(1000))


def test_bench_data_certificate_matches_the_contract():
    from benching.data import mix

    pairs = {(0, 0): "48218226ff3cd4bf", (1, 2): "081a5c1377856b73", (2, 1): "f2826f98653e9e57"}
    for (left, right), wanted in pairs.items():
        inner = mix(np.array([left], np.uint64) + np.uint64(0x9E3779B97F4A7C15))
        assert f"{int(mix(inner + np.uint64(right))[0]):016x}" == wanted


def test_bench_slave_and_duckdb_agree(tmp_path):
    """The benchmark's own path through the engine, as processes, on little data."""
    from benching.data import WINDOW_US, make_data

    data = make_data(tmp_path, 20_000)
    assert make_data(tmp_path, 20_000) == data
    files = [str(data.left), str(data.right)]
    assert worker("bench_slave.py", "2 s", *files) == {
        "results": data.answer.results,
        "certificate": data.answer.certificate,
    }
    for form in ("plain", "bucketed"):
        said = worker("bench_duckdb.py", form, "1", str(WINDOW_US), *files, "--in-memory")
        assert said == {"results": data.answer.results, "sum": data.answer.sum}


def worker(script: str, *arguments: str) -> dict:
    line = [sys.executable, str(SCRIPTS / script), *arguments]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said.pop("seconds") > 0
    return said


def test_bench_engine_counts_whole_runs_and_refuses_wrong_answers(tmp_path):
    from benching.bench import Bench, Section, check, section_text

    bench = Bench(tmp_path, tuples=20_000, scale=2, rounds=2)
    section = bench.measure(Section("Local runs", 40_000), {"local": lambda: bench.engine(bench.data(), 0)})
    section.at_most("best", section.best_s("local"), 0.0, "s")
    assert len(section.times_s["local"]) == 2
    assert "MISSED  best" in section_text(section)
    wrong = {"results": bench.data().answer.results + 1}
    with pytest.raises(SystemExit, match="wrong answer"):
        check(wrong, bench.data(), "nobody")


def test_bench_plans_compares_every_plan_and_refuses_other_answers(tmp_path, monkeypatch):
    import bench_plans

    found = {each.name: bench_plans.measure(tmp_path, each, 20_000, 1) for each in bench_plans.inputs(20_000)}
    assert found["alike"]["results"] > 10_000 and "slave 2: mway from 0" in bench_plans.text_of(found)
    honest = bench_plans.run

    def other(streams, plan, out):
        summary, courses = honest(streams, plan, out)
        return summary | {"results": len(plan)}, courses

    monkeypatch.setattr(bench_plans, "run", other)
    with pytest.raises(SystemExit, match="plans differ"):
        bench_plans.measure(tmp_path, bench_plans.inputs(20_000)[0], 20_000, 1)


def test_the_rest_of_a_run_begins_where_the_last_slave_has_changed_its_plan():
    from bench_plans import Course, rest_s

    first = Course(np.array([0, 10, 20]), np.array([0.0, 1.0, 4.0]))
    courses = {"1": first, "2": Course(np.array([0, 40]), np.array([0.0, 5.0]))}
    assert courses["1"].at(15) == 2.5
    assert rest_s(courses, {"1": 15, "2": 4}) == 2.5 and rest_s(courses, {"2": 32}) == 1.0


def test_bench_queries_compares_every_type_with_duckdb(tmp_path, capsys, monkeypatch):
    import bench_queries
    from benching.data import make_data

    found = bench_queries.measure(make_data(tmp_path, 20_000), 1, 2)
    assert {f"{name} {case}" for name in ("mpijoin", "DuckDB") for case in bench_queries.CASES} <= found.keys()
    assert found["mpijoin anti"]["results"] > 1000 and "DuckDB s" in bench_queries.text_of(found)
    monkeypatch.setattr(bench_queries, "run_duckdb", lambda *case: (1.0, 7))
    with pytest.raises(SystemExit, match="inner join: mpijoin has .* results, and DuckDB 7"):
        bench_queries.measure(make_data(tmp_path, 20_000), 1, 2)


def test_three_queries_together_have_as_many_results_as_each_alone(tmp_path, monkeypatch):
    import bench_queries
    from benching.data import make_data

    told = bench_queries.measure_several(make_data(tmp_path, 20_000), 1)
    assert [line.split()[0] for line in told.splitlines()[:4]] == ["inner", "where", "as-of", "together"]
    monkeypatch.setattr(bench_queries, "run_engine", lambda *case: (1.0, 7))
    with pytest.raises(SystemExit, match="inner: .* results beside other queries, and 7 alone"):
        bench_queries.measure_several(make_data(tmp_path, 20_000), 1)


def test_the_picks_without_partner_are_those_that_no_pair_has(tmp_path):
    jobs = SCRIPTS / "jobs"
    pairs, alone = (
        mpijoin.run(jobs / name, [f'output.path="{tmp_path / name}"'], slaves=2).table()["left_row"].to_pylist()
        for name in ("seismic.toml", "unpaired.toml")
    )
    assert len(pairs) == QUICKSTART_RESULTS and len(alone) == len(set(alone)) == 13_102
    assert set(pairs).isdisjoint(alone) and len(set(pairs) | set(alone)) == 35_435


def test_the_first_s_pick_is_one_of_the_pairs_and_none_comes_before_it(tmp_path):
    pairs, first = (
        mpijoin.run(SCRIPTS / f"jobs/{name}.toml", [f'output.path="{tmp_path / name}"'], slaves=2).table()
        for name in ("seismic", "first_s")
    )
    earliest: dict[int, int] = {}
    for row, time in zip(pairs["left_row"].to_pylist(), pairs["right_time"].to_pylist()):
        earliest[row] = min(time, earliest.get(row, time))
    assert dict(zip(first["left_row"].to_pylist(), first["right_time"].to_pylist())) == earliest
    assert first.num_rows == 35_435 - 13_102


def test_questions_have_the_answers_of_the_jobs_that_ask_one_each(tmp_path):
    job = SCRIPTS / "jobs/questions.toml"
    done = mpijoin.run(job, [f'output.path="{tmp_path / "out"}"'], slaves=2)
    assert done.table("first_s").num_rows == 35_435 - 13_102 and done.table("unpaired").num_rows == 13_102
    assert verify(tmp_path / "out").ok


def test_each_flight_has_the_last_weather_before_it(tmp_path):
    table = mpijoin.run(SCRIPTS / "jobs/weather.toml", [f'output.path="{tmp_path / "out"}"'], slaves=2).table()
    assert table.num_rows == 26_865
    times = zip(table["left_time"].to_pylist(), table["right_time"].to_pylist())
    found = [pair for pair in times if pair[1] is not None]
    assert len(found) > 26_000 and all(0 <= flight - report <= 7_200_000_000 for flight, report in found)
    assert verify(tmp_path / "out").ok


@pytest.mark.mpi
def test_bench_launch_watches_a_run_from_outside(tmp_path):
    from benching.launch import launch

    done = launch(SCRIPTS / "jobs/seismic.toml", tmp_path / "out", 3, [0], sample=True)
    assert done.summary["results"] == QUICKSTART_RESULTS and done.summary["ranks"] == 3
    assert 0 < done.first_epoch_s <= done.wall_s
    assert 50e6 < done.pss_bytes < 3e9
