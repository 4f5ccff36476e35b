"""How DuckDB and Polars open the files of a workload. Both map an Arrow file into memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb
    import polars

ARROW = ".arrow"


def table_of(connection: duckdb.DuckDBPyConnection, file: str) -> str:
    """Returns what a query of this connection calls the file."""
    if not file.endswith(ARROW):
        return f"'{file}'"
    import pyarrow as pa

    name = Path(file).stem
    connection.register(name, pa.ipc.open_file(pa.memory_map(file)).read_all())
    return f'"{name}"'


def scan(file: str) -> polars.LazyFrame:
    """Returns a lazy frame of the file."""
    import polars as pl

    return pl.scan_ipc(file) if file.endswith(ARROW) else pl.scan_parquet(file)
