"""The rule that is applied to each row of a file: running maximum, late, null key. Rows that pass become a batch.

It depends on the rows of the same file before it and on nothing else, and is applied once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyarrow import types

from mpijoin.compiled import kernel
from mpijoin.data.arrow import array_of, fixed_values, null_mask, one_array
from mpijoin.data.batch import KEYLESS, Batch, read_only
from mpijoin.data.record import DAY_MS, RecordLayout
from mpijoin.data.schema import StreamSchema
from mpijoin.data.types import decoded
from mpijoin.errors import InputError
from mpijoin.named import NamedTuple
from mpijoin.partitioning.hashing import hash64
from mpijoin.partitioning.keys import key_codes, key_nulls
from mpijoin.sources.base import TIME_MAX, TIME_MIN, LateSink, Screened, SourceCounts
from mpijoin.sources.late import late_columns, late_table

FILE_ROWS = 1 << 40  # rows are numbered file index * FILE_ROWS + position
KEPT, NULL_KEY, LATE = 0, 1, 2
NO_NULLS = read_only(np.empty(0, np.bool_))


class Rows(NamedTuple):
    """Rows as read: time int64[n] in the file's unit, key int64[n]; null masks bool[n], or bool[0] if nothing is
    null."""

    time: np.ndarray
    time_null: np.ndarray
    key: np.ndarray
    key_null: np.ndarray


class Kept(NamedTuple):
    """The rows that pass, int64[n] each; time and running maximum in the join's unit."""

    key: np.ndarray
    time: np.ndarray
    row: np.ndarray
    running_max: np.ndarray


class Tally(NamedTuple):
    """What a block consists of: rows kept, with null key, late; the running maximum after it; the largest disorder of a
    late row."""

    kept: int
    null_key: int
    late: int
    running_max: int
    disorder_max: int


@kernel
def _watermark(running_max, lateness):
    return running_max - lateness if running_max >= TIME_MIN + lateness else TIME_MIN


@kernel
def _distance(high, low):
    """high - low >= 0, at most TIME_MAX."""
    return high - low if low >= 0 or high <= TIME_MAX + low else TIME_MAX


@kernel
def screen_rows(rows, first_row, scale, lateness, running_max, keeps_keyless, kept, kind, late_max):
    """Sorts rows into kept (copied to `kept`), null key and late; `Tally` says what it returns.

    keeps_keyless: whether rows with a null key, but a time, are kept, because results show rows without partner. Their
    ROW says so, and their key is a hash of it, so that they are spread over all partitions.

    kind uint8[n]: what becomes of each row · late_max int64[n]: for the i-th late row, the running maximum before it.
    """
    watermark = _watermark(running_max, lateness)
    count, null_keys, lates, disorder_max = 0, 0, 0, 0
    for i in range(len(rows.time)):
        has_time = len(rows.time_null) == 0 or not rows.time_null[i]
        time = rows.time[i] * scale if has_time else TIME_MIN
        is_keyless = len(rows.key_null) > 0 and rows.key_null[i]
        if is_keyless and not (keeps_keyless and has_time):
            kind[i] = NULL_KEY
            null_keys += 1
        elif not is_keyless and (not has_time or time < watermark):
            kind[i] = LATE
            late_max[lates] = running_max
            lates += 1
            if has_time:
                disorder_max = max(disorder_max, _distance(running_max, time))
        else:
            kind[i] = KEPT
            kept.key[count] = rows.key[i]
            kept.time[count] = time
            kept.row[count] = first_row + i
            if is_keyless:
                kept.key[count] = np.int64(hash64(first_row + i))
                kept.row[count] |= KEYLESS
            kept.running_max[count] = max(running_max, time)
            count += 1
        if time > running_max:
            running_max = time
            watermark = _watermark(running_max, lateness)
    return count, null_keys, lates, running_max, disorder_max


@kernel
def in_order(time, earliest):
    """Whether no time is below the one before it, nor below `earliest`. It looks at all times, so that the compiler can
    use vectors."""
    ordered = len(time) == 0 or time[0] >= earliest
    for i in range(1, len(time)):
        ordered &= time[i] >= time[i - 1]
    return ordered


@dataclass(frozen=True)
class StreamRules:
    """What is the same for all files of a stream: its lateness in the join's unit, who gets late rows, and whether rows
    without a key are kept, too."""

    schema: StreamSchema
    lateness: int
    late_sink: LateSink
    hash_bits: int = 64
    keeps_keyless: bool = False

    @cached_property
    def layout(self) -> RecordLayout:
        return RecordLayout(self.schema)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Columns to read, each once."""
        return tuple(dict.fromkeys(column.name for column in late_columns(self.schema)))

    @cached_property
    def days(self) -> tuple[str, ...]:
        """Those of them that hold a day as milliseconds."""
        columns = late_columns(self.schema)
        return tuple(dict.fromkeys(column.name for column in columns if types.is_date64(decoded(column.type))))


class FileScreen:
    """Applies the rule to the blocks of one file, in order.

    `position`: rows of the file so far · `running_max`: of these, TIME_MIN before the first time.
    """

    def __init__(
        self,
        rules: StreamRules,
        counts: SourceCounts,
        name: str,
        file_index: int,
        position: int = 0,
        running_max: int = TIME_MIN,
    ):
        self.position, self.running_max = position, running_max
        self._rules = rules
        self._counts = counts
        self._name = name
        self._first_row = file_index * FILE_ROWS

    def go_to(self, position: int, running_max: int) -> None:
        """Goes on at this row; running_max: of all rows of the file before it."""
        self.position, self.running_max = position, running_max

    def screen(self, block: pa.RecordBatch) -> Screened:
        """Returns the block's joinable rows, counts the others, and gives the late ones to the late sink."""
        rules, schema = self._rules, self._rules.schema
        columns = {name: one_array(block.column(name)) for name in rules.names}
        for name in rules.days:
            self._check_days(name, columns[name])
        keys = [columns[column.name] for column in schema.keys]
        time, time_null = self._times(columns[schema.time.name])
        key_null = key_nulls(keys)
        rows = Rows(
            read_only(time),
            NO_NULLS if time_null is None else read_only(time_null),
            read_only(key_codes(schema, keys, rules.hash_bits)),
            NO_NULLS if key_null is None else read_only(key_null),
        )
        screened = self._apply(rows, columns)
        self.position += block.num_rows
        return screened

    def _apply(self, rows: Rows, columns: dict[str, pa.Array]) -> Screened:
        stored = [columns[column.name] for column in self._rules.schema.stored]
        if self._all_pass(rows):
            kept = self._whole(rows)
        else:
            kept, passed = self._sorted_out(rows, columns)
            if len(kept.key) < len(rows.key):
                stored = [column.filter(passed) for column in stored]
        batch = Batch(kept.key, kept.time, kept.row, *self._rules.layout.pack(stored, len(kept.key)))
        return Screened(batch, kept.running_max)

    def _all_pass(self, rows: Rows) -> bool:
        """Whether it is clear at once that no row is late or has a null: most files are in order."""
        nulls = len(rows.time_null) or len(rows.key_null)
        return (
            len(rows.time) > 0
            and not nulls
            and bool(in_order(rows.time, -(-self.running_max // self._rules.schema.scale)))
        )

    def _whole(self, rows: Rows) -> Kept:
        """All rows, in order of time. They share the block's memory."""
        count, first_row, scale = len(rows.time), self._first_row + self.position, self._rules.schema.scale
        time = rows.time if scale == 1 else rows.time * scale
        self._note(count, Tally(count, 0, 0, int(time[-1]), 0))
        return Kept(rows.key, time, np.arange(first_row, first_row + count), time)

    def _sorted_out(self, rows: Rows, columns: dict[str, pa.Array]) -> tuple[Kept, pa.Array]:
        """Returns the rows that pass and their indices; gives the late ones to the late sink."""
        count, rules, first_row = len(rows.time), self._rules, self._first_row + self.position
        kept = Kept(*(np.empty(count, np.int64) for _ in Kept._fields))
        kind, late_max = np.empty(count, np.uint8), np.empty(count, np.int64)
        own = (rules.schema.scale, rules.lateness, self.running_max, rules.keeps_keyless)
        tally = Tally(*screen_rows(rows, first_row, *own, kept, kind, late_max))
        self._note(count, tally)
        if tally.late:
            self._give_late(columns, np.flatnonzero(kind == LATE), first_row, late_max[: tally.late])
        return Kept(*(column[: tally.kept] for column in kept)), array_of(kind == KEPT)

    def _note(self, rows: int, tally: Tally) -> None:
        self.running_max = int(tally.running_max)
        self._counts.read += rows
        self._counts.null_key += int(tally.null_key)
        self._counts.late += int(tally.late)
        self._counts.disorder_max = max(self._counts.disorder_max, int(tally.disorder_max))

    def _give_late(self, columns: dict[str, pa.Array], index: np.ndarray, first_row: int, late_max: np.ndarray) -> None:
        schema = self._rules.schema
        chosen = array_of(index)
        late = [columns[column.name].take(chosen) for column in late_columns(schema)]
        self._rules.late_sink(late_table(schema, late, first_row + index, late_max, self._rules.lateness))

    def _check_days(self, name: str, column: pa.Array) -> None:
        """Parquet keeps the day alone, so that keys that differ would be written as equal."""
        values = fixed_values(column.dictionary_decode() if types.is_dictionary(column.type) else column).view(np.int64)
        broken = values % DAY_MS != 0
        if broken.any():
            index = int(np.argmax(broken))
            raise InputError(
                f"{self._name}: row {self.position + index}: column {name!r}: got {values[index]:,} ms as date64,"
                " wanted whole days; times of a day are timestamp[ms]"
            )

    def _times(self, column: pa.Array) -> tuple[np.ndarray, np.ndarray | None]:
        """The time column as int64[n] in its own unit, and where it is null; all fit the join's unit."""
        nulls = null_mask(column)
        time, too_large = times_int64(column, self._rules.schema.scale)
        if too_large is not None:
            value = column[too_large].cast(pa.int64() if types.is_timestamp(column.type) else column.type).as_py()
            scale = self._rules.schema.scale
            wanted = f"a time that times {scale} fits 64 bits (the join's unit is finer)"
            raise InputError(
                f"{self._name}: row {self.position + too_large}: column {self._rules.schema.time.name!r}: got "
                f"{value}, wanted {wanted if scale > 1 else 'a time below 2^63'}"
            )
        return time, nulls


def times_int64(column: pa.Array, scale: int) -> tuple[np.ndarray, int | None]:
    """Times as int64[n] in their own unit, 0 where null, and the first index whose time, scaled, does not fit, if
    any."""
    bits = fixed_values(column)
    if types.is_signed_integer(column.type) or types.is_timestamp(column.type):
        bits = bits.view(f"i{bits.itemsize}")
    if scale > 1 or bits.dtype == np.uint64:
        limit = TIME_MAX // scale
        unfit = bits > np.uint64(limit) if bits.dtype.kind == "u" else (bits > limit) | (bits < -limit)
        if unfit.any():
            return bits, int(np.argmax(unfit))
    return bits.astype(np.int64, copy=False), None
