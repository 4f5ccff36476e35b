"""Column expressions of a moment: whole microseconds since 1970 UTC, and the nanoseconds beyond them.

What most files hold is recognised by its plain form and read by casts. Only what has another form is matched with a
regular expression, which costs several times as much as all the rest.
"""

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
HOUR, SECONDS = len("2016-10-14T00"), len("2016-10-14T00:00:06")
EXPONENT = r"^[+-]?\d{1,20}(\.\d*)?[eE][+-]?\d{1,2}$"
NANO = 10**9
NAMES = ("text", "bare", "minutes", "dot", "length", "plain", "scaled", "whole", "part", "ns", "us")
TEXT, BARE, MINUTES, DOT, LENGTH, PLAIN, SCALED, WHOLE, PART, NS, US_HERE = (f"__time_{name}" for name in NAMES)
INT64 = (-(2**63), 2**63 - 1)
US_MIN, US_MAX = -62_135_596_800_000_000, 253_402_300_799_999_999  # years 1 to 9999
(NS_MIN_US, NS_MIN_SUB), (NS_MAX_US, NS_MAX_SUB) = (divmod(ns, 1000) for ns in INT64)  # what int64 nanoseconds hold


@dataclass(frozen=True)
class Parsed:
    """A parsed time. us: bigint, null where there is no moment · sub: 0 to 999 ns more; None: never any · local: true
    where us is the time on a clock of the zone, not yet in UTC · wanted: what a value should look like · is_ns: the
    source counts nanoseconds · steps: columns that the others are made of. Each step uses those before it, so that what
    is needed twice is computed once."""

    us: Column
    sub: Column | None
    local: Column
    wanted: str
    is_ns: bool = False
    steps: tuple[dict[str, Column], ...] = ()


@dataclass(frozen=True)
class InZone:
    """A time in UTC. us: bigint; an hour that came twice is taken as its first · twice: the time came twice on the
    clock · gap: it never was."""

    us: Column
    twice: Column
    gap: Column


def parsed(column: Column, kind: T.DataType, wanted: Wanted, is_ns: bool, is_local: bool) -> Parsed:
    """The moments of a column. is_ns: it is a bigint that a Parquet file calls nanoseconds · is_local: it knows of no
    zone.

    Raises JobError where type and arguments do not fit.
    """
    if is_ns or isinstance(kind, (T.TimestampType, T.TimestampNTZType, T.DateType)):
        if wanted.unit or wanted.time_format:
            found = "date" if isinstance(kind, T.DateType) else "timestamp"
            raise JobError([f"--time: {wanted.time} is a {found} already, wanted neither --unit nor --time-format"])
        return _ready(column, is_ns, is_local or isinstance(kind, T.DateType))
    if not isinstance(kind, (T.StringType, T.NumericType)):
        raise JobError(
            [f"--time: {wanted.time} is of type {kind.simpleString()}, wanted a timestamp, date, text or number"]
        )
    if wanted.unit is not None:
        return _number(column, kind, wanted.unit)
    if wanted.time_format is not None:
        return _pattern(F.trim(column.cast("string")), wanted.time_format)
    if isinstance(kind, T.NumericType):
        raise JobError([f"--unit: {wanted.time} holds numbers, wanted one of {' '.join(UNIT_NS)}, or --time-format"])
    return _iso(column)


def beyond_ns(us: Column, sub: Column) -> Column:
    """True where int64 nanoseconds do not reach."""
    edge = ((us == NS_MIN_US) & (sub < NS_MIN_SUB)) | ((us == NS_MAX_US) & (sub > NS_MAX_SUB))
    return ~us.between(NS_MIN_US, NS_MAX_US) | edge


def _ready(column: Column, is_ns: bool, is_local: bool) -> Parsed:
    if is_ns:
        us, sub = _of_ns(column)
        return Parsed(us, sub, F.lit(is_local), "a timestamp", True)
    return Parsed(_in_years(F.unix_micros(column.cast("timestamp"))), None, F.lit(is_local), "a timestamp")


def _of_ns(count: Column) -> tuple[Column, Column]:
    """The microseconds of a bigint that counts nanoseconds, and the nanoseconds beyond them."""
    return floored(count, 1000), F.pmod(count, F.lit(1000)).cast("int")


def floored(column: Column, by: int) -> Column:
    """A bigint divided and rounded down. It is exact for all of them; `/` is so only up to 2^53, and `div` alone rounds
    towards 0."""
    whole = F.call_function("div", column, F.lit(by).cast("bigint"))
    return whole - ((column < 0) & (column % by != 0)).cast("bigint")


def _in_years(us: Column) -> Column:
    return F.when(us.between(US_MIN, US_MAX), us)


def _iso(column: Column) -> Parsed:
    text, bare, length, plain = F.col(TEXT), F.col(BARE), F.col(LENGTH), F.col(PLAIN)
    zulu = text.endswith("Z")
    stripped = F.when(zulu, text.substr(F.lit(1), F.length(text) - 1)).otherwise(text)
    figures = {MINUTES: F.substring_index(bare, ":", -2), LENGTH: F.octet_length(bare)}
    moment = F.when(plain, bare).when(text.rlike(ISO), text).cast("timestamp")
    steps = (
        {TEXT: F.trim(column)},
        {BARE: stripped},
        figures,
        {PLAIN: _is_plain_iso()},
        {US_HERE: F.unix_micros(moment)},
    )
    finer = F.when(length > SECONDS + 7, _digits(bare.substr(SECONDS + 8, 3), 3)).otherwise(0)
    digits = F.regexp_extract(text, r"\.\d{6}(\d{1,3})", 1)
    other = F.when(digits == "", 0).otherwise(_digits(digits, 3))
    sub = F.when(plain, finer).otherwise(other).cast("int")
    local = F.when(plain, ~zulu).otherwise(~text.rlike(ISO_OFFSET))
    example = "2016-10-14T00:00:06.85 or with +02:00 behind it (ISO 8601), or --time-format or --unit"
    return Parsed(_in_years(F.col(US_HERE)), sub, local, f"a time such as {example}", steps=steps)


def _is_plain_iso() -> Column:
    """True for a date, a time to the second and up to nine digits more, of all that the cast takes.

    That also takes fields of one digit, zones, and blanks around it. Where the year has four digits, and the last two
    colons are in their places, all fields before the seconds have two digits: with fewer, the last colon would be that
    of a zone, and there is no room for the zone's hours before it. What begins with the seconds has neither zone nor
    blank if it is a number, also with a digit behind it. Searches are short: they begin at the end, or are in a short
    text. Lengths in bytes need no counting, and what the cast takes has no letter of several bytes."""
    minutes, length = F.col(MINUTES), F.col(LENGTH)
    stands = (F.octet_length(minutes) == length - (HOUR + 1)) & (F.instr(minutes, ":") == 3)
    dot = F.when(length == SECONDS, 0).when(length.between(SECONDS + 2, SECONDS + 10), 6)
    ends = F.coalesce(F.instr(minutes, ".") == dot, F.lit(False))
    seconds = F.concat(minutes.substr(4, 12), F.lit("0"))
    return (F.instr(F.col(BARE), "-") == 5) & stands & ends & seconds.cast("bigint").isNotNull()


def _is_digit(letter: Column) -> Column:
    return letter.between("0", "9")


def _digits(text: Column, count: int) -> Column:
    """The number that the first `count` digits behind a decimal point make, with zeros for those that are missing."""
    return F.rpad(text, count, "0").cast("bigint")


def _pattern(text: Column, pattern: str) -> Parsed:
    letters = re.sub("'[^']*'", "", pattern)
    us = F.unix_micros(F.to_timestamp(text, pattern))
    return Parsed(_in_years(us), None, F.lit(not re.search("[VzOXxZ]", letters)), f"a time written as {pattern}")


def check_pattern(spark: Any, pattern: str) -> None:
    """JobError if Spark does not know what the pattern means."""
    try:
        spark.range(1).select(F.to_timestamp(F.lit("1"), pattern)).collect()
    except PySparkException as error:
        reason = str(error).splitlines()[0]
        raise JobError(
            [f"--time-format: got {pattern!r}, wanted a pattern such as {PATTERN_EXAMPLE!r}: {reason}"]
        ) from error


def _number(column: Column, kind: T.DataType, unit: str) -> Parsed:
    steps: tuple[dict[str, Column], ...]
    if isinstance(kind, T.IntegralType):
        steps = ({WHOLE: column.cast("bigint"), PART: F.lit(0).cast("bigint")},)
    else:
        steps = _decimal(F.trim(column.cast("string")))
    whole, part = F.col(WHOLE), F.col(PART)
    if unit == "ns":
        count = F.when(part == 0, whole)  # finer than the finest is no time
        us, sub = _of_ns(F.col(NS))
        return Parsed(us, sub, F.lit(False), "a whole number of ns since 1970", True, (*steps, {NS: count}))
    per_ns = UNIT_NS[unit]
    limit = (US_MAX + 1) * 1000 // per_ns
    fits = F.when(whole.between(-limit - 1, limit), whole) * F.lit(per_ns // 1000)
    steps = (*steps, {NS: floored(part, NANO // per_ns)}, {US_HERE: fits + floored(F.col(NS), 1000)})
    sub = F.pmod(F.col(NS), F.lit(1000)).cast("int")
    return Parsed(_in_years(F.col(US_HERE)), sub, F.lit(False), f"a number of {unit} since 1970", steps=steps)


def _decimal(number: Column) -> tuple[dict[str, Column], ...]:
    """Steps to a number's WHOLE, which is null if the text is no number, and its PART: the billionths of one beyond it,
    with the same sign. Digits behind the ninth are dropped."""
    text, dot, whole = F.col(TEXT), F.col(DOT), F.col(WHOLE)
    plain = F.col(PLAIN)
    # This cast accepts a point with digits behind it, and drops them.
    casts = {DOT: F.instr(text, "."), WHOLE: text.cast("bigint")}
    is_plain = whole.isNotNull() & ((dot == 0) | _is_digit(text.substr(dot - 1, F.lit(1))))
    scaled = F.when(~is_plain & text.rlike(EXPONENT), text.cast("decimal(38,9)"))
    part = _digits(text.substr(dot + 1, F.lit(9)), 9)
    part = F.when(dot == 0, 0).when(text.startswith("-"), -part).otherwise(part)
    # `%` loses no digit, and a difference may.
    scaled_part = ((F.col(SCALED) % 1) * NANO).cast("bigint")
    scaled_whole = F.when(F.col(SCALED).between(*INT64), F.col(SCALED).cast("bigint"))
    numbers = {
        WHOLE: F.when(plain, whole).otherwise(scaled_whole),
        PART: F.when(plain, part).otherwise(scaled_part).cast("bigint"),
    }
    return {TEXT: number}, casts, {PLAIN: F.coalesce(is_plain, F.lit(False)), SCALED: scaled}, numbers


def in_zone(us: Column, local: Column, zone: str | None) -> InZone:
    """UTC of times on a clock of the zone, for rows where `local` says that they are. No zone means UTC."""
    if zone in (None, "UTC", "Z"):
        return InZone(us, F.lit(False), F.lit(False))
    clock = F.timestamp_micros(us)
    utc = F.to_utc_timestamp(clock, zone)  # takes the earlier of two, and goes forward where there is none

    def ahead(moment: Column) -> Column:
        return F.unix_micros(F.from_utc_timestamp(moment, zone)) - F.unix_micros(moment)

    # If the clock was set back within a day, by so much, the same reading may come a second time.
    back = ahead(utc) - ahead(utc + F.expr("INTERVAL 24 HOURS"))
    second = F.timestamp_micros(F.unix_micros(utc) + back)
    twice = (back > 0) & (F.from_utc_timestamp(second, zone) == clock)
    gap = F.from_utc_timestamp(utc, zone) != clock
    us_utc = F.when(local, F.unix_micros(utc)).otherwise(us)
    return InZone(us_utc, F.coalesce(local & twice, F.lit(False)), F.coalesce(local & gap, F.lit(False)))
