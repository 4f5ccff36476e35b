"""Which files a path means, which format each has, and which columns it holds, without reading its rows.

Errors are `InputError`s that name the path, what was found and what was wanted.
"""

from __future__ import annotations

import glob
import os
import stat
from contextlib import contextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from mpijoin.data.types import NAMED_TYPES
from mpijoin.errors import InputError
from mpijoin.limits import too_many_files
from mpijoin.refusals import reading

PARQUET, IPC, CSV = "Parquet", "Arrow IPC", "CSV"
FORMATS = {".parquet": PARQUET, ".arrow": IPC, ".ipc": IPC, ".feather": IPC, ".csv": CSV, ".csv.gz": CSV}
IPC_FILE_MAGIC = b"ARROW1"
NO_TYPES: Mapping[str, str] = MappingProxyType({})


def file_format(path: str) -> str:
    """`PARQUET`, `IPC` or `CSV`, told by the extension alone.

    >>> file_format("picks.feather")
    'Arrow IPC'
    """
    extension = _extension(path)
    if extension not in FORMATS:
        raise InputError(f"{path}: got extension {extension!r}, wanted one of {' '.join(FORMATS)}")
    return FORMATS[extension]


def _extension(path: str) -> str:
    """The extension that tells the format; of a compressed file together with the one before."""
    name, last = os.path.splitext(os.path.basename(path).lower())
    return os.path.splitext(name)[1] + last if last == ".gz" else last


def expand_files(path: str) -> list[str]:
    """The files that a file name, a folder or a glob stands for, sorted by path.

    A folder means the data files directly inside, hidden and `_`-prefixed ones left out. Raises InputError when
    there is none, when they are of more than one format, or when a name is not in UTF-8.
    """
    files = _files(path)
    for file in files:
        try:
            file.encode()
        except UnicodeEncodeError as error:
            told = file.encode("utf-8", "backslashreplace").decode()
            raise InputError(f"{told}: got a name that is not in UTF-8: rename the file") from error
    return files


def _files(path: str) -> list[str]:
    if os.path.isfile(path):
        file_format(path)
        return [path]
    if os.path.isdir(path):
        return _one_format(path, _folder_files(path))
    if not glob.has_magic(path):
        there = _mode(path)
        raise InputError(f"{path}: {'neither a file nor a folder' if there else 'no such file or folder'}")
    return _one_format(path, filter(_is_file, glob.iglob(path, recursive=True)))


def _folder_files(folder: str) -> list[str]:
    with reading(folder):
        names = os.listdir(folder)
    paths = (os.path.join(folder, name) for name in names if not name.startswith((".", "_")))
    return [path for path in paths if _is_file(path)]


def _is_file(path: str) -> bool:
    return stat.S_ISREG(_mode(path))


def _mode(path: str) -> int:
    """What the system says of a path, 0 if there is nothing. Raises InputError if it may not be looked at, which
    os.path.isfile does not tell from that."""
    with reading(path), suppress(FileNotFoundError, NotADirectoryError):
        return os.stat(path).st_mode
    return 0


def _one_format(path: str, candidates: Iterable[str]) -> list[str]:
    files = sorted(file for file in candidates if _extension(file) in FORMATS)
    if not files:
        raise InputError(f"{path}: no data files there, wanted at least one of {' '.join(FORMATS)}")
    first_of: dict[str, str] = {}
    for file in files:
        first_of.setdefault(file_format(file), file)
    if len(first_of) > 1:
        found = ", ".join(f"{name} ({os.path.basename(file)})" for name, file in first_of.items())
        raise InputError(f"{path}: got files of several formats, {found}, wanted one format")
    return files


def stream_schema(files: Sequence[str], types: Mapping[str, str]) -> pa.Schema:
    """Returns the columns of a stream of several files. They are those of the first file; in CSV files, a column
    without values there has its type from the next file with a value. types: as for `file_schema`. Raises
    InputError."""
    schema = file_schema(files[0], types)
    if file_format(files[0]) != CSV or not any(map(pa.types.is_null, schema.types)):
        return schema
    return joint_schema([schema, *(file_schema(path, types) for path in files[1:])])


def joint_schema(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The first schema's columns. A column without values there has its type from the next schema that has one."""

    def typed(field: pa.Field) -> pa.Field:
        found = (one.field(field.name) for one in schemas if one.names.count(field.name) == 1)
        return next((one for one in found if not pa.types.is_null(one.type)), field)

    return pa.schema([field if not pa.types.is_null(field.type) else typed(field) for field in schemas[0]])


def file_schema(path: str, types: Mapping[str, str] = NO_TYPES) -> pa.Schema:
    """Returns the columns of one file: from a Parquet footer, an IPC header, or what the first rows of a CSV file
    suggest.

    types: of columns of a CSV file, by name, as a job gives them; names that the file lacks are ignored. For the other
    columns, the reader must force the types found here on all rows of all files. Raises InputError.
    """
    readers: dict[str, Callable[[str], pa.Schema]] = {
        PARQUET: _parquet_schema,
        IPC: _ipc_schema,
        CSV: partial(_csv_schema, types),
    }
    with decoding(path):
        return readers[file_format(path)](path)


@contextmanager
def decoding(path: str) -> Iterator[None]:
    """Turns what a library says of a file that it cannot read into an InputError that names the file and its format."""
    try:
        yield
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as {file_format(path)}: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """What an exception says, without the library's own trace below it."""
    return too_many_files(error) or (str(error).strip() or type(error).__name__).splitlines()[0]


def _parquet_schema(path: str) -> pa.Schema:
    import pyarrow.parquet

    return pyarrow.parquet.read_schema(path)


def _csv_schema(types: Mapping[str, str], path: str) -> pa.Schema:
    from mpijoin.data.csv_text import csv_schema

    return csv_schema(path, {name: NAMED_TYPES[kind] for name, kind in types.items() if kind in NAMED_TYPES})


def _ipc_schema(path: str) -> pa.Schema:
    with pa.OSFile(path) as file, open_ipc(file) as reader:
        return reader.schema


def open_ipc(file: pa.NativeFile) -> pa.RecordBatchFileReader | pa.RecordBatchStreamReader:
    """Makes a reader for an opened Arrow IPC file, whichever of its two layouts (file, stream) it has."""
    magic = file.read(len(IPC_FILE_MAGIC))
    file.seek(0)
    return pa.ipc.open_file(file) if magic == IPC_FILE_MAGIC else pa.ipc.open_stream(file)


def count_rows(files: list[str]) -> int | None:
    """The rows of all files together, if their footers tell (Parquet); otherwise None, since counting would mean
    reading."""
    if any(file_format(file) != PARQUET for file in files):
        return None
    import pyarrow.parquet

    return sum(pyarrow.parquet.read_metadata(file).num_rows for file in files)
