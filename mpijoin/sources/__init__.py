"""Where tuples come from: files, Arrow tables and synthetic streams, all read through one contract (base.py)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mpijoin.config.job import FileSource, Job, SyntheticSource
from mpijoin.data.schema import JoinSchema

BLOCK_SHARE = 32  # the blocks of a stream take this part of the master's buffer at most

if TYPE_CHECKING:
    from mpijoin.sources.base import LateSink, Source, SourcePosition
    from mpijoin.sources.merge import Part
    from mpijoin.sources.screen import StreamRules


def open_source(
    job: Job, stream_index: int, schema: JoinSchema, late_sink: LateSink, saved: SourcePosition | None = None
) -> Source:
    """The source of one stream of the job; `late_sink` gets tables of late tuples (late.py) as they are met.

    saved: by a source of the same stream; goes on from there.

    Raises InputError when a file is not what the schema says.
    """
    from mpijoin.sources.base import BLOCK_BYTES, BLOCK_ROWS
    from mpijoin.sources.blocks import BlockLimit
    from mpijoin.sources.merge import MergedFiles

    rules = rules_of(job, stream_index, schema, late_sink)
    limit = BlockLimit(BLOCK_ROWS, min(BLOCK_BYTES, job.cluster.master_buffer_bytes // BLOCK_SHARE))
    return MergedFiles(rules, stream_parts(job, stream_index), limit, saved)


def rules_of(job: Job, stream_index: int, schema: JoinSchema, late_sink: LateSink) -> StreamRules:
    """What is the same for all files of a stream."""
    from mpijoin.sources.screen import StreamRules

    lateness = schema.ticks(job.streams[stream_index].lateness_ns)
    keeps_keyless = stream_index in job.alone
    return StreamRules(schema.streams[stream_index], lateness, late_sink, job.inject.hash_bits, keeps_keyless)


def stream_parts(job: Job, stream_index: int) -> list[Part]:
    """The stream's files in their order, or the one table or generator that stands for a file."""
    from mpijoin.data.files import IPC, file_format
    from mpijoin.sources.files import open_file
    from mpijoin.sources.inputs import inputs_of, table_name
    from mpijoin.sources.merge import Part

    stream = job.streams[stream_index]
    source = stream.source
    if isinstance(source, FileSource):
        typed = frozenset(stream.types)
        # To copy rows of an Arrow file takes less than to hand them to another thread.
        return [
            Part(one.path, one.size, partial(open_file, one.path, file=one, typed=typed), file_format(one.path) != IPC)
            for one in inputs_of(stream)
        ]
    if isinstance(source, SyntheticSource):
        from mpijoin.sources.synthetic import SyntheticReader  # loads all that makes streams

        seed = job.run.seed if source.seed is None else source.seed
        return [Part(f"[{stream.section}]", 1, partial(SyntheticReader, source, seed, stream_index))]
    from mpijoin.sources.table import TableReader

    return [Part(table_name(stream), 1, partial(TableReader, table_name(stream), source.table))]
