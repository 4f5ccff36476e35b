"""The report of several runs: what differs is found, figures stand side by side, hundreds of runs still work."""

import json
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from mpijoin.cli import main
from mpijoin.config.load import dump_job, load_job
from mpijoin.report import write_report
from mpijoin.report.compare import DifferingField, comparison, differing, labels_of, sweep_axes
from mpijoin.report.runs import load_runs
from mpijoin.report.sets import charts_of_set, run_set
from mpijoin.report.style import styled
from report_runs import make_run
from tests.report.test_report import check_page, column, rows_of


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Two numbers of slaves, three rates: delays grow with the rate."""
    folder = tmp_path_factory.mktemp("sweep")
    for slaves in (1, 2):
        for rate in (1000, 2000, 3000):
            delay_s = {"mean": rate / 1000 / slaves, "p50": 0.1, "p95": 0.3, "p99": 0.5, "max": 0.9}
            make_run(
                folder / f"{slaves}-{rate}",
                rate,
                slaves=slaves,
                summary={"delay_s": delay_s, "tuples_per_s": 2.0 * rate},
            )
    return [folder / f"{slaves}-{rate}" for slaves in (1, 2) for rate in (1000, 2000, 3000)]


def test_what_differs_is_named_once(sweep):
    slaves, rate = differing(load_runs(sweep))
    assert (slaves.name, slaves.texts) == ("slaves", ("1", "1", "1", "2", "2", "2"))
    assert (rate.name, rate.texts) == ("rate", ("1000", "2000", "3000") * 2)
    assert rate.numbers.tolist() == [1000, 2000, 3000] * 2 and rate.unit == ""
    assert sweep_axes([slaves, rate]) == (rate, (slaves,))
    assert labels_of(load_runs(sweep), [slaves, rate])[4] == "slaves 2, rate 2000"


def test_fields_that_differ_between_the_streams_keep_their_names(tmp_path):
    make_run(tmp_path / "one", summary={})
    make_run(tmp_path / "two", summary={}, job={"left": {"window": "3 s"}, "balance": {"policy": "threshold"}})
    runs = load_runs([tmp_path / "one", tmp_path / "two"])
    window, policy = differing(runs)
    assert (window.name, window.texts, window.numbers.tolist(), window.unit) == (
        "left.window",
        ("2 s", "3 s"),
        [2, 3],
        "s",
    )
    assert (policy.name, policy.texts, policy.numbers) == ("balance.policy", ("none", "threshold"), None)
    table = comparison(runs)
    assert table["balance.policy"].tolist() == ["none", "threshold"] and table["left.window_s"].tolist() == [2, 3]
    assert labels_of(runs, [window, policy]) == ["window 2 s, policy none", "window 3 s, policy threshold"]


def field(name, *texts):
    numbers = None if any(text.isalpha() for text in texts) else np.array([float(text) for text in texts])
    return DifferingField(name, texts, numbers, "")


def test_a_sweep_is_drawn_over_a_number_else_over_words_never_over_seeds():
    rate, theta, seed = (
        field("rate", "1", "2", "1", "2"),
        field("tuning.theta", "auto", "auto", "off", "off"),
        field("run.seed", *"1234"),
    )
    assert sweep_axes([seed, theta, rate]) == (rate, (theta,))
    assert sweep_axes([seed, theta]) == (theta, ())
    assert sweep_axes([seed]) is None and sweep_axes([]) is None


def test_runs_whose_jobs_do_not_tell_them_apart_are_named_by_their_folders(sweep):
    runs = load_runs(sweep)
    assert labels_of(runs, []) == [run.name for run in runs]
    assert labels_of(runs, differing(runs)[:1]) == [run.name for run in runs]  # only the number of slaves
    long = [replace(run, name=f"{'x' * 30}{index}{'y' * 40}") for index, run in enumerate(runs)]
    # what differs is in the middle, which is cut
    assert labels_of(long, []) == [f"run {number}" for number in range(1, 7)]


def test_a_capacity_sweep_shows_its_capacities(sweep, tmp_path):
    page = write_report(sweep, tmp_path, capacities=[1000.0, 2000.0, 3000.0] * 2)
    rows = rows_of(tmp_path / "capacities.csv")
    assert column(rows, "capacity") == [1000, 2000, 3000] * 2 and column(rows, "slaves") == [1, 1, 1, 2, 2, 2]
    assert column(rows_of(tmp_path / "runs.csv"), "capacity") == [1000, 2000, 3000] * 2
    text = page.read_text()
    assert "their jobs differ in: slaves<" in text  # the rates are what was found, not what was swept
    assert "capacity, tuples/s and stream" in text and "between 1,000 and 3,000 tuples/s and stream" in text
    checker = check_page(text)
    assert {"capacities", "sweep"} <= set(checker.ids)
    assert "capacity" in rows_of(tmp_path / "sweep.csv")[0]


def test_the_table_of_runs_speaks_in_units_and_leaves_out_what_nobody_knows(tmp_path):
    for index, window in enumerate(("72 h", "90 s")):
        make_run(tmp_path / str(index), speed="max", summary={"wall_s": 7200.0}, job={"left": {"window": window}})
    text = write_report([tmp_path / "0", tmp_path / "1"], tmp_path / "out").read_text()
    assert "<th>left.window</th>" in text and ">3 d<" in text and ">90 s<" in text and ">2 h<" in text
    assert "12 KB" in text and "<th>mean delay</th>" not in text  # not paced: nobody knows of delays


def test_simulated_runs_are_told_apart_from_real_ones(tmp_path):
    """They would be drawn as one line: a simulation of this machine beside one of a thousand cores."""
    runs = []
    for slaves in (1, 2):
        runs += [make_run(tmp_path / f"real-{slaves}", slaves=slaves, summary={})]
        runs += [make_run(tmp_path / f"made-{slaves}", slaves=slaves, summary={"simulated": True})]
    page = write_report(runs, tmp_path / "out").read_text()
    assert "their jobs differ in: slaves, simulated<" in page and "a line for each simulated" in page
    assert [row["simulated"] for row in rows_of(tmp_path / "out" / "runs.csv")] == ["no", "yes", "no", "yes"]
    alone = write_report(runs[1:2], tmp_path / "alone").read_text()
    assert "the ledger balances, simulated, without an answer." in alone and "00000000000000ff" not in alone


def test_what_the_sweep_does_not_tell_apart_is_named(sweep, tmp_path):
    runs = [
        make_run(tmp_path / str(index), 1000 + 100 * index, summary={}, job={"right": {"bias": 0.5 + index / 50}})
        for index in range(9)
    ]
    text = write_report(runs, tmp_path / "out").read_text()
    assert "go through the means. Not told apart here, though it differs: rate." in text
    assert "Not told apart" not in write_report(sweep, tmp_path / "sweep").read_text()


def test_values_that_lie_close_have_ticks_but_no_labels_on_each_other(tmp_path):
    rates = (1000, 1010, 1020, 5000, 20_000, 20_001, 40_000)
    for index, rate in enumerate(rates):
        make_run(tmp_path / str(index), rate=rate, summary={})
    charts = {chart.name: chart for chart in charts_of_set(run_set(load_runs(sorted(tmp_path.iterdir()))))}
    axes = charts["sweep"].figure.axes[-1]
    ticks = [one for one in charts["sweep"].figure.axes if one.get_visible()][-1].get_xticklabels()
    texts_of(charts["sweep"].figure)
    boxes = [one.get_window_extent() for one in ticks if one.get_text()]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert [one.get_text() for one in ticks] == ["1000", "", "", "5000", "20000", "", "40000"] and axes is not None


def texts_of(figure):
    figure.canvas.draw()
    return [one for one in figure.findobj(Text) if one.get_visible() and one.get_text().strip()]


def clipped_in(figure):
    """Texts that reach beyond the figure."""
    width, height = figure.bbox.width, figure.bbox.height
    boxes = [(one.get_text(), one.get_window_extent()) for one in texts_of(figure)]
    return [text for text, box in boxes if box.x0 < -1 or box.y0 < -1 or box.x1 > width + 1 or box.y1 > height + 1]


@pytest.mark.parametrize("count", [6, 18])
def test_no_text_of_a_figure_of_many_runs_is_clipped_or_lies_on_another(count, tmp_path):
    paths, windows = [], ("100 s", "1 h", "72 h")
    for index in range(count):
        job = {
            "left": {"window": windows[index % 3], "bias": 0.5 + index // 3 / 20},
            "tuning": {"theta": ("1 MB", "off")[index % 2]},
        }
        paths.append(
            make_run(
                tmp_path / f"a-rather-long-name-of-a-run-in-a-sweep,left.bias={index}" / "run",
                job=job,
                epochs=3,
                summary={},
            )
        )
    those = run_set(load_runs(paths))
    for chart in charts_of_set(those):
        with styled():
            FigureCanvasAgg(chart.figure)
            assert clipped_in(chart.figure) == [], chart.name
            titles = [
                one.title.get_window_extent() for one in chart.figure.axes if one.get_visible() and one.get_title()
            ]
            assert not any(one.overlaps(other) for one, other in combinations(titles, 2)), chart.name
            for axes in chart.figure.axes:
                ticks = [
                    one.get_window_extent() for one in axes.get_xticklabels() if one.get_visible() and one.get_text()
                ]
                assert not any(one.overlaps(other) for one, other in combinations(ticks, 2)), chart.name


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
    assert [float(row["tuples_per_s"]) for row in rows if row["run"] == "1-2000"] == pytest.approx(
        [200, 220, 240, 260, 280, 0]
    )
    assert [float(row["tuples_per_s"]) for row in rows if row["run"] == "2-1000"] == pytest.approx(
        [600, 640, 680, 720, 760, 0]
    )
    states = rows_of(tmp_path / "states.csv")
    assert [float(row["window_bytes"]) for row in states if row["run"] == "2-3000"] == [
        3000,
        6000,
        9000,
        12000,
        15000,
        15000,
    ]


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
        paths.append(
            make_run(
                tmp_path / f"run-{index:03}",
                10 + index // 2,
                slaves=slaves,
                epochs=3,
                summary={"delay_s": delay_s},
                moves=(),
            )
        )
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


@pytest.mark.parametrize("names", [["left", "right"], ["p", "s", "left"]])
def test_what_all_streams_of_a_job_share_is_named_once(names):
    def run_of(rate, window, seed):
        stream = {"kind": "synthetic", "tuples": 9, "rate": rate, "seed": seed}
        streams = {name: dict(stream) for name in names}
        streams[names[0]]["window"] = window
        text = dump_job(load_job({"streams": streams}))
        return SimpleNamespace(job_text=text, streams=names, summary={}, slaves=[1], is_simulated=False)

    fields = differing([run_of(1000, "1 s", 1), run_of(2000, "unbounded", 2)])
    section = "left" if len(names) == 2 else "streams.p"
    assert {one.name for one in fields} == {"rate", "seed", f"{section}.window"}


def test_a_run_of_which_nobody_knows_the_slaves_does_not_differ_in_them(tmp_path):
    done = [make_run(tmp_path / str(rate), rate, summary={}) for rate in (1000, 2000)]
    failed = make_run(tmp_path / "failed", 3000, metrics=False)
    runs = load_runs([*done, failed])
    assert [field.name for field in differing(runs)] == ["rate"]
    other = make_run(tmp_path / "other", 1000, slaves=3, summary={})
    assert differing(load_runs([*done, failed, other]))[0].texts == ("2", "2", "unknown", "3")
