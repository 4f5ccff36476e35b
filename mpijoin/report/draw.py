"""Turns tables into figures, with one function for each figure. Every figure has its units on its axes."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from mpijoin.report.series import DECADE_STEPS, SHARES, Event, Table
from mpijoin.report.style import (
    BLUE,
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
    count_axis,
    legend,
    line_style,
    new_figure,
    panels_over_time,
    time_axis,
)
from mpijoin.report.words import byte_unit

MAP = "cividis"  # It runs from dark to light in grey print too, and looks the same to the colour-blind.
SHARE_LOOKS = {"cpu": (BLUE, ""), "communication": (ORANGE, "///"), "idle": (QUIET, ""), "other": (PURPLE, "xxx")}
SHARE_NAMES = {"cpu": "CPU", "communication": "communication", "idle": "idle", "other": "other"}
OUTCOME_LOOKS = {"moved": (BLUE, "o"), "refused": (VERMILLION, "X"), "cancelled": (ORANGE, "D")}
MOVE_TIMES = {"took_s": "took, ms", "pause_s": "input held, ms"}
MOVES_APART_MAX = 90  # So many arrows have room side by side.
OTHER_SEEN = 0.005
BARS_NAMED_MAX = 32  # More bars than these have no room for names.


def delay(table: Table) -> Figure:
    figure, axes = new_figure()
    end_s = table["end_s"]
    if "p50_s" in table:
        band = "median to 99th percentile"
        axes.fill_between(end_s, table["p50_s"], table["p99_s"], color=SKY, alpha=0.45, linewidth=0, label=band)
    axes.plot(end_s, table["mean_s"], color=INK, label="mean", **dots_if_few(end_s))
    axes.plot(end_s, table["max_s"], color=VERMILLION, linewidth=0.9, linestyle=(0, (1, 1.5)), label="longest")
    axes.set_ylabel("production delay, s")
    axes.set_ylim(bottom=0)
    over_time(axes, table)
    legend(figure, axes)
    return figure


def delay_map(table: Table) -> Figure:
    """Draws time to the right and the delay upwards, in steps of its logarithm. The shade is the number of results."""
    figure, axes = new_figure()
    step = np.rint(np.log10(table["delay_from_s"]) * DECADE_STEPS).astype(int)
    lowest, steps = step.min(), np.ptp(step) + 1
    starts_s, column = np.unique(table["start_s"], return_inverse=True)
    edges_s = np.append(starts_s, table["end_s"].max())
    field = np.full((steps, len(starts_s)), np.nan)
    field[step - lowest, column] = table["results"]
    edges = (lowest + np.arange(steps + 1)) / DECADE_STEPS
    shades = LogNorm(1, max(2, table["results"].max()))
    shade(figure, axes, edges_s, edges, field, "results", norm=shades)
    ticks = [exponent + part for exponent in range(-4, 5) for part in np.log10([1, 2, 5])]
    ticks = [tick for tick in ticks if edges[0] <= tick <= edges[-1]]
    axes.set_yticks(ticks, [f"{10**tick:.4g}" for tick in ticks])
    axes.set_ylabel("production delay, s")
    over_time(axes, table)
    return figure


def throughput(table: Table) -> Figure:
    """Draws each rate as a step as long as the time that it is the mean of."""
    figure, panels = new_figure(2, sharex=True)
    for axes, colour, name in zip(panels, (BLUE, GREEN), ("tuples", "results")):
        rates = table[f"{name}_per_s"]
        axes.stairs(rates, edges_s(table), baseline=None, color=colour, linewidth=1.6, label=name)
        axes.set_ylim(0, 1.05 * rates.max() or 1)
        count_axis(axes, rates.max(), f"{name}/s")
    over_time(panels[-1], table)
    return figure


def shares(table: Table) -> Figure:
    """Draws stacked areas over time."""
    figure, axes = new_figure()
    bottom = np.zeros(len(table["end_s"]))
    edges = edges_s(table)
    for name in shown_shares(table):
        colour, hatch = SHARE_LOOKS[name]
        top = bottom + np.nan_to_num(table[name])
        axes.stairs(
            top, edges, baseline=bottom, fill=True, facecolor=colour, hatch=hatch, edgecolor=PAPER, linewidth=0,
            label=SHARE_NAMES[name],
        )  # fmt: skip
        bottom = top
    share_axis(axes)
    over_time(axes, table)
    legend(figure, axes)
    return figure


def shares_by_slave(table: Table) -> Figure:
    """Draws a stacked bar for each slave."""
    slaves = table["slave"]
    figure, axes = new_figure()
    place, bottom = np.arange(len(slaves)), np.zeros(len(slaves))
    few = len(slaves) <= BARS_NAMED_MAX
    for name in shown_shares(table):
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
    """Draws a line for each slave, or a map of slaves by time if there are too many lines to tell apart."""
    columns = [column for column in table if column.startswith("slave_") and not np.isnan(table[column]).all()]
    if len(columns) > LINES_MAX:
        return slaves_map(table, columns, name)
    figure, axes = new_figure()
    slaves_lines(axes, table, columns, name)
    over_time(axes, table)
    legend(figure, axes)
    return figure


def slaves_lines(axes: Axes, table: Table, columns: Sequence[str], name: str) -> None:
    """Draws a line for each of these columns."""
    largest = 0.0
    for index, column in enumerate(columns):
        label = "slave " + column.removeprefix("slave_").removesuffix("_bytes")
        axes.plot(table["end_s"], table[column], label=label, **line_style(index, len(table["end_s"])))
        largest = max(largest, np.nanmax(table[column], initial=0.0))
    axes.set_ylim(0, 1.05 * largest or 1)
    byte_axis(axes, largest, name)


def slaves_map(table: Table, columns: Sequence[str], name: str) -> Figure:
    figure, axes = new_figure(height_in=1.2 * HEIGHT_IN)
    field = np.stack([table[column] for column in columns])
    divisor, unit = byte_unit(np.nanmax(field, initial=0.0))
    ranks = np.array([int(column.split("_")[1]) for column in columns])
    shade(
        figure,
        axes,
        edges_s(table),
        np.append(ranks - 0.5, ranks[-1] + 0.5),
        field / divisor,
        f"{name}, {unit}",
        vmin=0,
    )
    axes.set_ylabel("slave (rank)")
    over_time(axes, table)
    return figure


def declustering(table: Table) -> Figure:
    figure, axes = new_figure(height_in=2.0)
    active = table["active_slaves"]
    axes.stairs(active, edges_s(table), baseline=None, color=BLUE, linewidth=2)
    axes.set_ylim(0, np.nanmax(active, initial=1) + 0.5)
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel("slaves with groups")
    over_time(axes, table)
    return figure


def moves(table: Table, end_s: float) -> Figure:
    """Draws an arrow from supplier to consumer for each move, side by side, and below how long it took and its pause.

    The sizes of the marks there show the bytes of the move. end_s: the end of the run.
    """
    figure, (above, *lower) = new_figure(3, sharex=True, height_ratios=(1.5, 1, 1))
    place_s, width_s = side_by_side(table["begun_s"], end_s)
    supplier, consumer = table["supplier"], table["consumer"]
    area = 8 + 90 * table["bytes"] / max(1, table["bytes"].max())
    for outcome, (colour, marker) in OUTCOME_LOOKS.items():
        own = table["outcome"] == outcome
        if not own.any():
            continue
        dots = {"c": colour, "marker": marker, "linewidth": 0}
        arrows = {"angles": "xy", "scale_units": "xy", "scale": 1, "units": "x", "width": 0.22 * width_s}
        up = (consumer - supplier)[own]
        above.quiver(
            place_s[own], supplier[own], np.zeros(len(up)), up, color=colour, headlength=4, headaxislength=4, **arrows
        )
        above.scatter(
            place_s[own], supplier[own], 12 if own.sum() <= MOVES_APART_MAX else 3, label=outcome, zorder=3, **dots
        )
        for axes, name in zip(lower, MOVE_TIMES):
            axes.vlines(place_s[own], 0, 1e3 * table[name][own], color=colour, linewidth=0.8)
            axes.scatter(place_s[own], 1e3 * table[name][own], area[own], alpha=0.8, **dots)
    ranks = sorted({*supplier.tolist(), *consumer.tolist()})
    above.set_yticks(ranks if len(ranks) <= 12 else np.linspace(ranks[0], ranks[-1], 8).round())
    above.set_ylim(ranks[0] - 0.5, ranks[-1] + 0.5)
    above.set_ylabel("slave (rank)")
    for axes, (name, label) in zip(lower, MOVE_TIMES.items()):
        axes.set_ylabel(label)
        axes.set_ylim(0, 1.2e3 * table[name].max() or 1)
    time_axis(lower[-1], 0.0, end_s)
    legend(figure, above, title="by " + " and ".join(np.unique(table["kind"]).tolist()))
    return figure


def side_by_side(moments_s: np.ndarray, end_s: float) -> tuple[np.ndarray, float]:
    """Returns places for marks at these moments, in the same order, and the least distance between two of them.

    Marks that would lie on one another are spread evenly around the mean of their moments.

    >>> side_by_side(np.array([50.0, 50.0, 90.0]), 90.0)
    (array([49.5, 50.5, 90. ]), 1.0)
    """
    apart_s = end_s / max(MOVES_APART_MAX, len(moments_s)) or 1.0
    order = np.argsort(moments_s, kind="stable")
    clusters: list[tuple[float, int]] = []  # Each has its middle and its number of marks.
    for moment_s in moments_s[order].tolist():
        middle, count = moment_s, 1
        while clusters and clusters[-1][0] + apart_s * (clusters[-1][1] + count) / 2 > middle:
            before, more = clusters.pop()
            middle, count = (before * more + middle * count) / (more + count), more + count
        clusters.append((middle, count))
    places = np.empty(len(moments_s))
    places[order] = np.concatenate(
        [middle + apart_s * (np.arange(count) - (count - 1) / 2) for middle, count in clusters]
    )
    return places, apart_s


def mark(figure: Figure, events: Sequence[Event]) -> None:
    """Marks events in every panel over time.

    A checkpoint gets a short line at the upper edge, and what broke the run a line from top to bottom.
    """
    looks: dict[str, Any] = {"color": FAINT, "linewidth": 0.8, "zorder": 1.5}
    for axes in panels_over_time(figure):
        low, high = axes.get_xlim()
        for breaks, foot, dashes in ((False, 0.95, "-"), (True, 0.0, (0, (4, 2)))):
            places_s = [event.at_s for event in events if event.breaks is breaks and low <= event.at_s <= high]
            if places_s:
                axes.vlines(places_s, foot, 1.0, linestyle=dashes, transform=axes.get_xaxis_transform(), **looks)
        axes.set_xlim(low, high)


def master(table: Table) -> Figure:
    """Draws what waits at the master. Panels below show how late the master is and the late rows, if there are any."""
    more = [name for name in ("lag_s", "late_rows") if np.nanmax(table[name], initial=0) > 0]
    figure, panels = new_figure(1 + len(more), squeeze=False, sharex=True)
    first, *others = panels[:, 0]
    buffer_bytes = table["buffer_bytes"]
    first.plot(table["end_s"], buffer_bytes, color=BLUE, **dots_if_few(buffer_bytes))
    byte_axis(first, np.nanmax(buffer_bytes, initial=0.0), "waiting")
    for axes, name in zip(others, more):
        colour, label = {"lag_s": (VERMILLION, "sent late by, s"), "late_rows": (ORANGE, "late rows")}[name]
        axes.plot(table["end_s"], table[name], color=colour, **dots_if_few(buffer_bytes))
        axes.set_ylabel(label)
    for axes in panels[:, 0]:
        axes.set_ylim(bottom=0)
    over_time(panels[-1, 0], table)
    return figure


def shade(
    figure: Figure, axes: Axes, edges_s: np.ndarray, edges: np.ndarray, field: np.ndarray, name: str, **shades: Any
) -> None:
    """Draws a map of field[row, bin of time] with its scale."""
    image = axes.pcolormesh(edges_s, edges, field, cmap=MAP, rasterized=True, **shades)
    axes.grid(False)
    bar = figure.colorbar(image, ax=axes, pad=0.01, aspect=20)
    bar.set_label(name)
    bar.outline.set_visible(False)


def edges_s(table: Table) -> np.ndarray:
    """Returns the edges of the table's bins, float64[bins + 1]."""
    return np.append(table["start_s"][:1], table["end_s"])


def over_time(axes: Axes, table: Table) -> None:
    time_axis(axes, table["start_s"][0], table["end_s"][-1])


def shown_shares(table: Table) -> list[str]:
    """Returns the shares to draw. `other` is one of them only if it is large enough to be seen."""
    return [name for name in SHARES if name != "other" or np.nanmax(table[name], initial=0.0) > OTHER_SEEN]


def share_axis(axes: Axes, letter: str = "y") -> None:
    axes.set(**{f"{letter}lim": (0, 1), f"{letter}label": "of the slaves' wall time"})
    getattr(axes, f"{letter}axis").set_major_formatter(PercentFormatter(1.0))


def dots_if_few(points: Sequence[float] | np.ndarray) -> dict[str, Any]:
    """Returns a look with markers for few points, because a line through one or two shows nothing without them. They
    are whole at the edge, too."""
    return {"marker": "o", "clip_on": False} if len(points) < 12 else {}
