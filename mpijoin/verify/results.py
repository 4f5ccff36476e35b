"""Compares the result files with the wanted results and the columns of their rows."""

from __future__ import annotations

import glob
import os
from typing import TYPE_CHECKING, Any, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from mpijoin.config.job import Function, Job
from mpijoin.config.units import plural
from mpijoin.named import NamedTuple
from mpijoin.verify.aggregates import answer_kind, is_real
from mpijoin.verify.combinations import row_name
from mpijoin.verify.inputs import BATCH_ROWS, Stream, insert
from mpijoin.verify.report import SHOWN, Difference, one_row, two_sided
from mpijoin.verify.values import canonical, number, sql_type, stored_type, words

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


class Wanted(NamedTuple):
    """A result column: its name and stored type, and where its values come from as SQL over s0, s1, ..., the
    streams. off: by how much a number may differ from there, as SQL; None: the values are canonical, and equal."""

    name: str
    kind: pa.DataType
    source: str
    off: str | None = None

    @property
    def sql_type(self) -> str:
        """DuckDB's type of its values."""
        return sql_type(self.kind) if self.off is None else "DOUBLE"

    def values(self, array: pa.Array) -> pa.Array:
        """What was written, as that type."""
        return canonical(array, self.kind) if self.off is None else number(array)

    def differs(self, index: int) -> str:
        """Whether column d0, d1, ... of `actual`, by this index, has something else, as SQL."""
        differs = f"a.d{index} IS DISTINCT FROM {self.source}"
        if self.off is None:
            return differs
        return f"{differs} AND NOT coalesce(abs(a.d{index} - {self.source}) <= {self.off}, false)"

    def words(self, value: Any) -> str:
        return words(value, self.kind) if self.off is None or value is None else repr(value)


def wanted_columns(job: Job, streams: tuple[Stream, ...], answers: Sequence[Wanted]) -> list[Wanted]:
    """The columns that the results should have, in order. answers: those that are worked out."""
    first = streams[0]
    key_names = ["key"] if len(first.job.key) == 1 else [f"key_{name}" for name in first.job.key]
    columns = [_wanted(result, first, name) for result, name in zip(key_names, first.job.key)]
    if 1 in job.join.alone:  # The key of either row, of which one may be missing.
        others = zip(columns, streams[1].job.key)
        columns = [one._replace(source=f"coalesce({one.source}, s1.{streams[1].column(key)})") for one, key in others]
    columns += [_wanted(f"{stream.name}_time", stream, stream.job.time) for stream in streams]
    columns += [Wanted(f"{stream.name}_row", pa.int64(), f"s{stream.index}.row") for stream in streams]
    columns += [_wanted(f"{stream.name}_{name}", stream, name) for stream in streams for name in stream.payload]
    columns += answers
    by_name = {column.name: column for column in columns}
    return columns if job.output.columns is None else [by_name[name] for name in job.output.columns]


def _wanted(result: str, stream: Stream, name: str) -> Wanted:
    return Wanted(result, stored_type(stream.fields[name]), f"s{stream.index}.{stream.column(name)}")


def answer_columns(job: Job, stream: Stream) -> list[Wanted]:
    """The result columns of an aggregate of this stream."""
    return [_answer(index, one, stream) for index, one in enumerate(job.aggregate.columns)]


def _answer(index: int, function: Function, stream: Stream) -> Wanted:
    off = f"s0.t{index}" if is_real(function, stream) else None
    return Wanted(function.result, answer_kind(function, stream), f"s0.a{index}", off)


def compare_results(
    database: DuckDBPyConnection, folder: str, job: Job, streams: tuple[Stream, ...], answers: Sequence[Wanted]
) -> list[Difference]:
    """Compares every result row and column. The table `expected` holds the wanted results. folder: of the results ·
    answers: the columns that are worked out."""
    columns = wanted_columns(job, streams, answers)
    parts = sorted(glob.glob(os.path.join(glob.escape(folder), "*.parquet")))
    faults = [line for part in parts for line in _part_faults(part, columns)]
    if faults:
        return [Difference("results: files that cannot be compared", tuple(faults[:SHOWN]))]
    sql_columns = ", ".join(f"d{i} {column.sql_type}" for i, column in enumerate(columns))
    database.execute(f"CREATE TABLE actual ({sql_columns})")
    try:
        insert(database, "actual", _part_rows(parts, columns))
    except (OSError, pa.ArrowException) as error:
        return [Difference(f"results: files that cannot be compared: {error}")]
    written = _row_columns(columns, streams)
    if written is None:
        return _multiset_differences(database, columns, streams)
    return _row_differences(database, streams, written) + _value_differences(database, columns, streams, written)


def _part_faults(path: str, columns: list[Wanted]) -> Iterator[str]:
    name = os.path.basename(path)
    try:
        found = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        yield f"{name} cannot be read: {str(error).splitlines()[0]}"
        return
    if found.names != [column.name for column in columns]:
        yield f"{name} has columns {', '.join(found.names)}; wanted {', '.join(column.name for column in columns)}"
        return
    for column in columns:
        if found.field(column.name).type != column.kind:
            yield f"{name}: column {column.name} is {found.field(column.name).type}, wanted {column.kind}"


def _part_rows(parts: list[str], columns: list[Wanted]) -> Iterator[pa.RecordBatch]:
    names = [f"d{i}" for i in range(len(columns))]
    for part in parts:
        with pq.ParquetFile(part) as file:
            for batch in file.iter_batches(BATCH_ROWS):
                yield pa.RecordBatch.from_arrays(
                    [column.values(batch[column.name]) for column in columns], names
                )


def _row_columns(columns: list[Wanted], streams: tuple[Stream, ...]) -> list[str] | None:
    """The columns of the table `actual` that hold the streams' row numbers; None: not all of them are written."""
    names = [column.name for column in columns]
    rows = [f"{stream.name}_row" for stream in streams]
    return [f"d{names.index(row)}" for row in rows] if set(rows) <= set(names) else None


def _row_differences(database: DuckDBPyConnection, streams: tuple[Stream, ...], written: list[str]) -> list[Difference]:
    """Finds results that are missing, unexpected, or there more than once."""
    if _all_there(database, streams, written):
        return []
    rows = ", ".join(map(row_name, streams))
    database.execute(f"""
        CREATE TABLE unequal AS SELECT {rows}, sum(n)::BIGINT AS n
        FROM (SELECT {rows}, 1 AS n FROM expected UNION ALL SELECT {", ".join(written)}, -1 FROM actual)
        GROUP BY {rows} HAVING sum(n) <> 0""")
    return two_sided(database, "results", "unequal", lambda condition: _row_lines(database, condition, streams))


def _all_there(database: DuckDBPyConnection, streams: tuple[Stream, ...], written: list[str]) -> bool:
    """Whether the written results are the wanted ones. The wanted ones are distinct, so equal numbers and none missing
    prove it."""
    wanted, got = (one_row(database, f"SELECT count(*) FROM {table}")[0] for table in ("expected", "actual"))
    pairs = zip(streams, written)
    equal = " AND ".join(f"e.{row_name(stream)} IS NOT DISTINCT FROM a.{column}" for stream, column in pairs)
    missing = f"FROM expected e ANTI JOIN actual a ON {equal}"
    return wanted == got and not one_row(database, f"SELECT count(*) {missing}")[0]


def _row_lines(database: DuckDBPyConnection, condition: str, streams: tuple[Stream, ...]) -> list[str]:
    """The first results of one side, with what the inputs say of their rows."""
    selected, shown, joined = ["u.n"], [], ""
    for stream in streams:
        selected.append(f"u.{row_name(stream)}")
        joined += f" LEFT JOIN {stream.table} s{stream.index} ON s{stream.index}.row = u.{row_name(stream)}"
    for stream in streams:
        for name in (*stream.job.key, stream.job.time):
            selected.append(f"s{stream.index}.{stream.column(name)}")
            shown.append((f"{stream.name} {name}", stored_type(stream.fields[name])))
    order = ", ".join(f"u.{row_name(stream)}" for stream in streams)
    found = database.execute(f"""
        SELECT {", ".join(selected)} FROM unequal u{joined}
        WHERE u.{condition} ORDER BY {order} LIMIT {SHOWN}""").fetchall()
    lines = []
    for n, *told in found:
        rows, values = told[: len(streams)], told[len(streams) :]
        details = ", ".join(f"{name} {words(value, kind)}" for (name, kind), value in zip(shown, values))
        times = f" {abs(n)} times" if abs(n) > 1 else ""
        lines.append(f"{_rows_words(streams, rows)}{times} ({details})")
    return lines


def _rows_words(streams: tuple[Stream, ...], rows: Sequence[int]) -> str:
    return ", ".join(f"{stream.name}_row {row}" for stream, row in zip(streams, rows))


def _value_differences(
    database: DuckDBPyConnection, columns: list[Wanted], streams: tuple[Stream, ...], written: list[str]
) -> list[Difference]:
    """Finds columns whose value is not that of the input row which the result names."""
    joined = f"FROM actual a {_joined(streams, [f'a.{column}' for column in written])}"
    checked = [(i, column) for i, column in enumerate(columns) if f"d{i}" not in written]
    if not checked:
        return []
    counted = ", ".join(f"count(*) FILTER (WHERE {column.differs(i)})" for i, column in checked)
    counts = one_row(database, f"SELECT {counted} {joined}")
    differences = []
    rows = ", ".join(f"a.{column}" for column in written)
    for (i, column), count in zip(checked, counts):
        if count:
            found = database.execute(f"""
                SELECT a.d{i}, {column.source}, {rows} {joined}
                WHERE {column.differs(i)} ORDER BY {rows} LIMIT {SHOWN}""").fetchall()
            lines = [
                f"{_rows_words(streams, own)}: got {column.words(got)}, wanted {column.words(wanted)}"
                for got, wanted, *own in found
            ]
            what = f"results: column {column.name} differs in {plural(count, 'row')}"
            differences.append(Difference(what, tuple(lines)))
    return differences


def _joined(streams: tuple[Stream, ...], rows: Sequence[str]) -> str:
    """The streams as s0, s1, ..., each by its row as SQL."""
    own = zip(streams, rows)
    return " ".join(f"LEFT JOIN {one.table} s{one.index} ON s{one.index}.row = {row}" for one, row in own)


def _multiset_differences(
    database: DuckDBPyConnection, columns: list[Wanted], streams: tuple[Stream, ...]
) -> list[Difference]:
    """Compares how often each combination of values occurs: without all row numbers, a result is known by its values
    alone. Numbers that may differ a little are left out."""
    exact = [(i, column) for i, column in enumerate(columns) if column.off is None]
    if not exact:
        return []
    names = ", ".join(f"d{i}" for i, _ in exact)
    sources = ", ".join(f"{column.source} AS d{i}" for i, column in exact)
    database.execute(f"""
        CREATE TABLE unequal AS SELECT {names}, sum(n)::BIGINT AS n
        FROM (SELECT {sources}, 1 AS n FROM expected e
              {_joined(streams, [f"e.{row_name(stream)}" for stream in streams])}
              UNION ALL SELECT {names}, -1 FROM actual)
        GROUP BY {names} HAVING sum(n) <> 0""")

    def lines_of(condition: str) -> list[str]:
        query = f"SELECT abs(n), {names} FROM unequal WHERE {condition} ORDER BY {names} LIMIT {SHOWN}"
        found = database.execute(query).fetchall()
        return [_values_line([column for _, column in exact], n, values) for n, *values in found]

    return two_sided(database, "results", "unequal", lines_of)


def _values_line(columns: list[Wanted], times: int, values: list[Any]) -> str:
    details = ", ".join(f"{column.name} {column.words(value)}" for column, value in zip(columns, values))
    return f"{details} {times} times" if times > 1 else details
