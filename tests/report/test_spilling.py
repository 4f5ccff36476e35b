"""The report of runs whose state did not fit into memory: what its figures and tables hold, and when there are any."""

import csv

import numpy as np
import pytest

from mpijoin.report import draw_spilling, write_report
from mpijoin.report.compare import comparison, figures_of
from mpijoin.report.figures import charts_of, notes
from mpijoin.report.findings import headlines, verdicts
from mpijoin.report.runs import load_run
from mpijoin.report.sets import charts_of_set, run_set
from mpijoin.report.spilling import POINTS_MAX, _teeth, happenings, memory, results_so_far
from mpijoin.report.style import styled
from mpijoin.report.write import slaves_table
from report_runs import LIMIT_BYTES, MEMORY, make_run

SPILLING = {"memory": {"limit": "10 MB", "spill": "generations"}}
SPILLED = {
    **MEMORY, "spills": 4, "spilled_bytes": 14_000_000, "read_back_bytes": 14_000_000, "disk_bytes_max": 14_000_000,
    "spill_s": 0.75, "cleanup_s": 0.75, "cleanup_results": 100,
}  # fmt: skip
FIGURES = ["memory", "results", "disk"]


def spilled_run(path, **more):
    return make_run(path, speed="max", job=SPILLING, summary={"memory": SPILLED}, spills=True, **more)


@pytest.fixture
def run(tmp_path):
    return load_run(spilled_run(tmp_path / "run"), "run")


def test_memory_is_drawn_record_by_record_against_the_limit(run):
    table = memory(run)
    assert table["slave"].tolist() == [1] * 6 + [2] * 6 and table["end_s"][:6].tolist() == [1, 2, 3, 4, 5, 6]
    assert (table["memory_bytes"][:6] / 1e6).tolist() == [5, 9, 6, 9.5, 7, 2]
    assert set(table["limit_bytes"].tolist()) == {LIMIT_BYTES}


def test_spills_relocations_and_clean_ups_are_spans_of_time(run):
    table = happenings(run)
    rows = list(zip(*(table[name].tolist() for name in ("slave", "kind", "start_s", "end_s", "bytes"))))
    assert [row for row in rows if row[0] == 1] == [
        (1, "spill", 2.75, 3.0, 3_000_000), (1, "spill", 4.5, 5.0, 4_000_000), (1, "clean-up", 5.25, 6.0, 7_000_000),
    ]  # fmt: skip
    assert (2, "relocation", 2.0, 3.0, 5_000_000) in rows and len(rows) == 7


def test_the_results_of_the_clean_up_stand_apart(run):
    table = results_so_far(run)
    found = sum(3 * (100 * slave + 10 * epoch) for slave in (1, 2) for epoch in range(5))
    assert table["runtime_results"][-1] == table["runtime_results"][-2] == found
    assert table["cleanup_results"][-1] == 100 and not table["cleanup_results"][:-1].any()
    assert table["end_s"].tolist() == [0, 1, 2, 3, 4, 5, 6] and table["runtime_results"][0] == 0


def test_many_records_keep_their_teeth():
    """A slave that spills more often than a figure has points still shows how far its memory rises and falls."""
    count = 40 * POINTS_MAX
    saw = 30 + np.arange(count) % 60
    records = {"end_us": 1000 * np.arange(1, count + 1), "wall_us": np.full(count, 1000), "memory_bytes": saw}
    kept = _teeth(records)
    assert len(kept["end_us"]) <= POINTS_MAX and (np.diff(kept["end_us"]) > 0).all()
    assert (kept["memory_bytes"].min(), kept["memory_bytes"].max()) == (30, 89)
    assert np.ptp(kept["memory_bytes"][:40]) >= 50
    few = {name: column[:POINTS_MAX] for name, column in records.items()}
    assert _teeth(few) is few


def test_a_limit_that_is_one_for_all_is_one_line_and_others_are_steps(run):
    table, happened = memory(run), happenings(run)
    with styled():
        (above, below) = draw_spilling.memory(table, happened, {}).axes
        steps = {**table, "limit_bytes": np.where(table["end_s"] > 3, LIMIT_BYTES // 2, LIMIT_BYTES)}
        (other, _) = draw_spilling.memory(steps, happened, {}).axes
    assert [line.get_label() for line in above.lines] == ["slave 1", "slave 2", "limit"] and len(other.lines) == 4
    assert [label.get_text() for label in below.get_yticklabels()] == ["spill", "relocation", "clean-up"]


@pytest.mark.parametrize("slaves", [1, 2, 9])
def test_a_page_has_the_figures_if_there_was_spilling(tmp_path, slaves):
    path = spilled_run(tmp_path / "run", slaves=slaves)
    page = write_report([path]).read_text()
    for name in FIGURES:
        assert f'<figure id="{name}">' in page
        assert (path / f"report/{name}.png").stat().st_size > 5_000
    assert "14 MB" in page and "spilled, 4 times" in page
    with open(path / "report/disk.csv") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["slave_1_bytes"]) for row in rows] == [0, 0, 3e6, 3e6, 7e6, 0]
    assert [float(row["owed_groups"]) for row in rows] == [0, 0, 4 * slaves, 4 * slaves, 6 * slaves, 0]


def test_a_run_whose_state_fits_has_none_of_them(tmp_path):
    fits = load_run(make_run(tmp_path / "fits", summary={}), "fits")
    assert not {chart.name for chart in charts_of(fits)} & set(FIGURES)
    assert not [note for note in notes(fits) if "spilling" in note]
    assert not any("spilled" in name for name in slaves_table(fits))
    could = load_run(make_run(tmp_path / "could", job=SPILLING, summary={}), "could")
    assert "Nothing about spilling: what the slaves held fitted into memory all the time." in notes(could)


def test_the_page_begins_with_what_was_spilled_and_asks_for_a_second_look(run):
    assert [(one.value, one.name) for one in headlines(run)][-3:-1] == [
        ("14 MB", "spilled, 4 times"), ("750 ms", "clean-up"),
    ]  # fmt: skip
    (text,) = [one.text for one in verdicts(run) if "did not fit" in one.text]
    assert text == (
        "The state did not fit into 10 MB at a slave: spilling took 750 ms and clean-up 750 ms, and 100 results came"
        " from the clean-up only."
    )
    table = slaves_table(run)
    assert table["spilled_MB"].tolist() == [7, 7] and table["clean-up_s"].tolist() == [0.75, 0.75]


def test_what_rotates_has_no_clean_up(tmp_path):
    job = {"memory": {"limit": "10 MB", "spill": "rotate"}}
    summary = {"memory": {**SPILLED, "cleanup_s": 0.0, "cleanup_results": 0}}
    run = load_run(make_run(tmp_path / "run", speed="max", job=job, summary=summary, spills=True), "run")
    (text,) = [one.text for one in verdicts(run) if "did not fit" in one.text]
    assert text.endswith("at a slave: spilling took 750 ms, and 14 MB were read back to be joined.")
    assert not any("clean-up" in one.name for one in headlines(run))
    (chart,) = [one for one in charts_of(run) if one.name == "results"]
    assert chart.caption.endswith("while joining.")


def test_runs_are_compared_by_what_they_spilled(tmp_path, run):
    fits = make_run(tmp_path / "fits", speed="max", summary={})
    both = [run, load_run(fits, "fits")]
    table = comparison(both)
    for name, value in {"spilled_bytes": 14e6, "cleanup_s": 0.75, "last_runtime_result_s": 5.0}.items():
        assert table[name][0] == value and np.isnan(table[name][1])
    assert figures_of(both[1]).keys() == figures_of(run).keys()
    names = [chart.name for chart in charts_of_set(run_set(both))]
    assert names[-2:] == ["memories", "results"]
    alone = [load_run(make_run(tmp_path / name, summary={}), name) for name in ("one", "other")]
    assert not {"memories", "results"} & {chart.name for chart in charts_of_set(run_set(alone))}
