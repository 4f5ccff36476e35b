"""Wide rows: what is read ahead, made of results and held by a whole run is bounded in bytes, not in rows."""

import json
import os
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from launching import Run
from mpijoin.data.arrow import decoded_bytes
from mpijoin.data.batch import Batch
from mpijoin.data.schema import Column
from mpijoin.producer.pacing import pace_of
from mpijoin.producer.ticks import TickReader
from mpijoin.sinks.parts import ROW_GROUP_BYTES
from mpijoin.sources.base import TIME_MAX, Chunk, End, SourceCounts
from mpijoin.sources.blocks import BlockLimit
from mpijoin.sources.files import open_file
from mpijoin.sources.table import TableReader

KB, MB = 1 << 10, 1 << 20
# while a reader gives blocks of 1 MB: a step that turned out too large, and what the library keeps
DECODED_MAX = 12 * MB


def texts(widths, kind=pa.string()):
    return pa.array([f"{i:0>8}".ljust(width, "x") for i, width in enumerate(widths)]).cast(kind)


def table_of(column):
    return pa.table({"ts": np.arange(len(column)), "text": column})


NARROW_THEN_WIDE = [8] * 5000 + [8 * KB] * 3000 + [8] * 5000
REPEATED = pa.DictionaryArray.from_arrays(pa.array(np.arange(20_000) % 3), texts([8 * KB] * 3))
TABLES = {
    "strings": table_of(texts(NARROW_THEN_WIDE)),
    "large strings": table_of(texts(NARROW_THEN_WIDE, pa.large_string())),
    "views": table_of(texts(NARROW_THEN_WIDE, pa.string_view())),
    "binary of one size": table_of(pa.array([bytes(8 * KB)] * 3000, pa.binary(8 * KB))),
    "dictionary": table_of(REPEATED),
    "nulls": table_of(pa.array([None, "x" * 8 * KB] * 2000)),
}


def write_ipc(table, path):
    pa.feather.write_feather(table, path, compression="uncompressed")


WRITERS = {"parquet": lambda table, path: pq.write_table(table, path, row_group_size=len(table)), "feather": write_ipc}


def blocks_of(reader):
    """All blocks, and the most memory that Arrow held for them beyond what it held before."""
    before, most, found = pa.total_allocated_bytes(), 0, []
    for block in reader.blocks():
        most = max(most, pa.total_allocated_bytes() - before)
        found.append((block.num_rows, sum(map(decoded_bytes, block.columns)), block.column("ts")[0].as_py()))
    reader.close()
    return found, most


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("form", ["table", *WRITERS])
def test_no_block_takes_more_bytes_than_its_limit_and_no_row_is_lost(tmp_path, form, name):
    table, limit = TABLES[name], BlockLimit(octets=MB)
    columns = [Column(field.name, field.type) for field in table.schema]
    if form == "table":
        reader = TableReader("table", table, columns, limit)
    else:
        WRITERS[form](table, tmp_path / f"wide.{form}")
        reader = open_file(str(tmp_path / f"wide.{form}"), columns, limit)
    found, most = blocks_of(reader)
    rows = [count for count, *_ in found]
    assert max(octets for _, octets, _ in found) <= MB
    assert [first for *_, first in found] == [sum(rows[:index]) for index in range(len(rows))] and sum(rows) == len(
        table
    )
    if form == "table" or len(table) != len(NARROW_THEN_WIDE):  # there the first wide rows come as a surprise
        assert most <= DECODED_MAX


def test_a_file_of_few_bytes_that_becomes_many_is_decoded_in_small_steps(tmp_path):
    """Strings that a dictionary page holds once, of which the footer says nothing: 240 MB of rows in a file of some
    KB."""
    table = pa.table({"ts": np.arange(30_000), "text": REPEATED.take(pa.array(np.arange(30_000) % 3))})
    pq.write_table(table.cast(pa.schema([("ts", pa.int64()), ("text", pa.large_string())])), tmp_path / "small.parquet")
    assert os.path.getsize(tmp_path / "small.parquet") < MB
    columns = [Column("ts", pa.int64()), Column("text", pa.large_string())]
    found, most = blocks_of(open_file(str(tmp_path / "small.parquet"), columns, BlockLimit(octets=MB)))
    assert sum(count for count, *_ in found) == 30_000 and most <= DECODED_MAX


class WideSource:
    """Rows of so many bytes, a time each; at most `block` of them at once."""

    def __init__(self, rows, row_bytes, block, blobs):
        self.counts, self._at, self._rows, self._block = SourceCounts(), 0, rows, block
        self._words, self._blob_bytes = (0, row_bytes) if blobs else (row_bytes // 8, 0)

    def read(self, rows):
        if self._at == self._rows:
            return End()
        low, self._at = self._at, min(self._rows, self._at + min(rows, self._block))
        time = np.arange(low, self._at)
        size = np.full(len(time) if self._blob_bytes else 0, self._blob_bytes)
        record, blob = np.zeros((len(time), self._words), np.int64), np.zeros(int(size.sum()), np.uint8)
        return Chunk(Batch(time, time, time, record, size, blob), time, self._at if self._at < self._rows else TIME_MAX)


@pytest.mark.parametrize("blobs", [True, False])
@pytest.mark.parametrize("epoch", [None, 10_000])
def test_a_part_of_a_tick_and_what_is_read_ahead_for_it_are_bounded_in_bytes(epoch, blobs):
    sources = WideSource(20_000, 8 * KB, 100, blobs), WideSource(20_000, 8 * KB, 100, blobs)
    reader = TickReader(sources, (0, 0), pace_of(epoch, (100_000, 0), 1), 4 * MB)
    block, rows = 100 * 9 * KB, 0
    while not isinstance(tick := reader.next(), End):
        for batches, stream in zip(tick.batches, reader._streams):
            assert sum(batch.octets for batch in batches) <= 4 * MB + block
            assert stream.octets == sum(chunk.batch.octets for chunk in stream._chunks) <= 4 * MB + block
            rows += sum(batch.rows for batch in batches)
    assert rows == 40_000


JOB = """
[left]
path = "left.parquet"
key = "key"
window = "50 ms"
[right]
path = "right.parquet"
key = "key"
window = "50 ms"
[cluster]
master_buffer = "64 MB"
buffer = "16 MB"
[memory]
limit = "96 MB"
[output]
path = "out"
"""
ROWS, WIDTH = 48_000, 4 * KB
RANK_BYTES = 150 * 10**6
BOUNDS = {0: 80 * 10**6 + RANK_BYTES, 1: 112 * 10**6 + RANK_BYTES}  # its own buffer or memory, and what is on its way


def held_bytes(run):
    """{rank: the most memory that it held}, each page shared with other processes counted in part."""
    most = {}
    while run.process.poll() is None:
        for pid, rank in run.pids().items():
            with suppress(OSError):
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                pss = next(int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss:"))
                most[rank] = max(most.get(rank, 0), pss)
        time.sleep(0.02)
    return most


def write_streams(folder, rows):
    for step, side in enumerate(("left", "right"), 1):
        key = pa.array(np.arange(rows) * step % 100)
        ts = pa.array(np.arange(rows) * 1000, pa.timestamp("us"))
        pq.write_table(pa.table({"ts": ts, "key": key, "text": texts([WIDTH] * rows)}), folder / f"{side}.parquet")


def test_no_rank_of_a_run_with_wide_rows_holds_more_than_its_fields_name(tmp_path):
    write_streams(tmp_path, 100)
    with Run(tmp_path, JOB, 2) as run:  # to compile takes memory, too
        assert run.finish(300).code == 0
    write_streams(tmp_path, ROWS)
    with Run(tmp_path, JOB, 2, ["--overwrite"]) as run:
        held = held_bytes(run)
        assert run.finish().code == 0
    assert {rank: octets for rank, octets in held.items() if octets > BOUNDS[rank]} == {} and len(held) == 2
    assert json.loads((tmp_path / "out/summary.json").read_text())["results"] > ROWS / 4
    for part in (tmp_path / "out/results").glob("*.parquet"):
        groups = pq.read_metadata(part)
        sizes = [groups.row_group(index).total_byte_size for index in range(groups.num_row_groups)]
        assert max(sizes) <= 2 * ROW_GROUP_BYTES
