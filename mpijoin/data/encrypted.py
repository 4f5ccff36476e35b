"""Parquet files of which some columns are encrypted, while the footer is not."""

from __future__ import annotations

import os
from typing import Iterable

import pyarrow.parquet as pq

from mpijoin.errors import InputError
from mpijoin.refusals import reading

TAIL_BYTES = 8  # the length of the footer, and the magic number


def refuse_encrypted(path: str | os.PathLike[str], file: pq.ParquetFile, columns: Iterable[str]) -> None:
    """Raises InputError if one of the columns can only be read with a key. To ask for what the footer says of such a
    column ends the process, so this comes first. Other files pay for eight bytes."""
    metadata = file.metadata
    if metadata.num_row_groups == 0 or _footer_bytes(path) == metadata.serialized_size:
        return
    # A signature follows the footer, as only files with encrypted columns have.
    for name in columns:
        needs_key = f"{path}: column {name!r} is encrypted: wanted columns that need no key"
        with reading(path, lambda _: InputError(needs_key)):
            next(file.iter_batches(1, row_groups=[0], columns=[name], use_threads=False), None)


def _footer_bytes(path: str | os.PathLike[str]) -> int:
    with open(path, "rb") as file:
        file.seek(-TAIL_BYTES, os.SEEK_END)
        return int.from_bytes(file.read(4), "little")
