"""Raw columns become a parsed time, typed columns and normalised keys. Every reason for which a row is put aside is
here.

All rows get what the rows that are kept need: values, time and a small state. Reasons and raw lines are worked out in a
second look at the files that hold bad rows (rejected.py), since nearly all rows are good.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from mpijoin.pipeline.prepare.files import Source
from mpijoin.pipeline.prepare.options import JSONL, NS, PARQUET, TYPES, Wanted, kept_names
from mpijoin.pipeline.prepare.options import US as IN_US
from mpijoin.pipeline.prepare.read import BLOCK, BROKEN, FILE, FILE_ID, FOREIGN, ROW, SKIP, Raw, col, quoted
from mpijoin.pipeline.prepare.times import beyond_ns, in_zone, parsed

US, SUB = "__us", "__sub"  # microseconds since 1970 UTC; 0 to 999 ns beyond them
STATE = "__state"  # GOOD and so on, or what SKIP says
GOOD, TWICE, BAD = 0, 1, 2  # TWICE: good, and the clock showed this time twice that day
KINDS = "__kinds"  # array of what is wrong, one of `Rules.kinds` each; null: nothing
REASON = "__reason"  # the same in a sentence for each; null: nothing
BEYOND = "__beyond"  # the sentence for a time that nanoseconds do not reach; null: they do
RAW = "__raw"  # what the row looked like; null: nothing is wrong
CLOCK, LOCAL, GAP_HERE, TWICE_HERE = "__clock", "__local", "__gap", "__twice"
LINE, ENCODING, TIME, GAP = "line", "encoding", "time", "time in the gap"
SHOWN = 80  # letters of a value in a reason


@dataclass(frozen=True)
class Check:
    """A reason to put rows aside. kind: what the report counts it under · fails: true where it holds, else null or
    false · says: the sentence."""

    kind: str
    fails: Column
    says: Column


@dataclass(frozen=True)
class Rules:
    """What makes a row good, and what is taken of it. frame: the raw rows with their time · values: the other columns
    that are wanted, with their types as far as they are known · names: of all columns, in order · beyond: the sentence
    for a time that nanoseconds do not reach · is_whole: all times are whole microseconds · is_ns: the output counts
    nanoseconds whatever the rows hold."""

    frame: DataFrame
    shown: Column
    names: tuple[str, ...]
    values: dict[str, Column]
    checks: tuple[Check, ...]
    beyond: Column
    is_whole: bool
    is_ns: bool

    @property
    def kinds(self) -> tuple[str, ...]:
        return (LINE, *dict.fromkeys(check.kind for check in self.checks))


@dataclass(frozen=True)
class Clean:
    """The cleaned rows. frame: every row read, with the columns `names` but for the time, and US, STATE, FILE_ID,
    BLOCK, ROW; SUB, too, unless all times are whole microseconds · untyped: columns of text whose type is to be found
    out."""

    frame: DataFrame
    names: tuple[str, ...]
    untyped: tuple[str, ...]
    is_ns: bool


def is_good() -> Column:
    return col(STATE) <= TWICE


def rules(raw: Raw, source: Source, wanted: Wanted) -> Rules:
    """The rules for the raw rows; nothing runs yet. Raises JobError where the time's type does not fit the
    arguments."""
    # A filter may look at columns that are not kept.
    names = raw.names if wanted.where is not None else kept_names(wanted, raw.names)
    is_ns = source.format == PARQUET and wanted.time in source.ns_columns
    is_local = source.format == PARQUET and wanted.time in source.local_columns
    time = parsed(col(wanted.time), raw.types[wanted.time], wanted, is_ns, is_local)
    sub = None if wanted.precision == IN_US else time.sub
    frame = raw.frame
    for step in time.steps:
        frame = frame.withColumns(step)
    frame = frame.withColumns({CLOCK: time.us, LOCAL: time.local, SUB: F.lit(0) if sub is None else sub})
    zoned = in_zone(col(CLOCK), col(LOCAL), wanted.zone)
    # A number that Spark counts up comes last, since no filter is pushed through it. A filter that went through all of
    # these steps would take in each step's expression as often as the next one names it, and planning would need
    # minutes and gigabytes.
    row = F.monotonically_increasing_id()
    frame = frame.withColumns({US: zoned.us, TWICE_HERE: zoned.twice, GAP_HERE: zoned.gap, ROW: row})
    values = {name: _value(name, raw.types[name], wanted) for name in names if name != wanted.time}
    beyond = _got(wanted.time, "which nanoseconds since 1970 do not reach (1677 to 2262)")
    checks = _time_checks(wanted, time.wanted, beyond) + _value_checks(list(values), raw, source, wanted)
    checks.append(Check(ENCODING, col(FOREIGN), F.lit("encoding: bytes that are not UTF-8 (shown as Latin-1)")))
    in_ns = wanted.precision == NS or (time.is_ns and wanted.precision != IN_US)
    return Rules(frame, raw.shown, tuple(names), values, tuple(checks), beyond, sub is None, in_ns)


def cleaned(rules: Rules, raw: Raw) -> Clean:
    state = F.coalesce(col(SKIP), F.when(_is_bad(rules), BAD).when(col(TWICE_HERE), TWICE).otherwise(GOOD))
    values = [value.alias(name) for name, value in rules.values.items()]
    place = [col(FILE_ID), col(BLOCK), col(ROW)]
    time = [col(US)] if rules.is_whole else [col(US), col(SUB)]
    frame = rules.frame.select(*values, *time, state.cast("tinyint").alias(STATE), *place)
    return Clean(frame, rules.names, tuple(name for name in raw.untyped if name in rules.values), rules.is_ns)


def accused(rules: Rules) -> DataFrame:
    """The rows that are bad or that nanoseconds do not reach, with KINDS, REASON, BEYOND and RAW beside their values
    and place."""
    kinds = F.array_compact(F.array(*[F.when(check.fails, F.lit(check.kind)) for check in rules.checks]))
    reason = F.concat_ws("; ", *[F.when(check.fails, check.says) for check in rules.checks])
    # If a line is no row, nothing else is said of it, since its columns mean nothing.
    broken, bad = col(BROKEN).isNotNull(), _is_bad(rules)
    verdict = {
        KINDS: F.when(broken, F.array(F.lit(LINE))).when(bad, kinds),
        REASON: F.when(broken, col(BROKEN)).when(bad, reason),
        BEYOND: F.when(beyond_ns(col(US), col(SUB)), rules.beyond),
    }
    is_wanted = col(SKIP).isNull() & (bad | F.coalesce(beyond_ns(col(US), col(SUB)), F.lit(False)))
    # This holds for every row. A ROW that nobody asks for would be left out, and could not hold up the filter.
    rows = rules.frame.where(is_wanted & (col(ROW) >= 0))
    values = [value.alias(name) for name, value in rules.values.items()]
    place = [col(FILE), col(FILE_ID), col(BLOCK), col(ROW), col(US)]
    return rows.select(
        *values, *place, rules.shown.alias(RAW), *[column.alias(name) for name, column in verdict.items()]
    )


def _is_bad(rules: Rules) -> Column:
    bad = col(BROKEN).isNotNull()
    for check in rules.checks:
        bad = bad | F.coalesce(check.fails, F.lit(False))
    return bad


def _got(name: str, wanted: str) -> Column:
    shown = F.substring(col(name).cast("string"), 1, SHOWN)
    shown = F.coalesce(F.concat(F.lit("'"), shown, F.lit("'")), F.lit("nothing"))
    return F.concat(F.lit(f"{name}: got "), shown, F.lit(f", {wanted}"))


def _time_checks(wanted: Wanted, example: str, beyond: Column) -> list[Check]:
    checks = [Check(TIME, col(US).isNull(), _got(wanted.time, f"wanted {example}"))]
    if wanted.precision == NS:
        checks.append(Check(TIME, beyond_ns(col(US), col(SUB)), beyond))
    never = _got(wanted.time, f"a time that never was in {wanted.zone}: the clock was set forward")
    return [*checks, Check(GAP, col(GAP_HERE), never)]


def _value_checks(names: list[str], raw: Raw, source: Source, wanted: Wanted) -> list[Check]:
    casts = {name: _cast_to(name, raw.types[name], wanted) for name in names}
    checks = [_cast_check(name, raw.types[name], kind) for name, kind in casts.items() if kind is not None]
    for name in names:
        if source.format == JSONL and isinstance(raw.types[name], T.DoubleType):
            # Numbers of JSON are finite. Those that a float does not hold are read as infinite ones.
            says = F.lit(f"{name}: got a number that is too large for a float")
            checks.append(Check(f"column {name}", is_infinite(col(name)), says))
    return checks


def is_infinite(value: Column) -> Column:
    return F.abs(value) == float("inf")


def _value(name: str, kind: T.DataType, wanted: Wanted) -> Column:
    declared = _cast_to(name, kind, wanted)
    return _text(name, kind, wanted) if declared is None else _cast(name, kind, declared)


def _text(name: str, kind: T.DataType, wanted: Wanted) -> Column:
    """The value as it is. Text is normalised as asked for."""
    value = col(name)
    if isinstance(kind, T.StringType) and wanted.trim:
        # F.trim takes spaces only. What is empty after this is null, as a field with nothing in it is.
        value = F.nullif(F.regexp_replace(value, r"^\s+|\s+$", ""), F.lit(""))
    if isinstance(kind, T.StringType) and wanted.lower and name in wanted.keys:
        value = F.lower(value)
    return value


def _cast_to(name: str, kind: T.DataType, wanted: Wanted) -> str | None:
    """The type that the user gave the column; None if there is none, or if the column has it already."""
    declared = wanted.declared(name)
    return None if declared is not None and TYPES[declared] == kind.simpleString() else declared


def _cast(name: str, kind: T.DataType, declared: str) -> Column:
    """The value in another type; null where it does not fit. A fraction does not fit a whole number, nor 1e400 a
    float."""
    value = F.expr(f"try_cast({quoted(name)} as {TYPES[declared]})")
    if declared == "int" and isinstance(kind, (T.DoubleType, T.FloatType, T.DecimalType)):
        return F.when(value == col(name), value)
    if declared == "float" and isinstance(kind, T.StringType):
        return F.when(~(is_infinite(value) & col(name).rlike(r"\d")), value)
    return value


def _cast_check(name: str, kind: T.DataType, declared: str) -> Check:
    given = col(name).isNotNull()
    if isinstance(kind, T.StringType):
        given = given & (F.trim(col(name)) != "")
    return Check(f"column {name}", given & _cast(name, kind, declared).isNull(), _got(name, f"wanted {declared}"))
