"""Where the results of a slave go: through filters to those who count, time, write or send them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Sequence, cast

import numpy as np

from mpijoin.clock import RunClock
from mpijoin.config.job import COUNT, MAX, Job
from mpijoin.data.schema import JoinSchema
from mpijoin.join.results import CountRows
from mpijoin.named import NamedTuple
from mpijoin.operators.base import Consumer, Operator, Out
from mpijoin.records import PartInfo, QueryCounts
from mpijoin.rundir import RunDirectory
from mpijoin.slave.joining import filters_of, new_out, wall_s_per_unit
from mpijoin.transport.base import Data

if TYPE_CHECKING:
    from mpijoin.sinks.base import Sink
    from mpijoin.slave.delays import DelayMeter


class Way(NamedTuple):
    """How results leave a slave. number: its rank · send: sends them to the collector; None: there is no collector ·
    directory: where they are written; None: nowhere."""

    number: int
    send: Callable[[Data], None] | None
    directory: RunDirectory | None


class Outlets:
    """All of a slave's outlets.

    out: what the operator fills · found, certificate: of all results so far, of all queries · sinks: those that bring
    results out of the slave.
    """

    def __init__(
        self,
        job: Job,
        schema: JoinSchema,
        operator: Operator,
        way: Way,
        clock: RunClock,
        record: Callable[[np.ndarray, np.ndarray], None],
    ):
        """record: takes delays in us and counts, int64[k] both."""
        self.out = new_out(job, schema)
        self._operator, self._filters = operator, filters_of(job, schema, operator)
        self._names = [query.name for query in job.queries]
        self.sinks: list[Sink] = []
        self._meters: list[DelayMeter] = []
        # Those that count and certify results, one for each query.
        self._outs: list[Out] = []
        self._consumers: list[Consumer] = []
        for number, (name, one) in enumerate(zip(job.names or ("",), job.each)):
            sinks = _sinks_of(one, number, name, schema, way)
            meters = [] if one.run.speed == MAX else [_meter_of(one, schema, clock, record)]
            self.sinks += sinks
            self._meters += meters
            if job.queries:
                from mpijoin.queries.results import QueryResults

                results = QueryResults(cast(Any, operator), number, [*sinks, *meters])
                self._consumers.append(results)
                self._outs.append(results.out)
            else:
                self._consumers += [*([] if self.out.certifies else [CountRows()]), *sinks, *meters]
                self._outs.append(self.out)

    @property
    def found(self) -> int:
        return sum(out.found for out in self._outs)

    @property
    def certificate(self) -> int:
        return sum(out.certificate for out in self._outs)

    def queries(self, parts: Sequence[PartInfo]) -> tuple[QueryCounts, ...]:
        """What each query has found, if the job has queries. parts: files of results."""
        written = [sum(part.rows for part in parts if part.name.startswith(f"{name}/")) for name in self._names]
        return tuple(QueryCounts(out.found, rows, out.certificate) for out, rows in zip(self._outs, written))

    def consume(self, epoch: int, origin: tuple[int, float] | None) -> None:
        """Hands on what `out` holds, and forgets it. origin: as of `DelayMeter`."""
        for own in () if self.out.is_final else self._filters:
            own.keep(self.out, self._operator)
        for meter in self._meters:
            meter.origin = origin
        for consumer in self._consumers:
            consumer.consume(self.out, self._operator, epoch)
        self.out.clear()

    def end_epoch(self, epoch: int, last: bool) -> None:
        for consumer in self._consumers:
            consumer.end_epoch(epoch, last)


def _meter_of(
    job: Job, schema: JoinSchema, clock: RunClock, record: Callable[[np.ndarray, np.ndarray], None]
) -> DelayMeter:
    from mpijoin.slave.delays import DelayMeter

    windows = [schema.ticks(stream.window_ns) for stream in job.streams]
    return DelayMeter(clock, wall_s_per_unit(job, schema), record, windows)


def _sinks_of(job: Job, number: int, name: str, schema: JoinSchema, way: Way) -> list[Sink]:
    """The sinks of a query, or of a job that has none. number, name: the query's."""
    if way.send is None and job.output.results == COUNT:
        return []
    from mpijoin.sinks.table import TableBuilder

    if way.send is not None:
        from mpijoin.sinks.collector import SendSink

        builder = TableBuilder(job, schema) if job.output.results != COUNT else None
        return [SendSink(builder, way.number, way.send, number)]
    from mpijoin.sinks.parquet import ParquetSink
    from mpijoin.sinks.parts import part_prefix

    assert way.directory is not None  # Without a directory, the results are collected.
    folder, prefix = way.directory.open_results, part_prefix(way.number, name)
    return [ParquetSink(TableBuilder(job, schema), folder, prefix, job.output.part_bytes)]
