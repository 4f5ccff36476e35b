"""What a producer takes in: the sources, their late rows, and the ticks that are cut from them."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
import pyarrow as pa

from mpijoin.config.job import Job, section_of
from mpijoin.data.batch import Batch
from mpijoin.data.moments import first_words
from mpijoin.data.record import RecordLayout
from mpijoin.data.rows import empty_batch
from mpijoin.data.schema import JoinSchema
from mpijoin.errors import InputError
from mpijoin.named import NamedTuple
from mpijoin.partitioning.scatter import Scattered, rearranged, scatter
from mpijoin.partitioning.table import PartitionTable
from mpijoin.producer.pacing import Pace
from mpijoin.producer.ticks import Ends, Tick, TickReader
from mpijoin.records import PartInfo
from mpijoin.rundir import RunDirectory
from mpijoin.sources import open_source
from mpijoin.sources.base import End, LateSink, Source, Wait
from mpijoin.sources.inputs import check_inputs, inputs_of
from mpijoin.sources.late import LateWriter
from mpijoin.sources.position import UNREAD, Position, decode_position, encode_position

PART_BYTES = 24 << 20  # So much of a stream is scattered at once; each slave inserts each part on its own.
PART_BYTES_MIN = 1 << 20
PART_SHARE = 16  # A part has at most this part of the master's buffer.


class Prepared(NamedTuple):
    """A part of a tick, ready before it is due. ends: as of the tick · place: the layout for which it was scattered."""

    ends: Ends
    scattered: tuple[Scattered, ...]
    place: np.ndarray

    @property
    def octets(self) -> int:
        return sum(one.tuples.nbytes + one.blob.nbytes for one in self.scattered)

    def by(self, table: PartitionTable) -> tuple[Scattered, ...]:
        """Its rows as this table lays them out. Groups may have moved since it was scattered."""
        if self.place is table.place:
            return self.scattered
        return tuple(rearranged(one, self.place, table.place, table.firsts) for one in self.scattered)


class Intake:
    """Reads all sources tick by tick, with the parts of their late files."""

    def __init__(
        self,
        job: Job,
        schema: JoinSchema,
        directory: RunDirectory | None,
        pace: Pace,
        saved: np.ndarray | None = None,
        late: Sequence[Any] = (),
        producer: int = 0,
        producers: int = 1,
    ):
        """saved: what `save` gave for this job, in a run that goes on from there in its directory · late: of a run
        without a directory, writers for each stream's tables of late rows · producer, producers: which of how
        many this is.

        Raises InputError where the inputs are others now, OutputError where late rows written before are gone,
        CodecError and ProtocolError where `saved` is damaged or something else.
        """
        self._fail_late = job.run.late == "fail"
        self._layouts = [RecordLayout(stream) for stream in schema.streams]
        start = self._start(job, saved)
        self._inputs = start.inputs
        self._writers: list[LateWriter] = []
        self.sources: list[Source] = []
        try:
            for index, stream in enumerate(schema.streams):
                if directory:
                    whose = producer if producers > 1 else None
                    self._writers.append(LateWriter(directory.open_late_parts, stream, start.late[index], whose))
                sink = self._late_sink(stream.name, self._writers[-1] if directory else late[index] if late else None)
                self.sources.append(open_source(job, index, schema, sink, start.streams[index].source))
        except BaseException:
            self.close()
            raise
        latenesses = tuple(schema.ticks(stream.lateness_ns) for stream in job.streams)
        part_bytes = min(PART_BYTES, max(PART_BYTES_MIN, job.cluster.master_buffer_bytes // PART_SHARE))
        self._reader = TickReader(
            tuple(self.sources), latenesses, pace, part_bytes, start.streams, shared=producers > 1
        )

    def _start(self, job: Job, saved: np.ndarray | None) -> Position:
        if saved is None:
            streams = len(job.streams)
            return Position((UNREAD,) * streams, tuple(map(inputs_of, job.streams)), tuple([] for _ in range(streams)))
        start = decode_position(saved, tuple(layout.record_words for layout in self._layouts))
        for stream, wanted in zip(job.streams, start.inputs):
            check_inputs(stream, wanted)
        return start

    def _late_sink(self, name: str, writer: Any) -> LateSink:
        def sink(table: pa.Table) -> None:
            if self._fail_late:
                time, watermark = first_words(table.column(0)), first_words(table["watermark"])
                raise InputError(
                    f'[{section_of(name)}] has late rows and [run] late = "fail": row {table["row"][0]}'
                    f" ({table['reason'][0]}), time {time}, watermark {watermark}"
                )
            if writer:
                writer.write(table)

        return sink

    def next(self) -> Tick | Wait | End:
        """The next part of a tick, or when to ask again, or the end. Raises what sources raise."""
        return self._reader.next()

    def set_pace(self, pace: Pace) -> None:
        """The ticks to come have this pace."""
        self._reader.pace = pace

    def scatter(self, tick: Tick, table: PartitionTable) -> tuple[Scattered, ...]:
        return tuple(self._scatter(stream, batches, table) for stream, batches in enumerate(tick.batches))

    def _scatter(self, stream: int, batches: list[Batch], table: PartitionTable) -> Scattered:
        layout = self._layouts[stream]
        batches = batches or [empty_batch(layout.record_words)]
        return scatter(batches, table.place, layout.record_words, layout.has_blob, table.firsts)

    @property
    def late_parts(self) -> list[PartInfo]:
        """Closed parts of late rows, by stream; names in the directory's `open_late_parts`."""
        return [part for writer in self._writers for part in writer.parts]

    def cut_late(self) -> list[PartInfo]:
        """Closes the open parts of late rows, so that all late rows so far are on disk; returns `late_parts`.

        Raises OutputError.
        """
        for writer in self._writers:
            writer.cut()
        return self.late_parts

    def save(self) -> np.ndarray:
        """What another intake of this job needs to go on from here: one frame, of POSITION_KIND.

        Cuts the late parts first, since it names them. Raises ProtocolError inside a tick, and what `cut_late` raises.
        """
        streams = self._reader.save()
        self.cut_late()
        late = tuple(writer.parts for writer in self._writers) or tuple([] for _ in streams)
        return encode_position(Position(streams, self._inputs, late))

    def progress(self, taken: int) -> float:
        """The share of the input, 0 to 1, of which the `taken` tuples are the joinable ones."""
        decoded = sum(source.progress() for source in self.sources) / len(self.sources)
        joinable = sum(one.read - one.late - one.null_key for one in (source.counts for source in self.sources))
        return decoded * taken / joinable if joinable else decoded

    @property
    def decoding_s(self) -> float:
        """CPU seconds of the sources' threads."""
        return sum(source.decoding_s for source in self.sources)

    def close(self) -> None:
        for source in self.sources:
            source.close()
        for writer in self._writers:
            writer.close()
