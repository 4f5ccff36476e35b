"""Figures that compare several runs."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap
from typing import Any, Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from mpijoin.named import NamedTuple
from mpijoin.report import series, spilling
from mpijoin.report.compare import SPILLING, DifferingField, comparison, differing, labels_of, sweep_axes
from mpijoin.report.draw import SHARE_LOOKS, SHARE_NAMES, dots_if_few, share_axis, shown_shares
from mpijoin.report.figures import Chart
from mpijoin.report.runs import RunData
from mpijoin.report.series import SHARES, Table
from mpijoin.report.style import (
    BLUE,
    HEIGHT_IN,
    LINES_MAX,
    PAPER,
    byte_axis,
    count_axis,
    legend,
    line_style,
    new_figure,
    styled,
    time_axis,
)
from mpijoin.report.words import amount, bytes_amount, seconds, shortened

# More runs than these are shown only by their outcomes, not over time.
SMALL_MULTIPLES_MAX = 24


# These are columns of the comparison, with the titles of their panels.
MEASURES = {
    "capacity": "capacity, tuples/s and stream",
    "delay_mean_s": "mean production delay, s",
    "delay_p99_s": "99th percentile of delay, s",
    "tuples_per_s": "tuples/s",
    "cpu_share": "CPU, of the slaves' wall time",
    "communication_share": "communication, of the slaves' wall time",
    "state_bytes_max": "largest state of a slave",
    "spilled_bytes": "spilled",
    "last_runtime_result_s": "last result before clean-up, s",
    "cleanup_s": "clean-up, s",
}
# Up to so many values of a field have a tick each, with the value as in the job file.
TICKS_OWN_MAX = 7
TICK_SIGN = 0.024  # A letter of a tick's label takes this share of the axis of one of two panels side by side.
LOGARITHMIC_FROM = 30.0  # Values that differ by this factor or more get a logarithmic axis.
TITLE_SIGNS, TITLE_LINES = 32, 2  # The title of one panel of many has at most so many characters a line, and lines.


@dataclass(frozen=True)
class RunSet:
    """Runs to compare. labels: a short name for each · fields: in which their jobs differ · table: the comparison."""

    runs: Sequence[RunData]
    labels: Sequence[str]
    fields: Sequence[DifferingField]
    table: Table

    @property
    def drawn(self) -> list[tuple[str, RunData]]:
        """The label and the run of each run that left metrics."""
        return [(label, run) for label, run in zip(self.labels, self.runs) if run.slaves]


def run_set(runs: Sequence[RunData], capacities: Sequence[float] | None = None) -> RunSet:
    """Makes a set of these runs. capacities: the capacity of each run, if a search has found them."""
    fields = differing(runs, capacities)
    return RunSet(runs, labels_of(runs, fields), fields, comparison(runs, capacities))


def charts_of_set(those: RunSet) -> Iterator[Chart]:
    """Yields the figures that compare several runs."""
    makes = [_sweep, _capacities, _shares_of_runs]
    if len(those.drawn) <= SMALL_MULTIPLES_MAX:
        makes += [_delays, _throughputs, _states, _memories, _results_so_far]
    for make in makes:
        with styled():
            chart = make(those)
        if chart is not None:
            yield chart


def left_out_of_set(those: RunSet) -> list[str]:
    reasons = []
    if len(those.drawn) > SMALL_MULTIPLES_MAX:
        reasons.append(
            f"No figures over time: these are more than {SMALL_MULTIPLES_MAX} runs. Ask for a report of a few of them."
        )
    if sweep_axes(those.fields) is None:
        reasons.append("No figures over a field of the job: none differs between these runs.")
    return reasons


def _sweep(those: RunSet) -> Chart | None:
    """Draws every measure over the field that was swept. Returns None if there is no such field or no measure."""
    axes_of = sweep_axes(those.fields)
    if axes_of is None:
        return None
    over, apart = axes_of
    table = those.table
    spilled = np.nanmax(table["spilled_bytes"], initial=0.0) > 0
    measures = [
        column
        for column in MEASURES
        if column in table and np.isfinite(table[column]).any() and (spilled or column not in SPILLING)
    ]
    if not measures:
        return None
    groups = [", ".join(f"{one.name} {one.texts[index]}" for one in apart) for index in range(len(those.runs))]
    rows = -(-len(measures) // 2)
    figure, grid = new_figure(rows, 2, squeeze=False, sharex=True, height_in=0.5 + 2.1 * rows)
    panels = grid.ravel()
    for axes, column in zip(panels, measures):
        for index, group in enumerate(dict.fromkeys(groups)):
            own = np.isfinite(table[column]) & (np.array(groups) == group)
            _sweep_line(
                axes, over.places[own].astype(float), table[column][own], index, group, over.numbers is not None
            )
        _sweep_axes(axes, column, np.nanmax(table[column]))
    for axes in panels[len(measures) :]:
        axes.set_visible(False)
    for axes in panels[max(0, len(measures) - 2) : len(measures)]:
        axes.set_xlabel(over.name)
        axes.tick_params(labelbottom=True)
    _field_axis(panels[0], over)
    if apart:
        legend(figure, panels[0])
    lines = f"; a line for each {' and '.join(one.name for one in apart)}" if apart else ""
    caption = f"What came out, over {over.name} of the job{lines}: each point is a run; lines go through the means."
    drawn = {over.name, *(one.name for one in apart)}
    if others := [one.name for one in those.fields if one.name not in drawn]:
        caption += f" Not told apart here, though it differs: {', '.join(others)}."
    shown = {
        "run": table["run"],
        **{one.column: one.values for one in (over, *apart)},
        **{name: table[name] for name in measures},
    }
    return Chart("sweep", f"Over {over.name}", caption, shown, figure)


def _sweep_line(axes: Axes, over: np.ndarray, values: np.ndarray, index: int, label: str, connected: bool) -> None:
    places, which = np.unique(over, return_inverse=True)
    means = np.bincount(which, values) / np.maximum(1, np.bincount(which))
    look = {**line_style(index, len(over)), "markevery": 1}
    dots = {**look, "linestyle": ""}
    if not connected:
        axes.plot(over, values, label=label, **dots)
        return
    axes.plot(places, means, label=label, **(look if len(places) == len(over) else {**look, "marker": ""}))
    if len(places) < len(over):
        axes.plot(over, values, **dots)


def _field_axis(axes: Axes, field: DifferingField) -> None:
    """Sets the x axis for a field's values. The other panels share this axis."""
    places, first = np.unique(field.places, return_index=True)
    if field.numbers is not None and places[0] > 0 and places[-1] / places[0] >= LOGARITHMIC_FROM:
        axes.set_xscale("log")
    if field.numbers is None or len(places) <= TICKS_OWN_MAX:
        scaled = np.log(places) if axes.get_xscale() == "log" else places
        axes.set_xticks(places, _with_room(scaled, [shortened(field.texts[index], 12) for index in first]))
        axes.set_xticks([], minor=True)
    elif field.unit:
        words = seconds if field.unit == "s" else bytes_amount
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: words(value)))


def _with_room(places: np.ndarray, labels: Sequence[str]) -> list[str]:
    """Returns the labels of ticks at these places, from left to right, but "" for one that would lie on another."""
    kept, end = [], -np.inf
    for place, label in zip((places - places[0]) / max(np.ptp(places), 1e-300), labels):
        half = TICK_SIGN * (len(label) + 1) / 2
        kept.append(label if place - half >= end else "")
        end = place + half if kept[-1] else end
    return kept


def _sweep_axes(axes: Axes, column: str, largest: float) -> None:
    axes.set_title(MEASURES[column])
    if "_bytes" in column:
        byte_axis(axes, largest, "")
    elif column.endswith("_per_s") or column == "capacity":
        count_axis(axes, largest, "")
    elif column.endswith("_share"):
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylim(0, 1.08 * largest or 1)


def _capacities(those: RunSet) -> Chart | None:
    """Draws a bar for the capacity of each run. Returns None if no capacities are known."""
    if "capacity" not in those.table:
        return None
    found = those.table["capacity"]
    figure, axes = new_figure(height_in=0.9 + 0.26 * len(found))
    place = np.arange(len(found))
    axes.barh(place, found, 0.7, color=BLUE)
    for row, rate in zip(place, found):
        axes.annotate(f" {amount(rate)}", (rate, row), va="center", fontsize=8)
    axes.set_yticks(place, those.labels)
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_xlim(0, 1.2 * found.max())
    axes.grid(False, axis="y")
    count_axis(axes, found.max(), "tuples/s and stream", "x")
    caption = (
        f"The highest rate that each point of the sweep sustained: between {amount(found.min())} and"
        f" {amount(found.max())} tuples/s and stream."
    )
    shown = {"run": those.table["run"], **{one.column: one.values for one in those.fields}, "capacity": found}
    return Chart("capacities", "Capacity", caption, shown, figure)


def _shares_of_runs(those: RunSet) -> Chart | None:
    """Draws a stacked bar for each run. Returns None if no run has shares."""
    table = those.table
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
    axes.set_yticks(place if few else [], those.labels if few else [])
    axes.set_ylim(runs - 0.4, -0.6)
    axes.grid(False, axis="y")
    share_axis(axes, "x")
    legend(figure, axes)
    caption = "How the slaves of each run spent their wall time, in the mean over the slaves."
    shown = {name: table[name] for name in ("run", *(f"{share}_share" for share in SHARES))}
    return Chart("shares-of-runs", "What the slaves did", caption, shown, figure)


class Series(NamedTuple):
    """A column of one run's table over time. run: the name of the run in the CSV."""

    label: str
    run: str
    table: Table
    column: str


def _delays(those: RunSet) -> Chart | None:
    with_delays = [(label, run) for label, run in those.drawn if run.epochs["delay_count"].any()]
    lines = [Series(label, run.name, series.delay_over_time(run), "mean_s") for label, run in with_delays]
    caption = "The mean production delay of the results of each moment, in seconds, run by run."
    return _over_time(
        "delays", "Production delay over time", caption, lines, lambda axes, _: axes.set_ylabel("mean delay, s")
    )


def _throughputs(those: RunSet) -> Chart | None:
    lines = []
    for label, run in those.drawn:
        lines.append(Series(label, run.name, series.throughput(run), "tuples_per_s"))
    caption = "Tuples of all streams joined per second by all slaves, run by run."
    return _over_time(
        "throughputs", "Throughput", caption, lines, lambda axes, largest: count_axis(axes, largest, "tuples/s")
    )


def _states(those: RunSet) -> Chart | None:
    lines = []
    for label, run in those.drawn:
        table = series.state(run)
        whole = np.nansum([column for name, column in table.items() if name.startswith("slave_")], axis=0)
        if whole.max(initial=0.0) > 0:  # At the end of its only epoch a run holds nothing.
            lines.append(Series(label, run.name, {**table, "window_bytes": whole}, "window_bytes"))
    caption = "Bytes of tuples that all slaves together hold in their windows, run by run."
    return _over_time(
        "states", "State of the join", caption, lines, lambda axes, largest: byte_axis(axes, largest, "in windows")
    )


def _memories(those: RunSet) -> Chart | None:
    if not _any_spilled(those):
        return None
    lines = [Series(label, run.name, spilling.in_memory(run), "memory_bytes") for label, run in those.drawn]
    caption = "Bytes of memory in use at all slaves together, run by run. Where a line falls, groups went to the disk."
    return _over_time(
        "memories", "Memory", caption, lines, lambda axes, largest: byte_axis(axes, largest, "in memory")
    )


def _results_so_far(those: RunSet) -> Chart | None:
    if not _any_spilled(those):
        return None
    lines = [Series(label, run.name, spilling.results_so_far(run), "runtime_results") for label, run in those.drawn]
    caption = "How many results each run had found up to each moment while it joined, without those of the clean-up."
    title, name = "Results over time", "results so far"
    return _over_time("results", title, caption, lines, lambda axes, largest: count_axis(axes, largest, name))


def _any_spilled(those: RunSet) -> bool:
    return any(spilling.has_spilled(run) for _, run in those.drawn)


def _over_time(name: str, title: str, caption: str, lines: Sequence[Series], label: Any) -> Chart | None:
    """Draws the column of each table over time, in one panel if lines can be told apart, else in one panel each."""
    if not lines:
        return None
    largest = max(np.nanmax(one.table[one.column], initial=0.0) for one in lines)
    end_s = max(one.table["end_s"][-1] for one in lines)
    figure, panels = _panels(len(lines))
    for index, one in enumerate(lines):
        axes = panels[index % len(panels)]
        points = len(one.table["end_s"])
        look = line_style(index, points) if len(panels) == 1 else {"color": BLUE, **dots_if_few(one.table["end_s"])}
        axes.plot(one.table["end_s"], one.table[one.column], label=one.label, **look)
        if len(panels) > 1:
            axes.set_title(_in_lines(one.label), fontsize=8)
    for axes in panels:
        axes.set_ylim(0, 1.05 * largest or 1)
        label(axes, largest)
        time_axis(axes, 0.0, end_s, 9 if len(panels) == 1 else 4)
        axes.label_outer()
    for axes in panels[-3:]:
        axes.set_xlabel(axes.get_xlabel(), visible=True)
        axes.tick_params(labelbottom=True)
    if len(panels) == 1:
        legend(figure, panels[0])
    long = {
        "run": np.concatenate([np.full(len(one.table["end_s"]), one.run) for one in lines]),
        **{field: np.concatenate([one.table[field] for one in lines]) for field in ("start_s", "end_s")},
        lines[0].column: np.concatenate([one.table[one.column] for one in lines]),
    }
    return Chart(name, title, caption, long, figure)


def _in_lines(label: str) -> str:
    """Breaks a label for one of many panels into lines, between fields and not within one."""
    kept = label.replace(", ", ",\t").replace(" ", "\u00a0")  # No line breaks at these spaces.
    return "\n".join(wrap(kept, TITLE_SIGNS, max_lines=TITLE_LINES, placeholder="…"))


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    if count <= LINES_MAX:
        figure, axes = new_figure(height_in=1.15 * HEIGHT_IN)
        return figure, [axes]
    rows = -(-count // 3)
    figure, grid = new_figure(rows, 3, sharex=True, sharey=True, height_in=0.4 + 1.6 * rows)
    panels = grid.ravel().tolist()
    for axes in panels[count:]:
        axes.set_visible(False)
    return figure, panels[:count]
