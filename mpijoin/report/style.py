"""The look of every figure.

The colour-blind can tell the colours apart. Lines and hatches differ too, so that grey print works. The colours in
VARIABLES change in dark mode, because in a page they are variables of its style sheet.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any, Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from mpijoin.report.words import byte_unit, count_unit, shortened, time_unit

INK, FAINT, GRID, QUIET, PAPER = "#1c2127", "#5a636e", "#dcdfe4", "#e9ebef", "#fefefe"

# These are the colours of Okabe and Ito without the yellow, which is hard to see on white paper.
BLUE, VERMILLION, GREEN, PURPLE, SKY, ORANGE = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, INK)
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)), "-", (0, (3, 1.5)), (0, (1, 2.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
VARIABLES = {INK: "--ink", FAINT: "--faint", GRID: "--grid", QUIET: "--quiet", PAPER: "--paper", BLUE: "--blue"}
LINES_MAX = len(COLOURS)  # Nobody can tell more lines than these apart.

WIDTH_IN, HEIGHT_IN = 7.2, 2.7
PNG_DPI = 160
# These are the widths of a legend entry's line with the gap behind it, and of each character of its text.
LEGEND_HANDLE_IN, LEGEND_SIGN_IN = 0.7, 0.066
DECADE = 10.0  # A logarithmic axis whose ends are not so many times apart is labelled like others.
OVER_TIME = " of the run"  # The label of a time axis ends so.
FONT = "'DejaVu Sans'"
FONTS = f"{FONT}, Verdana, sans-serif"  # DejaVu Sans and Verdana are equally wide.

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.labelsize": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "hatch.linewidth": 0.6,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "svg.fonttype": "none",
}


def styled() -> Any:
    """Returns the context in which figures are drawn."""
    return rc_context(STYLE)


def new_figure(rows: int = 1, columns: int = 1, height_in: float | None = None, **subplots: Any) -> tuple[Figure, Any]:
    """Returns an empty figure and its axes, as `Figure.subplots` does. Call it and fill the axes within `styled()`."""
    figure = Figure(figsize=(WIDTH_IN, height_in or HEIGHT_IN * (0.35 + 0.65 * rows)), layout="constrained")
    return figure, figure.subplots(rows, columns, **subplots)


def line_style(index: int, points: int) -> dict[str, Any]:
    """Returns the colour, dashes and marker of the line with this number.

    A line has about twelve markers, which do not stand at the same places as those of other lines.
    """
    kind = index % LINES_MAX
    every = max(1, points // 12)
    return {
        "color": COLOURS[kind],
        "linestyle": DASHES[kind],
        "marker": MARKERS[kind],
        "markevery": (index * every // LINES_MAX, every),
        "markeredgewidth": 0,
    }


def legend(figure: Figure, axes: Axes, columns: int = LINES_MAX, title: str | None = None) -> None:
    """Puts the legend above the figure, in as many columns as there is room for, but no more than `columns`."""
    handles, labels = axes.get_legend_handles_labels()
    labels = [shortened(label, int((WIDTH_IN - LEGEND_HANDLE_IN) / LEGEND_SIGN_IN)) for label in labels]
    place: dict[str, Any] = {"loc": "outside upper left", "alignment": "left", "borderpad": 0}
    columns = max((one for one in range(1, columns + 1) if _legend_width_in(labels, one) <= WIDTH_IN), default=1)
    figure.legend(handles, labels, ncols=columns, handlelength=2.6, title=title, **place)


def _legend_width_in(labels: Sequence[str], columns: int) -> float:
    """Returns the width of a legend with so many columns. They are filled in turn, and each is as wide as its longest
    label."""
    parts = np.array_split([len(label) for label in labels], columns)
    return sum(LEGEND_HANDLE_IN + LEGEND_SIGN_IN * part.max() for part in parts if len(part))


def time_axis(axes: Axes, start_s: float, end_s: float, ticks: int = 9) -> None:
    """Sets the x axis over the run, in seconds, minutes or hours."""
    divisor, unit = time_unit(end_s)
    axes.set_xlabel(f"{unit}{OVER_TIME}")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / divisor:g}"))
    axes.xaxis.set_major_locator(_Multiples(divisor, ticks, [1, 2, 5, 10]))
    axes.set_xlim(start_s, end_s)


def panels_over_time(figure: Figure) -> list[Axes]:
    """Returns the panels whose x axis was set by `time_axis`."""
    labelled = [axes for axes in figure.axes if axes.get_xlabel().endswith(OVER_TIME)]
    return [one for one in figure.axes if any(one in axes.get_shared_x_axes().get_siblings(axes) for axes in labelled)]


def byte_axis(axes: Axes, largest: float, name: str) -> None:
    """Sets the y axis in the unit that suits the largest value."""
    divisor, unit = byte_unit(largest)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / divisor:g}"))
    axes.yaxis.set_major_locator(_Multiples(divisor))
    axes.set_ylabel(f"{name}, {unit}".removeprefix(", "))


def count_axis(axes: Axes, largest: float, name: str, which: str = "y") -> None:
    """Sets the axis `which` in ones, thousands, millions or billions."""
    divisor, unit = count_unit(largest)
    axis = axes.yaxis if which == "y" else axes.xaxis
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / divisor:g}"))
    axis.set_major_locator(_Multiples(divisor))
    axis.set_label_text(f"{unit} {name}".strip())


def log_axis(axis: Axis) -> None:
    """Labels an axis of a logarithmic scale: its decades, or a few round numbers where it is about one decade long.
    Call it when all is drawn. Matplotlib labels what lies between the decades, too, side by side until they overlap."""
    low, high = axis.get_view_interval()
    if high < DECADE * low:
        axis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10]))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


class _Multiples(MaxNLocator):
    """Places ticks at round numbers of a unit."""

    def __init__(self, divisor: float, ticks: int = 6, steps: Sequence[float] = (1, 2, 2.5, 5, 10)):
        super().__init__(nbins=ticks, steps=steps)
        self._divisor = divisor

    def tick_values(self, low: float, high: float) -> Any:
        return np.asarray(super().tick_values(low / self._divisor, high / self._divisor)) * self._divisor


def save_png(figure: Figure, path: Path) -> None:
    """Saves the figure as PNG on a white ground."""
    with styled():
        figure.savefig(path, dpi=PNG_DPI, facecolor="white")


def svg_text(figure: Figure, name: str) -> str:
    """Returns the figure as SVG for a page.

    It has no frame of its own, its inks are variables of the page, and its ids begin with `name`.
    """
    file = io.StringIO()
    with rc_context({**STYLE, "svg.hashsalt": name, "svg.id": name}):
        figure.savefig(file, format="svg", dpi=PNG_DPI, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r'(<svg [^>]*?)width="[^"]*" height="[^"]*"', r"\1", text)
    for ink, variable in VARIABLES.items():
        text = text.replace(ink, f"var({variable})")
    text = text.replace(FONT, FONTS)
    return re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", text)
