"""Which rows of its inputs each producer reads, so that all together read each row once and go through event time side
by side.

The inputs are cut into units: a row group of Parquet, UNIT_ROWS rows of an Arrow file, of a table or of a synthetic
stream, a whole CSV file. Units are dealt to the producers in turn, in the order of time. Whether a row is late depends
on all rows of its file before it, so each unit comes with the largest time of those (`ShareRange`). Row groups know it
from their statistics; where these are missing, and for Arrow files, the time column is read beforehand.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from mpijoin.config.job import FileSource, Job, SyntheticSource, TableSource
from mpijoin.data.arrow import null_mask, one_array
from mpijoin.data.encrypted import refuse_encrypted
from mpijoin.data.files import CSV, PARQUET, decoding, file_format
from mpijoin.data.schema import JoinSchema
from mpijoin.generators.schedule import segments_of
from mpijoin.named import NamedTuple
from mpijoin.sources import rules_of, stream_parts
from mpijoin.sources.base import (
    TIME_MAX,
    TIME_MIN,
    Chunk,
    FilePosition,
    FileShare,
    Screened,
    ShareRange,
    SourceCounts,
    SourcePosition,
)
from mpijoin.sources.blocks import BlockLimit
from mpijoin.sources.inputs import inputs_of
from mpijoin.sources.merge import Part, first_times
from mpijoin.sources.position import Position, StreamPosition
from mpijoin.sources.ranges import ALL_ROWS
from mpijoin.sources.screen import StreamRules, times_int64

UNIT_ROWS = 1 << 14
# A Poisson process hardly ever brings so many standard deviations more than its mean.
DEVIATIONS = 8.0


class Unit(NamedTuple):
    """Rows that one producer reads. first: a time before which there is none of them."""

    first: int
    file: int
    rows: ShareRange


def deal(job: Job, schema: JoinSchema, producers: int, say: Callable[[str], object]) -> list[Position]:
    """Returns what each producer reads in a run that begins. say: takes what was read beforehand, and why.

    Raises InputError if a file cannot be read.
    """
    inputs = tuple(map(inputs_of, job.streams))  # before anything is read of them
    shares = []
    for stream in range(len(job.streams)):
        rules, parts = rules_of(job, stream, schema, _nobody), stream_parts(job, stream)
        units = list(_units(job, stream, rules, parts, say))
        # Streams begin with different producers, so that the first does not get the odd unit of each.
        shares.append(_in_turn(units, producers, stream))
    return [_position([_unread(own[producer]) for own in shares], inputs) for producer in range(producers)]


def deal_again(positions: Sequence[Position], producers: int) -> list[Position]:
    """Returns what each of so many producers reads in a run that goes on where others stood. The first one gets their
    counts and parts of late rows."""
    streams: list[list[StreamPosition]] = [[] for _ in range(producers)]
    for stream, own in enumerate(zip(*(one.streams for one in positions))):
        sources = [one.source for one in own if one.source]
        units = [unit for source in sources for unit in _left(source)]
        held = [rows for one in own for rows in _held(one)]
        counts = [_together([one.counts for one in sources]), *(SourceCounts() for _ in range(1, producers))]
        for producer, waiting in enumerate(_in_turn(units, producers, stream)):
            opened = [FilePosition(0, TIME_MIN, (), rows) for rows in held[producer::producers]]
            streams[producer].append(StreamPosition(SourcePosition(counts[producer], opened, waiting)))
    late = tuple([part for one in positions for part in one.late[stream]] for stream in range(len(positions[0].late)))
    found = [_position(own, positions[0].inputs) for own in streams]
    return [found[0]._replace(late=late), *found[1:]]


def _nobody(table: pa.Table) -> None:
    """Takes late rows where none are read."""


def _order(unit: Unit) -> tuple[int, int, int]:
    return unit.first, unit.file, unit.rows.start


def _in_turn(units: Sequence[Unit], producers: int, start: int) -> list[list[FileShare]]:
    """Deals units out, the first one to producer `start`. Returns what each reads of the files, in order of time."""
    dealt: list[dict[int, list[Unit]]] = [{} for _ in range(producers)]
    for at, unit in enumerate(sorted(units, key=_order), start):
        dealt[at % producers].setdefault(unit.file, []).append(unit)
    return [
        sorted(
            FileShare(own[0].first, file, tuple(unit.rows for unit in sorted(own, key=lambda unit: unit.rows.start)))
            for file, own in files.items()
        )
        for files in dealt
    ]


def _unread(waiting: Sequence[FileShare]) -> StreamPosition:
    return StreamPosition(SourcePosition(SourceCounts(), (), waiting))


def _position(streams: Sequence[StreamPosition], inputs: tuple) -> Position:
    return Position(tuple(streams), inputs, tuple([] for _ in streams))


def _units(
    job: Job, stream: int, rules: StreamRules, parts: Sequence[Part], say: Callable[[str], object]
) -> Iterator[Unit]:
    """All units of a stream, file by file."""
    source = job.streams[stream].source
    if isinstance(source, SyntheticSource):
        yield from (Unit(TIME_MIN, 0, rows) for rows in _synthetic_units(source, parts[0]))
        return
    for file, (part, first) in enumerate(zip(parts, first_times(rules, parts))):
        form = file_format(part.name) if isinstance(source, FileSource) else ""
        if form == CSV:
            ranges: Iterable[ShareRange] = [ShareRange()]
        elif form == PARQUET:
            ranges = _row_groups(part, rules, say)
        else:
            if not isinstance(source, TableSource):
                say(f"{part.name}: its times are read first, to share it out among producers")
            ranges = _cut(_maxima(part, rules, UNIT_ROWS), UNIT_ROWS)
        yield from (Unit(max(first, rows.running_max), file, rows) for rows in ranges)


def _synthetic_units(source: SyntheticSource, part: Part) -> Iterator[ShareRange]:
    """Of a stream that is made. Its times never fall, so no row is late, whatever came before. Where tuples come out of
    order, all of them decide which comes when: only one producer makes them."""
    if source.disorder_ns:
        yield ShareRange()
        return
    rows = source.tuples if source.tuples is not None else _tuples_at_most(source)
    starts = list(range(0, rows, UNIT_ROWS)) or [0]
    yield from (ShareRange(start, start + UNIT_ROWS) for start in starts[:-1])
    yield ShareRange(starts[-1])


def _tuples_at_most(source: SyntheticSource) -> int:
    """About so many tuples has a stream that ends after some time, if not fewer. Whoever has its last unit makes all
    that follow."""
    assert source.duration_ns is not None  # or it has a number of tuples
    segments = segments_of(source)
    ends = [*(one.start_ns for one in segments[1:]), source.duration_ns]
    spans = [max(0, min(end, source.duration_ns) - one.start_ns) for one, end in zip(segments, ends)]
    mean = sum(one.rate * span for one, span in zip(segments, spans)) / 1e9
    return math.ceil(mean + DEVIATIONS * math.sqrt(mean))


def _row_groups(part: Part, rules: StreamRules, say: Callable[[str], object]) -> Iterator[ShareRange]:
    with decoding(part.name), pa.parquet.ParquetFile(part.name, pre_buffer=False) as file:
        metadata = file.metadata
        rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        refuse_encrypted(part.name, file, [rules.schema.time.name])
        maxima = _known_maxima(file, rules)
    stops = np.cumsum([0, *rows]).tolist()
    if maxima is None:
        say(f"{part.name}: has no statistics of its times, which are read first, to share it out among producers")
        maxima = _maxima(part, rules, 0, stops)
    yield from _ranges(stops, maxima)


def _known_maxima(file: pa.parquet.ParquetFile, rules: StreamRules) -> list[int] | None:
    """The largest time of each row group, TIME_MIN if it has none; None where the file does not know them all."""
    time, scale = rules.schema.time, rules.schema.scale
    if file.schema_arrow.get_field_index(time.name) < 0 or not _compares_as_int64(file, time.name):
        return None
    maxima = []
    columns = [index for index in range(len(file.schema)) if file.schema.column(index).path == time.name]
    if len(columns) > 1:  # "a.b" may also be what is called b in a struct that is called a
        return None
    for group in range(file.metadata.num_row_groups):
        metadata = file.metadata.row_group(group)
        statistics = metadata.column(columns[0]).statistics
        if statistics and statistics.physical_type not in ("INT32", "INT64"):
            return None
        if metadata.num_rows == 0 or (statistics and statistics.null_count == metadata.num_rows):
            maxima.append(TIME_MIN)
        elif statistics is None or not statistics.has_min_max:
            return None
        else:
            maxima.append(min(TIME_MAX, max(TIME_MIN, int(statistics.max_raw) * scale)))
    return maxima


def _compares_as_int64(file: pa.parquet.ParquetFile, name: str) -> bool:
    """Whether what the file stores of this column are its times themselves, as signed integers."""
    kind = file.schema_arrow.field(name).type
    if pa.types.is_timestamp(kind):
        return kind.unit != "s"  # those are stored as milliseconds
    return pa.types.is_signed_integer(kind)


def _maxima(part: Part, rules: StreamRules, unit: int, stops: Sequence[int] = ()) -> list[int]:
    """Reads the time column. Returns the largest time of each run of `unit` rows, or of rows stops[i] .. stops[i + 1]
    - 1, TIME_MIN if it has none; the last run may be short."""
    time, scale = rules.schema.time, rules.schema.scale
    reader = part.open((time,), BlockLimit(), ALL_ROWS)
    maxima: list[int] = []
    row = 0
    try:
        for block in reader.blocks():
            column = one_array(block.column(time.name))
            values, unfit = times_int64(column, scale)
            # What does not fit is told, with its row, by the producer that reads it.
            values = np.minimum(values, TIME_MAX // scale) if unfit is not None else values
            nulls = null_mask(column)
            values = values if nulls is None else np.where(nulls, -(TIME_MAX // scale) - 1, values)
            ends = stops[1:] if stops else range(unit * (row // unit + 1), row + len(values) + unit, unit)
            low = 0
            for number, end in enumerate(ends, 0 if stops else row // unit):
                high = min(len(values), end - row)
                if low >= high:
                    continue
                while len(maxima) <= number:
                    maxima.append(TIME_MIN)
                maxima[number] = max(maxima[number], TIME_MIN, int(values[low:high].max()) * scale)
                low = high
            row += len(values)
    finally:
        reader.close()
    return maxima


def _cut(maxima: Sequence[int], unit: int) -> Iterator[ShareRange]:
    """Ranges of `unit` rows; the last one goes to the end of the file."""
    ranges = list(_ranges(range(0, unit * (len(maxima) + 1), unit), maxima)) or [ShareRange()]
    yield from ranges[:-1]
    yield ranges[-1]._replace(stop=None)


def _ranges(stops: Sequence[int], maxima: Sequence[int]) -> Iterator[ShareRange]:
    """The ranges between these rows that are not empty."""
    reached = TIME_MIN
    for start, stop, largest in zip(stops, stops[1:], maxima):
        if stop > start:
            yield ShareRange(start, stop, reached)
        reached = max(reached, largest)


def _together(counts: Sequence[SourceCounts]) -> SourceCounts:
    whole = SourceCounts()
    for one in counts:
        whole = replace(
            whole,
            read=whole.read + one.read,
            late=whole.late + one.late,
            null_key=whole.null_key + one.null_key,
            disorder_max=max(whole.disorder_max, one.disorder_max),
        )
    return whole


def _left(source: SourcePosition) -> Iterator[Unit]:
    """What has not been screened."""
    for first, file, ranges in source.waiting:
        yield from (Unit(max(first, rows.running_max), file, rows) for rows in ranges)
    for one in source.open:
        yield from (Unit(max(one.first, rows.running_max), one.file, rows) for rows in one.ranges)


def _held(stream: StreamPosition) -> Iterator[Screened]:
    """What has been screened and not handed out."""
    source = stream.source
    chunks: list[Chunk | Screened] = [*stream.chunks]
    if source:
        chunks += [*([source.rest] if source.rest else []), *(one.block for one in source.open)]
    yield from (Screened(one.batch, one.running_max) for one in chunks if len(one.running_max))
