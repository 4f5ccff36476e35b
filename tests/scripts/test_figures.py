"""scripts/figures.py: points are measured once, drawn and written; sentences hold where made-up points say so, and only
there."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(autouse=True)
def _import_scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))


@pytest.fixture
def figures_script(monkeypatch):
    monkeypatch.delitem(__import__("sys").modules, "figures", raising=False)
    import figures

    return figures


def test_a_sweep_goes_on_where_it_was(tmp_path, figures_script, capsys):
    command = ["--quick", "--simulated-only", "--figures", "8,11", "-o", str(tmp_path)]
    assert figures_script.main(command) == 0
    first = capsys.readouterr().err
    # 4 slaves: two rates, with and without; 1 and 2, overlapped and ordered, and 2 adaptive
    assert first.startswith("9 of 9 points to measure")
    points = sorted((tmp_path / "points").iterdir())
    points[0].unlink()
    kept = {path.name: path.stat().st_mtime_ns for path in points[1:]}
    assert figures_script.main(command) == 0
    assert capsys.readouterr().err.startswith("1 of 9 points to measure")
    assert {path.name: path.stat().st_mtime_ns for path in points[1:]} == kept
    for number in (8, 11):
        assert (tmp_path / f"figure-{number}.png").read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader((tmp_path / "figure-8.csv").open()))
    assert [(row["line"], float(row["x"])) for row in rows] == [
        ("without tuning", 1000), ("without tuning", 5000), ("with tuning", 1000), ("with tuning", 7000)
    ]  # fmt: skip
    assert all(float(row["value"]) > 0 and row["side"] == "simulated" for row in rows)


@pytest.mark.parametrize("text", ["4", "5,15", "5,", "all", ""])
def test_figures_are_5_to_14(text, figures_script, capsys):
    with pytest.raises(SystemExit) as left:
        figures_script.main(["--figures", text])
    assert left.value.code == 2 and "wanted some of 5 to 14" in capsys.readouterr().err


def test_a_point_is_another_when_anything_that_makes_it_is(figures_script):
    from dataclasses import replace

    from wsj_figures.points import REAL, SCALES, SIMULATED, Point, key_of

    point, scale = Point(SIMULATED), SCALES[SIMULATED]
    others = [
        replace(point, rate=1501),
        replace(point, tuned=False),
        replace(point, slaves=3),
        replace(point, adaptive=True),
        replace(point, ordered=True),
        replace(point, ordered=True, subgroups=2),
    ]
    keys = {key_of(one, scale, "costs") for one in (point, *others)}
    assert len(keys) == 7
    assert key_of(point, scale, "other costs") not in keys
    assert key_of(Point(REAL), SCALES[REAL], "costs") == key_of(Point(REAL), SCALES[REAL], "other costs")


def paper(point):
    """Points as the paper's sentences have them: a slave carries 1500 tuples/s with tuning, 1000 without."""
    share = point.rate / point.slaves / (1500 if point.tuned else 1000)
    behind_s = 48 * max(0.0, share - 1 + 1e-9) if share >= 1 else 0.0
    if not point.tuned and point.rate == 4000:
        behind_s = 46.0
    communication = (0.01 + 0.002 * point.slaves) * (point.rate / 1500) / point.epoch_s**0.5
    active = 1.0 if point.adaptive else point.slaves
    each = communication / point.slaves
    wait = each * (1 + 0.5 / point.subgroups)
    of_all = (0.01 + 0.002 * active) * (point.rate / 1500) / point.epoch_s**0.5
    return {
        "delay_s": point.epoch_s / 2 * (1 + 0.9 * min(1.0, share)) + 100 * max(0.0, share - 1) + behind_s,
        "cpu": share**2,
        "idle": max(0.0, 1 - share),
        "comm": each, "comm_min": each, "comm_max": each, "comm_sum": of_all,
        "wait": wait, "wait_min": 0.8 * wait, "wait_max": 1.3 * wait, "wait_sum": of_all,
        "late": wait, "late_min": 0.9 * wait, "late_max": wait,
        "active": active,
    }


def verdicts(figures):
    from wsj_figures.points import SIMULATED
    from wsj_figures.sentences import SENTENCES, Results

    results = Results(SIMULATED, figures, 1.0)
    return {sentence.name: sentence.check(results).holds for sentence in SENTENCES}


def test_points_as_in_the_paper_make_every_sentence_hold():
    assert [name for name, holds in verdicts(paper).items() if not holds] == []


@pytest.mark.parametrize(
    "changes, lost",
    [
        (
            lambda point, own: {"delay_s": 1.0 + point.rate / 1e4 + point.epoch_s / 1e3},
            {"sharp rise", "capacity", "48 seconds"},
        ),
        (lambda point, own: {"delay_s": own["delay_s"] * point.rate / 4000}, {"flat before"}),
        (lambda point, own: {"cpu": point.rate / 4000}, {"CPU time"}),
        (lambda point, own: {"delay_s": 9.0 if point.rate == 4000 and point.tuned else own["delay_s"]}, {"2 seconds"}),
        (lambda point, own: {"idle": 0.3}, {"idle at 4000", "idle at 6000"}),
        (lambda point, own: {"idle": 0.0}, {"idle at 4000", "idle at 6000"}),
        (lambda point, own: {"comm": own["comm"] * (1.3 if point.tuned else 1.0)}, {"tuning is local"}),
        (lambda point, own: {"comm": 0.01}, {"communication and epoch"}),
        (lambda point, own: {"wait": 0.01 + own["comm"]}, {"sub-groups"}),
        (lambda point, own: {"wait": 0.01}, {"less per slave"}),
        (lambda point, own: {"wait_sum": 0.01}, {"aggregate", "adaptive"}),
        (lambda point, own: {"wait_min": own["wait_max"]}, {"not uniform", "divergence", "coming later"}),
        (lambda point, own: {"late_min": 0.5 * own["late_max"]}, {"coming later"}),
        (lambda point, own: {"delay_s": own["delay_s"] if point.epoch_s == 2 else 3.0}, {"delay and epoch"}),
    ],
)
def test_a_sentence_does_not_hold_where_the_points_say_otherwise(changes, lost):
    found = verdicts(lambda point: {**paper(point), **changes(point, paper(point))})
    assert lost <= {name for name, holds in found.items() if not holds}


def test_the_table_says_why_a_sentence_does_not_hold(tmp_path, monkeypatch):
    from wsj_figures import table
    from wsj_figures.points import SIMULATED
    from wsj_figures.sentences import Results

    monkeypatch.setitem(table.EXPLANATIONS, ("aggregate", SIMULATED), "because")
    monkeypatch.setitem(table.EXPLANATIONS, ("less per slave", SIMULATED), "never shown")
    results = Results(SIMULATED, lambda point: {**paper(point), "wait_sum": 0.01}, 1.0)
    table.write(tmp_path, table.rows_of([results], [11]))
    rows = list(csv.DictReader((tmp_path / "table.csv").open()))
    assert [row["holds"] for row in rows] == ["yes", "no", "no"]
    assert [row["explanation"] for row in rows][:2] == ["", "because"]
    assert (tmp_path / "table.md").read_text().count("\n") == 2 + len(rows)


def test_every_explanation_is_of_a_sentence(figures_script):
    from wsj_figures.points import SIDES
    from wsj_figures.sentences import SENTENCES
    from wsj_figures.table import EXPLANATIONS

    names = [sentence.name for sentence in SENTENCES]
    assert len(set(names)) == len(names)
    assert all(name in names and side in SIDES for name, side in EXPLANATIONS)
