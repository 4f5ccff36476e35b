"""What was found and written: as report.json, and in words with the part of a job that reads it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Iterator

from mpijoin.config.units import format_duration, format_size, plural
from mpijoin.pipeline.prepare.files import Source
from mpijoin.pipeline.prepare.options import DATA, REJECTED, Wanted
from mpijoin.pipeline.prepare.order import Disorder
from mpijoin.pipeline.prepare.rejected import Rejected
from mpijoin.pipeline.prepare.scan import Scan, Standing
from mpijoin.pipeline.prepare.write import Part

PART_FIELDS = ("file", "rows", "bytes", "first", "last")
NO_KEYS = ("double", "float", "decimal")  # Types of Spark that begin so are no keys of a join.
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Report:
    """All that a call learnt. types: of the columns written, in order, as Spark names them · nulls: in these
    columns."""

    wanted: Wanted
    source: Source
    found: Scan
    left: Standing
    aside: Rejected
    order: Disorder
    types: dict[str, str]
    nulls: dict[str, int]
    parts: tuple[Part, ...]

    @property
    def written(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def duplicates(self) -> int:
        return self.left.rows - self.written

    @property
    def repeated_headers(self) -> int:
        """How many lines of CSV name the columns once more, as where files were put together. They are no rows."""
        return max(self.found.headers - len(self.source.paths), 0)

    @property
    def filtered(self) -> int:
        return self.found.rows - self.aside.rows - self.left.rows

    def moment(self, time: int | None) -> str | None:
        """A time of the output in ISO 8601, to the microsecond. One that the calendar of Python does not know, such as
        the last day of 9999 in another zone, is given in microseconds."""
        if time is None:
            return None
        microseconds = time * self.left.unit_ns // 1000
        try:
            return (EPOCH + timedelta(microseconds=microseconds)).isoformat()
        except OverflowError:
            return f"{microseconds} us"


def as_json(report: Report) -> str:
    found, order, wanted = report.found, report.order, report.wanted
    document = {
        "input": _input(report),
        "rows": {
            "read": found.rows,
            "rejected": report.aside.rows,
            "filtered": report.filtered,
            "duplicates": report.duplicates,
            "written": report.written,
        },
        "rejected": report.aside.kinds,
        "columns": {name: _column(report, name, kind) for name, kind in report.types.items()},
        "time": {
            "column": wanted.time,
            "unit": "ns" if report.left.unit_ns == 1 else "timestamp in us",
            "zone": wanted.zone or "UTC",
            "first": report.moment(report.parts[0].first),
            "last": report.moment(report.parts[-1].last),
            "finer_than_us": report.left.finer,
            "ambiguous": found.twice,
        },
        "disorder": {
            "rows": order.behind,
            "lateness_ns": {
                "share": wanted.share,
                "of_share": order.share_lag,
                "of_all": order.all_lag,
            },
            "worst_files": [{"file": file, "rows": rows, "lateness_ns": lag} for file, rows, lag in order.files],
        },
        "files": [{name: getattr(part, name) for name in PART_FIELDS} for part in report.parts],
    }
    return json.dumps(document, indent=1) + "\n"


def _input(report: Report) -> dict[str, Any]:
    source = report.source
    files = {"files": len(source.paths) + len(source.empty), "empty_files": len(source.empty)}
    return {"format": source.format, **files, "bytes": source.bytes, "repeated_headers": report.repeated_headers}


def _column(report: Report, name: str, kind: str) -> dict[str, Any]:
    told = {"type": kind, "nulls": report.nulls[name], "found_out": name in report.found.types}
    if name in report.found.misfits:
        nearly, misfits = report.found.misfits[name]
        told |= {"nearly": nearly, "misfits": misfits}
    return told


def as_text(report: Report) -> str:
    return "\n".join([*_rows_lines(report), *_column_lines(report), *_time_lines(report), "", section(report)])


def _rows_lines(report: Report) -> Iterator[str]:
    source, found = report.source, report.found
    empty = f" ({len(source.empty):,} of them empty)" if source.empty else ""
    files = plural(len(source.paths) + len(source.empty), "file") + empty
    yield f"read       {found.rows:>15,}  rows of {files}, {format_size_about(source.bytes)}"
    if report.repeated_headers:
        yield f"headers    {report.repeated_headers:>15,}  lines that name the columns once more: left out"
    if report.aside.rows:
        kinds = ", ".join(f"{kind} {rows:,}" for kind, rows in report.aside.kinds.items() if rows)
        yield f"rejected   {report.aside.rows:>15,}  {kinds}; in {report.wanted.folder / REJECTED}, such as"
        yield f"{'':>28}{report.aside.example}"
    if report.wanted.where is not None:
        yield f"filtered   {report.filtered:>15,}  by --where"
    if report.wanted.dedup or report.wanted.dedup_on:
        yield f"duplicates {report.duplicates:>15,}"
    files, size = plural(len(report.parts), "file"), format_size_about(sum(part.bytes for part in report.parts))
    yield f"written    {report.written:>15,}  rows in {files}, {size}"


def format_size_about(size: int) -> str:
    """A size with three digits, which are enough for a reader.

    >>> format_size_about(1_234_567), format_size_about(999)
    ('1.23 MB', '999 B')
    """
    for unit, per in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size >= per:
            return f"{size / per:.3g} {unit}"
    return format_size(size)


def _column_lines(report: Report) -> Iterator[str]:
    yield ""
    width = max(map(len, report.types))
    for name, kind in report.types.items():
        role = "time" if name == report.wanted.time else "key" if name in report.wanted.keys else ""
        nulls = report.nulls[name]
        note = plural(nulls, "null") + (": these rows match nothing" if role == "key" else "") if nulls else ""
        if name in report.source.ns_columns and not role:
            note = f"nanoseconds since 1970, which Spark has no timestamps for; {note}".removesuffix("; ")
        if name in report.found.misfits:
            nearly, misfits = report.found.misfits[name]
            spoilt = f"all but {plural(misfits, 'value')} would be {nearly}: --columns {name}:{nearly} puts those aside"
            note = f"{spoilt}; {note}".removesuffix("; ")
        if role == "key" and kind.startswith(NO_KEYS):
            advice = f"--columns {name}:int or {name}:string makes it a key"
            note = f"a join takes no {kind} for a key: {advice}; {note}".removesuffix("; ")
        guess = "found out" if name in report.found.types else ""
        yield f"{name:<{width}}  {kind:<12} {guess:<10} {role:<5} {note}".rstrip()


def _time_lines(report: Report) -> Iterator[str]:
    found, left, order, wanted = report.found, report.left, report.order, report.wanted
    yield ""
    if report.written:
        first, last = report.moment(report.parts[0].first), report.moment(report.parts[-1].last)
        yield f"time       {first} to {last}; {wanted.zone or 'UTC'} where no offset is with it"
    if left.first_finer is not None and wanted.precision == "auto":
        path, line = found.pieces.line(*left.first_finer)
        place = f"the first in {path}:{line}"
        yield f"           {left.finer:,} times are finer than 1 us, {place}: all are written as int64 nanoseconds"
        yield "           (--precision us or ns says which, whatever the rows hold)"
    if found.twice:
        yield f"           {found.twice:,} are in an hour that came twice: taken as its first"
    if not order.behind:
        yield "disorder   none: each file was in order of time"
        return
    yield (
        f"disorder   {plural(order.behind, 'row')} came after a newer one of the file; as it was, the input would have"
        " needed"
    )
    yield f"           lateness = \"{format_duration(order.share_lag)}\" for {100 * wanted.share:g} % of its rows"
    yield f"           lateness = \"{format_duration(order.all_lag)}\" for all, because of {order.files[0][0]}"


def section(report: Report) -> str:
    """The part of a job that reads what was written."""
    wanted = report.wanted
    lines = [
        "[left]                          # or [right], or [streams.NAME] of a job with more streams",
        f"path = {_toml(str(wanted.folder / DATA))}",
        f"time = {_toml(wanted.time)}",
        *(['time_unit = "ns"'] if report.left.unit_ns == 1 else []),
        f"key = {_key(wanted.keys)}",
        'window = "20 s"                 # yours to say: how long a row of this stream waits for partners',
        'lateness = "0 s"                # the files are in order of time',
    ]
    return "\n".join(lines)


def _key(keys: tuple[str, ...]) -> str:
    if not keys:
        return '"..."                     # yours to say: a column or a list of columns'
    return _toml(keys[0]) if len(keys) == 1 else f"[{', '.join(map(_toml, keys))}]"


def _toml(text: str) -> str:
    # Strings of JSON are strings of TOML.
    return json.dumps(text, ensure_ascii=False)
