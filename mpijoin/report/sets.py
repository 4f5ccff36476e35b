"""Figures that compare several runs."""

from __future__ import annotations

from functools import partial
from typing import Any, Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from mpijoin.report import series
from mpijoin.report.compare import sweep_axes
from mpijoin.report.draw import SHARE_LOOKS, SHARE_NAMES, share_axis, shown_shares
from mpijoin.report.figures import Chart
from mpijoin.report.runs import RunData
from mpijoin.report.series import SHARES, Table
from mpijoin.report.style import BLUE, HEIGHT_IN, LINES_MAX, PAPER, byte_axis, count_axis, legend, line_style, new_figure, styled, time_axis

SMALL_MULTIPLES_MAX = 24  # more runs than these are shown by what came out of them, not over time


# Columns of the comparison, with the titles of their panels.
MEASURES = {
    "delay_mean_s": "mean production delay, s",
    "delay_p99_s": "99th percentile of delay, s",
    "tuples_per_s": "tuples/s",
    "cpu_share": "CPU, of the slaves' wall time",
    "communication_share": "communication, of the slaves' wall time",
    "state_bytes_max": "largest state of a slave",
}


def charts_of_set(runs: Sequence[RunData], table: Table) -> Iterator[Chart]:
    """Figures of several runs, of which `table` is the comparison."""
    drawn = [run for run in runs if run.slaves]
    makes = [partial(_sweep, runs, table), partial(_shares_of_runs, table)]
    if len(drawn) <= SMALL_MULTIPLES_MAX:
        makes += [partial(make, drawn) for make in (_delays, _throughputs, _states)]
    for make in makes:
        with styled():
            chart = make()
        if chart is not None:
            yield chart


def left_out_of_set(runs: Sequence[RunData]) -> list[str]:
    reasons = []
    if len([run for run in runs if run.slaves]) > SMALL_MULTIPLES_MAX:
        reasons.append(f"No figures over time: these are more than {SMALL_MULTIPLES_MAX} runs. Ask for a report of a few of them.")
    if sweep_axes(runs) is None:
        reasons.append("No figures over a field of the job: none that is a number differs between these runs.")
    return reasons


def _sweep(runs: Sequence[RunData], table: Table) -> Chart | None:
    """Every measure over the field that was swept."""
    names = sweep_axes(runs)
    if names is None:
        return None
    over, apart = names
    measures = [column for column in MEASURES if np.isfinite(table[column]).any()]
    points = list(zip(table[over].tolist(), table[apart].tolist() if apart else [None] * len(runs)))
    connected = len(set(points)) == len(points)  # else other fields differ too, and a line would lead from one to another
    rows = -(-len(measures) // 2)
    figure, grid = new_figure(rows, 2, squeeze=False, sharex=True, height_in=0.4 + 2.1 * rows)
    panels = grid.ravel()
    groups = list(dict.fromkeys(table[apart].tolist())) if apart else [None]
    for axes, column in zip(panels, measures):
        for index, group in enumerate(groups):
            own = np.isfinite(table[column]) & (True if apart is None else table[apart] == group)
            _sweep_line(axes, table[over][own].astype(float), table[column][own], index, group, connected)
        _sweep_axes(axes, column, np.nanmax(table[column]))
    for axes in panels[len(measures) :]:
        axes.set_visible(False)
    for axes in panels[max(0, len(measures) - 2) : len(measures)]:
        axes.set_xlabel(over)
        axes.tick_params(labelbottom=True)
    if apart:
        legend(figure, panels[0], title=apart)
    lines = f"; a line for each {apart}" if apart else ""
    caption = f"What came out, over {over} of the job{lines}: each point is a run, in the units of the axes."
    columns = [name for name in (over, apart) if name] + measures
    return Chart("sweep", f"Over {over}", caption, {name: table[name] for name in ("run", *columns)}, figure)


def _sweep_line(axes: Axes, over: np.ndarray, values: np.ndarray, index: int, label: Any, connected: bool) -> None:
    order = np.argsort(over, kind="stable")
    look = {**line_style(index, len(over)), "markevery": 1}
    if not connected:
        look["linestyle"] = ""
    axes.plot(over[order], values[order], label=label, **look)


def _sweep_axes(axes: Axes, column: str, largest: float) -> None:
    axes.set_title(MEASURES[column])
    if column.endswith("_bytes_max"):
        byte_axis(axes, largest, "")
    elif column.endswith("_per_s"):
        count_axis(axes, largest, "")
    elif column.endswith("_share"):
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylim(0, 1.08 * largest or 1)


def _shares_of_runs(table: Table) -> Chart | None:
    """A stacked bar for each run."""
    if not np.isfinite(table["cpu_share"]).any():
        return None
    runs = len(table["run"])
    few = runs <= SMALL_MULTIPLES_MAX
    figure, axes = new_figure(height_in=0.9 + (0.26 * runs if few else 6.0))
    place, left = np.arange(runs), np.zeros(runs)
    for name in shown_shares({share: table[f"{share}_share"] for share in SHARES}):
        colour, hatch = SHARE_LOOKS[name]
        values = np.nan_to_num(table[f"{name}_share"])
        axes.barh(place, values, 0.7 if few else 1.0, left, color=colour, hatch=hatch if few else "", edgecolor=PAPER,
                  linewidth=0, label=SHARE_NAMES[name])  # fmt: skip
        left += values
    axes.set_yticks(place if few else [], table["run"].tolist() if few else [])
    axes.set_ylim(runs - 0.4, -0.6)
    axes.grid(False, axis="y")
    share_axis(axes, "x")
    legend(figure, axes)
    caption = "How the slaves of each run spent their wall time, in the mean over the slaves."
    shown = {name: table[name] for name in ("run", *(f"{share}_share" for share in SHARES))}
    return Chart("shares-of-runs", "What the slaves did", caption, shown, figure)


def _delays(runs: Sequence[RunData]) -> Chart | None:
    with_delays = [run for run in runs if run.epochs["delay_count"].any()]
    tables = [(run.name, series.delay_over_time(run), "mean_s") for run in with_delays]
    caption = "The mean production delay of the results of each moment, in seconds, run by run."
    return _over_time("delays", "Production delay over time", caption, tables, lambda axes, _: axes.set_ylabel("mean delay, s"))


def _throughputs(runs: Sequence[RunData]) -> Chart | None:
    tables = []
    for run in runs:
        table = series.throughput(run)
        both = table["left_tuples_per_s"] + table["right_tuples_per_s"]
        tables.append((run.name, {**table, "tuples_per_s": both}, "tuples_per_s"))
    caption = "Tuples of both streams joined per second by all slaves, run by run."
    return _over_time("throughputs", "Throughput", caption, tables, lambda axes, largest: count_axis(axes, largest, "tuples/s"))


def _states(runs: Sequence[RunData]) -> Chart | None:
    tables = []
    for run in runs:
        table = series.state(run)
        whole = np.nansum([column for name, column in table.items() if name.startswith("slave_")], axis=0)
        tables.append((run.name, {**table, "window_bytes": whole}, "window_bytes"))
    caption = "Bytes of tuples that all slaves together hold in their windows, run by run."
    return _over_time("states", "State of the join", caption, tables, lambda axes, largest: byte_axis(axes, largest, "in windows"))


def _over_time(name: str, title: str, caption: str, tables: list[tuple[str, Table, str]], label: Any) -> Chart | None:
    """The column of each table over time: in one panel as long as lines can be told apart, else in one panel each."""
    if not tables:
        return None
    largest = max(np.nanmax(table[column], initial=0.0) for _, table, column in tables)
    end_s = max(table["end_s"][-1] for _, table, _ in tables)
    figure, panels = _panels(len(tables))
    for index, (run, table, column) in enumerate(tables):
        axes = panels[index % len(panels)]
        points = len(table["end_s"])
        look = line_style(index, points) if len(panels) == 1 else {"color": BLUE}
        axes.plot(table["end_s"], table[column], label=run, **look)
        if len(panels) > 1:
            axes.set_title(run)
    for axes in panels:
        axes.set_ylim(0, 1.05 * largest or 1)
        label(axes, largest)
        time_axis(axes, 0.0, end_s)
        axes.label_outer()
    if len(panels) == 1:
        legend(figure, panels[0], 3)
    long = {
        "run": np.concatenate([np.full(len(table["end_s"]), run) for run, table, _ in tables]),
        **{field: np.concatenate([table[field] for _, table, _ in tables]) for field in ("start_s", "end_s")},
        tables[0][2]: np.concatenate([table[column] for _, table, column in tables]),
    }
    return Chart(name, title, caption, long, figure)


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    if count <= LINES_MAX:
        figure, axes = new_figure(height_in=1.15 * HEIGHT_IN)
        return figure, [axes]
    rows = -(-count // 3)
    figure, grid = new_figure(rows, 3, sharex=True, sharey=True, height_in=0.4 + 1.5 * rows)
    panels = grid.ravel().tolist()
    for axes in panels[count:]:
        axes.set_visible(False)
    return figure, panels[:count]
