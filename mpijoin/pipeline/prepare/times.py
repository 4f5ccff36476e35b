"""Column expressions of a moment: whole microseconds since 1970 UTC, and the nanoseconds beyond them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from mpijoin.errors import JobError
from mpijoin.pipeline.prepare.options import PATTERN_EXAMPLE, UNIT_NS, Wanted

ISO = r"^\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?( ?(Z|UTC|[+-]\d{2}(:?\d{2})?))?)?$"
ISO_OFFSET = r"\d{2}:\d{2}.*(Z|UTC|[+-]\d{2}(:?\d{2})?)$"
NUMBER = r"^[+-]?\d{1,20}(\.\d*)?([eE][+-]?\d{1,2})?$"
US_MIN, US_MAX = -62_135_596_800_000_000, 253_402_300_799_999_999  # years 1 to 9999
NS_MIN_US, NS_MAX_US = -(2**63) // 1000 + 1, (2**63 - 1) // 1000 - 1  # what int64 nanoseconds hold, in microseconds


@dataclass(frozen=True)
class Parsed:
    """us: bigint, null where there is no moment · sub: 0 to 999 ns more · local: true where us is the time on a clock of the
    zone, not yet in UTC · wanted: what a value should look like · is_ns: the source counts nanoseconds."""

    us: Column
    sub: Column
    local: Column
    wanted: str
    is_ns: bool = False


@dataclass(frozen=True)
class InZone:
    """us: bigint in UTC; an hour that came twice is taken as its first · twice, gap: it came twice; it never was."""

    us: Column
    twice: Column
    gap: Column


def parsed(column: Column, kind: T.DataType, wanted: Wanted, is_ns: bool, is_local: bool) -> Parsed:
    """The moments of a column. is_ns: bigint that a Parquet file calls nanoseconds · is_local: it knows of no zone.

    Raises JobError where type and arguments do not fit."""
    if is_ns or isinstance(kind, (T.TimestampType, T.TimestampNTZType, T.DateType)):
        if wanted.unit or wanted.time_format:
            found = "date" if isinstance(kind, T.DateType) else "timestamp"
            raise JobError([f"--time: {wanted.time} is a {found} already, wanted neither --unit nor --time-format"])
        return _ready(column, is_ns, is_local or isinstance(kind, T.DateType))
    if not isinstance(kind, (T.StringType, T.NumericType)):
        raise JobError([f"--time: {wanted.time} is of type {kind.simpleString()}, wanted a timestamp, date, text or number"])
    if wanted.unit is not None:
        return _number(F.trim(column.cast("string")), wanted.unit)
    if wanted.time_format is not None:
        return _pattern(F.trim(column.cast("string")), wanted.time_format)
    if isinstance(kind, T.NumericType):
        raise JobError([f"--unit: {wanted.time} holds numbers, wanted one of {' '.join(UNIT_NS)}, or --time-format"])
    return _iso(F.trim(column))


def _ready(column: Column, is_ns: bool, is_local: bool) -> Parsed:
    if is_ns:
        sub = F.pmod(column, F.lit(1000))
        return Parsed(_thousands(column), sub.cast("int"), F.lit(is_local), "a timestamp", True)
    return Parsed(_in_years(F.unix_micros(column.cast("timestamp"))), F.lit(0), F.lit(is_local), "a timestamp")


def _thousands(column: Column) -> Column:
    """Of a bigint, rounded down. Exact for all of them, which `/` is only up to 2^53; `div` alone rounds towards 0."""
    whole = F.call_function("div", column, F.lit(1000).cast("bigint"))
    return whole - ((column < 0) & (column % 1000 != 0)).cast("bigint")


def _in_years(us: Column) -> Column:
    return F.when(us.between(US_MIN, US_MAX), us)


def _iso(text: Column) -> Parsed:
    us = F.when(text.rlike(ISO), F.unix_micros(text.cast("timestamp")))
    digits = F.regexp_extract(text, r"\.\d{6}(\d{1,3})", 1)
    sub = F.when(digits == "", 0).otherwise(F.rpad(digits, 3, "0").cast("int"))
    example = "2016-10-14T00:00:06.85 or with +02:00 behind it (ISO 8601), or --time-format or --unit"
    return Parsed(_in_years(us), sub, ~text.rlike(ISO_OFFSET), f"a time such as {example}")


def _pattern(text: Column, pattern: str) -> Parsed:
    letters = re.sub("'[^']*'", "", pattern)
    us = F.unix_micros(F.to_timestamp(text, pattern))
    return Parsed(_in_years(us), F.lit(0), F.lit(not re.search("[VzOXxZ]", letters)), f"a time written as {pattern}")


def check_pattern(spark: Any, pattern: str) -> None:
    """JobError if Spark does not know what the pattern means."""
    try:
        spark.range(1).select(F.to_timestamp(F.lit("1"), pattern)).collect()
    except PySparkException as error:
        reason = str(error).splitlines()[0]
        raise JobError([f"--time-format: got {pattern!r}, wanted a pattern such as {PATTERN_EXAMPLE!r}: {reason}"]) from error


def _number(text: Column, unit: str) -> Parsed:
    per_ns = UNIT_NS[unit]
    limit = min((US_MAX + 1) * 1000 // per_ns, 2**63 - 1)
    exact = F.when(text.rlike(NUMBER), text.cast("decimal(38,9)"))
    whole = F.floor(exact)
    part_ns = F.floor((exact - whole).cast("decimal(9,9)") * F.lit(per_ns)).cast("bigint")
    fits = exact.between(F.lit(-limit - 1).cast("decimal(38,9)"), F.lit(limit).cast("decimal(38,9)"))
    whole = F.when(fits, whole.cast("bigint"))
    if unit == "ns":
        whole = F.when(exact == F.floor(exact), whole)  # finer than the finest is no time
        sub = F.pmod(whole, F.lit(1000))
        return Parsed(_thousands(whole), sub.cast("int"), F.lit(False), "a whole number of ns since 1970", True)
    sub = F.pmod(part_ns, F.lit(1000))
    us = whole * F.lit(per_ns // 1000) + _thousands(part_ns)
    return Parsed(_in_years(us), sub.cast("int"), F.lit(False), f"a number of {unit} since 1970")


def in_zone(us: Column, local: Column, zone: str | None) -> InZone:
    """UTC of times on a clock of the zone, where `local` says that they are; no zone means UTC."""
    if zone in (None, "UTC", "Z"):
        return InZone(us, F.lit(False), F.lit(False))
    clock = F.timestamp_micros(us)
    utc = F.to_utc_timestamp(clock, zone)  # takes the earlier of two, and goes forward where there is none

    def ahead(moment: Column) -> Column:
        return F.unix_micros(F.from_utc_timestamp(moment, zone)) - F.unix_micros(moment)

    # The clock was set back by so much within a day: then the same reading may come a second time.
    back = ahead(utc) - ahead(utc + F.expr("INTERVAL 24 HOURS"))
    second = F.timestamp_micros(F.unix_micros(utc) + back)
    twice = (back > 0) & (F.from_utc_timestamp(second, zone) == clock)
    gap = F.from_utc_timestamp(utc, zone) != clock
    us_utc = F.when(local, F.unix_micros(utc)).otherwise(us)
    return InZone(us_utc, F.coalesce(local & twice, F.lit(False)), F.coalesce(local & gap, F.lit(False)))
