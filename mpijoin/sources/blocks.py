"""Blocks of bounded size. Rows are cut by the memory that they take once decoded, since 65,536 of them may take two
megabytes or a thousand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Sequence

import pyarrow as pa

from mpijoin.data.arrow import decoded_bytes, is_variable, width_bytes
from mpijoin.data.schema import Column
from mpijoin.data.types import decoded
from mpijoin.sources.base import BLOCK_BYTES, BLOCK_ROWS

# Where only decoding tells what rows take: so many at first, at most so many times as many as before, and never more
# than so many, since any row may be the first of wide ones. Decoding is as fast at 2^14 rows at a time as at 2^16.
FIRST_ROWS, GROWTH, UNKNOWN_ROWS_MAX = 1 << 10, 8, 1 << 14


@dataclass
class BlockLimit:
    """How large a block may be: a number of rows, and about a number of bytes of decoded columns. A single row may be
    larger. ahead: how many blocks of a file may be decoded before they are taken.

    Whoever reads may change the limit at any time, for the blocks to come.
    """

    rows: int = BLOCK_ROWS
    octets: int = BLOCK_BYTES
    ahead: int = 0

    def rows_of(self, row_bytes: int) -> int:
        """Rows of a block when each takes so many bytes; at least one.

        >>> BlockLimit(1000, 4096).rows_of(16), BlockLimit(1000, 4096).rows_of(5000)
        (256, 1)
        """
        return max(1, min(self.rows, self.octets // max(1, row_bytes)))


def batch_bytes(batch: pa.RecordBatch) -> int:
    """Bytes of its columns once decoded."""
    return sum(decoded_bytes(column) for column in batch.columns)


def pieces(batch: pa.RecordBatch, limit: BlockLimit) -> Iterator[pa.RecordBatch]:
    """Consecutive views within the limit."""
    start, rows = 0, limit.rows
    while start < batch.num_rows:
        piece = batch.slice(start, min(rows, limit.rows))
        while piece.num_rows > 1 and batch_bytes(piece) > limit.octets:
            piece = piece.slice(0, piece.num_rows // 2)
        yield piece
        start += piece.num_rows
        rows = 2 * piece.num_rows


class Steps:
    """How many rows to decode next, where their size is known only afterwards."""

    def __init__(self, limit: BlockLimit, columns: Sequence[Column]):
        self._limit = limit
        kinds = [decoded(column.type) for column in columns]
        self._row_bytes = sum(width_bytes(kind) for kind in kinds if not is_variable(kind))
        self._is_known = not any(map(is_variable, kinds))
        self._rows_max = FIRST_ROWS

    def next_rows(self, row_bytes: int) -> int:
        """row_bytes: what the file itself says about the size of the next rows, 0 if it says nothing."""
        fitting = self._limit.rows_of(max(self._row_bytes, row_bytes))
        return fitting if self._is_known else min(self._rows_max, fitting)

    def decoded(self, batch: pa.RecordBatch) -> None:
        """These rows have been decoded."""
        if self._is_known:
            return
        self._row_bytes = -(-batch_bytes(batch) // max(1, batch.num_rows))
        self._rows_max = min(UNKNOWN_ROWS_MAX, GROWTH * max(1, batch.num_rows))
