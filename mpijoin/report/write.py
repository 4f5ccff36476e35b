"""Writes the report of one or several runs into a folder."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv

from mpijoin.config.job import ALL, UNBOUNDED, Job
from mpijoin.config.units import format_duration
from mpijoin.refusals import writing
from mpijoin.report import compare, series
from mpijoin.report.figures import Chart, charts_of, notes
from mpijoin.report.findings import BAD, LOOK, Headline, Verdict, headlines, verdicts
from mpijoin.report.page import Page, Picture, html_of
from mpijoin.report.runs import DONE, RunData, load_runs
from mpijoin.report.series import Table
from mpijoin.report.sets import RunSet, charts_of_set, left_out_of_set, run_set
from mpijoin.report.spilling import has_spilled
from mpijoin.report.style import save_png, svg_text
from mpijoin.report.words import amount

PAGE = "report.html"
VERDICTS_MAX = 40  # The page of a set shows so many, and its table tells the rest.


def write(
    paths: Sequence[str | os.PathLike], folder: Path | None, capacities: Sequence[float] | None, without: Sequence[str]
) -> Path:
    """Does the same as `mpijoin.report.write_report`."""
    runs = load_runs(paths)
    folder = folder or (runs[0].path / "report" if len(runs) == 1 else Path("report"))
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        page = page_of_run(runs[0], folder) if len(runs) == 1 else page_of_set(run_set(runs, capacities), folder)
        page = replace(page, verdicts=[*(Verdict(BAD, text) for text in without), *page.verdicts])
        (folder / PAGE).write_text(html_of(page), encoding="utf-8")
    return folder / PAGE


def page_of_run(run: RunData, folder: Path) -> Page:
    pictures = write_charts(charts_of(run), folder)
    table = slaves_table(run)
    origin = {"Where it comes from": origin_table(run)} if run.origin else {}
    asked = {"What was found": queries_table(run)} if run.summary else {}
    moved = {"Moves of groups": moves_table(run)} if run.moves else {}
    tables = {**asked, **({"Each slave": table} if table else {}), **moved, **origin}
    if table:
        write_csv(table, folder / "slaves.csv")
    return Page(
        run.name,
        subtitle_of(run),
        headlines(run),
        verdicts(run),
        pictures,
        notes(run),
        tables,
        {"The job": run.job_text},
    )


def page_of_set(those: RunSet, folder: Path) -> Page:
    runs = those.runs
    write_csv(those.table, folder / "runs.csv")
    pictures = write_charts(charts_of_set(those), folder)
    done = sum(run.state == DONE for run in runs)
    numbers = [
        Headline(str(len(runs)), "runs"),
        Headline(str(done), "done"),
        Headline(str(len(runs) - done), "not done"),
    ]
    if "capacity" in those.table:
        numbers.append(Headline(amount(those.table["capacity"].max()), "tuples/s and stream, the highest capacity"))
    differing = ", ".join(one.name for one in those.fields) or "nothing"
    subtitle = f"{runs[0].name} to {runs[-1].name}; their jobs differ in: {differing}"
    tables = {"The runs": compare.comparison_in_words(runs, those.fields, those.table)}
    return Page(
        f"{len(runs)} runs", subtitle, numbers, verdicts_of_set(runs), pictures, left_out_of_set(those), tables, {}
    )


def verdicts_of_set(runs: Sequence[RunData]) -> list[Verdict]:
    """Returns the verdicts that ask for a second look, run by run, the bad ones first."""
    found = [Verdict(one.level, f"{run.name}: {one.text}") for run in runs for one in verdicts(run)]
    found = [one for level in (BAD, LOOK) for one in found if one.level == level]
    if len(found) > VERDICTS_MAX:
        more = Verdict(LOOK, f"and {len(found) - VERDICTS_MAX} more: a report of one run names those of that run.")
        return [*found[:VERDICTS_MAX], more]
    return found


def subtitle_of(run: RunData) -> str:
    speed = (
        f"paced, {run.job.run.speed:g} seconds of event time in one" if run.paced else "as fast as the slaves joined"
    )
    simulated = "simulated; " if run.is_simulated else ""
    return f"{simulated}{speed}; policy {run.job.balance.policy}; {run.path.resolve()}"


def origin_table(run: RunData) -> Table:
    """Returns the run's provenance as two columns of words."""
    origin = dict(run.origin)
    hosts = origin.pop("hosts", None) or {}
    origin["hosts"] = ", ".join(f"{host} ({_ranks(ranks)})" for host, ranks in hosts.items())
    slurm = origin.pop("slurm", None) or {}
    shown = {**origin, **{f"Slurm {name.replace('_', ' ')}": value for name, value in slurm.items()}}
    known = {name: str(value) for name, value in shown.items() if value}
    return {"what": np.array(list(known)), "value": np.array(list(known.values()))}


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks, {ranks[0]} to {ranks[-1]}"


def queries_table(run: RunData) -> Table:
    """Returns a row for each query, or for the one join of a job without queries: what it asks, and what it found."""
    if run.job.aggregate.is_on:
        asked = [f"{one.result} = {one.text}" for one in run.job.aggregate.columns]
        rows = [("", ", ".join(asked), "", "", run.summary)]
    else:
        found = [run.summary["queries"][name] for name in run.job.names] or [run.summary]
        rows = [_asked(name, one, told) for name, one, told in zip(run.job.names or ("",), run.job.each, found)]
    columns = {
        "query": [name for name, *_ in rows],
        "asks": [asks for _, asks, *_ in rows],
        "condition": [where for _, _, where, *_ in rows],
        "windows": [windows for *_, windows, _ in rows],
        "results": [told["results"] for *_, told in rows],
        "certificate": ["" if run.is_simulated else told["certificate"] for *_, told in rows],
    }
    return {name: np.array(values) for name, values in columns.items() if any(values)}


def _asked(name: str, job: Job, told: dict[str, Any]) -> tuple[str, str, str, str, dict[str, Any]]:
    """job: that asks this query alone."""
    join = job.join
    functions = ", ".join(f"{one.result} = {one.text}" for one in join.reduce)
    asks = ", ".join(filter(None, (join.type, "" if join.match == ALL else f"{join.match} partner", functions)))
    windows = (UNBOUNDED if one.window_ns is None else format_duration(one.window_ns) for one in job.streams)
    named = (f"{stream.name} {window}" for stream, window in zip(job.streams, windows))
    return name, asks, join.where, ", ".join(named), told


def slaves_table(run: RunData) -> Table:
    """Returns a row for each slave. The table is empty if no slave left metrics."""
    if not run.slaves:
        return {}
    records = [run.of_rank(slave) for slave in run.slaves]
    shares = series.shares_by_slave(run)

    def total(name: str) -> np.ndarray:
        return np.array([int(own[name].sum()) for own in records])

    def largest(name: str) -> np.ndarray:
        return np.array([int(own[name].max()) for own in records]) / 1e6

    return {
        "slave": shares["slave"],
        **{f"{name}_%": 100 * shares[name] for name in series.SHARES},
        "tuples": np.sum([total(f"tuples_{name}") for name in run.streams], axis=0),
        "results": total("results"),
        "comparisons": total("comparisons"),
        # Nothing is left at the end of an epoch that is the only one.
        "largest_state_MB": np.where(largest("window_bytes") > 0, largest("window_bytes"), np.nan),
        "largest_buffer_MB": largest("buffer_bytes"),
        "received_MB": total("received_bytes") / 1e6,
        "splits": total("splits"),
        "merges": total("merges"),
        **(_spilled_columns(total, largest) if has_spilled(run) else {}),
    }


def moves_table(run: RunData) -> Table:
    """Returns a row for each kind of moves: how many there were and how they ended, and what those that moved took."""
    table = series.moves(run)
    rows = []
    for kind in np.unique(table["kind"]).tolist():
        own = {name: column[table["kind"] == kind] for name, column in table.items()}
        moved = own["outcome"] == "moved"
        ended = {outcome: int((own["outcome"] == outcome).sum()) for outcome in ("moved", "refused", "cancelled")}
        took_s, pause_s = (own[name][moved] for name in ("took_s", "pause_s"))
        times = {"mean_s": took_s.mean() if moved.any() else np.nan, "longest_s": took_s.max(initial=0.0)}
        octets = own["bytes"][moved].sum() / 1e6
        rows.append({"kind": kind, **ended, "MB": octets, **times, "longest_pause_s": pause_s.max(initial=0.0)})
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _spilled_columns(total: Callable[[str], np.ndarray], largest: Callable[[str], np.ndarray]) -> Table:
    """Returns the columns that only slaves have that spill."""
    return {
        "most_in_memory_MB": largest("memory_bytes"),
        "spilled_MB": total("spilled_bytes") / 1e6,
        "most_on_disk_MB": largest("disk_bytes"),
        "spilling_s": total("spill_us") / 1e6,
        "clean-up_s": total("cleanup_us") / 1e6,
        "results_of_clean-up": total("cleanup_results"),
    }


def write_charts(charts: Iterable[Chart], folder: Path) -> list[Picture]:
    """Writes PNG and CSV of each figure into the folder. Returns the figures for the page."""
    pictures = []
    for chart in charts:
        save_png(chart.figure, folder / f"{chart.name}.png")
        write_csv(chart.table, folder / f"{chart.name}.csv")
        pictures.append(Picture(chart.name, chart.title, chart.caption, svg_text(chart.figure, chart.name)))
    return pictures


def write_csv(table: Table, path: Path) -> None:
    """Writes the table as CSV. nan and null become empty fields."""
    columns = {name: pa.array(column.tolist(), from_pandas=True) for name, column in table.items()}
    pyarrow.csv.write_csv(pa.table(columns), path)
