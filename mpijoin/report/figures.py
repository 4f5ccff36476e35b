"""The figures of one run: for which of them the run has data, and a sentence on what each of them shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator

import numpy as np

from mpijoin.config.job import ROTATE
from mpijoin.config.moves import PARTS
from mpijoin.config.units import plural
from mpijoin.report import draw, draw_plans, draw_spilling, plans, series, spilling
from mpijoin.report.runs import RunData
from mpijoin.report.series import Table
from mpijoin.report.style import LINES_MAX, styled
from mpijoin.report.words import amount, bytes_amount, seconds

UNKNOWN_LEAST_US = 1_000_000  # A run is said to lack records if none is of its first second.


@dataclass(frozen=True)
class Chart:
    """A figure with its data. name: the name of its files."""

    name: str
    title: str
    caption: str
    table: Table
    figure: Any  # This is a matplotlib.figure.Figure.


def charts_of(run: RunData) -> Iterator[Chart]:
    """Yields the figures of a run one after the other, so that only one needs memory at a time.

    There are none if no slave left metrics.
    """
    if not run.slaves:
        return
    marked = series.events(run)
    for make in (
        _delay,
        _delay_map,
        _throughput,
        _shares,
        _shares_by_slave,
        _occupancy,
        _state,
        _memory,
        _results_so_far,
        _on_disk,
        _declustering,
        _moves,
        _plans,
        _master,
    ):
        with styled():
            chart = make(run)
            if chart is not None:
                draw.mark(chart.figure, marked)
        if chart is not None:
            yield chart


def notes(run: RunData) -> list[str]:
    """Returns sentences that say what the figures mark, and why some figures are missing."""
    if not run.slaves:
        return ["No figures: the run ended before any slave wrote its metrics."]
    reasons = _marked(run) + _unknown(run)
    if not run.paced:
        reasons.append(
            "No production delays: the run was not paced (speed “max”), so no result had a time at which it was due."
        )
    elif not _has_delays(run):
        reasons.append("No production delays: no result came after the warm-up.")
    if run.job.memory.spills and not spilling.has_spilled(run):
        reasons.append("Nothing about spilling: what the slaves held fitted into memory all the time.")
    if not run.moves:
        reasons.append("No moves: every group of partitions stayed where it began.")
    if not _declusters(run):
        reasons.append("No degree of declustering: the same slaves had groups all the time.")
    if not _waited(run):
        reasons.append("Nothing about the master: no tuple had to wait there, and none came late.")
    return reasons


def _marked(run: RunData) -> list[str]:
    marked = series.events(run)
    breaks = [seconds(one.at_s) for one in marked if one.breaks]
    whole = len(marked) - len(breaks)
    said = [f"Short lines at the upper edge: {whole:,} checkpoint{'s' * (whole > 1)}."] if whole else []
    if breaks:
        said.append(f"Broken lines: where the run was stopped or went on from a checkpoint, at {', '.join(breaks)}.")
    return [" ".join(said)] if said else []


def _unknown(run: RunData) -> list[str]:
    """What is said if the records of the run do not begin with it."""
    begin_us = int((run.epochs["end_us"] - run.epochs["wall_us"]).min())
    restarts = (run.summary.get("checkpoints") or {}).get("restarts")
    if not restarts or begin_us < UNKNOWN_LEAST_US:
        return []
    since = f"begin at {seconds(begin_us / 1e6)}, while the numbers at the top are of the whole run"
    lost = "it was killed, and metrics from before the checkpoint with which it went on were not on the disk yet"
    return [f"Figures and tables of slaves {since}: {lost}."]


def _has_delays(run: RunData) -> bool:
    return bool(run.epochs["delay_count"].any())


def _declusters(run: RunData) -> bool:
    return len(np.unique(run.of_role("master")["active"])) > 1


def _waited(run: RunData) -> bool:
    """Whether tuples ever waited at a producer, or were late and did not get past it."""
    own = np.isin(run.epochs["rank"], run.producers)
    return any(run.epochs[name][own].any() for name in ("buffer_bytes", "lag_us", "late"))


def _delay(run: RunData) -> Chart | None:
    if not _has_delays(run):
        return None
    table = series.delay_over_time(run)
    worst = int(np.nanargmax(table["mean_s"]))
    caption = (
        "From the moment the later of a pair's two tuples arrived to the moment the pair was put out, in seconds: the"
        f" mean was longest, {seconds(table['mean_s'][worst])}, around second {table['end_s'][worst]:.3g}."
    )
    return Chart("delay", "Production delay over time", caption, table, draw.delay(table))


def _delay_map(run: RunData) -> Chart | None:
    if not run.delays or not _has_delays(run):
        return None
    table = series.delay_map(run)
    middle = np.sqrt(table["delay_from_s"] * table["delay_to_s"])
    order = np.argsort(middle)
    upto = np.cumsum(table["results"][order])
    half = middle[order][np.searchsorted(upto, upto[-1] / 2)]
    caption = (
        "How many results, by shade, had which delay, in seconds on a scale of powers of ten: half of all had less"
        f" than about {seconds(half)}."
    )
    return Chart("delay-map", "How delays were spread", caption, table, draw.delay_map(table))


def _throughput(run: RunData) -> Chart:
    table = series.throughput(run)
    tuples = table["tuples_per_s"]
    caption = (
        "Tuples of all streams that were joined, and results found, per second of the run:"
        f" {amount(np.median(tuples))} tuples and {amount(np.median(table['results_per_s']))} results each second in"
        " the median."
    )
    return Chart("throughput", "Throughput", caption, table, draw.throughput(table))


def _shares(run: RunData) -> Chart:
    table = series.shares_over_time(run)
    caption = (
        "How the slaves spent their wall time, all together: CPU is joining, communication sending and receiving, idle"
        " waiting for input, other what they did not get or slept on purpose; they were idle for"
        f" {np.nanmean(table['idle']):.0%} of it."
    )
    return Chart("shares", "What the slaves did", caption, table, draw.shares(table))


def _shares_by_slave(run: RunData) -> Chart:
    table = series.shares_by_slave(run)
    most, least = int(np.argmax(table["cpu"])), int(np.argmin(table["cpu"]))
    took = f"{table['cpu'][most]:.0%} (slave {table['slave'][most]})"
    if most != least:
        took = f"between {table['cpu'][least]:.0%} (slave {table['slave'][least]}) and {took}"
    caption = f"The same for each slave over the whole run: CPU took {took} of its wall time."
    return Chart("shares-by-slave", "What each slave did", caption, table, draw.shares_by_slave(table))


def _occupancy(run: RunData) -> Chart:
    table = series.occupancy(run)
    when = "when the next epoch's message came" if run.paced else "at the end of an epoch"
    caption = f"Bytes received and not yet joined, {when}: {_largest(table)}."
    return Chart("occupancy", "Stream buffers", caption, table, draw.slaves_bytes(table, "in the stream buffer"))


def _state(run: RunData) -> Chart | None:
    """None for a run that held nothing at the end of an epoch, such as one of a single epoch, which empties all."""
    table = series.state(run)
    if not any(np.nanmax(column, initial=0.0) > 0 for name, column in table.items() if name.startswith("slave_")):
        return None
    caption = f"Bytes of tuples that the slaves hold in their windows: {_largest(table)}."
    return Chart("state", "State of the join", caption, table, draw.slaves_bytes(table, "in the windows"))


def _largest(table: Table) -> str:
    peaks = {column: np.nanmax(table[column], initial=0.0) for column in table if column.startswith("slave_")}
    column = max(peaks, key=lambda column: peaks[column])
    if peaks[column] == 0:
        return "there never were any"
    return f"at most {bytes_amount(peaks[column])}, at slave {column.split('_')[1]}"


def _memory(run: RunData) -> Chart | None:
    if not spilling.has_spilled(run):
        return None
    table, happened = spilling.memory(run), spilling.happenings(run)
    binned = series.per_slave(run, "memory_bytes")
    spills, limit = int(run.of_role("slave")["spills"].sum()), table["limit_bytes"]
    moved = int((happened["kind"] == spilling.RELOCATION).sum())
    moves = f" {moved:,} group{'s' * (moved != 1)} moved to other slaves." if moved else ""
    caption = (
        f"Bytes of memory in use at each slave: at most {bytes_amount(table['memory_bytes'].max())} of"
        f" {bytes_amount(limit.max())}. Where memory falls, groups went to the disk, {spills:,}"
        f" time{'s' * (spills != 1)} in all, or to other slaves, or a clean-up was done with them.{moves}"
    )
    if len(run.slaves) <= LINES_MAX:
        caption += " The rows below show when each slave spilled, gave groups away and cleaned up."
    return Chart("memory", "Memory", caption, table, draw_spilling.memory(table, happened, binned))


def _results_so_far(run: RunData) -> Chart | None:
    if not spilling.has_spilled(run):
        return None
    table = spilling.results_so_far(run)
    runtime, cleaned = table["runtime_results"][-1], table["cleanup_results"][-1]
    share = f", {cleaned / (runtime + cleaned):.0%} of all," if runtime + cleaned else ""
    caption = f"The sum of the results that were found up to each moment: {amount(runtime)} while joining."
    if run.job.memory.spill != ROTATE:
        found = "needed rows that lay on a disk; the clean-up found them"
        caption += f" The other {amount(cleaned)}{share} {found}."
    return Chart("results", "Results over time", caption, table, draw_spilling.results_so_far(table))


def _on_disk(run: RunData) -> Chart | None:
    if not spilling.has_spilled(run):
        return None
    table = spilling.on_disk(run)
    owed = np.nanmax(table["owed_groups"], initial=0.0)
    caption = (
        f"Bytes of spilled rows that each slave has on its disk: {_largest(table)}. Below, how many groups still owe"
        f" results, because rows of theirs have not met yet: at most {owed:,.0f}."
    )
    return Chart("disk", "On disk", caption, table, draw_spilling.on_disk(table))


def _declustering(run: RunData) -> Chart | None:
    if not _declusters(run):
        return None
    table = series.declustering(run)
    active = table["active_slaves"]
    caption = (
        f"Slaves that hold groups and join them: between {np.nanmin(active):.0f} and {np.nanmax(active):.0f}, "
        f"{np.nanmean(active):.2f} in the mean."
    )
    return Chart("declustering", "Degree of declustering", caption, table, draw.declustering(table))


def _moves(run: RunData) -> Chart | None:
    if not run.moves:
        return None
    table = series.moves(run)
    moved = table["outcome"] == "moved"
    came, left = ((moved & (table["kind"] == kind)).sum() for kind in PARTS)
    whole = ~np.isin(table["kind"], PARTS)
    kinds = " and ".join(np.unique(table["kind"][whole]).tolist()) or "no kind"
    caption = (
        "Groups of partitions that changed hands: above, an arrow for each, from the slave that gave the group away to"
        " the one that took it; below, how many milliseconds the move took from begin to end, and for how many the"
        " group's input was held, marks as large as its bytes. Moves that were ordered at one moment stand side by"
        f" side. {(moved & whole).sum():,} of {whole.sum():,} moves by {kinds} were carried out, with"
        f" {bytes_amount(table['bytes'][moved & whole].sum())}; the longest took {seconds(table['took_s'].max())}, and"
        f" the longest pause was {seconds(table['pause_s'].max())}."
    )
    if came or left:
        caption += (
            f" A slave came to share a group that was too much for others {plural(came, 'time')} (spread), and gave its"
            f" part back {plural(left, 'time')} (gather)."
        )
    return Chart("moves", "Moves of groups", caption, table, draw.moves(table, series.edges_us(run)[-1] / 1e6))


def _plans(run: RunData) -> Chart | None:
    if not plans.has_plans(run):
        return None
    table = plans.plans(run)
    changes = len(table["slave"]) - len(np.unique(table["slave"]))
    changed = f"changed {changes:,} time{'s' * (changes != 1)} in all" if changes else "stayed the same"
    caption = (
        "By which plan each slave joined: above, each plan as a tree, whose dots are joins and whose leaves are"
        f" streams; below, a band for each slave in the colours of its plans, which {changed}. After a change, groups"
        " of partitions follow the new plan one by one."
    )
    return Chart("plans", "Plans of the slaves", caption, table, draw_plans.plans(table, run.streams))


def _master(run: RunData) -> Chart | None:
    if not _waited(run):
        return None
    table = series.master(run)
    lag = f"; epochs left up to {seconds(np.nanmax(table['lag_s']))} after they were due" if run.paced else ""
    late = f"; {table['late_rows'][-1]:,.0f} rows came too late" if table["late_rows"][-1] else ""
    caption = (
        "Bytes of tuples that were read and not yet sent: at most "
        f"{bytes_amount(np.nanmax(table['buffer_bytes'], initial=0.0))}{lag}{late}."
    )
    title = "At the master" if len(run.producers) == 1 else "At the producers"
    return Chart("master", title, caption, table, draw.master(table))
