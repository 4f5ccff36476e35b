"""An Arrow table as a stream. It is read as one file would be."""

from __future__ import annotations

from typing import Iterator, Sequence

import pyarrow as pa

from mpijoin.data.schema import Column
from mpijoin.sources.blocks import BlockLimit, pieces
from mpijoin.sources.files import check_columns
from mpijoin.sources.ranges import ALL_ROWS, Ranges, RowRange


class TableReader:
    """A `Reader` over a table in memory; its blocks are views. Raises InputError when it has other columns."""

    def __init__(
        self,
        name: str,
        table: pa.Table,
        columns: Sequence[Column],
        limit: BlockLimit,
        rows: Sequence[RowRange] = ALL_ROWS,
    ):
        check_columns(name, table.schema, columns)
        self._table = table.select([column.name for column in columns])
        self._limit = limit
        self._ranges = Ranges(rows)
        self._rows = self._ranges.first

    def blocks(self) -> Iterator[pa.RecordBatch]:
        for start, stop in self._ranges.ranges:
            length = None if stop is None else stop - start
            for batch in self._table.slice(start, length).to_batches():
                for block in pieces(batch, self._limit):
                    self._rows += block.num_rows
                    yield block

    def fraction(self) -> float:
        return min(1.0, self._rows / max(1, self._table.num_rows))

    def close(self) -> None:
        """Nothing is held open."""
