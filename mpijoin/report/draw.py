"""Tables into figures, one function each. Every figure has its units on its axes."""

from __future__ import annotations

from typing import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from mpijoin.report.series import DECADE_STEPS, SHARES, Table
from mpijoin.report.style import (
    BLUE,
    COLOURS,
    FAINT,
    GREEN,
    HEIGHT_IN,
    INK,
    LINES_MAX,
    ORANGE,
    PAPER,
    PURPLE,
    QUIET,
    SKY,
    VERMILLION,
    byte_axis,
    byte_unit,
    count_axis,
    legend,
    line_style,
    new_figure,
    time_axis,
)

MAP = "cividis"  # dark to light in grey print too, and the same to the colour-blind
SHARE_LOOKS = {"cpu": (BLUE, ""), "communication": (ORANGE, "////"), "idle": (QUIET, ""), "other": (PURPLE, "....")}
SHARE_NAMES = {"cpu": "CPU", "communication": "communication", "idle": "idle", "other": "other"}
OUTCOME_LOOKS = {"moved": (BLUE, "-", "o"), "refused": (VERMILLION, ":", "X"), "cancelled": (ORANGE, "--", "D")}
BARS_NAMED_MAX = 32  # more bars than these have no room for names


def delay(table: Table) -> Figure:
    figure, axes = new_figure()
    end_s, start_s = table["end_s"], start_of(table)
    if "p50_s" in table:
        band = "median to 99th percentile"
        axes.fill_between(end_s, table["p50_s"], table["p99_s"], color=SKY, alpha=0.45, linewidth=0, label=band)
        axes.plot(end_s, table["p99_s"], color=BLUE, linewidth=0.8, linestyle=(0, (4, 2)))
    axes.plot(end_s, table["mean_s"], color=BLUE, label="mean", **dots_if_few(end_s))
    axes.plot(end_s, table["max_s"], color=VERMILLION, linewidth=0.9, linestyle=(0, (1, 1.5)), label="longest")
    axes.set_ylabel("production delay, s")
    axes.set_ylim(bottom=0)
    time_axis(axes, end_s, start_s)
    legend(figure, axes)
    return figure


def delay_map(table: Table) -> Figure:
    """Time to the right, delay upwards in steps of its logarithm, shade by the number of results."""
    figure, axes = new_figure()
    width_s = table["end_s"][0] - table["start_s"][0]
    first_s, step = table["start_s"].min(), np.rint(np.log10(table["delay_from_s"]) * DECADE_STEPS).astype(int)
    column = np.rint((table["start_s"] - first_s) / width_s).astype(int)
    field = np.full((step.max() - step.min() + 1, column.max() + 1), np.nan)
    field[step - step.min(), column] = table["results"]
    low, high = step.min() / DECADE_STEPS, (step.max() + 1) / DECADE_STEPS
    extent = (first_s, table["end_s"].max(), low, high)
    norm = LogNorm(1, max(2, np.nanmax(field)))
    image = axes.imshow(field, MAP, norm, origin="lower", aspect="auto", extent=extent, interpolation="nearest")
    ticks = [exponent + part for exponent in range(-4, 5) for part in np.log10([1, 2, 5]) if low <= exponent + part <= high]
    axes.set_yticks(ticks, [f"{10**tick:.4g}" for tick in ticks])
    axes.set_ylabel("production delay, s")
    axes.grid(False)
    time_axis(axes, table["end_s"], first_s)
    bar = figure.colorbar(image, ax=axes, pad=0.01, aspect=18)
    bar.set_label("results")
    bar.outline.set_visible(False)
    return figure


def throughput(table: Table) -> Figure:
    figure, (above, below) = new_figure(2, sharex=True)
    tuples = table["left_tuples_per_s"] + table["right_tuples_per_s"]
    above.plot(table["end_s"], tuples, color=BLUE, label="tuples", **dots_if_few(tuples))
    count_axis(above, tuples.max(), "tuples/s")
    below.plot(table["end_s"], table["results_per_s"], color=GREEN, **dots_if_few(tuples))
    count_axis(below, table["results_per_s"].max(), "results/s")
    for axes in (above, below):
        axes.set_ylim(bottom=0)
    time_axis(below, table["end_s"], start_of(table))
    return figure


def shares(table: Table) -> Figure:
    """Stacked areas over time."""
    figure, axes = new_figure()
    bottom = np.zeros(len(table["end_s"]))
    edges = np.concatenate([[start_of(table)], table["end_s"]])
    for name in SHARES:
        colour, hatch = SHARE_LOOKS[name]
        top = bottom + np.nan_to_num(table[name])
        axes.stairs(
            top, edges, baseline=bottom, fill=True, facecolor=colour, hatch=hatch, edgecolor=PAPER, linewidth=0,
            label=SHARE_NAMES[name],
        )  # fmt: skip
        bottom = top
    share_axis(axes)
    time_axis(axes, table["end_s"], start_of(table))
    legend(figure, axes)
    return figure


def shares_by_slave(table: Table) -> Figure:
    """A stacked bar for each slave."""
    slaves = table["slave"]
    figure, axes = new_figure()
    place, bottom = np.arange(len(slaves)), np.zeros(len(slaves))
    few = len(slaves) <= BARS_NAMED_MAX
    for name in SHARES:
        colour, hatch = SHARE_LOOKS[name]
        values = np.nan_to_num(table[name])
        axes.bar(
            place, values, 0.7 if few else 1.0, bottom, color=colour, hatch=hatch if few else "", edgecolor=PAPER,
            linewidth=0, label=SHARE_NAMES[name],
        )  # fmt: skip
        bottom += values
    if few:
        axes.set_xticks(place, slaves.tolist())
    axes.set_xlim(-0.8, max(len(slaves) - 0.2, 4.2))
    axes.set_xlabel("slave (rank)" if few else "slaves, by rank")
    axes.grid(False, axis="x")
    share_axis(axes)
    legend(figure, axes)
    return figure


def slaves_bytes(table: Table, name: str) -> Figure:
    """A line for each slave; of more slaves than lines can be told apart, a map of slaves by time."""
    columns = [column for column in table if column != "end_s"]
    if len(columns) > LINES_MAX:
        return slaves_map(table, columns, name)
    figure, axes = new_figure()
    largest = 0.0
    for index, column in enumerate(columns):
        label = "slave " + column.removeprefix("slave_").removesuffix("_bytes")
        axes.plot(table["end_s"], table[column], label=label, **line_style(index, len(table["end_s"])))
        largest = max(largest, np.nanmax(table[column], initial=0.0))
    axes.set_ylim(0, 1.05 * largest or 1)
    byte_axis(axes, largest, name)
    time_axis(axes, table["end_s"], start_of(table))
    legend(figure, axes)
    return figure


def slaves_map(table: Table, columns: Sequence[str], name: str) -> Figure:
    figure, axes = new_figure(height_in=HEIGHT_IN * 1.2)
    field = np.stack([table[column] for column in columns])
    divisor, unit = byte_unit(np.nanmax(field, initial=0.0))
    ranks = [int(column.split("_")[1]) for column in columns]
    extent = (start_of(table), table["end_s"][-1], ranks[0] - 0.5, ranks[-1] + 0.5)
    image = axes.imshow(
        field / divisor, MAP, origin="lower", aspect="auto", extent=extent, interpolation="nearest", vmin=0
    )  # fmt: skip
    axes.grid(False)
    axes.set_ylabel("slave (rank)")
    time_axis(axes, table["end_s"], start_of(table))
    bar = figure.colorbar(image, ax=axes, pad=0.01, aspect=22)
    bar.set_label(f"{name}, {unit}")
    bar.outline.set_visible(False)
    return figure


def declustering(table: Table) -> Figure:
    figure, axes = new_figure(height_in=2.0)
    active = np.concatenate([table["active_slaves"][:1], table["active_slaves"]])
    axes.step(np.concatenate([[start_of(table)], table["end_s"]]), active, where="pre", color=BLUE, linewidth=2)
    axes.set_ylim(0, np.nanmax(active, initial=1) + 0.5)
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel("slaves with groups")
    time_axis(axes, table["end_s"], start_of(table))
    return figure


def moves(table: Table) -> Figure:
    """Above, an arrow from supplier to consumer for each move; below, its pause, as large as its bytes."""
    figure, (above, below) = new_figure(2, sharex=True, height_ratios=(1.5, 1))
    lines = len(table["move"]) <= 400
    for outcome, (colour, dashes, marker) in OUTCOME_LOOKS.items():
        own = np.flatnonzero(table["outcome"] == outcome)
        if len(own) == 0:
            continue
        columns = (table[name][own] for name in ("begun_s", "closed_s", "supplier", "consumer"))
        for begun_s, closed_s, supplier, consumer in zip(*columns):
            above.plot([begun_s, closed_s], [supplier, consumer], color=colour, linestyle=dashes, linewidth=1.1 if lines else 0.5)
        above.scatter(
            table["closed_s"][own], table["consumer"][own], 26 if lines else 6, colour, marker, label=outcome, zorder=3, linewidth=0
        )  # fmt: skip
        area = 12 + 120 * table["bytes"][own] / max(1, table["bytes"].max())
        below.scatter(
            table["frozen_s"][own], 1e3 * table["pause_s"][own], area, colour, marker, alpha=0.7, linewidth=0, label=outcome
        )  # fmt: skip
    ranks = sorted({*table["supplier"].tolist(), *table["consumer"].tolist()})
    above.set_yticks(ranks if len(ranks) <= 12 else np.linspace(ranks[0], ranks[-1], 8).round())
    above.set_ylim(ranks[0] - 0.5, ranks[-1] + 0.5)
    above.set_ylabel("from slave, to slave")
    below.set_ylabel("input held, ms")
    below.set_ylim(bottom=0)
    time_axis(below, table["closed_s"] * 1.02)
    legend(figure, above)
    return figure


def master(table: Table) -> Figure:
    """What waits at the master; below, in panels of their own, how late it is and late rows, where there are any."""
    more = [name for name in ("lag_s", "late_rows") if np.nanmax(table[name], initial=0) > 0]
    figure, panels = new_figure(1 + len(more), squeeze=False, sharex=True)
    first, *others = panels[:, 0]
    buffer_bytes = table["buffer_bytes"]
    first.plot(table["end_s"], buffer_bytes, color=BLUE, **dots_if_few(buffer_bytes))
    byte_axis(first, np.nanmax(buffer_bytes, initial=0.0), "waits, at most")
    for axes, name in zip(others, more):
        colour, label = {"lag_s": (VERMILLION, "sent late by, s"), "late_rows": (ORANGE, "late rows")}[name]
        axes.plot(table["end_s"], table[name], color=colour, **dots_if_few(buffer_bytes))
        axes.set_ylabel(label)
    for axes in panels[:, 0]:
        axes.set_ylim(bottom=0)
    time_axis(panels[-1, 0], table["end_s"], start_of(table))
    return figure


def start_of(table: Table) -> float:
    """Where the first bin begins."""
    end_s = table["end_s"]
    return 0.0 if len(end_s) < 2 else float(2 * end_s[0] - end_s[1])


def share_axis(axes: Axes) -> None:
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylabel("of the slaves' wall time")


def dots_if_few(points: Sequence[float]) -> dict[str, str]:
    """A line through one or two points shows nothing without them."""
    return {"marker": "o"} if len(points) < 12 else {}
