"""The rules that the values of a job must keep. Nothing here looks at files."""

from __future__ import annotations

import re
from collections import Counter
from math import inf
from typing import Any, Callable, Collection, Iterator, Sequence

from mpijoin.config.faults import Fault, fault
from mpijoin.config.fields import LIMIT_BYTES_MIN, SECTIONS, STREAM_FIELDS, SYNTHETIC_FIELDS, Field
from mpijoin.config.inject import Injection
from mpijoin.config.job import (
    ACTIVE_DISK,
    ALL,
    GENERATIONS,
    INNER,
    LAZY_DISK,
    MAX,
    NO_POLICY,
    OFF,
    POISSON,
    STREAMS_MAX,
    UNBOUNDED,
    FileSource,
    Job,
    StreamJob,
    SyntheticSource,
)
from mpijoin.config.moves import MSLB, PRECOPY, PTLB
from mpijoin.config.operator_rules import operator_faults
from mpijoin.config.queries import QUERY_FIELDS, section_of_query
from mpijoin.config.units import COLUMN_TYPES, INT64_MAX, format_duration, format_size, is_integer, listed, show

# What a synthetic stream calls its columns.
SYNTHETIC_TIME, SYNTHETIC_KEY, SYNTHETIC_PAYLOAD = "ts", "key", "payload"

NAME_CHARACTERS_MAX = 64  # a column or a file of this name and some more is still short enough for everybody
STREAM_NAME = re.compile(f"[A-Za-z0-9_]{{1,{NAME_CHARACTERS_MAX}}}")
RESERVED_NAMES = ("key",)  # key and key_... are what results call the key columns
SPEED_MIN, SPEED_MAX = 1e-9, 1e9  # a second in 30 years, 30 years in a second: times of any clock stay within int64
GENERATION_POLICIES = (LAZY_DISK, ACTIVE_DISK)  # LAD's: they decide when groups go to the disk, as generations
BLOCKS_OF_STREAM = 2  # must fit into memory where a run spills, one for a row and one for its text, and one in all
STOP_SIGNALS = ("SIGUSR1", "SIGUSR2", "SIGTERM", "SIGINT")  # that may ask for a checkpoint

# Of a synthetic stream and of its changes: what is sound, and what is wanted.
SYNTHETIC_BOUNDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "rate": (lambda rate: 0 < rate < inf, "wanted more than 0 tuples per second"),
    "bias": (lambda bias: 0.5 <= bias < 1, "wanted at least 0.5 and less than 1"),
    "burst": (lambda burst: 0.5 <= burst < 1, "wanted at least 0.5 and less than 1"),
    "exponent": (lambda exponent: 0 < exponent <= 20, "wanted more than 0 and at most 20"),
    "permute": (lambda number: number is None or 0 <= number <= INT64_MAX, f"wanted 0 to {INT64_MAX}"),
}


def job_faults(job: Job, unread: Collection[str] = ()) -> list[Fault]:
    """Returns every fault that can be told from the job alone, and changes nothing.

    unread: fields ("left.key") that are at their defaults because what the job says of them could not be read.
    """
    faults = [*_stream_number_faults(job), *_name_faults(job)]
    for stream in job.streams:
        faults += _stream_faults(stream)
    faults += _key_count_faults(job, unread)
    for section, (_, fields) in SECTIONS.items():
        faults += _bound_faults(section, getattr(job, section), fields)
    for query in job.queries:
        faults += _bound_faults(section_of_query(query.name), query, QUERY_FIELDS)
        if query.columns is not None:
            faults += _repeated(section_of_query(query.name), "columns", query.columns)
    faults += operator_faults(job)
    faults += _memory_faults(job)
    faults += _tuning_faults(job)
    faults += _balance_faults(job)
    faults += _run_faults(job)
    faults += _output_faults(job)
    faults += _checkpoint_faults(job)
    faults += _inject_faults(job)
    return faults


def _bound_faults(section: str, values: Any, fields: tuple[Field, ...]) -> Iterator[Fault]:
    for field in fields:
        value = getattr(values, field.attribute)
        if field.choices and value is not None and value not in field.choices:
            wanted = " or ".join(map(show, field.choices))
            yield fault(section, field.name, f"got {show(value)}, wanted {wanted}")
        if field.low is None or field.high is None or not is_integer(value):
            continue
        if not field.low <= value <= field.high:
            low, high = field.kind.write(field.low), field.kind.write(field.high)
            yield fault(section, field.name, f"got {field.kind.write(value)}, wanted {low} to {high}")


def _stream_number_faults(job: Job) -> Iterator[Fault]:
    if not 1 <= len(job.streams) <= STREAMS_MAX:
        wanted = f"wanted 1 to {STREAMS_MAX} tables [streams.NAME], or [left] and [right]"
        yield Fault(("streams",), f"[streams]: got {len(job.streams)} streams, {wanted}")


def _name_faults(job: Job) -> Iterator[Fault]:
    """A stream's name begins the names of result columns, which SQL compares without regard to case, and is the name of
    a file of late rows."""
    known: dict[str, str] = {}
    for stream in job.streams:
        where, got = f"[{stream.section}]:", f"got {show(stream.name)} as a stream's name"
        if not STREAM_NAME.fullmatch(stream.name):
            yield Fault((), f"{where} {got}, wanted letters, digits and _ only, {NAME_CHARACTERS_MAX} of them at most")
        elif stream.name.lower() in RESERVED_NAMES:
            yield Fault((), f"{where} {got}, which result columns begin with that are no stream's: choose another")
        elif stream.name.lower() in known:
            yield Fault(
                (),
                f"{where} {got} beside {show(known[stream.name.lower()])}, wanted names that differ in more than case",
            )
        known.setdefault(stream.name.lower(), stream.name)


def _stream_faults(stream: StreamJob) -> Iterator[Fault]:
    """The faults of one stream alone."""
    name = stream.section
    yield from _bound_faults(name, stream, STREAM_FIELDS)
    yield from _repeated(name, "key", stream.key)
    if not stream.key:
        yield fault(name, "key", "got no column, wanted at least one")
    if stream.time in stream.key:
        text = f"[{name}] key: got {show(stream.time)}, which is the time column, wanted another column"
        yield Fault((f"{name}.key", f"{name}.time"), text)
    if stream.columns is not None:
        yield from _repeated(name, "columns", stream.columns)
        for column in stream.columns:
            same = {"time": column == stream.time, "key": column in stream.key}
            if any(same.values()):
                fields = tuple(f"{name}.{field}" for field in ("columns", *(field for field in same if same[field])))
                got = f"got {show(column)}, which results have anyway as time or key; leave it out"
                yield Fault(fields, f"[{name}] columns: {got}")
    yield from _type_faults(stream)
    if isinstance(stream.source, SyntheticSource):
        yield from _synthetic_faults(stream, stream.source)
    if isinstance(stream.source, FileSource) and not stream.source.path:
        yield fault(name, "path", 'missing: wanted a file, folder or glob, or kind = "synthetic"')


def _type_faults(stream: StreamJob) -> Iterator[Fault]:
    if stream.types and not isinstance(stream.source, FileSource):
        yield fault(stream.section, "types", "is for CSV files; this stream has types of its own")
    for column, kind in stream.types.items():
        if kind not in COLUMN_TYPES:
            wanted = f"wanted one of {', '.join(COLUMN_TYPES)}"
            yield fault(stream.section, "types", f"got {show(kind)} for column {show(column)}, {wanted}")


def _repeated(section: str, field: str, names: tuple[str, ...]) -> Iterator[Fault]:
    for name, times in Counter(names).items():
        if times > 1:
            yield fault(section, field, f"got {show(name)} {times} times, wanted each column once")


def _synthetic_faults(stream: StreamJob, source: SyntheticSource) -> Iterator[Fault]:
    name = stream.section
    yield from _bound_faults(name, source, SYNTHETIC_FIELDS)
    for field, (sound, wanted) in SYNTHETIC_BOUNDS.items():
        value = getattr(source, field)
        if not sound(value):
            yield fault(name, field, f"got {value}, {wanted}")
    yield from _change_faults(name, source)
    if (source.tuples is None) == (source.duration_ns is None):
        got = "neither" if source.tuples is None else "both"
        fields = (f"{name}.tuples", f"{name}.duration")
        yield Fault(fields, f"[{name}] tuples, duration: got {got}, wanted exactly one of them")
    fixed = {"time": SYNTHETIC_TIME, "key": (SYNTHETIC_KEY,), "time_unit": None}
    for field, own in fixed.items():
        if getattr(stream, field) != own:
            yield fault(name, field, "a synthetic stream has its own time and key columns; leave it out")
    payload = (SYNTHETIC_PAYLOAD,) if source.payload_bytes else ()
    asked = stream.columns or ()
    if any(column not in payload for column in asked):
        text = f"[{name}] columns: got {show(list(asked))}, a synthetic stream has {list(payload)}"
        yield Fault((f"{name}.columns", f"{name}.payload_bytes"), text)


def _change_faults(name: str, source: SyntheticSource) -> Iterator[Fault]:
    for before, change in zip((None, *source.changes), source.changes):
        start = show(format_duration(change.start_ns))
        if change.start_ns <= (before.start_ns if before else 0):
            yield fault(name, "changes", f"got from = {start}, wanted each after the one before, and after 0")
        for field, (sound, wanted) in SYNTHETIC_BOUNDS.items():
            value = getattr(change, field, None)
            if value is not None and not sound(value):
                yield fault(name, "changes", f"from {start}: got {field} = {value}, {wanted}")
        if change.rate is not None and source.arrivals != POISSON:
            yield fault(name, "changes", f"from {start}: a rate changes only with arrivals = {show(POISSON)}")


def _key_count_faults(job: Job, unread: Collection[str]) -> Iterator[Fault]:
    counts = {
        f"{stream.section}.key": len(stream.key) for stream in job.streams if f"{stream.section}.key" not in unread
    }
    if len(set(counts.values())) > 1:
        where = ", ".join(f"[{field.removesuffix('.key')}] key" for field in counts)
        everywhere = "on both sides" if len(job.streams) == 2 else "in all streams"
        got = listed([str(count) for count in counts.values()])
        yield Fault(tuple(counts), f"{where}: got {got} columns, wanted as many {everywhere}")


def _memory_faults(job: Job) -> Iterator[Fault]:
    for name in ("threshold", "share"):
        share = getattr(job.memory, name)
        if not 0 < share <= 1:
            yield fault("memory", name, f"got {share}, wanted more than 0 and at most 1")
    policy, spill = job.balance.policy, job.memory.spill
    limit_bytes, block_bytes, streams = job.memory.limit_bytes, job.tuning.block_bytes, len(job.streams)
    least_bytes = (BLOCKS_OF_STREAM * streams + 1) * block_bytes
    if job.memory.spills and limit_bytes is not None and LIMIT_BYTES_MIN <= limit_bytes < least_bytes:
        got, block, wanted = (show(format_size(octets)) for octets in (limit_bytes, block_bytes, least_bytes))
        text = f"got {got} and {block}, wanted a limit of {wanted}, or smaller blocks"
        why = f"{BLOCKS_OF_STREAM} a stream, and 1"
        yield Fault(("memory.limit", "tuning.block"), f"[memory] limit, [tuning] block: {text}: {why}")
    if policy in GENERATION_POLICIES and spill != GENERATIONS:
        text = f"got {show(policy)} and {show(spill)}, wanted spill = {show(GENERATIONS)} for this policy"
        yield Fault(("balance.policy", "memory.spill"), f"[balance] policy, [memory] spill: {text}")


def _tuning_faults(job: Job) -> Iterator[Fault]:
    share = job.tuning.communication
    if not 0 < share < 1:
        yield fault("tuning", "communication", f"got {share}, wanted more than 0 and less than 1")


def _run_faults(job: Job) -> Iterator[Fault]:
    speed = job.run.speed
    if isinstance(speed, str):
        return
    if not 0 < speed < inf:
        yield fault("run", "speed", f"got {speed}, wanted more than 0 seconds of event time per second, or {show(MAX)}")
    elif not SPEED_MIN <= speed <= SPEED_MAX:
        wanted = f"wanted {SPEED_MIN:g} to {SPEED_MAX:g} seconds of event time per second, or {show(MAX)}"
        yield fault("run", "speed", f"got {speed}, {wanted}")


def _balance_faults(job: Job) -> Iterator[Fault]:
    balance = job.balance
    sound = []
    for name in ("supplier_threshold", "consumer_threshold", "growth"):
        sound.append(0 < getattr(balance, name) < inf)
        if not sound[-1]:
            yield fault("balance", name, f"got {getattr(balance, name)}, wanted a number above 0")
    if all(sound[:2]) and balance.consumer_threshold >= balance.supplier_threshold:
        got = f"got {balance.consumer_threshold} and {balance.supplier_threshold}"
        fields = ("balance.consumer_threshold", "balance.supplier_threshold")
        wanted = "wanted the consumer's below the supplier's"
        yield Fault(fields, f"[balance] consumer_threshold, supplier_threshold: {got}, {wanted}")
    if not 0 < balance.relocation_threshold <= 1:
        ratio = balance.relocation_threshold
        yield fault("balance", "relocation_threshold", f"got {ratio}, wanted more than 0 and at most 1")
    if not 1 <= balance.productivity_ratio < inf:
        yield fault("balance", "productivity_ratio", f"got {balance.productivity_ratio}, wanted at least 1")
    if not 1 <= balance.imbalance_threshold < inf:
        yield fault("balance", "imbalance_threshold", f"got {balance.imbalance_threshold}, wanted at least 1")
    if not 0 < balance.utilization_threshold <= 1:
        share = balance.utilization_threshold
        yield fault("balance", "utilization_threshold", f"got {share}, wanted more than 0 and at most 1")
    yield from _track_faults(job)
    yield from _epoch_faults(job)


def _track_faults(job: Job) -> Iterator[Fault]:
    """What moves by PTLB is joined by two slaves until all that the first one had is over."""
    if job.balance.move != PTLB or job.balance.policy == NO_POLICY:
        return
    join = job.join
    others = {
        "join.type": (join.type != INNER, f"type {show(join.type)}", f"type {show(INNER)}"),
        "join.match": (join.match != ALL, f"match {show(join.match)}", f"match = {show(ALL)}"),
        "join.reduce": (bool(join.reduce), "functions", "none"),
        "query": (bool(job.queries), "several queries", "one"),
        "aggregate.history": (job.aggregate.is_on, "an aggregate", "a join"),
        "memory.spill": (job.memory.spills, f"spill {show(job.memory.spill)}", f"spill = {show(OFF)}"),
    }
    for stream in job.streams:
        is_endless, wanted = stream.window_ns is None, "one that is over some time"
        others[f"{stream.section}.window"] = (is_endless, f"window {show(UNBOUNDED)} of {show(stream.name)}", wanted)
    for field, (is_other, got, wanted) in others.items():
        if is_other:
            text = f"got {show(PTLB)} and {got}, wanted {wanted}, or move = {show(PRECOPY)} or {show(MSLB)}"
            yield Fault(("balance.move", field), f"[balance] move: {text}")


def _epoch_faults(job: Job) -> Iterator[Fault]:
    epoch_ns, reorganization_ns = job.cluster.distribution_epoch_ns, job.cluster.reorganization_epoch_ns
    if job.balance.policy != NO_POLICY and epoch_ns is not None and reorganization_ns < epoch_ns:
        got = f"got {show(format_duration(epoch_ns))} and {show(format_duration(reorganization_ns))}"
        wanted = f"the second at least as long as the first for policy {show(job.balance.policy)}"
        fields = ("cluster.distribution_epoch", "cluster.reorganization_epoch", "balance.policy")
        yield Fault(fields, f"[cluster] distribution_epoch, reorganization_epoch: {got}, wanted {wanted}")


def _output_faults(job: Job) -> Iterator[Fault]:
    columns = job.output.columns
    if columns is not None:
        yield from _repeated("output", "columns", columns)
        if not columns:
            yield fault("output", "columns", 'got an empty list, wanted column names or "all"')


def _checkpoint_faults(job: Job) -> Iterator[Fault]:
    for name in job.checkpoint.signals or ():
        if name not in STOP_SIGNALS:
            yield fault("checkpoint", "signals", f"got {show(name)}, wanted some of {' '.join(STOP_SIGNALS)}")
    if job.checkpoint.is_on and not job.output.path:
        text = "[checkpoint] every: needs an output path: results in memory do not outlive the run"
        yield Fault(("checkpoint.every", "output.path"), text)
    margin_ns, walltime_ns = job.checkpoint.margin_ns, job.checkpoint.walltime_ns
    if margin_ns is not None and walltime_ns is not None and margin_ns >= walltime_ns:
        got = f"got {show(format_duration(margin_ns))} and {show(format_duration(walltime_ns))}"
        text = (
            f"[checkpoint] margin, walltime: {got}, wanted a margin shorter than the walltime: the run would stop at"
            " once"
        )
        yield Fault(("checkpoint.margin", "checkpoint.walltime"), text)


def _inject_faults(job: Job) -> Iterator[Fault]:
    for name in ("slow", "memory"):
        for some in getattr(job.inject, name):
            if some.rank < 1:
                yield fault("inject", name, f"got rank {some.rank}, wanted a slave: 1 or more")
    for one in job.inject.slow:
        if not 0 < one.share <= 1:
            yield fault("inject", "slow", f"got {one.share} for rank {one.rank}, wanted more than 0 and at most 1")
    for delay in job.inject.delay:
        if delay.rank < 0:
            yield fault("inject", "delay", f"got rank {delay.rank}, wanted 0 or more")
    for pressure in job.inject.memory:
        if pressure.limit_bytes < LIMIT_BYTES_MIN:
            got = f"got {show(format_size(pressure.limit_bytes))} for rank {pressure.rank}"
            yield fault("inject", "memory", f"{got}, wanted at least {show(format_size(LIMIT_BYTES_MIN))}")
    for name in ("slow", "delay", "memory"):
        yield from _schedule_faults(name, getattr(job.inject, name))
    for name in ("fail", "kill"):
        for rank, epoch in getattr(job.inject, name).items():
            if epoch < 0:
                yield fault("inject", name, f"got epoch {epoch} for rank {rank}, wanted 0 or more")


def _schedule_faults(name: str, schedule: Sequence[Injection]) -> Iterator[Fault]:
    for one in schedule:
        if one.end_ns is not None and one.end_ns <= one.start_ns:
            span = f"from {show(format_duration(one.start_ns))} to {show(format_duration(one.end_ns))}"
            yield fault("inject", name, f"got {span} for rank {one.rank}, wanted from before to")
