"""Raw columns -> a parsed time, typed columns and normalised keys, with every reason for which a row is put aside."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from mpijoin.pipeline.prepare.files import Source
from mpijoin.pipeline.prepare.options import PARQUET, TYPES, Wanted, kept_names
from mpijoin.pipeline.prepare.read import BLOCK, BROKEN, FILE, FOREIGN, ROW, Raw, col, quoted
from mpijoin.pipeline.prepare.times import in_zone, parsed

US, SUB = "__us", "__sub"  # microseconds since 1970 UTC; 0 to 999 ns beyond them
TWICE = "__twice"  # true: the clock showed this time twice that day
KINDS = "__kinds"  # array of what is wrong, one of `Clean.kinds` each; null: nothing
REASON = "__reason"  # the same in a sentence for each; null: nothing
RAW = "__raw"  # what the row looked like; null: nothing is wrong
CLOCK, LOCAL = "__clock", "__local"
LINE, ENCODING, TIME, GAP = "line", "encoding", "time", "time in the gap"
SHOWN = 80  # letters of a value in a reason


@dataclass(frozen=True)
class Check:
    """kind: what the report counts it under · fails: true or null/false by row · says: the sentence."""

    kind: str
    fails: Column
    says: Column


@dataclass(frozen=True)
class Clean:
    """frame: every row read, columns `names`, place and the columns above · untyped: text whose type is to be found out ·
    kinds: of what can be wrong with a row · is_ns: the source counts nanoseconds."""

    frame: DataFrame
    names: tuple[str, ...]
    untyped: tuple[str, ...]
    kinds: tuple[str, ...]
    is_ns: bool

    @property
    def good(self) -> DataFrame:
        return self.frame.where(col(REASON).isNull())

    @property
    def rejected(self) -> DataFrame:
        return self.frame.where(col(REASON).isNotNull())


def cleaned(raw: Raw, source: Source, wanted: Wanted) -> Clean:
    """Nothing runs yet. Raises JobError where the time's type does not fit the arguments."""
    # A filter may look at columns that are not kept.
    names = raw.names if wanted.where is not None else kept_names(wanted, raw.names)
    is_ns = source.format == PARQUET and wanted.time in source.ns_columns
    is_local = source.format == PARQUET and wanted.time in source.local_columns
    time = parsed(col(wanted.time), raw.types[wanted.time], wanted, is_ns, is_local)
    frame = raw.frame.withColumns({CLOCK: time.us, LOCAL: time.local, SUB: time.sub})
    zoned = in_zone(col(CLOCK), col(LOCAL), wanted.zone)
    frame = frame.withColumns({US: zoned.us, TWICE: zoned.twice, "__gap": zoned.gap})
    values = {name: _value(name, raw.types[name], wanted) for name in names if name != wanted.time}
    casts = {name: wanted.declared(name) for name in values if _is_cast(name, raw.types[name], wanted)}
    checks = [*_time_checks(wanted, time.wanted), *(_cast_check(name, raw.types[name], kind) for name, kind in casts.items())]
    checks.append(Check(ENCODING, col(FOREIGN), F.lit("encoding: bytes that are not UTF-8 (shown as Latin-1)")))
    kept = [*(values[name].alias(name) for name in values), *map(col, (FILE, BLOCK, ROW, US, SUB, TWICE))]
    frame = frame.select(*kept, *_verdict(checks), F.when(_is_bad(checks), raw.shown).alias(RAW))
    untyped = tuple(name for name in raw.untyped if name in values)
    return Clean(frame, tuple(names), untyped, (LINE, *dict.fromkeys(check.kind for check in checks)), time.is_ns)


def _is_bad(checks: list[Check]) -> Column:
    bad = col(BROKEN).isNotNull()
    for check in checks:
        bad = bad | F.coalesce(check.fails, F.lit(False))
    return bad


def _verdict(checks: list[Check]) -> list[Column]:
    """KINDS and REASON of bad rows. Of a line that is no row, nothing else is said: what its columns hold means nothing."""
    kinds = F.array_compact(F.array(*[F.when(check.fails, F.lit(check.kind)) for check in checks]))
    reason = F.concat_ws("; ", *[F.when(check.fails, check.says) for check in checks])
    broken = col(BROKEN).isNotNull()
    return [
        F.when(broken, F.array(F.lit(LINE))).when(_is_bad(checks), kinds).alias(KINDS),
        F.when(broken, col(BROKEN)).when(_is_bad(checks), reason).alias(REASON),
    ]


def _got(name: str, wanted: str) -> Column:
    shown = F.substring(col(name).cast("string"), 1, SHOWN)
    shown = F.coalesce(F.concat(F.lit("'"), shown, F.lit("'")), F.lit("nothing"))
    return F.concat(F.lit(f"{name}: got "), shown, F.lit(f", {wanted}"))


def _time_checks(wanted: Wanted, example: str) -> list[Check]:
    none = Check(TIME, col(US).isNull(), _got(wanted.time, f"wanted {example}"))
    gap = Check(GAP, col("__gap"), _got(wanted.time, f"a time that never was in {wanted.zone}: the clock was set forward"))
    return [none, gap]


def _value(name: str, kind: T.DataType, wanted: Wanted) -> Column:
    value = _text(name, kind, wanted)
    if not _is_cast(name, kind, wanted):
        return value
    return _cast(name, kind, wanted.declared(name))


def _text(name: str, kind: T.DataType, wanted: Wanted) -> Column:
    """As it is; text normalised as asked for."""
    value = col(name)
    if isinstance(kind, T.StringType) and wanted.trim:
        # \s and not F.trim, which takes spaces only; what is empty then, is as empty as a field with nothing in it.
        value = F.nullif(F.regexp_replace(value, r"^\s+|\s+$", ""), F.lit(""))
    if isinstance(kind, T.StringType) and wanted.lower and name in wanted.keys:
        value = F.lower(value)
    return value


def _is_cast(name: str, kind: T.DataType, wanted: Wanted) -> bool:
    declared = wanted.declared(name)
    return declared is not None and TYPES[declared] != kind.simpleString()


def _cast(name: str, kind: T.DataType, declared: str) -> Column:
    """Null where the value does not fit: fractions into whole numbers neither."""
    value = F.expr(f"try_cast({quoted(name)} as {TYPES[declared]})")
    if declared == "int" and isinstance(kind, (T.DoubleType, T.FloatType, T.DecimalType)):
        return F.when(value == col(name), value)
    return value


def _cast_check(name: str, kind: T.DataType, declared: str) -> Check:
    given = col(name).isNotNull()
    if isinstance(kind, T.StringType):
        given = given & (F.trim(col(name)) != "")
    return Check(f"column {name}", given & _cast(name, kind, declared).isNull(), _got(name, f"wanted {declared}"))
