"""Several runs side by side: what differs in their jobs, and one table of what came out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Iterator, Sequence

import numpy as np

from mpijoin.report import series
from mpijoin.report.findings import busiest
from mpijoin.report.runs import RunData
from mpijoin.report.series import SHARES, Table
from mpijoin.report.style import LINES_MAX

UNCOMPARED = ("output.path", "left.name", "right.name", "left.source.table", "right.source.table")
SCALES = {"_ns": (1e9, "_s"), "_bytes": (1e6, "_mb")}  # what fields are called and counted in here


def differing(runs: Sequence[RunData]) -> dict[str, list[Any]]:
    """Fields of the job that are not the same in all runs, with their values run by run; `slaves` is one of them. What both
    streams share is named once: "rate" for left.source.rate and right.source.rate."""
    flat = [flat_job(run) for run in runs]
    names = dict.fromkeys(name for fields in flat for name in fields)
    columns = {name: [fields.get(name) for fields in flat] for name in names}
    columns = {name: values for name, values in columns.items() if len(set(map(repr, values))) > 1}
    for left in [name for name in columns if name.startswith("left.")]:
        right = "right." + left.removeprefix("left.")
        if columns.get(right) == columns[left]:
            del columns[right]
            columns[left.rsplit(".", 1)[-1]] = columns.pop(left)
    return columns


def flat_job(run: RunData) -> dict[str, Any]:
    """The job's fields by their full names, durations in seconds and sizes in MB, and the number of slaves."""
    fields = dict(_flattened("", asdict(run.job)))
    scaled = dict(_scaled(name, value) for name, value in fields.items() if name not in UNCOMPARED)
    return {"slaves": run.summary.get("slaves", len(run.slaves)), **scaled}


def comparison(runs: Sequence[RunData]) -> Table:
    """A row for each run: its name, what differs in its job, and its figures; nan where there is none."""
    fields = {name: np.array([_cell(value) for value in values]) for name, values in differing(runs).items()}
    rows = [figures_of(run) for run in runs]
    figures = {name: np.array([row[name] for row in rows], float) for name in rows[0]}
    names = {"run": np.array([run.name for run in runs]), "state": np.array([run.state for run in runs])}
    return {**names, **fields, **figures}


def figures_of(run: RunData) -> dict[str, float]:
    """The figures of one run in the comparison."""
    summary = run.summary
    delay = summary.get("delay_s") or {}
    declustering = summary.get("declustering") or {}
    overload = summary.get("overload") or {}
    shares = series.shares_by_slave(run) if run.slaves else {}
    slaves = run.of_role("slave")
    missing = float("nan")
    return {
        "results": summary.get("results", missing),
        "tuples_per_s": summary.get("tuples_per_s", missing),
        "wall_s": summary.get("wall_s", missing),
        **{f"delay_{name}_s": delay.get(name, missing) for name in ("mean", "p50", "p95", "p99", "max")},
        "behind_s_max": overload.get("behind_s_max", missing),
        **{f"{name}_share": float(shares[name].mean()) if shares else missing for name in SHARES},
        "busiest_over_mean": busiest(run)[1] if run.slaves else missing,
        "state_bytes_max": float(slaves["window_bytes"].max()) if run.slaves else missing,
        "active_slaves_mean": declustering.get("mean", missing),
        "moves": summary.get("moves", missing),
        "late_rows": sum(summary[name]["late"] for name in ("left", "right")) if summary else missing,
    }


def sweep_axes(runs: Sequence[RunData]) -> tuple[str, str | None] | None:
    """The field to draw over, a number with the most values, and the field that tells lines apart, if another differs."""
    fields = differing(runs)
    counts = {name: len(set(map(repr, values))) for name, values in fields.items()}
    numbers = [name for name, values in fields.items() if all(_is_number(value) for value in values)]
    if not numbers:
        return None
    over = max(numbers, key=lambda name: counts[name])
    others = [name for name in fields if name != over and counts[name] <= LINES_MAX]
    return over, max(others, key=lambda name: counts[name]) if others else None


def _flattened(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flattened(f"{prefix}.{name}" if prefix else str(name), inner)
    else:
        yield prefix, value


def _scaled(name: str, value: Any) -> tuple[str, Any]:
    for ending, (divisor, unit) in SCALES.items():
        if name.endswith(ending) and _is_number(value):
            return name.removesuffix(ending) + unit, value / divisor
        if name.endswith(ending):
            return name.removesuffix(ending) + unit, value
    return name, value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cell(value: Any) -> Any:
    return value if _is_number(value) else "auto" if value is None else str(value)
