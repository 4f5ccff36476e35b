"""The report of several runs: what differs is found, figures stand side by side, hundreds of runs still work."""

import json

import numpy as np
import pytest

from mpijoin.cli import main
from mpijoin.report import write_report
from mpijoin.report.compare import comparison, differing, sweep_axes
from mpijoin.report.runs import load_runs
from tests.report_runs import make_run
from tests.unit.test_report import check_page, column, rows_of


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Two numbers of slaves, three rates: delays grow with the rate."""
    folder = tmp_path_factory.mktemp("sweep")
    for slaves in (1, 2):
        for rate in (1000, 2000, 3000):
            delay_s = {"mean": rate / 1000 / slaves, "p50": 0.1, "p95": 0.3, "p99": 0.5, "max": 0.9}
            make_run(folder / f"{slaves}-{rate}", rate, slaves=slaves, summary={"delay_s": delay_s, "tuples_per_s": 2.0 * rate})
    return [folder / f"{slaves}-{rate}" for slaves in (1, 2) for rate in (1000, 2000, 3000)]


def test_what_differs_is_named_once(sweep):
    fields = differing(load_runs(sweep))
    assert fields == {"slaves": [1, 1, 1, 2, 2, 2], "rate": [1000.0, 2000.0, 3000.0] * 2}
    assert sweep_axes(load_runs(sweep)) == ("rate", "slaves")


def test_fields_that_differ_between_the_streams_keep_their_names(tmp_path):
    make_run(tmp_path / "one", summary={})
    make_run(tmp_path / "two", summary={}, job={"left": {"window": "3 s"}, "balance": {"policy": "threshold"}})
    runs = load_runs([tmp_path / "one", tmp_path / "two"])
    assert differing(runs) == {"left.window_s": [2.0, 3.0], "balance.policy": ["none", "threshold"]}
    assert comparison(runs)["balance.policy"].tolist() == ["none", "threshold"]


def test_one_table_has_the_figures_of_all(sweep, tmp_path):
    page = write_report(sweep, tmp_path)
    rows = rows_of(tmp_path / "runs.csv")
    assert [row["run"] for row in rows] == [path.name for path in sweep]
    assert column(rows, "delay_mean_s") == [1, 2, 3, 0.5, 1, 1.5]
    assert column(rows, "cpu_share") == pytest.approx([0.2] * 3 + [0.3] * 3)
    assert column(rows, "state_bytes_max") == [6000] * 3 + [12000] * 3
    assert column(rows, "busiest_over_mean") == pytest.approx([1.0] * 3 + [4 / 3] * 3)
    assert column(rows, "late_rows") == [0] * 6
    text = page.read_text()
    checker = check_page(text)
    names = {"sweep", "shares-of-runs", "delays", "throughputs", "states"}
    assert names <= set(checker.ids) and all((tmp_path / f"{name}.png").stat().st_size > 5000 for name in names)
    assert "their jobs differ in: slaves, rate" in text and "2-3000: Uneven" in text


def test_lines_of_the_sweep_are_its_runs(sweep, tmp_path):
    write_report(sweep, tmp_path)
    rows = rows_of(tmp_path / "sweep.csv")
    assert column(rows, "rate") == [1000, 2000, 3000] * 2 and column(rows, "slaves") == [1, 1, 1, 2, 2, 2]
    assert column(rows, "delay_mean_s") == [1, 2, 3, 0.5, 1, 1.5]


def test_figures_over_time_hold_every_run(sweep, tmp_path):
    write_report(sweep, tmp_path)
    rows = rows_of(tmp_path / "throughputs.csv")
    # slave s joins 100 s + 10 k rows of each stream in epoch k
    assert [float(row["tuples_per_s"]) for row in rows if row["run"] == "1-2000"] == pytest.approx([200, 220, 240, 260, 280, 0])
    assert [float(row["tuples_per_s"]) for row in rows if row["run"] == "2-1000"] == pytest.approx([600, 640, 680, 720, 760, 0])
    states = rows_of(tmp_path / "states.csv")
    assert [float(row["window_bytes"]) for row in states if row["run"] == "2-3000"] == [3000, 6000, 9000, 12000, 15000, 15000]


def test_failed_runs_and_those_at_full_speed_stand_beside_the_others(sweep, tmp_path):
    make_run(tmp_path / "max", speed="max", summary={})
    make_run(tmp_path / "failed", metrics=False)
    (tmp_path / "failed" / "failed.json").write_text(json.dumps({"reason": "no memory", "exit_code": 3}))
    paths = [*map(str, sweep[:2]), str(tmp_path / "max"), str(tmp_path / "failed")]
    assert main(["report", *paths, "-o", str(tmp_path / "out")]) == 0
    rows = rows_of(tmp_path / "out" / "runs.csv")
    assert [row["state"] for row in rows] == ["done", "done", "done", "failed"]
    assert rows[2]["delay_mean_s"] == "" and rows[3]["results"] == "" and rows[3]["cpu_share"] == ""
    text = (tmp_path / "out" / "report.html").read_text()
    assert "failed: Failed: no memory" in text
    check_page(text)


def test_nothing_but_failed_runs_is_still_a_report(tmp_path):
    for name in ("one", "two"):
        make_run(tmp_path / name, metrics=False)
    page = write_report([tmp_path / "one", tmp_path / "two"], tmp_path / "out")
    check_page(page.read_text())
    assert not list(page.parent.glob("*.png"))


def test_hundreds_of_runs_have_a_table_and_the_figures_that_scale(tmp_path):
    paths = []
    for index in range(200):
        delay_s = {"mean": index / 100, "p50": 0.1, "p95": 0.3, "p99": 0.5, "max": 0.9}
        slaves = 1 + index % 2
        paths.append(make_run(tmp_path / f"run-{index:03}", 10 + index // 2, slaves=slaves, epochs=3, summary={"delay_s": delay_s}, moves=()))
    page = write_report(paths, tmp_path / "out")
    rows = rows_of(tmp_path / "out" / "runs.csv")
    assert len(rows) == 200 and column(rows, "delay_mean_s") == pytest.approx(np.arange(200) / 100)
    assert {path.stem for path in (tmp_path / "out").glob("*.png")} == {"sweep", "shares-of-runs"}
    text = page.read_text()
    assert "more than 24 runs" in text and text.count("<tr>") == 201
    check_page(text)


def test_the_default_folder_of_several_is_in_the_current_one(sweep, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(sweep[0]), str(sweep[1])]) == 0
    assert capsys.readouterr().out == "report: report/report.html\n" and (tmp_path / "report" / "report.html").exists()
