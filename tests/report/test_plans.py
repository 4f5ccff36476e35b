"""The report of runs with plans and with moves: which slave followed which plan when, each plan as a tree, and what the
moves of each kind took."""

import csv

import numpy as np
import pytest
from matplotlib.colors import to_hex

import mpijoin
from mpijoin.metrics.checkpoints import CheckpointsFile
from mpijoin.report import draw_plans, write_report
from mpijoin.report.compare import comparison
from mpijoin.report.figures import charts_of
from mpijoin.report.findings import headlines
from mpijoin.report.plans import has_plans, plans
from mpijoin.report.runs import load_run
from mpijoin.report.style import BLUE, LINES_MAX, VERMILLION, styled
from mpijoin.report.write import moves_table
from report_runs import MOVE, make_run

# Slave s gets 2 * (100 s + 10 k) tuples in epoch k, each of which takes a second.
FOLLOWED = {
    "1": [{"tuples": 0, "plan": "mway"}, {"tuples": 200 + 110, "plan": "((left right) more)"}],
    "2": [{"tuples": 0, "plan": "((left right) more)"}],
}


def rows_of(table):
    return list(zip(*(column.tolist() for column in table.values())))


def test_a_change_of_plan_is_when_so_many_tuples_had_come(tmp_path):
    run = load_run(make_run(tmp_path / "run", summary={"plans": FOLLOWED}), "run")
    assert rows_of(plans(run)) == [
        (1, "mway", 0, 0.0, 1.5), (1, "((left right) more)", 310, 1.5, 6.0), (2, "((left right) more)", 0, 0.0, 6.0),
    ]  # fmt: skip


def test_after_a_restart_tuples_are_counted_anew(tmp_path):
    path = make_run(tmp_path / "run", summary={"plans": {"1": FOLLOWED["1"][:1], "2": FOLLOWED["1"]}})
    file = CheckpointsFile(path / "metrics", 2)
    file.add(2, 2.0, 2.0, 1000, "resumed")
    file.close()
    # In its third second, the first after the restart, slave 2 gets 440 tuples.
    assert rows_of(plans(load_run(path, "run"))) == [
        (1, "mway", 0, 2.0, 6.0),
        (2, "mway", 0, 2.0, pytest.approx(2 + 310 / 440)),
        (2, "((left right) more)", 310, pytest.approx(2 + 310 / 440), 6.0),
    ]


def test_a_run_without_a_choice_of_plans_has_no_figure_of_them(tmp_path):
    for name, summary in (("two", {}), ("unfinished", None)):
        run = load_run(make_run(tmp_path / name, summary=summary), name)
        assert not has_plans(run) and "plans" not in {chart.name for chart in charts_of(run)}


@pytest.mark.parametrize(
    "plan, joins, lines",
    [
        ("mway", [(1.0, 1.0)], 3),
        ("(c (b a))", [(1.5, 1.0), (0.75, 2.0)], 4),
    ],
)
def test_a_plan_is_drawn_as_its_tree(plan, joins, lines):
    one = draw_plans.drawn(plan, "abc")
    assert one.joins == joins and len(one.lines) == lines
    assert [name for _, name in one.leaves] == (["a", "b", "c"] if plan == "mway" else ["c", "b", "a"])
    assert [x for x, _ in one.leaves] == [0, 1, 2]
    assert all(below[1] < above[1] for above, below in one.lines)


def table_of(*rows):
    names = ("slave", "plan", "from_tuple", "start_s", "end_s")
    return {name: np.array(column) for name, column in zip(names, zip(*rows))}


def bands(axes):
    """The colour, the first and the last second, and the row of each band."""
    found = []
    for one in axes.collections:
        (x0, y0), (x1, _) = one.get_paths()[0].get_extents().get_points()
        found.append((to_hex(one.get_facecolor()[0]), x0, x1, round(y0 + 0.4)))
    return found


def test_a_slave_s_band_has_the_colours_of_its_plans(tmp_path):
    table = table_of((1, "mway", 0, 0.0, 1.5), (1, "((a b) c)", 5, 1.5, 6.0), (3, "((a b) c)", 0, 0.0, 6.0))
    with styled():
        above, below = draw_plans.plans(table, "abc").axes
    assert bands(below) == [(BLUE, 0, 1.5, 0), (VERMILLION, 1.5, 6, 0), (VERMILLION, 0, 6, 1)]
    assert [one.get_text() for one in below.get_yticklabels()] == ["1", "3"]
    texts = [one.get_text() for one in above.texts]
    assert texts == ["a", "b", "c", "m-way", "a", "b", "c", "((a b) c)"]


def test_of_many_plans_those_that_lasted_longest_have_a_colour_of_their_own():
    names = [f"s{number}" for number in range(3)]
    trees = [f"(({a} {b}) {c})" for a in names for b in names for c in names if len({a, b, c}) == 3]
    every = ["mway", *trees, "(s0 (s1 s2))", "(s1 (s0 s2))"]
    rows = [
        (1, plan, 0, float(at), at + (0.1 if at == 2 else 0.2 if at == 4 else 1.0)) for at, plan in enumerate(every)
    ]
    with styled():
        above, below = draw_plans.plans(table_of(*rows), names).axes
    texts = [one.get_text() for one in above.texts]
    assert len(every) == LINES_MAX + 2 and every[2] not in texts and every[4] not in texts and "other plans" in texts
    colours = [colour for colour, *_ in bands(below)]
    assert colours[2] == colours[4] and len(set(colours)) == LINES_MAX + 1


def test_the_report_of_a_real_run_shows_its_plans(tmp_path):
    stream = {"kind": "synthetic", "tuples": 1000, "rate": 100, "domain": 50, "window": "1 s"}
    streams = {name: {**stream, "seed": seed} for seed, name in enumerate("abc")}
    output = {"path": str(tmp_path / "run"), "results": "count"}
    mpijoin.run({"streams": streams, "join": {"plan": "((a c) b)"}, "output": output}, slaves=2)
    page = write_report([tmp_path / "run"])
    with open(page.parent / "plans.csv", newline="") as file:
        assert [(row["slave"], row["plan"]) for row in csv.DictReader(file)] == [("1", "((a c) b)"), ("2", "((a c) b)")]
    assert "Plans of the slaves" in page.read_text() and "which stayed the same" in page.read_text()


def test_moves_are_listed_by_kind(tmp_path):
    moves = [
        MOVE,
        {**MOVE, "bytes": 1_000_000, "closed_us": 2_500_000, "delivered_us": 2_500_000},
        {**MOVE, "outcome": "refused", "bytes": 0},
        {**MOVE, "kind": "precopy", "closed_us": 6_000_000},
    ]
    run = load_run(make_run(tmp_path / "run", summary={}, moves=moves), "run")
    assert rows_of(moves_table(run)) == [
        ("mslb", 2, 1, 0, 6.0, 0.75, 1.0, 0.25),
        ("precopy", 1, 0, 0, 5.0, 4.0, 4.0, 0.25),
    ]
    assert "Moves of groups" in write_report([tmp_path / "run"]).read_text()
    assert "groups moved by mslb, 5 MB" in {one.name for one in headlines(run)}


def test_runs_are_compared_by_what_their_moves_took(tmp_path):
    still = {"moves": 0, "moved_bytes": 0, "move_s_mean": 0.0, "move_pause_s_max": 0.0}
    runs = [load_run(make_run(tmp_path / name, summary=summary), name) for name, summary in (("a", {}), ("b", still))]
    table = comparison(runs)
    assert (table["move_s_mean"][0], table["move_pause_s_max"][0], table["moved_bytes"][0]) == (1.0, 0.25, 5_000_000)
    assert np.isnan(table["move_s_mean"][1]) and table["moves"].tolist() == [1, 0]
