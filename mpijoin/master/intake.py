"""What the master takes in: both sources, their late files, and the ticks that are cut from them."""

from __future__ import annotations

from mpijoin.config.job import Job
from mpijoin.data.batch import Batch
from mpijoin.data.record import RecordLayout
from mpijoin.data.rows import empty_batch
from mpijoin.data.schema import JoinSchema
from mpijoin.errors import InputError
from mpijoin.master.ticks import Pace, Tick, TickReader
from mpijoin.partitioning.scatter import Scattered, scatter
from mpijoin.partitioning.table import PartitionTable
from mpijoin.rundir import RunDirectory
from mpijoin.sources import open_source
from mpijoin.sources.base import Source
from mpijoin.sources.late import LateWriter


class Intake:
    """Both sources with their late files, read tick by tick."""

    def __init__(self, job: Job, schema: JoinSchema, directory: RunDirectory | None, pace: Pace):
        self._fail_late = job.run.late == "fail"
        self._layouts = [RecordLayout(stream) for stream in schema.streams]
        self._writers: list[LateWriter] = []
        self.sources: list[Source] = []
        try:
            for index, stream in enumerate(schema.streams):
                if directory:
                    self._writers.append(LateWriter(str(directory.open_late(stream.name)), stream))
                self.sources.append(open_source(job, index, schema, self._late_sink(stream.name)))
        except BaseException:
            self.close()
            raise
        latenesses = tuple(schema.ticks(stream.lateness_ns) for stream in job.streams)
        self._reader = TickReader(tuple(self.sources), latenesses, pace)

    def _late_sink(self, name: str):
        writer = self._writers[-1] if self._writers else None

        def sink(table) -> None:
            if self._fail_late:
                first = table.slice(0, 1).to_pylist()[0]
                raise InputError(
                    f'[{name}] has late rows and [run] late = "fail": row {first["row"]} ({first["reason"]}), time '
                    f"{first[table.column_names[0]]}, watermark {first['watermark']}"
                )
            if writer:
                writer.write(table)

        return sink

    def next(self) -> Tick | None:
        """The next part of a tick, None at the end. Raises what sources raise."""
        return self._reader.next()

    def set_pace(self, pace: Pace) -> None:
        """For the ticks to come."""
        self._reader.pace = pace

    def scatter(self, tick: Tick, table: PartitionTable) -> tuple[Scattered, Scattered]:
        return tuple(self._scatter(stream, batches, table) for stream, batches in enumerate(tick.batches))

    def _scatter(self, stream: int, batches: list[Batch], table: PartitionTable) -> Scattered:
        layout = self._layouts[stream]
        return scatter(batches or [empty_batch(layout.record_words)], table.place, layout.record_words, layout.has_blob)

    def progress(self, taken: int) -> float:
        """Share of the input of which the `taken` tuples are the joinable ones, 0 to 1."""
        decoded = sum(source.progress() for source in self.sources) / len(self.sources)
        joinable = sum(one.read - one.late - one.null_key for one in (source.counts for source in self.sources))
        return decoded * taken / joinable if joinable else decoded

    def close(self) -> None:
        for closing in (*self.sources, *self._writers):
            closing.close()
