"""Draws the figures about state that did not fit into memory, after figures 5 to 7 and 12 of LAD."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mpijoin.report.draw import dots_if_few, over_time, slaves_lines, slaves_map
from mpijoin.report.series import Table
from mpijoin.report.spilling import CLEANUP, RELOCATION, SPILL
from mpijoin.report.style import (
    BLUE,
    COLOURS,
    DASHES,
    FAINT,
    HEIGHT_IN,
    LINES_MAX,
    SKY,
    VERMILLION,
    byte_axis,
    count_axis,
    legend,
    new_figure,
    time_axis,
)

KINDS = (SPILL, RELOCATION, CLEANUP)  # from top to bottom
TEETH_MAX = 60  # Where slaves spill more often than this, only thin lines can be told apart.
ROW_IN = 0.3  # the height of each kind's row
SPAN_SEEN = 1 / 400  # So much of the figure's width has the shortest span that is drawn.


def memory(table: Table, happened: Table, binned: Table) -> Figure:
    """Draws the memory of each slave against its limit, and below when slaves spilled and groups moved.

    table: of all records · binned: the same in bins, for a map where there are too many slaves for lines.
    """
    slaves = np.unique(table["slave"])
    if len(slaves) > LINES_MAX:
        return slaves_map(binned, [name for name in binned if name.startswith("slave_")], "in memory")
    kinds = [kind for kind in KINDS if (happened["kind"] == kind).any()]
    strip_in = ROW_IN * max(1, len(kinds))
    figure, (above, below) = new_figure(
        2, sharex=True, height_in=HEIGHT_IN + strip_in, height_ratios=(HEIGHT_IN, strip_in)
    )
    dense = (happened["kind"] == SPILL).sum() > TEETH_MAX * len(slaves)
    for index, slave in enumerate(slaves.tolist()):
        own = table["slave"] == slave
        look: dict[str, Any] = {"linestyle": DASHES[index], "linewidth": 1.2}
        if dense:
            look = {"linestyle": "-", "linewidth": 0.5, "alpha": 0.75}
        look |= {"color": COLOURS[index], "label": f"slave {slave}", "zorder": 2.5}
        above.plot(table["end_s"][own], table["memory_bytes"][own], **look)
    _limits(above, table, slaves.tolist())
    largest = max(table["memory_bytes"].max(), table["limit_bytes"].max())
    above.set_ylim(0, 1.08 * largest or 1)
    byte_axis(above, largest, "in memory")
    _strip(below, happened, kinds, slaves.tolist(), table["end_s"].max())
    time_axis(below, 0.0, table["end_s"].max())
    legend(figure, above)
    return figure


def _limits(axes: Axes, table: Table, slaves: list[int]) -> None:
    """Draws the limit of each slave, or one line where all have the same all the time."""
    look: dict[str, Any] = {"color": FAINT, "linewidth": 1.0, "linestyle": (0, (4, 2))}
    limits = np.unique(table["limit_bytes"])
    if len(limits) == 1:
        axes.axhline(limits[0], label="limit", **look)
        return
    for index, slave in enumerate(slaves):
        own = table["slave"] == slave
        name = "" if index else "limit"
        axes.step(table["end_s"][own], table["limit_bytes"][own], where="post", label=name, **look)


def _strip(axes: Axes, happened: Table, kinds: list[str], slaves: list[int], end_s: float) -> None:
    """Draws a row for each kind of event, in which each slave has a lane of its own and the colour of its line."""
    lane = 0.8 / len(slaves)
    for row, kind in enumerate(kinds):
        for index, slave in enumerate(slaves):
            own = (happened["kind"] == kind) & (happened["slave"] == slave)
            starts_s = happened["start_s"][own]
            widths_s = np.maximum(happened["end_s"][own] - starts_s, end_s * SPAN_SEEN)
            place = (row - 0.4 + index * lane, lane)
            axes.broken_barh(list(zip(starts_s, widths_s)), place, facecolors=COLOURS[index], linewidth=0)
    axes.set_yticks(range(len(kinds)), kinds)
    axes.set_ylim(len(kinds) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")


def results_so_far(table: Table) -> Figure:
    """Draws the sum of all results over time. What the clean-up found lies as an area on what the run had found."""
    figure, axes = new_figure()
    end_s, runtime = table["end_s"], table["runtime_results"]
    whole = runtime + table["cleanup_results"]
    axes.plot(end_s, runtime, color=BLUE, label="found while joining", **dots_if_few(end_s))
    axes.fill_between(end_s, runtime, whole, color=SKY, alpha=0.6, linewidth=0, label="found in clean-up")
    axes.plot(end_s, whole, color=VERMILLION, linewidth=1.0, linestyle=(0, (1, 1.5)), label="all results")
    axes.set_ylim(0, 1.05 * whole.max() or 1)
    count_axis(axes, whole.max(), "results so far")
    time_axis(axes, end_s[0], end_s[-1])
    legend(figure, axes)
    return figure


def on_disk(table: Table) -> Figure:
    """Draws what each slave had on its disk, and below how many groups owed results."""
    columns = [name for name in table if name.startswith("slave_")]
    if len(columns) > LINES_MAX:
        return slaves_map(table, columns, "on disk")
    figure, (above, below) = new_figure(2, sharex=True, height_ratios=(1.6, 1))
    slaves_lines(above, table, columns, "on disk")
    owed = table["owed_groups"]
    below.plot(table["end_s"], owed, color=BLUE, **dots_if_few(owed))
    below.set_ylim(0, 1.08 * owed.max() or 1)
    count_axis(below, owed.max(), "groups owed")
    over_time(below, table)
    legend(figure, above)
    return figure
