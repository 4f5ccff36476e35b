"""Makes Arrow tables of results: the columns that the job asks for, gathered from the blocks, in the sources' own
types."""

from __future__ import annotations

from typing import Iterator

import numpy as np
import pyarrow as pa

from mpijoin.config.job import Job
from mpijoin.data import results as columns
from mpijoin.data.arrow import NO_BYTES, array_of, fixed_array
from mpijoin.data.batch import KEYLESS
from mpijoin.data.record import NO_SIZES, RecordLayout
from mpijoin.data.schema import JoinSchema, StreamSchema
from mpijoin.operators.base import Rows
from mpijoin.partitioning.keys import key_values
from mpijoin.store.read import gather_columns
from mpijoin.store.state import ADDRESS, KEY, NONE, ROW, SIZE, TIME

NOTHING = np.zeros(0, bool)
PIECE_BYTES = 4 << 20  # of results that are gathered at once


class TableBuilder:
    """Gathers results (slot ids) until there are enough for a table of `schema`.

    Their words are copied out of the blocks column by column, straight to where Arrow wants them. On workload G (15
    columns) a slave's share took 7.1 s of a core when each batch became a table of its own, and takes 4.7 s this way.
    """

    def __init__(self, job: Job, schema: JoinSchema):
        self.schema = columns.result_schema(job, schema)
        self._columns = columns.result_columns(job, schema)
        wanted = {(column.stream, column.kind) for column in self._columns if column.kind != columns.ANSWER}
        kinds = [{kind for side, kind in wanted if side == own} for own in range(len(schema.streams))]
        self._alone = job.join.alone
        if self._alone and {columns.KEY} & kinds[0]:
            # Either side may tell the key, or that it is null.
            kinds = [own | {columns.KEY, columns.ROW} for own in kinds]
        may_lack = [1 - index in self._alone for index in range(len(kinds))]
        self._sides = [_Side(*own) for own in zip(schema.streams, kinds, may_lack)]
        self._answers: list[np.ndarray] = []  # int64[answers, m] each; the last row has a bit for each null
        self.rows = 0

    @property
    def row_bytes(self) -> int:
        """The bytes that a result takes here, apart from blobs."""
        answers = sum(column.kind == columns.ANSWER for column in self._columns)
        return sum(8 * len(side.chosen) for side in self._sides) + 8 * answers

    @property
    def blob_bytes(self) -> int:
        return sum(side.blob_bytes for side in self._sides)

    def pieces(self, slots: np.ndarray, rows: Rows) -> Iterator[np.ndarray]:
        """Cuts the results, in order, into pieces whose columns take about PIECE_BYTES, so that wide rows are not made
        all at once."""
        octets = np.full(slots.shape[1], self.row_bytes)
        for side, own in zip(self._sides, slots):
            octets += side.sizes(own, rows)
        ends = np.cumsum(octets)
        start = 0
        while start < len(ends):
            reached = ends[start] - octets[start] + PIECE_BYTES
            end = max(start + 1, int(np.searchsorted(ends, reached, "right")))
            yield slots[:, start:end]
            start = end

    def add(self, slots: np.ndarray, rows: Rows) -> None:
        """slots: int64[n + answers, m], one row of slot ids per stream, of tuples in `rows`, and below them what was
        worked out of each result."""
        for side, own in zip(self._sides, slots):
            side.add(own, rows, self.rows)
        if len(slots) > len(self._sides):
            self._answers.append(slots[len(self._sides) :].copy())
        self.rows += slots.shape[1]

    def take(self) -> pa.Table:
        """Returns all that was added, in order. The next `add` uses its memory again."""
        stored: dict[int, list[pa.Array]] = {}  # a stream's stored columns, unpacked at most once
        arrays = [self._array(column, stored) for column in self._columns]
        self._answers.clear()
        for side in self._sides:
            side.clear()
        self.rows = 0
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _array(self, column: columns.ResultColumn, stored: dict[int, list[pa.Array]]) -> pa.Array:
        if column.kind == columns.ANSWER:
            words = [own[[column.place, -1]] for own in self._answers]
            answers, nulls = np.concatenate([np.empty((2, 0), np.int64), *words], axis=1)
            return answer_array(self.schema.field(column.name).type, answers, nulls >> column.place & 1 == 1)
        if self._alone and column.kind == columns.KEY:
            return self._key_of_any(column, stored)
        array = self._column(column.stream, column, stored)
        return self._sides[column.stream].where_present(array) if 1 - column.stream in self._alone else array

    def _key_of_any(self, column: columns.ResultColumn, stored: dict[int, list[pa.Array]]) -> pa.Array:
        """The key of the tuple that a result has, or of its first one; null where that has none."""
        first, second = (
            side.where_keyed(side.where_present(self._column(index, column, stored)), self.rows)
            for index, side in enumerate(self._sides)
        )
        return _filled(first, second) if 1 in self._alone else first

    def _column(self, index: int, column: columns.ResultColumn, stored: dict[int, list[pa.Array]]) -> pa.Array:
        """The column as the stream of this index has it."""
        side, stream = self._sides[index], self._sides[index].stream
        if column.kind == columns.ROW:
            row = side.word(ROW, self.rows)
            return array_of(row & ~KEYLESS if self._alone else row)
        if column.kind == columns.TIME:
            times = side.word(TIME, self.rows)
            return time_array(stream.time.type, times if stream.scale == 1 else times // stream.scale)
        if column.kind == columns.KEY and not stream.hashed:
            return key_values(stream, side.word(KEY, self.rows))
        if index not in stored:
            stored[index] = side.stored(self.rows)
        keys = len(stream.keys) if stream.hashed else 0
        return stored[index][column.place + (keys if column.kind == columns.PAYLOAD else 0)]


class _Side:
    """Gathers what is wanted of one stream's tuples. chosen: int64[k], the words of a tuple that are wanted,
    ascending."""

    def __init__(self, stream: StreamSchema, kinds: set[str], may_lack: bool):
        """kinds: of result columns · may_lack: whether a result need not have a tuple of the stream."""
        self.stream, self._may_lack = stream, may_lack
        self._layout = RecordLayout(stream)
        self._is_stored = columns.PAYLOAD in kinds or (columns.KEY in kinds and stream.hashed)
        self._has_blob = self._is_stored and self._layout.has_blob
        simple = {columns.KEY: KEY, columns.TIME: TIME, columns.ROW: ROW}
        words = {simple[kind] for kind in kinds - {columns.PAYLOAD}}
        self._record = SIZE + 1 if self._layout.has_blob else ADDRESS  # its first word
        if self._is_stored:
            words.update(range(self._record, self._record + self._layout.record_words))
        if self._has_blob:
            words.add(SIZE)
        self.chosen = np.array(sorted(words), np.int64)
        self._gathered = np.empty((len(words), 0), np.int64)
        self.blobs: list[np.ndarray] = []
        self._missing: list[np.ndarray] = []  # bool[m] each: the results that have no tuple of the stream

    def clear(self) -> None:
        self.blobs.clear()
        self._missing.clear()

    def where_present(self, array: pa.Array) -> pa.Array:
        """The column, with nulls where there is no tuple of the stream."""
        missing = np.concatenate([np.empty(0, bool), *self._missing])
        return _with_nulls(array, missing) if missing.any() else array

    def where_keyed(self, array: pa.Array, rows: int) -> pa.Array:
        """The key column, with its nulls. Of a key of several columns each has its own already."""
        if self.stream.null_keys:
            return array
        keyless = self.word(ROW, rows) & KEYLESS != 0
        return _with_nulls(array, keyless) if keyless.any() else array

    @property
    def blob_bytes(self) -> int:
        return sum(len(blob) for blob in self.blobs)

    def sizes(self, slots: np.ndarray, rows: Rows) -> np.ndarray | int:
        """int64[n]: bytes of the tuples' blobs, 0 where none are wanted."""
        if not self._has_blob:
            return 0
        if not self._may_lack:
            return rows.words[slots + SIZE]
        missing = slots == NONE
        return np.where(missing, 0, rows.words[np.where(missing, 0, slots) + SIZE])

    def add(self, slots: np.ndarray, rows: Rows, at: int) -> None:
        """Gathers the tuples after the first `at`, which are there already."""
        if not len(self.chosen):
            return
        missing = slots == NONE if self._may_lack else NOTHING
        has_all = not missing.any()
        if self._may_lack:
            self._missing.append(missing)
        if not has_all:
            slots = np.where(missing, 0, slots)
        if at + len(slots) > self._gathered.shape[1]:
            larger = np.empty((len(self.chosen), 2 * (at + len(slots))), np.int64)
            larger[:, :at] = self._gathered[:, :at]
            self._gathered = larger
        gather_columns(rows.words, slots, self.chosen, self._gathered, at)
        if not has_all:
            self._gathered[:, at : at + len(slots)][:, missing] = 0
        if self._has_blob:
            here = slice(None) if has_all else ~missing
            size = self.word(SIZE, at + len(slots))[at:][here]
            blob = np.empty(int(size.sum()), np.uint8)
            rows.copy_blobs(slots[here], np.cumsum(size) - size, blob)
            self.blobs.append(blob)

    def word(self, word: int, rows: int) -> np.ndarray:
        """int64[rows]: one word of each tuple, as a view."""
        return self._gathered[np.searchsorted(self.chosen, word), :rows]

    def stored(self, rows: int) -> list[pa.Array]:
        """The stored columns in the layout's order."""
        first = np.searchsorted(self.chosen, self._record)
        record = self._gathered[first : first + self._layout.record_words, :rows]
        size = self.word(SIZE, rows) if self._has_blob else NO_SIZES
        blob = np.concatenate([NO_BYTES, *self.blobs])
        self.blobs.clear()  # before their values are made once more
        return self._layout.unpack_words(record, size, blob)


def _with_nulls(array: pa.Array, nulls: np.ndarray) -> pa.Array:
    import pyarrow.compute as pc  # late: inner joins do without it

    plain = _plain(array)
    return pc.if_else(array_of(~nulls), plain, pa.scalar(None, plain.type)).cast(array.type)


def _filled(array: pa.Array, others: pa.Array) -> pa.Array:
    """The array, with another's values where it has nulls."""
    return _plain(array).fill_null(_plain(others)).cast(array.type)


def _plain(array: pa.Array) -> pa.Array:
    """The array in a type that Arrow computes with: it cannot with views of strings."""
    large = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    return array.cast(large.get(array.type, array.type))


def time_array(kind: pa.DataType, values: np.ndarray) -> pa.Array:
    """int64[n] times as a column of the source's own type (an integer or a timestamp)."""
    if pa.types.is_timestamp(kind):
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])
    return array_of(values.astype(kind.to_pandas_dtype(), copy=False))


def answer_array(kind: pa.DataType, words: np.ndarray, nulls: np.ndarray) -> pa.Array:
    """What an operator has worked out, int64[n] or the bits of float64s, as a column of this type. nulls: bool[n]."""
    values = np.ascontiguousarray(words)
    if pa.types.is_floating(kind):
        values = values.view(np.float64).astype(kind.to_pandas_dtype(), copy=False)
    else:
        values = values.astype(f"i{kind.bit_width // 8}", copy=False)
    return fixed_array(kind, values, nulls if nulls.any() else None)
