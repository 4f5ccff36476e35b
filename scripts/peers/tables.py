"""Compares what was measured: ratios, tables, and whether the targets are met."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Iterable, Sequence

BASE = "mpijoin"
TARGET_CORES = 2
# On A, each of these must be so many times slower than mpijoin's best launch.
FASTER = {"Flink": 25.0, "Spark streaming": 100.0, "DataFusion streaming": 5.0, "DuckDB": 1.5, "Polars": 1.5}
COPY = ("DuckDB", 1.5)  # On G, it must be so many times slower.
THREE_STREAMS = {"I5": 3.0, "I7": 3.0}  # DuckDB and Polars must be so many times slower, and take more memory.
MEMORY = {"DuckDB": 1.0, "DataFusion streaming": 1.5}  # On A, mpijoin may take so many times their memory.
GROWING = ("B", "A", "C")  # These are the same streams, longer and longer.
NOISE = 0.9  # A ratio has shrunk if it is less than this share of the other.


@dataclass
class Case:
    """A peer on a workload.

    tuples: those of both streams · cpu_s: of each run, like times_s · pss_bytes: the most of any run · trouble: absent,
    failed, wrong, or the limit that it went over (time or memory); "" if there is none · reason: in words.
    """

    workload: str
    cores: int
    peer: str
    title: str
    family: str
    tuples: int
    times_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    pss_bytes: int = 0
    version: str = ""
    trouble: str = ""
    reason: str = ""
    limit_s: float = 0.0

    @property
    def measured(self) -> bool:
        return bool(self.times_s) and not self.trouble

    @property
    def best_s(self) -> float:
        return min(self.times_s)

    @property
    def median_s(self) -> float:
        return median(self.times_s)

    @property
    def rate_m(self) -> float:
        """Million tuples per second."""
        return self.tuples / self.best_s / 1e6

    @property
    def cpu_s_per_m(self) -> float:
        """CPU seconds per million tuples."""
        return median(self.cpu_s) / self.tuples * 1e6


@dataclass(frozen=True)
class Ratio:
    """How many times slower than mpijoin a peer is. at_least: it ran out of time, so that the true ratio is greater."""

    times: float
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'> ' if self.at_least else ''}{self.times:.3g} x"


@dataclass(frozen=True)
class Target:
    """A target. state: met, MISSED, or unknown where somebody is absent, failed, or ran out of time before."""

    what: str
    wanted: str
    got: str
    state: str

    def __str__(self) -> str:
        return f"{self.state:<7}  {self.what}: {self.got} (wanted {self.wanted})"


def select(cases: Iterable[Case], workload: str, cores: int, family: str = "") -> list[Case]:
    return [case for case in cases if (case.workload, case.cores) == (workload, cores) and family in ("", case.family)]


def ratio(case: Case, among: Iterable[Case], which: str = "best_s") -> Ratio | None:
    """Returns the ratio to mpijoin's best launch among cases of one workload. None: one of them has no time.

    which: best_s or median_s.
    """
    base_s = min((getattr(one, which) for one in among if one.family == BASE and one.measured), default=None)
    if base_s is None:
        return None
    if case.trouble == "time":
        return Ratio(case.limit_s / base_s, at_least=True)
    return Ratio(getattr(case, which) / base_s) if case.measured else None


def best_ratio(cases: Sequence[Case], workload: str, family: str, cores: int = TARGET_CORES) -> Ratio | None:
    """Returns the smallest ratio of a family, because the best one of several forms counts."""
    among = select(cases, workload, cores)
    found = [one for case in among if case.family == family and (one := ratio(case, among))]
    return min(found, key=lambda one: one.times, default=None)


def targets(cases: Sequence[Case]) -> list[Target]:
    """Returns the targets on two cores, by best times, of the workloads that were run."""
    found = []
    if select(cases, "A", TARGET_CORES):
        found += [_faster(cases, "A", family, wanted) for family, wanted in FASTER.items()]
        launches = select(cases, "A", TARGET_CORES, BASE)
        found += [_memory(own, cases, family, share) for family, share in MEMORY.items() for own in launches]
    if select(cases, "A", TARGET_CORES) and select(cases, "C", TARGET_CORES):
        names = [case.peer for case in select(cases, "A", TARGET_CORES) if case.family != BASE]
        found += [_not_shrinking(cases, name) for name in names]
    for workload, wanted in THREE_STREAMS.items():
        if launches := select(cases, workload, TARGET_CORES, BASE):
            for family in ("DuckDB", "Polars"):
                found.append(_faster(cases, workload, family, wanted))
                found += [_memory(own, cases, family, 1.0) for own in launches]
    if select(cases, "G", TARGET_CORES):
        found.append(_faster(cases, "G", *COPY))
    return found


def _faster(cases: Sequence[Case], workload: str, family: str, wanted: float) -> Target:
    got = best_ratio(cases, workload, family)
    if got is None or (got.at_least and got.times < wanted):
        state = "unknown"
    else:
        state = "met" if got.times >= wanted else "MISSED"
    return Target(
        f"{workload}: time of {family} : mpijoin", f">= {wanted:g} x", str(got or _why(cases, workload, family)), state
    )


def _memory(own: Case, cases: Sequence[Case], family: str, share: float) -> Target:
    """Returns the target for the memory of one launch. Launches with more ranks take more."""
    among = select(cases, own.workload, TARGET_CORES, family)
    theirs = min((case.pss_bytes for case in among if case.measured), default=None)
    what, wanted = f"{own.workload}: memory of {own.title} : {family}", f"<= {share:g} x"
    if theirs is None or not own.measured:
        return Target(what, wanted, _why(cases, own.workload, BASE if theirs else family), "unknown")
    got = own.pss_bytes / theirs
    text = f"{got:.3g} x, {own.pss_bytes / 1e6:.0f} of {theirs / 1e6:.0f} MB"
    return Target(what, wanted, text, "met" if got <= share else "MISSED")


def _not_shrinking(cases: Sequence[Case], peer: str) -> Target:
    ratios = []
    for workload in ("A", "C"):
        among = select(cases, workload, TARGET_CORES)
        ratios.append(next((ratio(case, among) for case in among if case.peer == peer), None))
    before, after = ratios
    what, wanted = f"A to C: ratio of {peer} does not shrink", f">= {NOISE:g} of that on A"
    if before is None or after is None or before.at_least or (after.at_least and after.times < NOISE * before.times):
        return Target(what, wanted, f"{before or 'no time'} to {after or 'no time'}", "unknown")
    return Target(what, wanted, f"{before} to {after}", "met" if after.times >= NOISE * before.times else "MISSED")


def _why(cases: Sequence[Case], workload: str, family: str) -> str:
    reasons = [
        f"{case.title}: {case.trouble}" for case in select(cases, workload, TARGET_CORES, family) if case.trouble
    ]
    return "; ".join(reasons) or "not run"


HEAD = ("", "best s", "median s", "M tuples/s", "CPU s / M tuples", "memory MB", "best : mpijoin", "median : mpijoin")


def rows(cases: Sequence[Case]) -> list[list[str]]:
    """Returns the table of one workload and number of cores: HEAD, then a row per case."""
    return [list(HEAD), *(_row(case, cases) for case in cases)]


def _row(case: Case, among: Sequence[Case]) -> list[str]:
    ratios = [str(ratio(case, among, which) or "") for which in ("best_s", "median_s")]
    if case.measured:
        figures = [f"{case.best_s:.2f}", f"{case.median_s:.2f}", f"{case.rate_m:.3g}", f"{case.cpu_s_per_m:.3g}"]
        return [case.title, *figures, f"{case.pss_bytes / 1e6:.0f}", *ratios]
    if case.trouble == "time":
        rate = f"< {case.tuples / case.limit_s / 1e6:.2g}"
        return [case.title, f"> {case.limit_s:g}", "", rate, "", f"{case.pss_bytes / 1e6:.0f}", *ratios]
    return [case.title, f"{case.trouble}: {case.reason}" if case.trouble else "not run", *[""] * 6]


def growth_rows(cases: Sequence[Case], cores: int = TARGET_CORES) -> list[list[str]]:
    """Returns each peer's nanoseconds per tuple as history grows. It is empty unless two of the lengths were run."""
    run = [workload for workload in GROWING if select(cases, workload, cores)]
    if len(run) < 2:
        return []
    found = {case.peer: case.title for workload in run for case in select(cases, workload, cores)}
    table = [
        ["ns per tuple", *(f"{workload}, {select(cases, workload, cores)[0].tuples / 1e6:g} M" for workload in run)]
    ]
    for peer, title in found.items():
        table.append([title, *(_ns_per_tuple(select(cases, workload, cores), peer) for workload in run)])
    return table


def _ns_per_tuple(cases: Sequence[Case], peer: str) -> str:
    case = next((one for one in cases if one.peer == peer), None)
    if case is None:
        return ""
    if case.measured:
        return f"{case.best_s / case.tuples * 1e9:.0f}"
    return f"> {case.limit_s / case.tuples * 1e9:.0f}" if case.trouble == "time" else case.trouble


def markdown(table: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in table]
    lines.insert(1, "|---" * len(table[0]) + "|")
    return "\n".join(lines)


def aligned(table: Sequence[Sequence[str]]) -> str:
    """Returns a table for a terminal. Cells that run over, such as a reason, do not widen their column."""
    widths = [max(len(row[column]) for row in table if len(row[column]) < 40) for column in range(len(table[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in table)
