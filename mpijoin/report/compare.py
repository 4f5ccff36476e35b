"""Several runs side by side: how their jobs differ, and one table of their outcomes."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from itertools import count
from typing import Any, Callable, Iterator, Sequence

import numpy as np

from mpijoin.config.units import duration_ns, size_bytes
from mpijoin.report import series
from mpijoin.report.findings import busiest
from mpijoin.report.runs import RunData
from mpijoin.report.series import SHARES, Table
from mpijoin.report.style import LINES_MAX
from mpijoin.report.words import amount, bytes_amount, seconds, shortened

UNKNOWN = "unknown"
UNCOMPARED = ("output.path", "checkpoint.path")
SEED = "seed"  # The seed of a run or a stream tells runs apart, but nothing is drawn over it.
LABEL_SIGNS = 44  # A legend or an axis has room for so many characters.
CATEGORIES_MAX = 12  # So many values that are words fit side by side on an axis.
MISSING = float("nan")


@dataclass(frozen=True)
class DifferingField:
    """A field of the job in which runs differ.

    name: as in the job file; a field that all streams share is named once · texts: its value in each run, as in the job
    file · numbers: the same values as numbers in `unit` ("s", "bytes" or ""), or None if some value is a word.
    """

    name: str
    texts: tuple[str, ...]
    numbers: np.ndarray | None
    unit: str

    @property
    def column(self) -> str:
        """The name of the field in a CSV."""
        return f"{self.name}_{self.unit}" if self.unit else self.name

    @property
    def values(self) -> np.ndarray:
        """The values that a CSV holds of the field."""
        return np.array(self.texts) if self.numbers is None else self.numbers

    @property
    def places(self) -> np.ndarray:
        """The places of its values on an axis. Numbers stand where they are, words one after the other."""
        return (
            np.array([list(dict.fromkeys(self.texts)).index(text) for text in self.texts])
            if self.numbers is None
            else self.numbers
        )


def differing(runs: Sequence[RunData], capacities: Sequence[float] | None = None) -> list[DifferingField]:
    """Returns the fields of the job, `slaves` and `simulated`, that are not the same in all runs.

    A field that all streams share is named once: "rate" for left.rate and right.rate. capacities: the capacity that was
    found for each run. A rate that only repeats these is left out.
    """
    flat = [flat_job(run) for run in runs]
    names = dict.fromkeys(name for fields in flat for name in fields)
    columns = {name: tuple(fields.get(name, "not set") for fields in flat) for name in names}
    columns = {name: texts for name, texts in columns.items() if len(set(texts) - {UNKNOWN}) > 1}
    sections = list(dict.fromkeys(section for run in runs for section in _stream_sections(run)))
    for first in [name for name in columns if name.startswith(f"{sections[0]}.")]:
        name = first.removeprefix(f"{sections[0]}.")
        of_all = [f"{section}.{name}" for section in sections]
        if all(columns.get(one) == columns[first] for one in of_all):
            columns[name] = columns[first]
            for one in of_all:
                del columns[one]
    fields = [DifferingField(name, texts, *_numbers(texts)) for name, texts in columns.items()]
    return [
        one
        for one in fields
        if capacities is None or one.numbers is None or not np.allclose(one.numbers, capacities, rtol=1e-3)
    ]


def _stream_sections(run: RunData) -> list[str]:
    """Returns the names that the tables of the run's streams have in its job file."""
    document = tomllib.loads(run.job_text)
    return [f"streams.{name}" if "streams" in document else name for name in run.streams]


def flat_job(run: RunData) -> dict[str, str]:
    """Returns the job's fields with the names and values of the job file, the number of slaves, and whether they were
    simulated. Of some runs that have failed nobody knows that."""
    fields = {name: value for name, value in _flattened("", tomllib.loads(run.job_text)) if name not in UNCOMPARED}
    slaves = str(run.summary.get("slaves") or len(run.slaves) or UNKNOWN)
    simulated = UNKNOWN if not run.summary else "yes" if run.is_simulated else "no"
    return {"slaves": slaves, "simulated": simulated, **fields}


def labels_of(runs: Sequence[RunData], fields: Sequence[DifferingField]) -> list[str]:
    """Returns a short name for each run. It is what differs in its job, if this is short and tells all runs apart.
    Otherwise it is the name of its folder, or "run" and its number."""
    ends = [one.name.rpartition(".")[2] for one in fields]
    heads = [end if ends.count(end) == 1 else one.name for end, one in zip(ends, fields)]
    labels = [", ".join(f"{head} {one.texts[index]}" for head, one in zip(heads, fields)) for index in range(len(runs))]
    if not fields or len(set(labels)) < len(labels) or max(map(len, labels)) > LABEL_SIGNS:
        labels = [shortened(run.name, LABEL_SIGNS) for run in runs]
    return labels if len(set(labels)) == len(labels) else [f"run {number}" for number, _ in zip(count(1), runs)]


def comparison(runs: Sequence[RunData], capacities: Sequence[float] | None = None) -> Table:
    """Returns a row for each run: its name, what differs in its job, and its figures, nan where there is none."""
    fields = {one.column: one.values for one in differing(runs, capacities)}
    found = {} if capacities is None else {"capacity": np.array(capacities, float)}
    rows = [figures_of(run) for run in runs]
    figures = {name: np.array([row[name] for row in rows], float) for name in rows[0]}
    names = {"run": np.array([run.name for run in runs]), "state": np.array([run.state for run in runs])}
    return {**names, **fields, **found, **figures}


def comparison_in_words(runs: Sequence[RunData], fields: Sequence[DifferingField], table: Table) -> Table:
    """Returns `comparison` in a form for people: values as in the job file, and figures in units that read well.

    A figure that no run has is left out.
    """
    fixed = {"run": np.array([shortened(run.name, LABEL_SIGNS) for run in runs]), "state": table["state"]}
    shown = {one.name: np.array(one.texts) for one in fields}
    figures = {}
    for name, (head, words) in FIGURES.items():
        if name in table and np.isfinite(table[name]).any():
            figures[head] = np.array(["–" if np.isnan(value) else words(value) for value in table[name].tolist()])
    return {**fixed, **shown, **figures}


# These figures are nan for a run whose rows must stay in memory.
SPILLING = ("memory_bytes_max", "spilled_bytes", "spill_s", "last_runtime_result_s", "cleanup_s", "cleanup_results")

# These figures are nan for a run in which nothing moved.
MOVING = ("moved_bytes", "move_s_mean", "move_pause_s_max")


def _share(value: float) -> str:
    return f"{100 * value:.3g} %"


# The columns of the comparison, with the head of each in the page and the function that writes its values there.
FIGURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "capacity": ("capacity, tuples/s and stream", amount),
    "results": ("results", amount),
    "tuples_per_s": ("tuples/s", amount),
    "wall_s": ("wall time", seconds),
    "delay_mean_s": ("mean delay", seconds),
    "delay_p50_s": ("median delay", seconds),
    "delay_p95_s": ("95th percentile", seconds),
    "delay_p99_s": ("99th percentile", seconds),
    "delay_max_s": ("longest delay", seconds),
    "behind_s_max": ("most behind the clock", seconds),
    "cpu_share": ("CPU", _share),
    "communication_share": ("communication", _share),
    "idle_share": ("idle", _share),
    "other_share": ("other", _share),
    "busiest_over_mean": ("busiest slave : mean", amount),
    "state_bytes_max": ("largest state of a slave", bytes_amount),
    "memory_bytes_max": ("most in memory of a slave", bytes_amount),
    "spilled_bytes": ("spilled", bytes_amount),
    "spill_s": ("spilling", seconds),
    "last_runtime_result_s": ("last result before clean-up", seconds),
    "cleanup_s": ("clean-up", seconds),
    "cleanup_results": ("results of clean-up", amount),
    "active_slaves_mean": ("active slaves, mean", amount),
    "moves": ("moves", amount),
    "moved_bytes": ("moved", bytes_amount),
    "move_s_mean": ("a move, mean", seconds),
    "move_pause_s_max": ("longest pause of a group", seconds),
    "late_rows": ("late rows", amount),
}


def figures_of(run: RunData) -> dict[str, float]:
    """Returns the figures of one run for the comparison."""
    summary = run.summary
    delay = summary.get("delay_s") or {}
    declustering = summary.get("declustering") or {}
    overload = summary.get("overload") or {}
    shares = series.shares_by_slave(run) if run.slaves else {}
    slaves = run.of_role("slave")
    return {
        "results": summary.get("results", MISSING),
        "tuples_per_s": summary.get("tuples_per_s", MISSING),
        "wall_s": summary.get("wall_s", MISSING),
        **{f"delay_{name}_s": delay.get(name, MISSING) for name in ("mean", "p50", "p95", "p99", "max")},
        "behind_s_max": overload.get("behind_s_max", MISSING),
        **{f"{name}_share": float(shares[name].mean()) if shares else MISSING for name in SHARES},
        "busiest_over_mean": busiest(run)[1] if run.slaves else MISSING,
        # Nothing is left at the end of a run's last epoch, which may be its only one.
        "state_bytes_max": (float(slaves["window_bytes"].max()) if run.slaves else 0.0) or MISSING,
        **_spilling(run),
        "active_slaves_mean": declustering.get("mean", MISSING),
        "moves": summary.get("moves", MISSING),
        **{name: summary[name] if summary.get("moves") else MISSING for name in MOVING},
        "late_rows": sum(one["late"] for one in summary["streams"].values()) if summary else MISSING,
    }


def _spilling(run: RunData) -> dict[str, float]:
    """Returns the figures of SPILLING."""
    if not (run.summary and run.job.memory.spills):
        return dict.fromkeys(SPILLING, MISSING)
    memory = run.summary["memory"]
    known = {"memory_bytes_max": memory["bytes_max"], "last_runtime_result_s": run.summary["last_runtime_result_s"]}
    return {name: known[name] if name in known else memory[name] for name in SPILLING}


def sweep_axes(fields: Sequence[DifferingField]) -> tuple[DifferingField, tuple[DifferingField, ...]] | None:
    """Returns the field for the x axis and the fields that tell lines apart, or None if no field suits the axis.

    The axis gets the field of numbers with the most values, or else the field of words with the most. All other fields
    tell lines apart, as long as their combinations are few enough to be distinguished.
    """
    swept = [one for one in fields if one.name.rpartition(".")[2] != SEED]
    numbers = [one for one in swept if one.numbers is not None]
    words = [one for one in swept if one.numbers is None and len(set(one.texts)) <= CATEGORIES_MAX]
    candidates = numbers or words
    if not candidates:
        return None
    over = max(candidates, key=lambda one: len(set(one.texts)))
    apart: tuple[DifferingField, ...] = ()
    for one in sorted((one for one in swept if one is not over), key=lambda one: len(set(one.texts))):
        if len(set(zip(*(other.texts for other in (*apart, one))))) <= LINES_MAX:
            apart = (*apart, one)
    return over, apart


def _numbers(texts: Sequence[str]) -> tuple[np.ndarray | None, str]:
    """Returns the values as numbers and their unit, or None and "" if some value is a word."""
    for parse, unit in ((float, ""), (lambda text: duration_ns(text) / 1e9, "s"), (size_bytes, "bytes")):
        try:
            return np.array([parse(text) for text in texts], float), unit
        except ValueError:
            continue
    return None, ""


def _flattened(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _flattened(f"{prefix}.{name}" if prefix else str(name), inner)
    else:
        yield prefix, f"{value:.10g}" if isinstance(value, float) else str(value)
