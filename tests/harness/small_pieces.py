"""Writes a table in each format that the engine reads, in small pieces, since readers go wrong where pieces end."""

from functools import partial

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq


def writers(piece_rows):
    """Returns {suffix: function of (table, path)} that write row groups and record batches of so many rows."""

    def write_stream(table, path):
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=piece_rows)

    return {
        "parquet": partial(pq.write_table, row_group_size=piece_rows),
        "feather": partial(pa.feather.write_feather, chunksize=piece_rows),
        "arrow": write_stream,
        "csv": pa.csv.write_csv,
    }
