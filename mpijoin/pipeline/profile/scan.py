"""The streams in Spark, and what one pass over each of them counts. Only summaries of bounded size come to the
driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, cast

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from mpijoin.config.job import FileSource, StreamJob, section_of
from mpijoin.config.units import plural
from mpijoin.data.arrow import is_variable
from mpijoin.data.files import expand_files
from mpijoin.data.schema import UNIT_NS, StreamSchema
from mpijoin.data.types import key_kind
from mpijoin.errors import InputError
from mpijoin.pipeline.profile.arrivals import Arrivals, grid_level
from mpijoin.pipeline.profile.condition import slot_type
from mpijoin.pipeline.profile.findings import Extent
from mpijoin.pipeline.profile.worker import SEGMENT, segments, worst_disorder

INTEGER_KINDS = ("integer", "unsigned")
GLOB_SIGNS = str.maketrans({sign: f"\\{sign}" for sign in "\\*?[]{}"})
EPOCH_TIMES = {
    "s": F.unix_seconds,
    "ms": F.unix_millis,
    "us": F.unix_micros,
    "ns": lambda column: F.unix_micros(column) * F.lit(1000),
}


@dataclass(frozen=True)
class Stream:
    """Rows of a stream: `time` (ticks of the join's unit), `k0`, `k1` ..., `size` (bytes of values of variable size),
    `file` (a hash) and `place` (position in the file). If there is a condition, also its slots (condition.py), each
    with SLOT_null beside it.
    """

    name: str
    schema: StreamSchema
    unit: str
    frame: DataFrame

    @property
    def keys(self) -> list[str]:
        return [f"k{index}" for index in range(len(self.schema.keys))]

    @property
    def has_integer_key(self) -> bool:
        return len(self.schema.keys) == 1 and key_kind(self.schema.keys[0].type) in INTEGER_KINDS

    @property
    def tick_s(self) -> float:
        return UNIT_NS[self.unit] / 1e9

    @property
    def joinable(self) -> DataFrame:
        """Rows that may find partners: neither time nor key is null."""
        return self.frame.dropna(subset=["time", *self.keys])


def open_stream(
    spark: SparkSession, job: StreamJob, schema: StreamSchema, unit: str, slots: Mapping[str, str | None] = {}
) -> Stream:
    """The rows of the stream's Parquet files. Only their footers are read yet. unit: of the join · slots: of a
    condition, with the column for each, None: it is empty."""
    paths = ["file://" + path.translate(GLOB_SIGNS) for path in expand_files(path_of(job))]
    read = spark.read.parquet(*paths)
    time = _own_units(read, schema.time.name, schema.time.type) * F.lit(schema.scale)
    keys = [_key(column.name, column.type).alias(f"k{index}") for index, column in enumerate(schema.keys)]
    sizes = [F.octet_length(_named(column.name)) for column in schema.stored if is_variable(column.type)]
    size = sum((F.coalesce(one, F.lit(0)).cast("long") for one in sizes), F.lit(0).cast("long"))
    file, place = F.xxhash64(F.col("_metadata.file_path")), F.col("_metadata.row_index")
    told = [one for slot, name in slots.items() for one in _slot(slot, name)]
    frame = read.select(time.alias("time"), *keys, size.alias("size"), file.alias("file"), place.alias("place"), *told)
    return Stream(job.name, schema, unit, frame)


def path_of(job: StreamJob) -> str:
    """The path of a stream's files. Raises TypeError if the stream has none; the command has refused such a stream
    before."""
    if not isinstance(job.source, FileSource):
        raise TypeError(f"{job.section}: got {type(job.source).__name__}, wanted files")
    return job.source.path


def _named(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _slot(slot: str, name: str | None) -> list[Column]:
    """The values of a slot, and whether they are null."""
    kind = slot_type(slot)
    value = F.lit(None) if name is None else _named(name)
    return [F.coalesce(value.cast(kind), F.lit(0).cast(kind)).alias(slot), value.isNull().alias(f"{slot}_null")]


def _own_units(frame: DataFrame, name: str, kind: pa.DataType) -> Column:
    """The time column as whole numbers of its own unit. Spark reads nanoseconds as numbers, all else as
    microseconds."""
    found = next(field.dataType for field in frame.schema.fields if field.name == name)
    if isinstance(found, (T.TimestampType, T.TimestampNTZType)):
        return EPOCH_TIMES[kind.unit](_named(name).cast("timestamp"))
    return _named(name).cast("long")


def _key(name: str, kind: pa.DataType) -> Column:
    """The key, with all widths of integers in one type, so that equal keys of all streams have equal hashes."""
    return _named(name).cast("long") if key_kind(kind) == "integer" else _named(name)


def extent(stream: Stream) -> Extent:
    """What the stream holds. This takes two passes: one for sums, one for the order of its rows. Raises InputError if
    no row has time and key."""
    no_key = F.greatest(*(F.col(key).isNull() for key in stream.keys), F.lit(False))
    no_time = F.col("time").isNull()
    integers = [F.min("k0"), F.max("k0")] if stream.has_integer_key else [F.lit(None), F.lit(None)]
    joins = ~no_key & ~no_time
    time = F.when(joins, F.col("time"))
    nulls = [F.sum(no_key.cast("long")), F.sum((no_time & ~no_key).cast("long"))]
    times = [F.count(time), F.min(time), F.max(time)]
    keyless = F.sum((no_key & ~no_time).cast("long"))
    row = stream.frame.agg(F.count("*"), *nulls, *times, F.avg("size"), *integers, keyless).collect()[0]
    rows, null_key, null_time, joinable, first, last, blob_bytes, least, most, keyless_rows = row
    if not joinable:
        raise InputError(
            f"[{section_of(stream.name)}] path: got {plural(rows, 'row')}, none with both a time and a key; there is "
            "nothing to profile"
        )
    if least is not None:
        least, most = int(least), int(most)
    behind = disorder(stream)
    return Extent(rows, null_time, null_key, joinable, first, last, blob_bytes, least, most, behind, keyless_rows)


def disorder(stream: Stream) -> int:
    """How far, in ticks and at most, a row lies before the newest of those before it in its file. A lateness of so much
    keeps every row."""
    timed = stream.frame.where("time IS NOT NULL").select("file", "place", "time")
    found = timed.mapInArrow(segments, ", ".join(f"{name} long" for name in SEGMENT))
    return worst_disorder(collected(found).to_numpy().tolist())


def collected(rows: DataFrame) -> pd.DataFrame:
    """All rows, of which there must be few."""
    return cast(pd.DataFrame, rows.toPandas())


def arrivals(stream: Stream, own: Extent) -> Arrivals:
    """The counts on the finest grid over the stream's own span. They come from one pass."""
    span = own.last - own.first + 1
    bins = 1 << grid_level(span)
    place = F.floor((F.col("time") - F.lit(own.first)) * F.lit(bins / span))
    counted = collected(stream.joinable.groupBy(F.least(place, F.lit(bins - 1)).alias("bin")).count())
    counts = np.zeros(bins, np.int64)
    counts[counted["bin"].to_numpy()] = counted["count"].to_numpy()
    return Arrivals(own.first * stream.tick_s, span * stream.tick_s, counts)
