"""Each slave writes its own results as Parquet part files."""

from __future__ import annotations

from pathlib import Path

from mpijoin.operators.base import Out, Rows
from mpijoin.records import PartInfo
from mpijoin.sinks.parts import ROW_GROUP_BYTES, ROW_GROUP_ROWS, PartWriter
from mpijoin.sinks.table import TableBuilder

BLOB_BYTES = ROW_GROUP_BYTES // 2  # for a while they are there twice


class ParquetSink:
    """Part files `prefix-NNNNN.parquet` in `folder`, each of about `part_bytes`."""

    def __init__(self, builder: TableBuilder, folder: Path, prefix: str, part_bytes: int):
        self._builder = builder
        self._rows_max = min(ROW_GROUP_ROWS, ROW_GROUP_BYTES // max(1, builder.row_bytes))
        self._writer = PartWriter(folder, prefix, builder.schema, part_bytes)

    def consume(self, out: Out, rows: Rows, epoch: int) -> None:
        for piece in self._builder.pieces(out.filled, rows):
            self._builder.add(piece, rows)
            if self._builder.rows >= self._rows_max or self._builder.blob_bytes >= BLOB_BYTES:
                self._flush()

    def _flush(self) -> None:
        self._writer.write(self._builder.take(), keep=False)

    def end_epoch(self, epoch: int, last: bool) -> None:
        pass

    def rest(self, epoch: int) -> None:
        pass

    def cut(self, number: int) -> list[PartInfo]:
        self._flush()
        return self._writer.cut()

    def sync(self) -> None:
        self._writer.sync()

    def close(self) -> list[PartInfo]:
        self._flush()
        return self._writer.close()

    def abandon(self) -> None:
        self._writer.abandon()
