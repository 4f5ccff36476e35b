"""Readers that begin in the middle of their file: the same rows as from the start, without those skipped."""

from itertools import accumulate, islice

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mpijoin.config.job import B_MODEL, ZIPF, Change, SyntheticSource
from mpijoin.data.schema import Column
from mpijoin.generators.stream import SyntheticStream
from mpijoin.sources import csv_reader
from mpijoin.sources.blocks import BlockLimit
from mpijoin.sources.files import open_file
from mpijoin.sources.ranges import from_row
from mpijoin.sources.synthetic import SyntheticReader
from mpijoin.sources.table import TableReader
from small_pieces import writers

ROWS, PIECE_ROWS, BLOCK_ROWS = 100, 30, 7
TABLE = pa.table({"ts": np.arange(ROWS), "name": [f"n{i % 5}" for i in range(ROWS)], "other": np.zeros(ROWS)})
COLUMNS = (Column("name", pa.string()), Column("ts", pa.int64()))
SKIPS = (0, 1, 6, 7, PIECE_ROWS - 1, PIECE_ROWS, PIECE_ROWS + 1, 3 * PIECE_ROWS, ROWS - 1, ROWS, ROWS + 1, 10 * ROWS)
WRITERS = writers(PIECE_ROWS)


@pytest.fixture(params=["table", *WRITERS])
def opened(request, tmp_path, monkeypatch):
    """skip_rows -> a reader of TABLE in one of the formats."""
    monkeypatch.setattr(csv_reader, "PIECE_BYTES", 256)
    if request.param == "table":
        pieces = pa.concat_tables([TABLE.slice(start, PIECE_ROWS) for start in range(0, ROWS, PIECE_ROWS)])
        return lambda skip_rows: TableReader("table", pieces, COLUMNS, BlockLimit(BLOCK_ROWS), from_row(skip_rows))
    path = str(tmp_path / f"rows.{request.param}")
    WRITERS[request.param](TABLE, path)
    return lambda skip_rows: open_file(path, COLUMNS, BlockLimit(BLOCK_ROWS), from_row(skip_rows))


@pytest.mark.parametrize("skip_rows", SKIPS)
def test_blocks_begin_behind_the_skipped_rows(opened, skip_rows):
    reader = opened(skip_rows)
    blocks = list(reader.blocks())
    reader.close()
    assert [time for block in blocks for time in block["ts"].to_pylist()] == list(range(skip_rows, ROWS))
    assert [name for block in blocks for name in block["name"].to_pylist()] == TABLE["name"].to_pylist()[skip_rows:]
    assert all(0 < block.num_rows <= BLOCK_ROWS for block in blocks)


def test_the_share_that_has_been_read_counts_from_the_start_of_the_file(opened):
    def shares(skip_rows):
        reader = opened(skip_rows)
        return {block["ts"][-1].as_py(): reader.fraction() for block in reader.blocks()} | {ROWS: reader.fraction()}

    whole = shares(0)
    for skip_rows in SKIPS:
        found = shares(skip_rows)
        assert all(found[row] == whole[row] for row in found.keys() & whole.keys())


def test_skipped_row_groups_are_not_decoded(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(TABLE, path, row_group_size=PIECE_ROWS, compression="none", use_dictionary=False)
    metadata = pq.read_metadata(path)
    first = metadata.row_group(0)
    start = min(first.column(i).data_page_offset for i in range(first.num_columns))
    end = metadata.row_group(1).column(0).data_page_offset
    content = bytearray(path.read_bytes())
    content[start:end] = bytes(end - start)
    path.write_bytes(content)
    blocks = open_file(str(path), COLUMNS, BlockLimit(BLOCK_ROWS), from_row(PIECE_ROWS)).blocks()
    assert [time for block in blocks for time in block["ts"].to_pylist()] == list(range(PIECE_ROWS, ROWS))


SYNTHETIC = {
    "poisson": SyntheticSource(tuples=500, payload_bytes=11),
    "poisson with an end": SyntheticSource(duration_ns=300 * 10**6, permute=3),
    "bursts": SyntheticSource(tuples=500, arrivals=B_MODEL, keys=ZIPF),
    "bursts with an end": SyntheticSource(duration_ns=300 * 10**6, arrivals=B_MODEL),
    "changes": SyntheticSource(
        tuples=500,
        changes=(Change(10**8, rate=200.0, bias=0.9), Change(2 * 10**8, rate=9000.0, permute=1, exponent=2.0)),
    ),
    "changes with an end": SyntheticSource(duration_ns=3 * 10**8, changes=(Change(10**8, rate=5000.0),)),
    "disorder": SyntheticSource(tuples=500, disorder_ns=10**7, payload_bytes=3),
    "disorder with an end": SyntheticSource(duration_ns=300 * 10**6, disorder_ns=10**8, keys=ZIPF),
    "none": SyntheticSource(tuples=0),
}
SYNTHETIC_COLUMNS = (Column("ts", pa.timestamp("ns")), Column("key", pa.int64()), Column("payload", pa.binary(0)))


@pytest.mark.parametrize("source", SYNTHETIC.values(), ids=SYNTHETIC)
@pytest.mark.parametrize("skip_rows", [0, 1, 64, 65, 449, 500, 501, 2000])
def test_a_synthetic_stream_begins_anywhere(source, skip_rows):
    columns = SYNTHETIC_COLUMNS[: 3 if source.payload_bytes else 2]

    def made(skip_rows):
        reader = SyntheticReader(source, 5, 1, columns, BlockLimit(64), from_row(skip_rows))
        rows = [row for block in reader.blocks() for row in block.to_pylist()]
        assert 0 <= reader.fraction() <= 1.0
        return rows

    assert made(skip_rows) == made(0)[skip_rows:]


@pytest.mark.parametrize("source", [SYNTHETIC["poisson"], SYNTHETIC["changes"], SYNTHETIC["bursts"]])
def test_neither_keys_nor_payload_of_skipped_tuples_are_made(source, monkeypatch):
    made, batch = [], SyntheticStream.batch
    monkeypatch.setattr(SyntheticStream, "batch", lambda *given: made.append(given[2]) or batch(*given))
    list(SyntheticReader(source, 5, 1, SYNTHETIC_COLUMNS[:2], BlockLimit(64), from_row(300)).blocks())
    assert min(made) == 300


@pytest.mark.parametrize("source", SYNTHETIC.values(), ids=SYNTHETIC)
def test_what_has_been_made_counts_from_the_start_of_the_stream(source):
    def shares(skip_rows):
        reader = SyntheticReader(source, 5, 1, SYNTHETIC_COLUMNS[:2], BlockLimit(50), from_row(skip_rows))
        rows = accumulate((block.num_rows for block in reader.blocks()), initial=skip_rows)
        return {count: reader.fraction() for count in islice(rows, 1, None)}

    whole, found = shares(0), shares(100)
    assert all(found[rows] == whole[rows] for rows in found.keys() & whole.keys())
    assert found.keys() == {rows for rows in whole if rows > 100}


@pytest.mark.parametrize("name", ["poisson", "poisson with an end", "changes with an end", "bursts with an end"])
def test_skipped_tuples_count_as_made_from_the_beginning(name):
    whole, later = (
        SyntheticReader(SYNTHETIC[name], 5, 1, SYNTHETIC_COLUMNS[:2], BlockLimit(50), from_row(skip_rows))
        for skip_rows in (0, 100)
    )
    list(islice(whole.blocks(), 2))
    assert later.fraction() == pytest.approx(whole.fraction(), abs=0.01) and later.fraction() > 0.1
