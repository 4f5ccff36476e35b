"""This module writes one table of all points of a sweep, and the report about those that are done."""

from __future__ import annotations

import json
from math import isnan
from pathlib import Path
from typing import Any, Iterator, Sequence

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from mpijoin.config.units import plural
from mpijoin.refusals import writing
from mpijoin.report import write_report
from mpijoin.report.compare import SPILLING, figures_of
from mpijoin.report.runs import load_run
from mpijoin.sweep.run import FAILED, MISSING, reason_of, result_of, state_of
from mpijoin.sweep.spec import Point, Sweep

# The first field is in tuples per second and stream. The second is true if [capacity] high was sustained, so that the
# capacity may be higher still.
CAPACITY = ("capacity", "capacity_at_least")


def write_table(sweep: Sweep) -> pa.Table:
    """Writes table.parquet and table.csv to the sweep's folder. Each row is a point with its values, repeat, state,
    reason and figures. The columns about spilling are there if any point may spill. Returns the table."""
    rows = [_row(sweep, point) for point in sweep.points]
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = pa.table({name: _column([row.get(name) for row in rows]) for name in names})
    with writing(sweep.folder):
        sweep.folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, sweep.folder / "table.parquet")
        pa.csv.write_csv(table, sweep.folder / "table.csv")
    return table


def _column(values: list[Any]) -> pa.Array:
    """Words and numbers of one field, such as "max" and 2, become words."""
    if any(isinstance(value, str) for value in values):
        values = [value if value is None else str(value) for value in values]
    return pa.array(values)


def _row(sweep: Sweep, point: Point) -> dict[str, Any]:
    folder = sweep.folder_of(point)
    state = state_of(folder)
    values = {
        name: value if isinstance(value, (int, float, str)) else json.dumps(value)
        for name, value in point.values.items()
    }
    row = values | {"repeat": point.repeat, "state": state, "reason": None}
    if state == FAILED:
        row["reason"] = reason_of(folder)
    if (result := result_of(folder)) is not None:
        row |= {name: result[name] for name in CAPACITY if name in result}
        figures = figures_of(load_run(folder / result["run"], point.name))
        row |= {name: value for name, value in figures.items() if name not in SPILLING or not isnan(value)}
    return row


def write_figures(sweep: Sweep) -> str | None:
    """Writes the report about all runs that are done. Returns the path of its page, or None if there are no such runs.
    """
    folders = [sweep.folder_of(point) for point in sweep.points]
    found = {folder: result for folder in folders if (result := result_of(folder)) is not None}
    runs = [folder / result["run"] for folder, result in found.items()]
    capacities = [result["capacity"] for result in found.values()] if sweep.capacity else None
    return str(write_report(runs, sweep.folder / "report", capacities, list(_without(folders)))) if runs else None


def _without(folders: Sequence[Path]) -> Iterator[str]:
    """Sentences about the points that the report leaves out."""
    of_all = plural(len(folders), "point")
    failed, missing = ([one for one in folders if state_of(one) == state] for state in (FAILED, MISSING))
    if failed:
        reason = reason_of(failed[0]).rstrip(".")
        yield f"Not here: {len(failed)} of {of_all} failed, such as {failed[0].name}: {reason}. table.csv has them all."
    if missing:
        yield f"Not here: {len(missing)} of {of_all} did not run yet."
