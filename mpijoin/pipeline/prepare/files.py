"""The raw files: which there are, of which format, and what their heads say. They are looked at before Spark starts."""

from __future__ import annotations

import csv
import glob
import io
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from mpijoin.config.units import show
from mpijoin.data.files import decoding, first_line
from mpijoin.errors import InputError
from mpijoin.pipeline.prepare.options import CSV, FORMATS, JSONL, OWN_PREFIX, PARQUET, Wanted
from mpijoin.pipeline.prepare.packed import PACKED, unpacked

SUFFIXES = {
    ".csv": CSV,
    ".tsv": CSV,
    ".jsonl": JSONL,
    ".ndjson": JSONL,
    ".json": JSONL,
    ".parquet": PARQUET,
    ".pq": PARQUET,
}
TABBED = ".tsv"
HEAD_MAX = 16 << 20
ARRAY_HINT = (
    "; {path} begins with '[', as one JSON array does: wanted one object in each line, such as jq -c '.[]' makes of it"
)
READERS = 16


@dataclass(frozen=True)
class Source:
    """The raw files. format: one of FORMATS · paths: files that hold something, sorted · empty: those that hold nothing
    · names: of the columns; () for JSON lines, whose columns are known only after a look at all rows · headers: lines
    that name the columns of CSV · hint: what may be wrong with lines that cannot be used · ns_columns: Parquet's
    timestamps in ns · local_columns: Parquet's timestamps without a zone · delimiter: of CSV."""

    format: str
    paths: tuple[str, ...]
    empty: tuple[str, ...]
    bytes: int
    names: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    hint: str = ""
    ns_columns: tuple[str, ...] = ()
    local_columns: tuple[str, ...] = ()
    delimiter: str = ","


def find_source(wanted: Wanted) -> Source:
    """All files that the arguments mean. Their heads have been read, and agree. Raises InputError, which names the file
    that is wrong."""
    paths = sorted({os.path.abspath(path) for raw in wanted.raw for path in _expand(raw, wanted.format)})
    kind = wanted.format or _one_format(paths)
    with ThreadPoolExecutor(READERS) as pool:
        if kind == PARQUET:
            return _parquet_source(paths, list(pool.map(_schema, paths)))
        heads = list(pool.map(head_line, paths))
    full = [path for path, head in zip(paths, heads) if head]
    empty = tuple(path for path, head in zip(paths, heads) if not head)
    size = sum(map(os.path.getsize, paths))
    if not full:
        raise InputError(f"{_several(paths)}: nothing in them, wanted rows")
    heads = [head for head in heads if head]
    if kind == CSV:
        delimiter = wanted.delimiter or _delimiter(full)
        names = _csv_names(full, heads, delimiter)
        return Source(kind, tuple(full), empty, size, names, headers=tuple(sorted(set(heads))), delimiter=delimiter)
    arrays = [path for path, head in zip(full, heads) if head.lstrip().startswith("[")]
    return Source(kind, tuple(full), empty, size, hint=ARRAY_HINT.format(path=arrays[0]) if arrays else "")


def _expand(raw: str, kind: str | None) -> list[str]:
    """The files of one argument. A file is taken as it is; of folders and globs all files with a known suffix are, but
    hidden ones."""
    if os.path.isfile(raw):
        if os.path.basename(raw).startswith(("_", ".")):
            raise InputError(f"{raw}: begins with '_' or '.', which means a hidden file to Spark: wanted another name")
        return [raw]
    pattern = os.path.join(glob.escape(raw), "*") if os.path.isdir(raw) else raw
    found = [path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)]
    found = [path for path in found if not os.path.basename(path).startswith(("_", "."))]
    found = [path for path in found if kind is not None or _format(path) is not None]
    if not found:
        wanted = (
            "files" if kind else f"files that end with {' '.join(SUFFIXES)} (.gz or .bz2 behind it too), or --format"
        )
        raise InputError(f"{raw}: no such file, or none of that kind in it, wanted {wanted}")
    return found


def _format(path: str) -> str | None:
    return SUFFIXES.get(_plain_suffix(path))


def _plain_suffix(path: str) -> str:
    """The suffix of a file; of a packed one, that of what is packed."""
    stem, suffix = os.path.splitext(path.lower())
    return os.path.splitext(stem)[1] if suffix in PACKED else suffix


def _one_format(paths: Sequence[str]) -> str:
    first_of: dict[str, str] = {}
    for path in paths:
        kind = _format(path)
        if kind is None:
            raise InputError(f"{path}: its suffix tells no format, wanted --format with one of {' '.join(FORMATS)}")
        first_of.setdefault(kind, path)
    if len(first_of) > 1:
        found = ", ".join(f"{kind} ({path})" for kind, path in first_of.items())
        raise InputError(f"got files of several formats, {found}, wanted one")
    return next(iter(first_of))


def _delimiter(paths: Sequence[str]) -> str:
    """A tab if the files are called .tsv, else a comma."""
    first_of = {_plain_suffix(path) == TABBED: path for path in reversed(paths)}
    if len(first_of) > 1:
        raise InputError(
            f"{first_of[True]} and {first_of[False]}: one is called {TABBED}, one not: wanted --delimiter, for both"
        )
    return "\t" if True in first_of else ","


def _several(paths: Sequence[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


def head_line(path: str) -> str:
    """The first line that is not blank, without a byte order mark; "" where there is none."""
    try:
        with unpacked(path) as file, io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline=None) as text:
            line = "\n"
            while line and not line.strip():
                line = text.readline(HEAD_MAX)
    except (OSError, EOFError, UnicodeError) as error:
        raise InputError(f"{path}: cannot be read: {first_line(error)}") from error
    return line.rstrip("\n")


def _csv_names(paths: Sequence[str], heads: Sequence[str], delimiter: str) -> tuple[str, ...]:
    first = _header(paths[0], heads[0], delimiter)
    for path, head in zip(paths, heads):
        if head != heads[0] and _header(path, head, delimiter) != first:
            raise InputError(f"{path}: its header is {show(head)}, wanted the same as in {paths[0]}: {show(heads[0])}")
    return first


def _header(path: str, head: str, delimiter: str) -> tuple[str, ...]:
    try:
        head.encode("utf-8")
        names = tuple(
            name.strip() for name in next(csv.reader([head], delimiter=delimiter, skipinitialspace=delimiter != " "))
        )
    except (UnicodeEncodeError, csv.Error) as error:
        raise InputError(
            f"{path}: its first line is no header in UTF-8: {error}, wanted the names of the columns"
        ) from error
    # pandas writes its index in a column without a name.
    return _checked(path, tuple(name or f"column{number}" for number, name in enumerate(names, 1)))


def _checked(path: str, names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not name.strip() or names.count(name) > 1 or name.startswith(OWN_PREFIX) or "\0" in name:
            wanted = f"names that are not empty, not twice there and do not begin with {OWN_PREFIX}"
            raise InputError(f"{path}: its header has a column named {show(name)}, wanted {wanted}")
    return names


def _schema(path: str) -> pa.Schema:
    with decoding(path):
        return pq.read_schema(path)


def _parquet_source(paths: Sequence[str], schemas: Sequence[pa.Schema]) -> Source:
    first = [(field.name, field.type) for field in schemas[0]]
    for path, schema in zip(paths, schemas):
        if differing := {(field.name, field.type) for field in schema} ^ set(first):
            name, kind = min(differing, key=str)
            raise InputError(f"{path}: its columns are not those of {paths[0]}: {name} ({kind}) is only in one of them")
    names = _checked(paths[0], tuple(name for name, _ in first))
    stamps = [(name, kind) for name, kind in first if pa.types.is_timestamp(kind)]
    return Source(
        PARQUET,
        tuple(paths),
        (),
        sum(map(os.path.getsize, paths)),
        names,
        ns_columns=tuple(name for name, kind in stamps if kind.unit == "ns"),
        local_columns=tuple(name for name, kind in stamps if kind.tz is None),
    )


def spark_path(path: str) -> str:
    """The path, with a backslash before each letter that Spark would take for part of a glob."""
    return "".join("\\" + letter if letter in "{}[]*?\\" else letter for letter in path)
