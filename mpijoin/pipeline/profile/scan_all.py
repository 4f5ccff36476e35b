"""Makes a whole profile of the streams of a job with Spark."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mpijoin.config.job import Job
from mpijoin.config.units import listed
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import UNIT_NS, JoinSchema
from mpijoin.errors import InputError
from mpijoin.pipeline.profile.findings import Profile, Side
from mpijoin.pipeline.profile.scan import arrivals, extent, open_stream, path_of
from mpijoin.pipeline.profile.scan_keys import scan_keys
from mpijoin.pipeline.profile.scan_results import expected_results, sampled_share
from mpijoin.store.pool import tuple_words


def scan(spark: SparkSession, job: Job, schema: JoinSchema, top: int, sample: str | float) -> Profile:
    """The profile of a job. sample: as `sampled_share` takes it. Raises InputError if Spark cannot read the files, or
    if nothing in them can be joined."""
    try:
        return _scan(spark, job, schema, top, sample)
    except PySparkException as error:
        told = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(
            f"Spark cannot read {listed([path_of(own) for own in job.streams])}: {told[0]}"
        ) from error


def _scan(spark: SparkSession, job: Job, schema: JoinSchema, top: int, sample: str | float) -> Profile:
    streams = tuple(open_stream(spark, own, columns, schema.unit) for own, columns in zip(job.streams, schema.streams))
    extents = tuple(extent(stream) for stream in streams)
    curves = tuple(arrivals(stream, own) for stream, own in zip(streams, extents))
    keys = scan_keys(streams, extents, top)
    windows = tuple(schema.ticks(own.window_ns) for own in job.streams)
    share = sampled_share(sample, sum(own.joinable for own in extents))
    expected = expected_results(spark, streams, extents, curves, windows, share)
    layouts = [RecordLayout(columns) for columns in schema.streams]
    words = [tuple_words(layout.record_words, layout.has_blob) for layout in layouts]
    tick_ns = UNIT_NS[schema.unit]
    sides = [
        Side(own.name, path_of(own), own.window_ns, size, tick_ns, held, curve, counts)
        for own, size, held, curve, counts in zip(job.streams, words, extents, curves, keys.keys)
    ]
    return Profile(tuple(sides), keys.common, keys.top, expected)
