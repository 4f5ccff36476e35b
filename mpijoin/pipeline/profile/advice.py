"""What a profile advises: producers, slaves, partitions, theta, buffer, spilling and lateness, each with its reason,
and a job file with all of them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from math import ceil, floor

import numpy as np

from mpijoin.config.dump import dump_job
from mpijoin.config.job import AUTO, GENERATIONS, INNER, OFF, ROTATE, SEMI, Cluster, Job, Join, Memory, section_of
from mpijoin.config.units import format_duration, format_size, plural, show
from mpijoin.pipeline.profile.debt import PAGES_SHARE, expected_debt
from mpijoin.pipeline.profile.findings import Profile
from mpijoin.pipeline.profile.keys import printable
from mpijoin.policy.sizes import PRODUCER_NS
from mpijoin.report.words import amount, bytes_amount

# of a slave's core per tuple in epochs of two seconds: scripts/bench_engine.py --sections slave, 2.2 M rows/s
TUPLE_NS = 450
RESULT_NS = 8  # and per result: mpijoin/simulate/costs/this_machine.toml
BUSY_MAX = 0.5  # of a slave's time at the peak: what is left is for bursts that are shorter than a bin
SLAVE_BYTES = 4 << 30  # memory that a slave can count on if the job sets no limit
PARTITIONS_PER_SLAVE = 16
PARTITIONS_STEP = 60
PARTITIONS_MAX = 65_535 // PARTITIONS_STEP * PARTITIONS_STEP
SLAVES_MAX = PARTITIONS_MAX // PARTITIONS_PER_SLAVE
BUFFER_S = 2.0  # seconds of the peak that a slave's buffer takes, beside what bursts leave behind


@dataclass(frozen=True)
class Hint:
    """One piece of advice. field: of the job file, or "slaves" · value: as the job file writes it · why: a sentence."""

    field: str
    value: str
    why: str


@dataclass(frozen=True)
class Advice:
    """All advice. lateness_ns: of each stream · warnings: sentences on what no setting helps against."""

    slaves: int
    partitions: int
    buffer_bytes: int
    lateness_ns: tuple[int, ...]
    hints: tuple[Hint, ...]
    warnings: tuple[str, ...]
    spill: str = OFF
    producers: int = 1


def advise(profile: Profile, memory: Memory = Memory(), shares: int = 1) -> Advice:
    """memory: of the job. Its own limit is kept; without one, there are as many slaves as the windows need · shares:
    the parts that the input can be shared out in among producers."""
    slaves, slaves_why = advised_slaves(profile, memory)
    partitions = min(PARTITIONS_MAX, PARTITIONS_STEP * ceil(PARTITIONS_PER_SLAVE * slaves / PARTITIONS_STEP))
    buffer, buffer_why = advised_buffer(profile, slaves)
    producers, producers_why = advised_producers(profile, shares)
    hints = [
        Hint("cluster.producers", str(producers), producers_why),
        Hint("slaves", str(slaves), slaves_why),
        Hint("cluster.partitions", str(partitions), _partitions_why(profile, slaves, partitions)),
        Hint("cluster.buffer", format_size(buffer), buffer_why),
        Hint("tuning.theta", AUTO, "the size that suits the processor is measured by the first run on it"),
    ]
    for side in profile.sides:
        field = f"{section_of(side.name)}.lateness"
        hints.append(Hint(field, format_duration(side.disorder_ns), _lateness_why(side.disorder_ns)))
    spill, spill_hints = advised_spill(profile, slaves, memory)
    lateness = tuple(side.disorder_ns for side in profile.sides)
    warnings = tuple(warnings_of(profile, slaves))
    return Advice(slaves, partitions, buffer, lateness, (*hints, *spill_hints), warnings, spill, producers)


def load_of(rate: float, results_per_s: float) -> float:
    """How many cores of slaves are busy with so many tuples and results per second.

    >>> load_of(1_000_000, 0)
    0.45
    """
    return (rate * TUPLE_NS + results_per_s * RESULT_NS) / 1e9


def advised_producers(profile: Profile, shares: int) -> tuple[int, str]:
    """How many producers to take, and why."""
    load = profile.peak_rate * PRODUCER_NS / 1e9
    wanted = max(1, ceil(load / BUSY_MAX))
    why = (
        f"at the peak, reading, hashing and sending {amount(profile.peak_rate)} tuples per second takes {_cores(load)},"
        f" at {PRODUCER_NS:g} ns a tuple, where joining takes {TUPLE_NS:g} ns"
    )
    if wanted <= shares:
        return wanted, why
    few = "one part" if shares == 1 else f"{shares} parts"
    but = f"but the input can be shared out in {few} only: write it as several files, or in more row groups"
    return shares, f"{why}, for {plural(wanted, 'producer')}; {but}"


def advised_slaves(profile: Profile, memory: Memory) -> tuple[int, str]:
    """How many slaves to take, and why."""
    load = load_of(profile.peak_rate, profile.peak_work)
    by_pace = max(1, ceil(load / BUSY_MAX))
    needed, join = profile.state_bytes * PAGES_SHARE, profile.join
    limit = memory.limit_bytes or SLAVE_BYTES
    by_memory = 1 if join.spills_generations and memory.limit_bytes is not None else max(1, ceil(needed / limit))
    slaves = min(SLAVES_MAX, max(by_pace, by_memory))
    if by_memory > by_pace:
        form, found = (GENERATIONS, "some") if join.spills_generations else (ROTATE, "all")
        fewer = f"fewer are enough with memory.spill = {show(form)}, and find {found} results later"
        return slaves, f"the windows need about {bytes_amount(needed)}, at {format_size(limit)} a slave; {fewer}"
    found = "results" if join == Join() else "pairs of equal keys"
    return (
        slaves,
        (
            f"at the peak, {amount(profile.peak_rate)} tuples and {amount(profile.peak_work)} {found} per second,"
            f" joining takes {_cores(load)}, and a slave that keeps pace should not be busy more than {BUSY_MAX:.0%} of"
            " the time"
        ),
    )


def advised_spill(profile: Profile, slaves: int, memory: Memory) -> tuple[str, list[Hint]]:
    """Whether slaves should spill, and why: only if the windows do not fit into their memory. A job that spills keeps
    its own way."""
    limit_bytes = memory.limit_bytes or SLAVE_BYTES
    debt = expected_debt(profile, slaves * limit_bytes, memory) if profile.join.spills_generations else None
    if debt is None or memory.spill not in (OFF, GENERATIONS):
        return memory.spill, []
    have = f"{plural(slaves, 'slave')} may hold, at {format_size(limit_bytes)} each"
    why = (
        f"the windows need about {bytes_amount(profile.state_bytes * PAGES_SHARE)}, more than {have}; up to"
        f" {debt.share:.0%} of the results are then found by a clean-up, for which up to {bytes_amount(debt.octets)} of"
        " rows wait on the disk"
    )
    return GENERATIONS, [Hint("memory.spill", GENERATIONS, why)]


def _cores(load: float) -> str:
    return "less than a tenth of a core" if load < 0.1 else f"{load:.1f} cores"


def advised_buffer(profile: Profile, slaves: int) -> tuple[int, str]:
    """The bytes of each slave's stream buffer, and why. It is a power of two, and at least the default."""
    behind = backlog(profile, slaves) * profile.tuple_bytes / slaves
    peak = BUFFER_S * profile.peak_rate * profile.tuple_bytes / slaves
    needed = ceil(behind + peak)
    default = Cluster().buffer_bytes
    buffer = default if needed <= default else 1 << (needed - 1).bit_length()
    return (
        buffer,
        (
            f"a slave gets at most about {bytes_amount(peak)} in {BUFFER_S:g} s, and bursts leave"
            f" {bytes_amount(behind)} waiting"
        ),
    )


def backlog(profile: Profile, slaves: int) -> float:
    """The largest number of tuples that wait, if `slaves` join all the time as fast as they can and tuples come at
    their own pace."""
    bins = min(len(side.arrivals.counts) for side in profile.sides)
    edges_s = np.linspace(profile.start_s, profile.end_s, bins + 1)
    come = np.diff(sum(side.arrivals.before(edges_s) for side in profile.sides))
    results_per_tuple = max(profile.pairs.results, profile.expected.results) / profile.rows
    per_tuple_s = load_of(1.0, results_per_tuple)
    excess = np.concatenate([[0.0], np.cumsum(come - slaves * np.diff(edges_s) / per_tuple_s)])
    return float((excess - np.minimum.accumulate(excess)).max())


def _partitions_why(profile: Profile, slaves: int, partitions: int) -> str:
    distinct = max(side.keys.sums.distinct for side in profile.sides)
    few = f"; the {distinct:,} keys leave some of them empty" if distinct < 2 * partitions else ""
    return (
        f"{partitions // slaves:,} for each slave even out what single keys do not: the hottest key has "
        f"{profile.hottest_share:.2%} of the tuples{few}"
    )


def _lateness_why(disorder_ns: int) -> str:
    if disorder_ns == 0:
        return "the rows of each file are in order"
    return f"no row is more than {format_duration(disorder_ns)} out of order"


def warnings_of(profile: Profile, slaves: int) -> list[str]:
    share, found = profile.hottest_share, []
    mean_rate = profile.rows / profile.span_s
    rise = max(1.0, profile.peak_rate / mean_rate)
    hot = load_of(profile.peak_rate * share, profile.hottest_results_per_s * rise)
    name = printable(profile.top[0].key) if profile.top else ""
    if hot > 1:
        found.append(
            f"the hottest key, {name}, alone keeps {hot:.3g} cores busy at the peak, and one slave joins all of a key:"
            " it will fall behind, however many slaves there are"
        )
    elif slaves * share > 1:
        found.append(
            f"one slave joins all of a key: the hottest, {name}, has {share:.1%} of the tuples, so no more than "
            f"{max(1, floor(1 / share))} slaves can share the load evenly"
        )
    if profile.common == 0:
        so = "there are no results" if profile.join.type in (INNER, SEMI) else "no row has a partner"
        found.append(f"no key is in all streams: {so}; do they mean the same by it?")
    return found


def advised_job(job: Job, advice: Advice) -> Job:
    """The job with the advice in it. A lateness is never less than the job's own."""
    cluster = job.cluster._replace(
        partitions=advice.partitions, buffer_bytes=advice.buffer_bytes, producers_asked=advice.producers
    )
    pairs = zip(job.streams, advice.lateness_ns)
    streams = tuple(stream._replace(lateness_ns=max(stream.lateness_ns, needed)) for stream, needed in pairs)
    memory = job.memory._replace(spill=advice.spill)
    return job._replace(streams=streams, cluster=cluster, memory=memory, tuning=job.tuning._replace(theta=AUTO))


def job_text(job: Job, advice: Advice) -> str:
    """The job file: the advice as comments, and then every field."""
    lines = ["# What mpijoin profile advises for these streams:"]
    lines += [f"#   {hint.field} = {hint.value}: {hint.why}" for hint in advice.hints]
    lines += [f"# Beware: {warning}" for warning in advice.warnings]
    return "\n".join([*lines, "", dump_job(advised_job(job, advice))])


def run_command(advice: Advice, job_file: str) -> str:
    """The command that starts the job.

    >>> run_command(Advice(4, 60, 1, (0, 0), (), ()), "my job.toml")
    "mpirun -n 5 mpijoin run 'my job.toml'"
    """
    return f"mpirun -n {advice.slaves + advice.producers} mpijoin run {shlex.quote(job_file)}"
