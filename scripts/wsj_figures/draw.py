"""A figure of the paper, redrawn: the simulated points at the left, the real ones at the right; and its points as
CSV."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import LogFormatter, PercentFormatter

from mpijoin.report.style import line_style, new_figure, save_png, styled
from wsj_figures.plan import EPOCH, RATE, SLAVES, Figure, Line
from wsj_figures.points import REAL, SIMULATED, Point

HEIGHT_IN = 3.3
BAND_ALPHA = 0.2
X_LABELS = {RATE: "tuples/s/stream, of the paper", SLAVES: "slaves", EPOCH: "distribution epoch of the paper, s"}
Y_LABELS = {
    "delay_s": "mean production delay, s",
    "cpu": "CPU time, of the measured time",
    "share": "of a slave's time",
    "comm": "communication, of a slave's time",
    "comm_sum": "communication, of a slave's time",
}
TITLES = {SIMULATED: "The paper's cluster, simulated", REAL: "Two cores, for real, scaled"}
COLUMNS = ("figure", "side", "line", "x", "metric", "value")

Figures = Callable[[Point], Mapping[str, float]]


class PlainLogFormatter(LogFormatter):
    """0.2 instead of 2e-01, at the ticks that would have a label anyway."""

    def __call__(self, value: float, position: int | None = None) -> str:
        return f"{value:g}" if super().__call__(value, position) else ""


def x_of(figure: Figure, point: Point) -> float:
    return {RATE: point.rate, SLAVES: point.slaves, EPOCH: point.epoch_s}[figure.x]


def rows_of(figure: Figure, figures: Figures, sides: Sequence[str]) -> list[tuple]:
    """One row per point and metric of a line, as in COLUMNS."""
    return [
        (figure.number, side, line.label, x_of(figure, point), metric, figures(point)[metric])
        for side in sides
        for line in figure.lines[side]
        for metric in line.metrics
        for point in line.points
    ]


def write_csv(path: Path, rows: Sequence[tuple]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(rows)


def draw(figure: Figure, figures: Figures, sides: Sequence[str], path: Path) -> None:
    """The figure as PNG, a panel per side with a scale of its own."""
    with styled():
        canvas, panels = new_figure(1, len(sides), HEIGHT_IN, squeeze=False)
        for axes, side in zip(panels[0], sides):
            for index, line in enumerate(figure.lines[side]):
                _draw_line(axes, figure, line, figures, index)
            _label(axes, figure, side)
        panels[0][0].set_ylabel(Y_LABELS[figure.y])
        canvas.suptitle(f"Figure {figure.number}: {figure.title}", x=0.01, ha="left", fontsize=10, fontweight="bold")
    save_png(canvas, path)


def _draw_line(axes: Axes, figure: Figure, line: Line, figures: Figures, index: int) -> None:
    style = line_style(index, 0) | {"markevery": 1}
    xs = [x_of(figure, point) for point in line.points]
    mean, *ends = ([figures(point)[metric] for point in line.points] for metric in line.metrics)
    axes.plot(xs, mean, label=line.label, **style)
    if ends:
        axes.fill_between(xs, *ends, color=style["color"], alpha=BAND_ALPHA, linewidth=0)


def _label(axes: Axes, figure: Figure, side: str) -> None:
    axes.set_title(TITLES.get(side, side))
    axes.set_xlabel(X_LABELS[figure.x])
    if figure.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(PlainLogFormatter())
        axes.yaxis.set_minor_formatter(PlainLogFormatter())
    else:
        axes.set_ylim(bottom=0)
    if figure.y != "delay_s":
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    if figure.x == SLAVES:
        axes.set_xticks(sorted({x_of(figure, point) for line in figure.lines[side] for point in line.points}))
    else:
        axes.locator_params(axis="x", nbins=6)
    axes.legend(loc="best")
