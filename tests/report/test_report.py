"""The report of one run: its figures' data equal what is computed by hand, its page needs nothing else, faults are
named."""

import csv
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.quiver import Quiver

import mpijoin
from mpijoin.cli import main
from mpijoin.errors import InputError, OutputError
from mpijoin.metrics.checkpoints import CheckpointsFile
from mpijoin.report import write_report
from mpijoin.report.bins import bin_width_us, edges_of, flow, peak
from mpijoin.report.draw import side_by_side, throughput
from mpijoin.report.figures import charts_of, notes
from mpijoin.report.findings import verdicts
from mpijoin.report.runs import distinct_names, load_runs
from mpijoin.report.series import Event, events, master, occupancy, shares_by_slave, state
from mpijoin.report.style import FAINT, new_figure, panels_over_time, time_axis
from mpijoin.rundir import RunDirectory
from report_runs import EPOCHS, MOVE, SECOND, job_of, make_run, write_slave

PAGED = {
    "delay",
    "delay-map",
    "throughput",
    "shares",
    "shares-by-slave",
    "occupancy",
    "state",
    "declustering",
    "moves",
    "master",
}
VOID = {"meta", "br", "path", "use", "image", "rect", "line", "circle"}


class Checker(HTMLParser):
    """Every tag is closed; collects ids and what tags refer to."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.links, self.tags = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "xlink:href", "src", "srcset", "action", "data"):
                self.links.append(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def column(rows, name):
    return [float(row[name]) if row[name] else float("nan") for row in rows]


def check_page(text):
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert checker.open == []
    assert len(set(checker.ids)) == len(checker.ids)
    assert all(link.startswith(("#", "data:")) for link in checker.links), checker.links
    assert {link[1:] for link in checker.links if link.startswith("#")} <= set(checker.ids)
    assert set(re.findall(r"url\(#([^)]*)\)", text)) <= set(checker.ids)
    assert not re.search(r"https?://|@import|<script|<link|url\((?!#)", text)
    return checker


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = make_run(tmp_path_factory.mktemp("runs") / "run", summary={})
    assert main(["report", str(path)]) == 0
    return path / "report"


def test_one_run_gets_a_page_and_each_figure_as_png_and_csv(report):
    names = {path.name for path in report.iterdir()}
    assert names == {"report.html", "slaves.csv"} | {f"{name}{ending}" for name in PAGED for ending in (".png", ".csv")}
    assert all(path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000 for path in report.glob("*.png"))


def test_the_page_stands_alone(report):
    text = (report / "report.html").read_text()
    checker = check_page(text)
    assert checker.tags.count("figure") == len(PAGED) and checker.tags.count("svg") == len(PAGED)
    assert "1,234" in text and "Not overloaded" in text and "No row came too late" in text
    assert "prefers-color-scheme: dark" in text and "@media print" in text and "var(--ink)" in text
    assert "&lt;" not in text and "nan" not in text.lower().replace("nano", "")


def test_throughput_is_what_flowed_in_each_second(report):
    rows = rows_of(report / "throughput.csv")
    assert column(rows, "end_s") == [1, 2, 3, 4, 5, 6]
    assert column(rows, "left_tuples_per_s") == pytest.approx([300, 320, 340, 360, 380, 0])
    assert column(rows, "right_tuples_per_s") == pytest.approx([300, 320, 340, 360, 380, 0])
    assert column(rows, "results_per_s") == pytest.approx([900, 960, 1020, 1080, 1140, 0])


def test_delays_are_those_of_both_slaves_together(report):
    rows = rows_of(report / "delay.csv")
    assert column(rows, "results") == [8] * 5 + [0]
    assert column(rows, "mean_s")[:5] == pytest.approx([0.65] * 5)
    assert column(rows, "max_s")[:5] == [2.0] * 5
    # sorted, two each: 0.1 0.2 0.3 2.0 s
    assert column(rows, "p50_s")[:5] == pytest.approx([0.2] * 5, rel=1 / 32)
    assert column(rows, "p99_s")[:5] == pytest.approx([2.0] * 5, rel=1 / 32)
    assert all(row["mean_s"] == "" and row["p50_s"] == "" for row in rows[5:])


def test_the_map_of_delays_holds_every_result_once(report):
    rows = rows_of(report / "delay-map.csv")
    assert sum(column(rows, "results")) == 40
    first = [row for row in rows if float(row["start_s"]) == 0]
    found = {float(row["delay_from_s"]): (float(row["delay_to_s"]), float(row["results"])) for row in first}
    # ten fields to a factor of ten; a bucket is known by its least value, so that 0.1 s lies just below 0.1 s
    assert sorted(found) == pytest.approx([10**-1.1, 10**-0.8, 10**-0.6, 10**0.3])
    assert all(high == pytest.approx(low * 10**0.1) and count == 2 for low, (high, count) in found.items())


def test_shares_of_time(report):
    rows = rows_of(report / "shares-by-slave.csv")
    assert column(rows, "cpu") == pytest.approx([0.2, 0.4])
    assert column(rows, "communication") == pytest.approx([0.1, 0.1])
    assert column(rows, "idle") == pytest.approx([0.7, 0.45])
    assert column(rows, "other") == pytest.approx([0.0, 0.05])
    over_time = rows_of(report / "shares.csv")
    assert column(over_time, "cpu") == pytest.approx([0.3] * 6)
    assert column(over_time, "idle") == pytest.approx([0.575] * 6)


def test_buffers_and_state_of_each_slave(report):
    rows = rows_of(report / "occupancy.csv")
    # the last two records are of the end of the input
    assert column(rows, "slave_1_bytes") == [500, 501, 502, 503, 503, 503]
    assert column(rows, "slave_2_bytes") == [1000, 1001, 1002, 1003, 1003, 1003]
    assert column(rows_of(report / "state.csv"), "slave_2_bytes") == [2000, 4000, 6000, 8000, 10000, 10000]


def test_master_moves_and_declustering(report):
    rows = rows_of(report / "master.csv")
    assert column(rows, "buffer_bytes") == [0, 10000, 20000, 30000, 40000, 50000]
    assert column(rows, "lag_s") == pytest.approx([0, 0.001, 0.002, 0.003, 0.004, 0.005])
    assert column(rows, "late_rows") == pytest.approx([0, 1, 3, 6, 10, 15])
    assert column(rows_of(report / "declustering.csv"), "active_slaves") == [1, 1, 2, 2, 2, 2]
    (move,) = rows_of(report / "moves.csv")
    assert (move["supplier"], move["consumer"], move["outcome"], move["bytes"]) == ("2", "1", "moved", "5000000")
    assert float(move["pause_s"]) == 0.25 and float(move["took_s"]) == 1.0 and move["kind"] == "mslb"
    assert float(move["begun_s"]) == 2.0 and float(move["gain_realised"]) == 0.1


def test_a_run_at_full_speed_has_no_delays_and_says_so(tmp_path):
    path = make_run(tmp_path / "run", speed="max", summary={"held_back_by": {"2": 5}}, moves=())
    page = write_report([path])
    names = {one.stem for one in page.parent.glob("*.png")}
    assert not names & {"delay", "delay-map", "moves"} and "throughput" in names
    text = page.read_text()
    assert "No production delays: the run was not paced" in text and "No moves" in text
    assert "Reading had to pause 5 times for slave 2" in text
    check_page(text)
    (run,) = load_runs([path])
    assert occupancy(run)["slave_1_bytes"].tolist() == [700, 701, 702, 703, 704, 705]


def test_many_slaves_are_shown_as_maps_of_slaves_by_time(tmp_path):
    page = write_report([make_run(tmp_path / "run", slaves=40, summary={})])
    assert len(rows_of(page.parent / "state.csv")[0]) == 42
    assert len(rows_of(page.parent / "slaves.csv")) == 40
    checker = check_page(page.read_text())
    assert "image" in checker.tags


def test_a_failed_run_is_reported_with_its_reason(tmp_path, capsys):
    path = make_run(tmp_path / "run", metrics=False)
    (path / "failed.json").write_text('{"reason": "rank 2 was <lost>", "exit_code": 3}')
    assert main(["report", str(path), "-o", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == f"report: {tmp_path / 'out' / 'report.html'}\n"
    text = (tmp_path / "out" / "report.html").read_text()
    assert "Failed: rank 2 was &lt;lost&gt;" in text and "No figures" in text and "rate = 1000" in text
    check_page(text)
    assert [one.name for one in (tmp_path / "out").iterdir()] == ["report.html"]


def test_a_run_that_was_asked_to_stop_has_not_failed(tmp_path):
    path = make_run(tmp_path / "run")
    failure = {
        "reason": "stopped at checkpoint 2: SIGUSR1",
        "exit_code": 75,
        "go_on": "mpirun -n 3 mpijoin run job.toml --resume",
    }
    (path / "failed.json").write_text(
        json.dumps({**failure, "provenance": {"version": "1.2", "hosts": {"n1": [0, 1], "n2": [2]}}})
    )
    (run,) = load_runs([path])
    (first, *_) = verdicts(run)
    assert first.level == "look" and run.state == "stopped"
    assert first.text == (
        "Stopped at checkpoint 2: SIGUSR1, as it was asked to. To go on: mpirun -n 3 mpijoin run job.toml --resume"
    )
    text = write_report([path]).read_text()
    assert "Failed" not in text and "n1 (2 ranks, 0 to 1), n2 (rank 2)" in text and "Where it comes from" in text


def test_a_killed_run_with_a_checkpoint_can_go_on_and_the_report_says_so(tmp_path):
    path = make_run(tmp_path / "run")
    (path / "checkpoint").mkdir()
    (path / "checkpoint/00003.json").write_text("")
    (run,) = load_runs([path])
    assert verdicts(run)[0].text.endswith("It left a checkpoint: the command that started it goes on with --resume.")


def test_checkpoints_and_restarts_are_marked(tmp_path):
    path = make_run(tmp_path / "run", summary={"checkpoints": {"restarts": 2}}, moves=())
    for part, rows in ((0, [(1, 1.5, "whole"), (2, 2.5, "failed")]), (3, [(3, 3.5, "resumed"), (4, 4.25, "whole")])):
        file = CheckpointsFile(path / "metrics", part)
        for number, at_s, outcome in rows:
            file.add(number, at_s, at_s + 0.1, 1000, outcome)
        file.close()
    (run,) = load_runs([path])
    assert not any("begin at" in one for one in notes(run))
    late = replace(run, epochs={name: values[run.epochs["end_us"] > 2_500_000] for name, values in run.epochs.items()})
    assert any("slaves begin at 2 s, while the numbers at the top" in one for one in notes(late)), notes(late)
    assert events(run) == [Event(1.5, False), Event(3.5, True), Event(4.25, False)]
    for chart in charts_of(run):
        marked = panels_over_time(chart.figure)
        assert len(marked) == {"shares-by-slave": 0, "throughput": 2, "master": 3}.get(chart.name, 1), chart.name
        for axes in marked:
            lines = [
                one
                for one in axes.collections
                if isinstance(one, LineCollection) and to_hex(one.get_color()[0]) == FAINT
            ]
            marks = [(*foot, *head) for one in lines for foot, head in one.get_segments()]
            assert marks == [(1.5, 0.95, 1.5, 1), (4.25, 0.95, 4.25, 1), (3.5, 0, 3.5, 1)]
    text = write_report([path]).read_text()
    assert "Short lines at the upper edge: 2 checkpoints." in text and "went on from a checkpoint, at 3.5 s" in text
    assert ">2</dd><dt>restarts<" in text


def test_each_move_has_an_arrow_of_its_own(tmp_path):
    moves = [{**MOVE, "move": number, "supplier": 2 - number % 2, "consumer": 1 + number % 2} for number in range(40)]
    (run,) = load_runs([make_run(tmp_path / "run", summary={}, moves=moves)])
    (chart,) = [chart for chart in charts_of(run) if chart.name == "moves"]
    above, took, held = chart.figure.axes
    assert (took.get_ylabel(), held.get_ylabel()) == ("took, ms", "input held, ms")
    (arrows,) = [one for one in above.collections if isinstance(one, Quiver)]
    places, heads = arrows.X, arrows.Y + arrows.V
    assert arrows.Y.tolist() == [2, 1] * 20 and heads.tolist() == [1, 2] * 20
    apart_s = np.diff(np.sort(places))
    assert len(places) == 40 and apart_s == pytest.approx([6 / 90] * 39)  # of a run of 6 s
    assert places.mean() == pytest.approx(2.0)  # around the moment at which all of them began


@pytest.mark.parametrize("seed", range(10))
def test_marks_stand_side_by_side_in_order_and_near_their_moments(seed):
    random = np.random.default_rng(seed)
    moments = np.sort(random.choice([random.uniform(0, 100, 30), np.repeat(random.uniform(0, 100, 3), 10)]))
    places, apart = side_by_side(moments, 100.0)
    assert np.diff(places).min() >= apart * 0.999
    assert np.abs(places - moments).max() <= apart * len(moments) / 2 + 1e-9 and places.mean() == pytest.approx(
        moments.mean()
    )


def test_long_runs_have_axes_in_minutes_and_hours():
    for end_s, unit, texts in (
        (90, "second", ["0", "10", "20"]),
        (1500, "minute", ["0", "5", "10"]),
        (200_000, "hour", ["0", "10", "20"]),
    ):
        figure, axes = new_figure()
        time_axis(axes, 0.0, end_s)
        FigureCanvasAgg(figure).draw()
        shown = [one.get_text() for one in axes.get_xticklabels() if one.get_text()]
        assert axes.get_xlabel() == f"{unit} of the run" and shown[:3] == texts


def test_a_rate_is_a_step_over_the_time_that_it_is_the_mean_of():
    """Also where there is but one: it was a dot at the end."""
    table = {"start_s": [0.0], "end_s": [2.5], "tuples_per_s": [8e5], "results_per_s": [0.0]}
    figure = throughput({name: np.array(values) for name, values in table.items()})
    for axes, rate in zip(figure.axes, (8e5, 0.0)):
        (step,) = axes.patches
        assert set(map(tuple, step.get_path().vertices.tolist())) == {(0.0, rate), (2.5, rate)}


def test_an_unfinished_run_shows_what_it_has_left_so_far(tmp_path):
    page = write_report([make_run(tmp_path / "run")])
    text = page.read_text()
    assert "Unfinished" in text and "results so far" in text and (page.parent / "throughput.png").exists()


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["no-such-folder"], "is no run directory: it holds no job.toml"),
        (["empty"], "is no run directory"),
        (["bare"], "found no rows in rank-*.parquet"),
        (["old"], "found no column delay_max_us: another version of mpijoin"),
        (["damaged"], "cannot be read"),
        (["good", "good"], "given more than once"),
        (["good", "empty/../good"], "given more than once"),
        (["warm"], "there is nothing to draw; all of the run was its warm-up ([run] warmup)"),
    ],
)
def test_what_is_no_run_ends_with_2_and_says_why(arguments, said, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    make_run(tmp_path / "good", summary={})
    make_run(tmp_path / "bare", summary={}, metrics=False)
    make_run(tmp_path / "warm", summary={}, metrics=False, job={"run": {"warmup": "1 h"}})
    make_run(tmp_path / "damaged", summary={})
    (tmp_path / "damaged" / "metrics" / "rank-1.parquet").write_bytes(b"PAR1 not really")
    make_old(tmp_path / "old")
    assert main(["report", *(str(tmp_path / name) for name in arguments)]) == 2
    captured = capsys.readouterr()
    assert said in captured.err and captured.out == ""


def make_old(path):
    import pyarrow.parquet as pq

    make_run(path, summary={})
    for file in (path / "metrics").glob("rank-*.parquet"):
        pq.write_table(pq.read_table(file).drop_columns(["delay_max_us"]), file)


def test_without_matplotlib_the_message_says_what_to_install(tmp_path):
    path = make_run(tmp_path / "run", summary={})
    code = (
        "import sys; sys.modules['matplotlib'] = None; from mpijoin.cli import main; sys.exit(main(['report',"
        f" {str(path)!r}]))"
    )
    environ = dict(os.environ, PYTHONPATH=str(Path(mpijoin.__file__).parents[1]))
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "mpijoin: report needs matplotlib: pip install 'mpijoin[report]'\n"


def test_a_folder_that_cannot_be_made_ends_with_3(tmp_path):
    path = make_run(tmp_path / "run", summary={})
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        write_report([path], tmp_path / "file" / "report")


def test_overwriting_a_run_removes_its_report(tmp_path):
    path = make_run(tmp_path / "run", summary={})
    write_report([path])
    stream = {"kind": "synthetic", "rate": 100, "duration": "5 s", "window": "1 s"}
    job = {"left": stream, "right": stream, "output": {"path": str(path), "results": "count"}}
    mpijoin.run(job, slaves=2, overwrite=True)
    assert not (path / "report").exists()


def test_a_real_run_has_a_report(tmp_path):
    stream = {"kind": "synthetic", "rate": 2000, "duration": "60 s", "window": "5 s", "domain": 1000}
    job = {
        "left": stream,
        "right": {**stream, "seed": 5},
        "output": {"path": str(tmp_path / "run"), "results": "count"},
    }
    done = mpijoin.run(job, slaves=2)
    page = write_report([tmp_path / "run"])
    rows = rows_of(page.parent / "throughput.csv")
    seconds = np.array(column(rows, "end_s")) - np.array(column(rows, "start_s"))
    assert np.dot(seconds, column(rows, "results_per_s")) == pytest.approx(done.results)
    assert np.dot(seconds, column(rows, "left_tuples_per_s")) == pytest.approx(
        done.summary["streams"]["left"]["joined"]
    )
    assert sum(column(rows_of(page.parent / "slaves.csv"), "results")) == done.results
    check_page(page.read_text())


def test_late_rows_are_seen_when_they_came(tmp_path):
    times = list(range(0, 20_000, 10))
    times[1500:1510] = range(10)
    left = pa.table({"ts": times, "key": [1] * len(times)})
    stream = {"table": left, "time": "ts", "time_unit": "ms", "key": "key", "window": "10 ms"}
    cluster = {"distribution_epoch": "1 s"}
    job = {
        "left": stream,
        "right": stream,
        "cluster": cluster,
        "output": {"path": str(tmp_path / "run"), "results": "count"},
    }
    mpijoin.run(job, slaves=1)
    (run,) = load_runs([tmp_path / "run"])
    assert run.of_role("master")["late"].sum() == 20
    write_report([tmp_path / "run"])
    assert column(rows_of(tmp_path / "run" / "report" / "master.csv"), "late_rows")[-1] == pytest.approx(20)


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"overload": {"overloaded": True, "behind_s_max": 7.3, "behind_s_end": 4.6, "slowest_slave": 3,
                       "lag_s_max": 0.1, "epoch_s": 1.0}},
         "Overloaded: slave 3 was up to 7.3 s behind the clock (at the end 4.6 s)"),
        ({"streams": {"left": {"late": 12, "lateness_needed": 199_843_155}}, "time_unit": "ns"},
         "12 late rows of left did not join (a lateness of 200 ms covers them)"),
        ({"checkpoints": {"failed": 3, "written": 2}}, "3 of 5 checkpoints could not be written; the log says why."),
    ],
)  # fmt: skip
def test_what_asks_for_a_second_look_is_said(changes, said, tmp_path):
    (run,) = load_runs([make_run(tmp_path / "run", summary=changes)])
    assert said in " ".join(one.text for one in verdicts(run) if one.level != "good")


@pytest.mark.parametrize(
    "cpu_us, said", [(200_000, "had work, but no core, for 70% of their time"), (899_000, "more of them would help")]
)
def test_slaves_that_never_idle_want_cores_or_others_beside_them(cpu_us, said, tmp_path):
    run = RunDirectory(make_run(tmp_path / "run", summary={}, metrics=False))
    for slave in (1, 2):
        write_slave(run, slave, EPOCHS, True, {epoch: {"cpu_us": cpu_us, "idle_us": 0} for epoch in range(EPOCHS)})
    (loaded,) = load_runs([run.path])
    assert said in " ".join(one.text for one in verdicts(loaded) if one.level == "look")
    slow = replace(loaded, job=job_of(run.path, more={"inject": {"slow": {"1": 0.5}}}))
    assert "no core" not in " ".join(one.text for one in verdicts(slow))  # They slept on purpose.


def test_the_state_of_a_run_of_one_epoch_is_not_known(tmp_path):
    run = RunDirectory(make_run(tmp_path / "run", summary={}, metrics=False))
    for slave in (1, 2):
        write_slave(run, slave, 1, True, {0: {"window_bytes": 0}})
    write_report([run.path])
    assert [row["largest_state_MB"] for row in rows_of(run.path / "report/slaves.csv")] == ["", ""]


def test_a_summary_that_counts_nothing_is_damaged(tmp_path):
    path = make_run(tmp_path / "run", summary={})
    (path / "summary.json").write_text("{}")
    with pytest.raises(InputError, match="summary.json: is damaged: it does not count the results"):
        load_runs([path])


def test_uneven_slaves_are_named(tmp_path):
    (run,) = load_runs([make_run(tmp_path / "run", summary={})])
    # 0.2 and 0.4 of the wall time: the mean is 0.3
    assert "Uneven: slave 2 used 1.33 times the CPU time" in " ".join(one.text for one in verdicts(run))


def test_bins_are_round_hold_an_epoch_and_cover_the_run():
    assert bin_width_us(1200 * SECOND, 2 * SECOND) == 10 * SECOND
    assert bin_width_us(10 * SECOND, 3 * SECOND) == 5 * SECOND
    end_us = np.array([1_000_100, 2_000_100, 3_100_000])
    assert edges_of(end_us, np.diff(end_us, prepend=100)).tolist() == [100, 1_000_000, 2_000_000, 3_100_000]


@pytest.mark.parametrize("seed", range(20))
def test_what_flows_is_neither_lost_nor_doubled(seed):
    random = np.random.default_rng(seed)
    wall_us = random.integers(1, 3 * SECOND, 50)
    records = {"end_us": np.cumsum(wall_us) + 5 * SECOND, "wall_us": wall_us, "results": random.integers(0, 1000, 50)}
    edges = edges_of(records["end_us"], wall_us)
    assert flow(edges, records, "results").sum() == pytest.approx(records["results"].sum())
    # bins half as long, two by two
    finer = np.sort(np.concatenate([edges, (edges[1:] + edges[:-1]) / 2]))
    assert flow(finer, records, "results").reshape(-1, 2).sum(axis=1) == pytest.approx(flow(edges, records, "results"))


def test_a_state_is_carried_on_but_not_through_long_idleness():
    records = {
        "end_us": np.array([1, 2, 3, 20, 21, 40]),
        "wall_us": np.array([1, 1, 1, 17, 1, 19]),
        "idle_us": np.array([0, 0, 0, 17, 0, 0]),
        "epoch": np.arange(6),
        "bytes": np.array([5, 6, 7, 8, 9, 10]),
    }
    edges = np.arange(0, 41, 4)
    found = peak(edges, records, "bytes")
    assert found[[0, 4, 5, 6, 9]].tolist() == [7, 8, 9, 9, 10] and np.isnan(found[1:4]).all()


def test_records_of_spills_do_not_make_an_epoch_look_like_long_idleness():
    """A slave that waits for its next epoch has on its disk what it has spilled, however many spills these were."""
    wall_us = np.array([38, 1, 1] * 5)
    records = {"end_us": np.cumsum(wall_us), "wall_us": wall_us, "idle_us": wall_us - 1, "epoch": np.arange(15) // 3}
    found = peak(np.arange(0, 201, 10), {**records, "bytes": np.full(15, 7)}, "bytes")
    assert np.isnan(found[:3]).all() and (found[3:] == 7).all()


def test_names_of_runs_are_as_short_as_they_can_be():
    assert distinct_names([Path("/a/x/run"), Path("/a/y/run")]) == ["x/run", "y/run"]
    assert distinct_names([Path("/a/x/one"), Path("/a/y/two")]) == ["one", "two"]


def test_every_slave_has_its_column(tmp_path):
    path = make_run(tmp_path / "run", summary={})
    (run,) = load_runs([path])
    assert shares_by_slave(run)["slave"].tolist() == [1, 2]
    assert list(state(run)) == ["start_s", "end_s", "slave_1_bytes", "slave_2_bytes"]


def test_the_rows_that_several_producers_left_out_are_added_up(tmp_path):
    side = {"kind": "synthetic", "rate": 10_000, "tuples": 30_000, "window": "50 ms", "disorder": "20 ms"}
    job = {"left": side, "right": {**side, "seed": 5}, "cluster": {"producers": 2, "distribution_epoch": "100 ms"}}
    summary = mpijoin.run({**job, "output": {"path": str(tmp_path / "run"), "results": "count"}}, slaves=2).summary
    late = [one["late"] for one in summary["streams"].values()]
    assert min(late) > 0, "each stream is read by another producer"
    (run,) = load_runs([tmp_path / "run"])
    assert run.producers == [0, 1] and master(run)["late_rows"][-1] == sum(late)
