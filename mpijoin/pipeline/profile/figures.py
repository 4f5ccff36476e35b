"""The figures of a profile, drawn from its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from mpijoin.pipeline.profile.findings import Profile
from mpijoin.pipeline.profile.keys import printable
from mpijoin.pipeline.profile.tables import Table, coarse
from mpijoin.report.style import (
    COLOURS,
    DASHES,
    FAINT,
    GREEN,
    HEIGHT_IN,
    MARKERS,
    byte_axis,
    count_axis,
    legend,
    log_axis,
    new_figure,
    save_png,
    styled,
)

# The look of each stream, by its number.
LOOKS = [
    {"color": colour, "linestyle": dashes, "marker": marker}
    for colour, dashes, marker in zip((*COLOURS, FAINT), (*DASHES, "--"), (*MARKERS, "*"))
]
TIME_UNITS = (
    (86_400.0 * 3, 86_400.0, "days"),
    (3600.0 * 3, 3600.0, "hours"),
    (180.0, 60.0, "minutes"),
    (0.0, 1.0, "seconds"),
)
DRAWN_POINTS = 512  # a figure shows no more side by side
KEY_SIGNS = 24  # of a key's text, in a figure
BARS_HEIGHT, HATCHES = 0.76, ("", "////", "....")  # of all streams' bars of a key


def draw_all(profile: Profile, tables: dict[str, Table], folder: Path) -> list[Path]:
    """A PNG for each table that holds something to see."""
    makers = {"arrivals": arrivals, "burstiness": burstiness, "entropy": entropy, "keys": keys, "expected": expected}
    paths = []
    for name, table in tables.items():
        path = folder / f"{name}.png"
        with styled():
            save_png(makers[name](profile, table), path)
        paths.append(path)
    return paths


def arrivals(profile: Profile, table: Table) -> Figure:
    """Tuples per second, with a panel for each stream."""
    figure, panels = new_figure(len(profile.sides), sharex=True, sharey=True, squeeze=False)
    panels = panels[:, 0]
    divisor, unit = time_unit(profile.span_s)
    rates = [coarse(table[f"{side.name}_per_s"], DRAWN_POINTS) for side in profile.sides]
    most = max(rate.max() for rate in rates)
    for side, rate, axes, look in zip(profile.sides, rates, panels, LOOKS):
        edges = np.linspace(0, profile.span_s, len(rate) + 1) / divisor
        axes.stairs(rate, edges, color=look["color"], fill=True, linewidth=0)
        axes.axhline(side.arrivals.rate, color=FAINT, linewidth=1, linestyle="--")
        count_axis(axes, most, f"tuples/s, {side.name}")
    panels[0].set_ylim(0, 1.05 * most)
    panels[-1].set_xlim(0, profile.span_s / divisor)
    panels[-1].set_xlabel(f"{unit} since the first tuple (dashed: mean)")
    return figure


def burstiness(profile: Profile, table: Table) -> Figure:
    """The index of dispersion over the length of bins, and the variance of means over the length of blocks, with the
    Hurst estimates."""
    figure, (left, right) = new_figure(1, 2, height_in=1.15 * HEIGHT_IN)
    for side, look in zip(profile.sides, LOOKS):
        own = table["stream"] == side.name
        length, variance = table["bin_s"][own], table["variance"][own]
        left.plot(length, table["dispersion"][own], label=side.name, **look)
        known = variance > 0
        right.plot(length[known], variance[known], **{**look, "linestyle": ""})
        if side.arrivals.hurst_line is not None:
            line = side.arrivals.hurst_line
            levels = np.log2(side.arrivals.span_s / length[known])
            right.plot(length[known], 2.0 ** (line.intercept - line.slope * levels), **{**look, "marker": ""})
    left.axhline(1, color=FAINT, linewidth=1, linestyle=":")
    left.annotate(
        "Poisson", (1, 1), xycoords=("axes fraction", "data"), ha="right", va="bottom", color=FAINT, fontsize=8
    )
    for axes, column, name in (
        (left, "dispersion", "index of dispersion"),
        (right, "variance", "variance of the mean in a block"),
    ):
        scale = "log" if (table[column] > 0).any() else "linear"
        axes.set(xscale=scale, yscale=scale, ylabel=name)
        if scale == "log":
            log_axis(axes.xaxis)
            log_axis(axes.yaxis)
    left.set_xlabel("length of a bin, s")
    estimates = ", ".join(
        f"{side.name} H = {side.arrivals.hurst:.2f}" for side in profile.sides if side.arrivals.hurst is not None
    )
    right.set_xlabel(f"length of a block, s\n{estimates}")
    legend(figure, left)
    return figure


def entropy(profile: Profile, table: Table) -> Figure:
    """Entropy plots over time, and over the span of integer keys where there are any. Full marks are levels that were
    fitted."""
    axes_names = ["time", "key"] if (table["axis"] == "key").any() else ["time"]
    figure, panels = new_figure(1, len(axes_names), height_in=1.15 * HEIGHT_IN, squeeze=False)
    for name, axes in zip(axes_names, panels[0]):
        for side, look in zip(profile.sides, LOOKS):
            plot = side.arrivals.entropy if name == "time" else side.keys.plot
            own = (table["stream"] == side.name) & (table["axis"] == name)
            label = side.name if plot is None or plot.bias is None else f"{side.name}, b = {plot.bias:.3f}"
            _entropy_line(axes, table["level"][own], table["entropy_bits"][own], table["fitted"][own], label, look)
        top = int(table["level"].max())
        axes.plot([0, top], [0, top], color=FAINT, linewidth=1, linestyle=":")
        axes.set_xlabel(f"level: 2^level cells of {'time' if name == 'time' else 'the key span'}")
        axes.set_ylabel("entropy, bits")
        axes.legend(loc="upper left", title="dotted: uniform" if name == "time" else None)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _entropy_line(
    axes: Axes, level: np.ndarray, bits: np.ndarray, fitted: np.ndarray, label: str, look: dict[str, Any]
) -> None:
    axes.plot(level, bits, label=label, markevery=np.flatnonzero(fitted).tolist(), **look)
    axes.plot(level[~fitted], bits[~fitted], **{**look, "linestyle": ""}, markerfacecolor="white")


def keys(profile: Profile, table: Table) -> Figure:
    """Shares of the top keys in each stream."""
    count = len(table["key"])
    figure, axes = new_figure(height_in=0.9 + 0.24 * max(count, 3))
    place = np.arange(count)
    height = BARS_HEIGHT / len(profile.sides)
    for number, (side, look) in enumerate(zip(profile.sides, LOOKS)):
        hatch = HATCHES[number % len(HATCHES)]
        middle = place + height * (number - (len(profile.sides) - 1) / 2)
        style = {"color": look["color"], "hatch": hatch, "edgecolor": "white", "linewidth": 0}
        axes.barh(middle, table[f"{side.name}_share"], height, label=side.name, **style)
    names = [printable(key) for key in table["key"].tolist()]
    names = [name if len(name) <= KEY_SIGNS else name[: KEY_SIGNS - 1] + "…" for name in names]
    axes.set_yticks(place, names, parse_math=False)
    axes.set_ylim(count - 0.4, -0.6)
    axes.grid(False, axis="y")
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    axes.set_xlabel("share of the stream's tuples")
    legend(figure, axes)
    return figure


def expected(profile: Profile, table: Table) -> Figure:
    """Results per second, and bytes in the windows, over time."""
    figure, (above, below) = new_figure(2, sharex=True)
    divisor, unit = time_unit(profile.span_s)
    edges = np.append(table["from_s"], table["to_s"][-1:]) / divisor
    above.stairs(np.nan_to_num(table["results_per_s"]), edges, color=GREEN, fill=True, linewidth=0)
    count_axis(above, np.nanmax(table["results_per_s"]), "results/s")
    under = np.zeros(len(edges) - 1)
    for side, look in zip(profile.sides, LOOKS):
        upto = under + table[f"{side.name}_state_bytes"]
        below.stairs(upto, edges, baseline=under, color=look["color"], fill=True, linewidth=0, label=side.name)
        under = upto
    byte_axis(below, float(under.max()), "in the windows, at most")
    for axes in (above, below):
        axes.set_ylim(bottom=0)
    below.set_xlim(0, profile.span_s / divisor)
    below.set_xlabel(f"{unit} since the first tuple")
    legend(figure, below)
    return figure


def time_unit(span_s: float) -> tuple[float, str]:
    """The seconds of the unit that suits a span, and the unit's name.

    >>> time_unit(86_400)
    (3600.0, 'hours')
    """
    return next((length, name) for least, length, name in TIME_UNITS if span_s >= least)
