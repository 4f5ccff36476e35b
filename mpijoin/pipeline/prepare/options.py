"""What a call of `mpijoin prepare` wants, checked as far as its arguments alone allow."""

from __future__ import annotations

import argparse
import os
import re
import zoneinfo
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

from mpijoin.config.units import show
from mpijoin.errors import JobError
from mpijoin.pipeline.aside import is_empty

CSV, JSONL, PARQUET = "csv", "jsonl", "parquet"
FORMATS = (CSV, JSONL, PARQUET)
UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
TYPES = {"int": "bigint", "float": "double", "string": "string", "bool": "boolean", "date": "date"}  # ours -> Spark's
PATTERN_EXAMPLE = "yyyy-MM-dd HH:mm:ss.SSS"
US, NS = "us", "ns"
PRECISIONS = ("auto", US, NS)
# What a call leaves in its folder: two folders with parts, and what was found.
DATA, REJECTED, REPORT = "data", "rejected", "report.json"
PART_NAME = r"part-\d+\.parquet"
OTHER_DELIMITERS = (";", "\t", "|")
OWN_PREFIX = "__"  # of columns that live only inside this command


@dataclass(frozen=True)
class Wanted:
    """What a call wants. raw: files, folders, globs · folder: of the output · unit: of a time that is a number ·
    columns: name -> one of TYPES, or None if the type is to be found out; None for all columns · precision: of the
    times written, one of PRECISIONS · share: of the rows that a suggested lateness covers, 0 to 1 · max_rejected: share
    of the rows that may be put aside, 0 to 1."""

    raw: tuple[str, ...]
    folder: Path
    time: str
    time_format: str | None = None
    zone: str | None = None
    unit: str | None = None
    keys: tuple[str, ...] = ()
    columns: dict[str, str | None] | None = None
    format: str | None = None
    delimiter: str | None = None  # None: as the files are called
    multiline: bool = False
    where: str | None = None
    dedup: bool = False
    dedup_on: tuple[str, ...] = ()
    trim: bool = False
    lower: bool = False
    precision: str = "auto"
    share: float = 0.999
    max_rejected: float = 0.1
    rows_per_file: int = 4_000_000
    overwrite: bool = False

    def declared(self, name: str) -> str | None:
        """The type that the user gave a column, one of TYPES; None if there is none."""
        return (self.columns or {}).get(name)


def wanted_of(options: argparse.Namespace) -> Wanted:
    """What the parsed arguments want. Raises JobError with all that is wrong with them."""
    faults: list[str] = []
    wanted = Wanted(
        raw=tuple(options.raw),
        folder=Path(os.path.abspath(options.output)),
        time=options.time,
        time_format=options.time_format,
        zone=options.zone,
        unit=options.unit,
        keys=_names("--key", options.key, faults),
        columns=_columns(options.columns, faults),
        format=options.format,
        delimiter="\t" if options.delimiter == "\\t" else options.delimiter,
        multiline=options.multiline,
        where=options.where,
        dedup=options.dedup,
        dedup_on=_names("--dedup-on", options.dedup_on, faults),
        trim=options.trim,
        lower=options.lower,
        precision=options.precision,
        share=options.lateness_share,
        max_rejected=options.max_rejected,
        rows_per_file=options.rows_per_file,
        overwrite=options.overwrite,
    )
    faults += [*_time_faults(wanted), *_other_faults(wanted)]
    if faults:
        raise JobError(faults)
    return wanted


def _names(field: str, text: str | None, faults: list[str]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",")) if text is not None else ()
    if not all(names) or len(set(names)) < len(names):
        faults.append(f"{field}: got {show(text)}, wanted names of different columns, with commas between them")
    return names


def _columns(text: str | None, faults: list[str]) -> dict[str, str | None] | None:
    if text is None:
        return None
    found: dict[str, str | None] = {}
    for part in text.split(","):
        before, colon, last = part.strip().rpartition(":")
        name, kind = (before, last.strip()) if colon else (last, None)
        if kind is not None and kind not in TYPES:
            faults.append(f"--columns: {name} has type {show(kind)}, wanted one of {' '.join(TYPES)}")
        if not name or name in found:
            faults.append(
                f"--columns: got {show(text)}, wanted NAME or NAME:TYPE, each name once, with commas between them"
            )
            break
        found[name] = kind
    return found


def _time_faults(wanted: Wanted) -> Iterator[str]:
    pattern = wanted.time_format
    if pattern is not None and wanted.unit is not None:
        yield "--time-format and --unit: got both; a time is a text with a format or a number with a unit"
    if pattern is not None and ("%" in pattern or not pattern.strip()):
        yield (
            f"--time-format: got {show(pattern)}, wanted letters as in Java's patterns, such as {show(PATTERN_EXAMPLE)}"
        )
    elif pattern is not None and re.search("S{7}", pattern):
        yield f"--time-format: got {show(pattern)}: finer than 1 us only without a format (ISO 8601) or with --unit"
    if wanted.zone is not None and not _is_zone(wanted.zone):
        yield f'--zone: got {show(wanted.zone)}, wanted a time zone such as "Europe/Rome" or "+02:00"'


def _is_zone(zone: str) -> bool:
    if re.fullmatch(r"[+-](0\d|1[0-8]):[0-5]\d|UTC|Z", zone):
        return True
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _other_faults(wanted: Wanted) -> Iterator[str]:
    if wanted.time in wanted.keys:
        yield f"--key: {wanted.time} is the time, wanted other columns"
    if wanted.declared(wanted.time) is not None:
        yield (
            f"--columns: {wanted.time} is the time and gets its type from --time-format or --unit, wanted no type here"
        )
    if wanted.delimiter is not None and (len(wanted.delimiter) != 1 or wanted.delimiter in '"\r\n'):
        yield f"--delimiter: got {show(wanted.delimiter)}, wanted one character that is no quote and ends no line"
    if wanted.dedup and wanted.dedup_on:
        yield "--dedup and --dedup-on: got both, wanted one: all columns count, or those named"
    if not 0 < wanted.share <= 1:
        yield f"--lateness-share: got {wanted.share:g}, wanted more than 0 and at most 1"
    if not 0 <= wanted.max_rejected <= 1:
        yield f"--max-rejected: got {wanted.max_rejected:g}, wanted a share of the rows, 0 to 1"
    if wanted.rows_per_file < 1:
        yield f"--rows-per-file: got {wanted.rows_per_file}, wanted at least 1"
    if wanted.folder.exists() and not wanted.folder.is_dir():
        yield f"-o {wanted.folder}: is a file, wanted a folder"
    elif not is_empty(wanted.folder) and not wanted.overwrite:
        yield f"-o {wanted.folder}: is not empty: choose another, or replace what is in it with --overwrite"


def column_faults(wanted: Wanted, names: list[str]) -> Iterator[str]:
    """A fault for each column that the arguments name and the input does not have."""
    asked = {"--time": (wanted.time,), "--key": wanted.keys, "--columns": tuple(wanted.columns or ())}
    kept = names if wanted.columns is None else kept_names(wanted, names)
    for field, asked_names in asked.items():
        for name in asked_names:
            if name not in names:
                yield f"{field}: got {show(name)}, wanted one of the columns {_listed(names)}"
    for name in wanted.dedup_on:
        if name not in kept:
            yield f"--dedup-on: got {show(name)}, wanted columns that are kept: {_listed(kept)}"


def _listed(names: list[str]) -> str:
    parted = [sign for sign in OTHER_DELIMITERS if len(names) == 1 and sign in names[0]]
    hint = f": a single one, or --delimiter {show(parted[0])}?" if parted else ""
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "") + hint


def asked_names(wanted: Wanted) -> tuple[str, ...]:
    """The columns that the arguments name, each once."""
    return tuple(dict.fromkeys((wanted.time, *wanted.keys, *(wanted.columns or ()), *wanted.dedup_on)))


def kept_names(wanted: Wanted, names: list[str]) -> list[str]:
    """The columns of the output in the input's order: those asked for, and always time and key. The command's own are
    never among them."""
    names = [name for name in names if not name.startswith(OWN_PREFIX)]
    asked = names if wanted.columns is None else wanted.columns
    return [name for name in names if name in asked or name == wanted.time or name in wanted.keys]
