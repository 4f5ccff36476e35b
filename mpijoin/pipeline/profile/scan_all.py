"""Makes a whole profile of the streams of a job with Spark."""

from __future__ import annotations

from typing import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mpijoin.config.job import Job
from mpijoin.config.units import listed
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import UNIT_NS, JoinSchema
from mpijoin.errors import InputError
from mpijoin.pipeline.profile.arrivals import Arrivals
from mpijoin.pipeline.profile.condition import Condition, condition_of
from mpijoin.pipeline.profile.estimates import results_of
from mpijoin.pipeline.profile.findings import Extent, Profile, Side, held_longer
from mpijoin.pipeline.profile.results import Found
from mpijoin.pipeline.profile.scan import Stream, arrivals, extent, open_stream, path_of
from mpijoin.pipeline.profile.scan_keys import scan_keys
from mpijoin.pipeline.profile.scan_pairs import count_pairs, sides_of
from mpijoin.pipeline.profile.scan_results import expected_results, grouped_tuples, sampled_share
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
    condition = condition_of(job, schema)
    slots = [condition.columns(side) if condition else {} for side in range(len(job.streams))]
    parts = zip(job.streams, schema.streams, slots)
    streams = tuple(open_stream(spark, own, columns, schema.unit, asked) for own, columns, asked in parts)
    extents = tuple(extent(stream) for stream in streams)
    curves = tuple(arrivals(stream, own) for stream, own in zip(streams, extents))
    keys = scan_keys(streams, extents, top)
    found = _found(spark, job, schema, streams, extents, curves, condition, sample)
    layouts = [RecordLayout(columns) for columns in schema.streams]
    words = [tuple_words(layout.record_words, layout.has_blob) for layout in layouts]
    tick_ns = UNIT_NS[schema.unit]
    sides = [
        Side(own.name, path_of(own), own.window_ns, size, tick_ns, held, curve, counts, longer)
        for own, size, held, curve, counts, longer in zip(
            job.streams, words, extents, curves, keys.keys, held_longer(job)
        )
    ]
    return Profile(tuple(sides), keys.common, keys.top, found.results, found.pairs, found.alone, job.join)


def _found(
    spark: SparkSession,
    job: Job,
    schema: JoinSchema,
    streams: Sequence[Stream],
    extents: Sequence[Extent],
    curves: Sequence[Arrivals],
    condition: Condition | None,
    sample: str | float,
) -> Found:
    """The results to expect."""
    windows = tuple(schema.ticks(own.window_ns) for own in job.streams)
    share = sampled_share(sample, sum(own.joinable for own in extents))
    sides, slots = sides_of(job.join), condition.slots if condition else ()
    tuples = grouped_tuples(spark, streams, extents, curves, windows, share, sides, slots)
    if not sides and condition is None:
        results = expected_results(tuples)
        return Found(results, results, {})
    counted = count_pairs(tuples, sides, condition)
    names, keyless = [own.name for own in job.streams], [own.keyless for own in extents]
    return results_of(job.join, names, tuples.ranges, tuples.chosen, counted, tuples.rows, keyless)
