"""Joins of real streams. An independent program found the right counts, which stand in ABOUT.md beside the data."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import duckdb
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import mpijoin
from mpijoin.cli import main
from mpijoin.config.dump import dump_job
from mpijoin.config.load import load_job

ROOT = Path(__file__).parents[2]
MPIRUN = Path(sysconfig.get_path("scripts")) / "mpirun"
FOLDERS = (ROOT / "tests" / "data", ROOT.parent / "shared" / "data")
COUNTS = {
    ("italy_picks", "20 s"): 53_869,
    ("italy_picks", "5 s"): 32_798,
    ("nycflights13_jan", "1 h"): 58_770,
    ("nycflights13_jan", "30 min"): 29_298,
    ("mooncake_kv", "10 s"): 220_727,
    ("mooncake_kv", "1 s"): 33_828,
    ("mooncake_kv", "60 s"): 1_253_900,
}

pytestmark = [pytest.mark.slow, pytest.mark.mpi]


def data(name: str) -> Path:
    for folder in FOLDERS:
        if (folder / name / "left.parquet").exists():
            return folder / name
    pytest.skip(f"{name} is not shipped with the sources")


def document(name: str, windows: tuple[str, str], **output) -> dict:
    def stream(side: str, window: str) -> dict:
        return {
            "path": str(data(name) / f"{side}.parquet"),
            "time": "ts",
            "time_unit": "us",
            "key": "key",
            "window": window,
        }

    return {"left": stream("left", windows[0]), "right": stream("right", windows[1]), "output": output}


@pytest.mark.parametrize("name, window", COUNTS)
def test_counts_are_those_of_the_data_s_own_page(name, window, tmp_path):
    about = (data(name) / "ABOUT.md").read_text()
    assert re.search(rf"\b{COUNTS[name, window]:,}\b", about)
    settings = [f'output.path="{tmp_path / "run"}"', 'output.results="count"', 'memory.limit="512 MiB"']
    summary = mpijoin.run(document(name, (window, window)), settings, slaves=2).summary
    assert summary["results"] == COUNTS[name, window]
    for side in ("left", "right"):
        assert summary["streams"][side]["late"] == summary["streams"][side]["null_key"] == 0
        assert summary["streams"][side]["joined"] == summary["streams"][side]["read"]


@pytest.mark.parametrize("name", ["italy_picks", "nycflights13_jan", "mooncake_kv"])
def test_settings_that_must_not_matter_do_not(name, tmp_path):
    window = next(own for data_set, own in COUNTS if data_set == name)
    plain = ['output.results="count"', 'memory.limit="512 MiB"']
    other = [*plain, 'tuning.theta="4 KB"', 'tuning.block="512 B"', "cluster.subgroups=3", "cluster.partitions=11"]
    runs = [
        mpijoin.run(document(name, (window, window), path=str(tmp_path / f"run-{index}")), settings, slaves=slaves)
        for index, (settings, slaves) in enumerate([(plain, 1), (other, 3)])
    ]
    assert runs[0].summary["certificate"] == runs[1].summary["certificate"]


@pytest.mark.parametrize("results", ["parquet", "collect", "count"])
@pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun beside this Python")
def test_the_quickstart_join_on_four_ranks_is_verified(results, tmp_path, capsys):
    """P picks wait 20 s for S picks. S picks do not wait."""
    out = tmp_path / "run"
    job = load_job(document("italy_picks", ("20 s", "0 s"), path=str(out), results=results))
    (tmp_path / "job.toml").write_text(dump_job(job))
    environ = dict(os.environ, PYTHONPATH=str(ROOT))
    command = [str(MPIRUN), "-n", "4", sys.executable, "-m", "mpijoin", "run", str(tmp_path / "job.toml")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    left, right = (str(data("italy_picks") / f"{side}.parquet") for side in ("left", "right"))
    found = duckdb.sql(
        f"SELECT count(*) FROM '{left}' l JOIN '{right}' r ON l.key = r.key AND r.ts BETWEEN l.ts AND l.ts + 20000000"
    ).fetchall()
    wanted = found[0][0]
    assert json.loads((out / "summary.json").read_text())["results"] == wanted
    assert main(["verify", str(out)]) == 0
    assert f"{wanted:,}" in capsys.readouterr().out


@pytest.mark.parametrize("name, window", [("nycflights13_jan", "1 h"), ("mooncake_kv", "10 s")])
def test_verify_agrees_on_rows_and_payload(name, window, tmp_path):
    mpijoin.run(document(name, (window, window), path=str(tmp_path / "run")), ['memory.limit="512 MiB"'], slaves=2)
    assert main(["verify", str(tmp_path / "run")]) == 0


# What DuckDB finds in three files, by how long a row of each waits. The page beside the files has these counts too.
THREE = {("10 s", "10 s", "10 s"): 332_559, ("60 s", "0 s", "10 s"): 701_806, ("0 s", "0 s", "0 s"): 11_325}


def of_three(windows: tuple[str, ...], **output) -> dict:
    files = ROOT / "tests" / "data" / "mooncake_kv_three"
    stream = {"time": "ts", "time_unit": "us", "key": "key"}
    return {
        "streams": {
            name: {**stream, "path": str(files / f"{name}.parquet"), "window": window}
            for name, window in zip(("one", "two", "three"), windows)
        },
        "output": output,
    }


@pytest.mark.parametrize("windows", THREE, ids=" ".join)
def test_blocks_wanted_by_three_servers_are_as_many_as_the_data_s_page_says(windows, tmp_path):
    about = (ROOT / "tests" / "data" / "mooncake_kv_three" / "ABOUT.md").read_text()
    assert re.search(rf"\b{THREE[windows]:,}\b", about)
    settings = ['output.results="count"', 'memory.limit="512 MiB"']
    summary = mpijoin.run(of_three(windows, path=str(tmp_path / "run")), settings, slaves=2).summary
    assert summary["results"] == THREE[windows]
    assert [one["late"] for one in summary["streams"].values()] == [0, 0, 0]
    assert main(["verify", str(tmp_path / "run")]) == 0


@pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun beside this Python")
@pytest.mark.parametrize("ranks", [2, 5])
def test_three_real_streams_on_any_number_of_ranks_are_verified_row_by_row(ranks, tmp_path, capsys):
    out = tmp_path / "run"
    columns = ["key", "one_time", "two_request", "three_block", "one_row", "two_row", "three_row"]
    (tmp_path / "job.toml").write_text(dump_job(load_job(of_three(("10 s",) * 3, path=str(out), columns=columns))))
    environ = dict(os.environ, PYTHONPATH=str(ROOT))
    command = [str(MPIRUN), "-n", str(ranks), sys.executable, "-m", "mpijoin", "run", str(tmp_path / "job.toml")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert main(["verify", str(out)]) == 0
    assert f"{THREE['10 s', '10 s', '10 s']:,} results" in capsys.readouterr().out


@pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun beside this Python")
@pytest.mark.parametrize("names, window, producers", [(("one", "two"), "10 s", 1), (("one", "two", "three"), "0 s", 2)])
def test_a_key_with_half_of_all_rows_is_spread_and_gathered_and_verified(names, window, producers, tmp_path, capsys):
    """Half of the keys are made one. Random spreads and gathers must change nothing."""
    document = of_three((window,) * len(names), path=str(tmp_path / "run"), results="count")
    for name in names:
        table = pq.read_table(document["streams"][name]["path"])
        hot = pc.equal(pc.bit_wise_and(table["key"], 1), 0)
        assert 0.45 < pc.mean(hot.cast("float64")).as_py() < 0.55
        keys = pc.if_else(hot, 0, table["key"])
        pq.write_table(table.set_column(1, "key", keys), tmp_path / f"{name}.parquet")
        document["streams"][name]["path"] = str(tmp_path / f"{name}.parquet")
    epochs = {"distribution_epoch": "5 s", "reorganization_epoch": "5 s", "buffer": "64 KiB", "master_buffer": "64 KiB"}
    cluster = {"producers": producers, "partitions": 7, **epochs}
    document = {**document, "cluster": cluster, "balance": {"policy": "balance"}, "memory": {"limit": "512 MiB"}}
    document["streams"] = {name: document["streams"][name] for name in names}
    (tmp_path / "job.toml").write_text(dump_job(load_job(document)))
    program = [sys.executable, str(ROOT / "tests/harness/run_with_random_moves.py"), "3"]
    command = [str(MPIRUN), "-n", str(4 + producers), *program, "run", str(tmp_path / "job.toml")]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["spread"] > 3 and summary["gathered"] > 1
    assert main(["verify", str(tmp_path / "run")]) == 0
