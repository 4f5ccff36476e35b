"""The block-wise merge of files gives the rows, running maxima, late rows and counts of a merge row by row."""

import heapq
from functools import partial

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from mpijoin.data.schema import Column, StreamSchema
from mpijoin.sources.base import TIME_MAX, TIME_MIN, End
from mpijoin.sources.blocks import BlockLimit
from mpijoin.sources.merge import MergedFiles, Part
from mpijoin.sources.screen import FILE_ROWS, StreamRules
from mpijoin.sources.table import TableReader

SCALE = 3
COLUMNS = (Column("ts", pa.int64()), Column("key", pa.int64()), Column("name", pa.string()))
SCHEMA = StreamSchema("left", COLUMNS[0], SCALE, (COLUMNS[1],), False, (COLUMNS[2],))

times, keys = st.one_of(st.none(), st.integers(-5, 30)), st.one_of(st.none(), st.integers(0, 3))
rows = st.lists(st.tuples(times, keys, st.text("abé", max_size=3)), max_size=25)
nearly_sorted = rows.map(lambda some: sorted(some, key=lambda row: row[0] or 0))


def row_wise(files, lateness):
    """The slow twin: (kept rows with the stream's running maximum, late rows, null keys), one row at a time."""
    heads = [(first_time(file), index, 0) for index, file in enumerate(files) if file]
    heapq.heapify(heads)
    own_max, stream_max, kept, late, null_keys = {}, None, [], [], 0
    while heads:
        _, index, position = heapq.heappop(heads)
        time, key, name = files[index][position]
        number, before = index * FILE_ROWS + position, own_max.get(index)
        if time is not None:
            stream_max = time if stream_max is None else max(stream_max, time)
            own_max[index] = time if before is None else max(before, time)
        if key is None:
            null_keys += 1
        elif time is None or (before is not None and time * SCALE < before * SCALE - lateness):
            watermark = None if before is None else -(-(before * SCALE - lateness) // SCALE)
            late.append((number, "null_time" if time is None else "late", watermark))
        else:
            kept.append((key, time * SCALE, number, name, stream_max * SCALE))
        if position + 1 < len(files[index]):
            # A row without a time follows the one before it at once; the first of a file come with its first time.
            following = files[index][position + 1][0]
            timeless = TIME_MIN if index in own_max else first_time(files[index])
            heapq.heappush(heads, (timeless if following is None else following, index, position + 1))
    return kept, late, null_keys


def first_time(file):
    return next((row[0] for row in file if row[0] is not None), TIME_MIN)


def table(file):
    columns = list(zip(*file)) if file else [[], [], []]
    return pa.table(
        [pa.array(values, column.type) for values, column in zip(columns, COLUMNS)],
        names=[column.name for column in COLUMNS],
    )


def table_parts(files, decoded=()):
    """decoded: which of them a thread reads ahead."""
    readers = [partial(TableReader, "file", table(file)) for file in files]
    return [Part("file", 1, reader, number in decoded) for number, reader in enumerate(readers)]


def read_all(source, rules, rows):
    """Every tuple in order; checks the contract of each chunk on the way."""
    kept, low = [], TIME_MIN
    while not isinstance(chunk := source.read(rows), End):
        batch = chunk.batch
        assert batch.rows <= rows and len(chunk.running_max) == batch.rows
        assert all(column.flags.c_contiguous for column in (*batch, chunk.running_max))
        assert (np.diff(np.concatenate([[low], chunk.running_max, [chunk.horizon]]).astype(object)) >= 0).all()
        names = rules.layout.unpack(batch.record, batch.size, batch.blob)[0].to_pylist()
        kept += zip(batch.key.tolist(), batch.time.tolist(), batch.row.tolist(), names, chunk.running_max.tolist())
        low = chunk.horizon
    assert low == TIME_MAX and source.read(rows) == End() and source.progress() == 1.0
    source.close()
    return kept


@settings(max_examples=200, deadline=None)
@given(
    files=st.lists(st.one_of(rows, nearly_sorted), min_size=1, max_size=5),
    lateness=st.integers(0, 40),
    block_rows=st.integers(1, 8),
    rows=st.integers(1, 10),
    decoded=st.sets(st.integers(0, 4)),
)
def test_blocks_merge_as_rows_do(files, lateness, block_rows, rows, decoded):
    late = []
    rules = StreamRules(SCHEMA, lateness, late.append)
    parts = table_parts(files, decoded)
    source = MergedFiles(rules, parts, BlockLimit(block_rows))
    kept = read_all(source, rules, rows)
    wanted, wanted_late, wanted_null_keys = row_wise(files, lateness)
    assert kept == wanted
    got_late = [tuple(row[name] for name in ("row", "reason", "watermark")) for one in late for row in one.to_pylist()]
    assert sorted(got_late, key=str) == sorted(wanted_late, key=str)
    counts = source.counts
    assert (counts.read, counts.late, counts.null_key) == (sum(map(len, files)), len(wanted_late), wanted_null_keys)


@settings(max_examples=60, deadline=None)
@given(files=st.lists(rows, min_size=1, max_size=3), block_rows=st.integers(1, 8))
def test_the_named_disorder_is_the_lateness_that_covers_all(files, block_rows):
    parts = table_parts(files)

    def late_rows(lateness):
        late = []
        source = MergedFiles(StreamRules(SCHEMA, lateness, late.append), parts, BlockLimit(block_rows))
        while not isinstance(source.read(100), End):
            pass
        return source.counts.disorder_max, sum(table["reason"].to_pylist().count("late") for table in late)

    disorder, _ = late_rows(0)
    assert late_rows(disorder)[1] == 0
    assert disorder == 0 or late_rows(disorder - 1)[1] > 0
