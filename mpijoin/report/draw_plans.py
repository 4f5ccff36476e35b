"""Draws the plans of slaves: a band for each slave over time, in the colours of the trees that are drawn above."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mpijoin.config.job import MWAY
from mpijoin.config.plan import Plan, parse_plan
from mpijoin.named import NamedTuple
from mpijoin.report.series import Table
from mpijoin.report.style import COLOURS, FAINT, INK, LINES_MAX, PAPER, QUIET, WIDTH_IN, new_figure, time_axis
from mpijoin.report.words import shortened

HATCHES = ("", "///", "...", "xxx", "\\\\\\", "+++", "ooo")
OTHER = "other plans"
BAND_IN, BANDS_IN_MAX = 0.3, 3.2  # the height of a slave's band, and of all together
LEVEL_IN, WORDS_IN = 0.27, 0.55  # the height of a level of a tree, and of what stands below its leaves
LEAF_IN, SIGN_IN, GAP_IN = 0.25, 0.068, 0.3  # the width of a leaf, of a character, and between two trees
ROW_IN = WIDTH_IN - 0.6  # for trees side by side
SLAVES_NAMED_MAX = 12


class Drawn(NamedTuple):
    """A drawing of a plan. joins, leaves: their places, with the level counted from the leaves · lines: from each join
    to what it joins, as places of both ends."""

    joins: list[tuple[float, float]]
    leaves: list[tuple[float, str]]
    lines: list[tuple[tuple[float, float], tuple[float, float]]]


def plans(table: Table, names: Sequence[str]) -> Figure:
    """names: of the streams, in the job's order."""
    shown = _shown(table)
    slaves = np.unique(table["slave"]).tolist()
    drawings = {plan: drawn(plan, names) for plan in shown}
    levels = max(level for one in drawings.values() for _, level in one.joins)
    leaf_in, tree_in = _widths_in(shown, names)
    columns = max(1, int(ROW_IN / (tree_in + GAP_IN)))
    named = [*shown, *([OTHER] if len(shown) < len(set(table["plan"])) else [])]
    row_in, rows = WORDS_IN + LEVEL_IN * levels, -(-len(named) // columns)
    heights_in = (row_in * rows, min(BANDS_IN_MAX, 0.5 + BAND_IN * len(slaves)))
    figure, (above, below) = new_figure(2, height_in=sum(heights_in), height_ratios=heights_in)
    for index, plan in enumerate(named):
        middle, foot = (
            (index % columns + 0.5) * (tree_in + GAP_IN),
            row_in * (rows - index // columns) - LEVEL_IN * levels,
        )
        if plan in drawings:
            _draw_tree(above, drawings[plan], (middle, foot - 0.1), leaf_in, COLOURS[index])
        _name(above, plan, (middle, foot - 0.1), tree_in, look_of(index, plan))
    above.set(xlim=(0, ROW_IN), ylim=(0, row_in * rows))
    above.set_axis_off()
    _bands(below, table, {plan: look_of(index, plan) for index, plan in enumerate(named)}, slaves)
    return figure


def _widths_in(shown: Sequence[str], names: Sequence[str]) -> tuple[float, float]:
    """Returns the width of a leaf, and of a tree with its text. A row is wide enough for one tree."""
    leaf_in = min(max(LEAF_IN, SIGN_IN * (1 + max(map(len, names)))), ROW_IN / len(names))
    return leaf_in, min(max(leaf_in * len(names), SIGN_IN * max(map(len, shown))), ROW_IN - GAP_IN)


def _shown(table: Table) -> list[str]:
    """Returns the plans that have a colour, in the order of their first use: all, or those that were used longest."""
    order = np.argsort(table["start_s"], kind="stable")
    plans = list(dict.fromkeys(table["plan"][order].tolist()))
    lasted_s = {plan: float((table["end_s"] - table["start_s"])[table["plan"] == plan].sum()) for plan in plans}
    longest = sorted(plans, key=lambda plan: -lasted_s[plan])[:LINES_MAX]
    return [plan for plan in plans if plan in longest]


def look_of(index: int, plan: str) -> dict[str, Any]:
    """Returns the look of the plan with this number. Hatches tell plans apart in grey print, too."""
    return {"facecolor": QUIET} if plan == OTHER else {"facecolor": COLOURS[index], "hatch": HATCHES[index]}


def drawn(plan: str, names: Sequence[str]) -> Drawn:
    """Returns the drawing of a plan over streams of these names: its leaves stand one beside the other.

    >>> drawn("((a b) c)", ["a", "b", "c"]).joins
    [(0.5, 1.0), (1.25, 2.0)]
    """
    found = Drawn([], [], [])
    if plan == MWAY:
        _join(found, [_add(found, stream, names) for stream in range(len(names))])
    else:
        _add(found, parse_plan(plan, names), names)
    return found


def _add(found: Drawn, plan: Plan, names: Sequence[str]) -> tuple[float, float]:
    """Adds a part of a plan, and returns its place."""
    if isinstance(plan, int):
        found.leaves.append((float(len(found.leaves)), names[plan]))
        return found.leaves[-1][0], 0.0
    return _join(found, [_add(found, below, names) for below in plan])


def _join(found: Drawn, below: list[tuple[float, float]]) -> tuple[float, float]:
    place = sum(x for x, _ in below) / len(below), 1 + max(level for _, level in below)
    found.joins.append(place)
    found.lines.extend((place, one) for one in below)
    return place


def _draw_tree(axes: Axes, one: Drawn, at: tuple[float, float], leaf_in: float, colour: str) -> None:
    """Draws a tree with its root on top. at: the middle of its leaves."""
    left, foot = at[0] - leaf_in * (len(one.leaves) - 1) / 2, at[1]

    def placed(x: float, level: float) -> tuple[float, float]:
        return left + leaf_in * x, foot + LEVEL_IN * level

    for join, below in one.lines:
        ends = placed(*join), placed(below[0], below[1] or 0.35)  # It ends above the name of a leaf.
        axes.plot(*zip(*ends), color=FAINT, linewidth=1.0, zorder=2)
    for join in one.joins:
        axes.scatter(*placed(*join), 26, color=colour, edgecolor=INK, linewidth=0.6, zorder=3)
    for x, name in one.leaves:
        axes.text(*placed(x, 0), name, ha="center", va="center", fontsize=8)


def _name(axes: Axes, plan: str, at: tuple[float, float], width_in: float, look: dict[str, Any]) -> None:
    """Writes a plan below its tree, with its look."""
    (middle, foot), text = at, "m-way" if plan == MWAY else plan
    axes.broken_barh([(middle - width_in / 2, width_in)], (foot - 0.2, 0.08), edgecolor=PAPER, linewidth=0, **look)
    axes.text(middle, foot - 0.31, shortened(text, int(width_in / SIGN_IN)), ha="center", va="center", fontsize=8)


def _bands(axes: Axes, table: Table, looks: dict[str, dict[str, Any]], slaves: list[int]) -> None:
    """looks: of the plans that have one of their own, and of OTHER."""
    rows = zip(*(table[name].tolist() for name in ("plan", "slave", "start_s", "end_s")))
    for plan, slave, start_s, end_s in rows:
        lane, look = (slaves.index(slave) - 0.4, 0.8), looks.get(plan) or looks[OTHER]
        axes.broken_barh([(start_s, end_s - start_s)], lane, edgecolor=PAPER, linewidth=0, **look)
    some = slaves[:: -(-len(slaves) // SLAVES_NAMED_MAX)]
    axes.set_yticks([slaves.index(slave) for slave in some], list(map(str, some)))
    axes.set_ylim(len(slaves) - 0.5, -0.5)
    axes.set_ylabel("slave (rank)")
    axes.grid(False, axis="y")
    time_axis(axes, table["start_s"].min(), table["end_s"].max())
