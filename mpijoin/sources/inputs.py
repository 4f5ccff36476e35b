"""Which inputs a stream is read from, and whether they are still those that a run began with."""

from __future__ import annotations

import os
from typing import Sequence

import numpy as np

from mpijoin.config.job import FileSource, StreamJob, TableSource
from mpijoin.data.files import expand_files
from mpijoin.errors import InputError
from mpijoin.named import NamedTuple
from mpijoin.refusals import reading

RULE = "a run goes on only on the inputs it began with"


class InputFile(NamedTuple):
    """A file has a size in bytes and the time of its last change, in ns since 1970; a table has its rows and None."""

    path: str
    size: int
    modified_ns: int | None

    def __str__(self) -> str:
        if self.modified_ns is None:
            return f"{self.size} rows"
        return f"{self.size} bytes changed at {np.datetime64(self.modified_ns, 'ns')}"


def inputs_of(stream: StreamJob) -> list[InputFile]:
    """The stream's inputs in their order; none if it is synthetic, since its job says everything. Raises InputError."""
    source = stream.source
    if isinstance(source, FileSource):
        return [input_file(path) for path in expand_files(source.path)]
    return [InputFile(table_name(stream), source.table.num_rows, None)] if isinstance(source, TableSource) else []


def table_name(stream: StreamJob) -> str:
    """What messages call a table that is a stream's input."""
    return f"[{stream.section}] table"


def input_file(path: str) -> InputFile:
    """The file as it is now. Raises InputError."""
    with reading(path):
        found = os.stat(path)
    return InputFile(path, found.st_size, found.st_mtime_ns)


def check_inputs(stream: StreamJob, wanted: Sequence[InputFile]) -> None:
    """Raises InputError, naming the first file that differs, unless the stream's inputs are `wanted`."""
    try:
        found = {one.path: one for one in inputs_of(stream)}
    except InputError as error:
        raise InputError(f"{error}; {RULE}") from error
    for one in wanted:
        if found.get(one.path) != one:
            raise InputError(f"{one.path}: got {found.get(one.path, 'no such input')}, wanted {one}: {RULE}")
    for path in found.keys() - {one.path for one in wanted}:
        raise InputError(f"{path}: got {found[path]}, wanted no such input: {RULE}")
