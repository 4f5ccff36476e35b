"""An Arrow table as a stream: read as one file would be."""

from __future__ import annotations

from typing import Iterator, Sequence

import pyarrow as pa

from mpijoin.data.schema import Column
from mpijoin.sources.base import BLOCK_ROWS
from mpijoin.sources.files import check_columns


class TableReader:
    """A `Reader` over a table in memory; its blocks are views. Raises InputError when it has other columns."""

    def __init__(
        self, name: str, table: pa.Table, columns: Sequence[Column], block_rows: int = BLOCK_ROWS, skip_rows: int = 0
    ):
        check_columns(name, table.schema, columns)
        self._table = table.select([column.name for column in columns])
        self._block_rows = block_rows
        self._rows = self._skip_rows = skip_rows

    def blocks(self) -> Iterator[pa.RecordBatch]:
        for batch in self._table.slice(self._skip_rows).to_batches(max_chunksize=self._block_rows):
            self._rows += batch.num_rows
            yield batch

    def fraction(self) -> float:
        return min(1.0, self._rows / max(1, self._table.num_rows))

    def close(self) -> None:
        """Nothing is held open."""
