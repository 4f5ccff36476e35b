"""The result files against the wanted pairs and the columns of their rows."""

from __future__ import annotations

import glob
import os
from typing import Any, Iterator, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from mpijoin.config.job import Job
from mpijoin.verify.inputs import BATCH_ROWS, Stream, insert
from mpijoin.verify.report import SHOWN, Difference, two_sided
from mpijoin.verify.values import canonical, sql_type, stored_type, words

ROWS = ("left_row", "right_row")


class Wanted(NamedTuple):
    """A result column: its name and stored type, and where its values come from as SQL over l (left_in) and r."""

    name: str
    kind: pa.DataType
    source: str


def wanted_columns(job: Job, streams: tuple[Stream, Stream]) -> list[Wanted]:
    """The columns that the results should have, in order."""
    left = streams[0]
    key_names = ["key"] if len(left.job.key) == 1 else [f"key_{name}" for name in left.job.key]
    columns = [_wanted(result, left, name) for result, name in zip(key_names, left.job.key)]
    columns += [_wanted(f"{stream.name}_time", stream, stream.job.time) for stream in streams]
    columns += [Wanted(f"{stream.name}_row", pa.int64(), f"{stream.name[0]}.row") for stream in streams]
    columns += [_wanted(f"{stream.name}_{name}", stream, name) for stream in streams for name in stream.payload]
    by_name = {column.name: column for column in columns}
    return columns if job.output.columns is None else [by_name[name] for name in job.output.columns]


def _wanted(result: str, stream: Stream, name: str) -> Wanted:
    return Wanted(result, stored_type(stream.fields[name]), f"{stream.name[0]}.{stream.column(name)}")


def compare_results(database: Any, run_path: str, job: Job, streams: tuple[Stream, Stream]) -> list[Difference]:
    """Every result row and column. The table `expected` holds the wanted pairs."""
    columns = wanted_columns(job, streams)
    parts = sorted(glob.glob(os.path.join(glob.escape(run_path), "results", "*.parquet")))
    faults = [line for part in parts for line in _part_faults(part, columns)]
    if faults:
        return [Difference("results: files that cannot be compared", tuple(faults[:SHOWN]))]
    sql_columns = ", ".join(f"d{i} {sql_type(column.kind)}" for i, column in enumerate(columns))
    database.execute(f"CREATE TABLE actual ({sql_columns})")
    try:
        insert(database, "actual", _part_rows(parts, columns))
    except (OSError, pa.ArrowException) as error:
        return [Difference(f"results: files that cannot be compared: {error}")]
    if {column.name for column in columns}.issuperset(ROWS):
        return _pair_differences(database, columns, streams) + _value_differences(database, columns)
    return _multiset_differences(database, columns)


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
                    [canonical(batch[column.name], column.kind) for column in columns], names
                )


def _pair_differences(database: Any, columns: list[Wanted], streams: tuple[Stream, Stream]) -> list[Difference]:
    """Pairs that are missing, unexpected, or there more than once."""
    left, right = _row_columns(columns)
    if _all_there(database, left, right):
        return []
    database.execute(f"""
        CREATE TABLE unequal AS SELECT left_row, right_row, sum(n)::BIGINT AS n
        FROM (SELECT left_row, right_row, 1 AS n FROM expected UNION ALL SELECT {left}, {right}, -1 FROM actual)
        GROUP BY left_row, right_row HAVING sum(n) <> 0""")
    return two_sided(database, "results", "unequal", lambda condition: _pair_lines(database, condition, streams))


def _all_there(database: Any, left: str, right: str) -> bool:
    """Whether the written pairs are the wanted ones: these are distinct, so equal numbers and none missing prove it."""
    wanted, got = (database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("expected", "actual"))
    missing = f"FROM expected e ANTI JOIN actual a ON e.left_row = a.{left} AND e.right_row = a.{right}"
    return wanted == got and not database.execute(f"SELECT count(*) {missing}").fetchone()[0]


def _pair_lines(database: Any, condition: str, streams: tuple[Stream, Stream]) -> list[str]:
    """The first pairs of one side, with what the inputs say of their rows."""
    selected = ["u.left_row", "u.right_row", "u.n"]
    shown = []
    for stream in streams:
        for name in (*stream.job.key, stream.job.time):
            selected.append(f"{stream.name[0]}.{stream.column(name)}")
            shown.append((f"{stream.name} {name}", stored_type(stream.fields[name])))
    rows = database.execute(f"""
        SELECT {", ".join(selected)} FROM unequal u
        LEFT JOIN left_in l ON l.row = u.left_row LEFT JOIN right_in r ON r.row = u.right_row
        WHERE u.{condition} ORDER BY u.left_row, u.right_row LIMIT {SHOWN}""").fetchall()
    lines = []
    for left_row, right_row, n, *values in rows:
        details = ", ".join(f"{name} {words(value, kind)}" for (name, kind), value in zip(shown, values))
        times = f" {abs(n)} times" if abs(n) > 1 else ""
        lines.append(f"left_row {left_row}, right_row {right_row}{times} ({details})")
    return lines


def _value_differences(database: Any, columns: list[Wanted]) -> list[Difference]:
    """Columns whose value is not that of the input row which the result names."""
    left, right = _row_columns(columns)
    joined = f"FROM actual a JOIN left_in l ON l.row = a.{left} JOIN right_in r ON r.row = a.{right}"
    checked = [(i, column) for i, column in enumerate(columns) if column.name not in ROWS]
    if not checked:
        return []
    counted = ", ".join(f"count(*) FILTER (WHERE a.d{i} IS DISTINCT FROM {column.source})" for i, column in checked)
    counts = database.execute(f"SELECT {counted} {joined}").fetchone()
    differences = []
    for (i, column), count in zip(checked, counts):
        if count:
            rows = database.execute(f"""
                SELECT a.{left}, a.{right}, a.d{i}, {column.source} {joined}
                WHERE a.d{i} IS DISTINCT FROM {column.source} ORDER BY 1, 2 LIMIT {SHOWN}""").fetchall()
            lines = [
                f"left_row {left_row}, right_row {right_row}: "
                f"got {words(got, column.kind)}, wanted {words(wanted, column.kind)}"
                for left_row, right_row, got, wanted in rows
            ]
            differences.append(Difference(f"results: column {column.name} differs in {count:,} rows", tuple(lines)))
    return differences


def _row_columns(columns: list[Wanted]) -> tuple[str, str]:
    names = [column.name for column in columns]
    return f"d{names.index('left_row')}", f"d{names.index('right_row')}"


def _multiset_differences(database: Any, columns: list[Wanted]) -> list[Difference]:
    """Without both row numbers a result is known by its values alone: compare how often each combination occurs."""
    names = ", ".join(f"d{i}" for i in range(len(columns)))
    sources = ", ".join(f"{column.source} AS d{i}" for i, column in enumerate(columns))
    database.execute(f"""
        CREATE TABLE unequal AS SELECT {names}, sum(n)::BIGINT AS n
        FROM (SELECT {sources}, 1 AS n FROM expected e
              JOIN left_in l ON l.row = e.left_row JOIN right_in r ON r.row = e.right_row
              UNION ALL SELECT {names}, -1 FROM actual)
        GROUP BY {names} HAVING sum(n) <> 0""")

    def lines_of(condition: str) -> list[str]:
        query = f"SELECT abs(n), {names} FROM unequal WHERE {condition} ORDER BY {names} LIMIT {SHOWN}"
        return [_values_line(columns, n, values) for n, *values in database.execute(query).fetchall()]

    return two_sided(database, "results", "unequal", lines_of)


def _values_line(columns: list[Wanted], times: int, values: list[Any]) -> str:
    details = ", ".join(f"{column.name} {words(value, column.kind)}" for column, value in zip(columns, values))
    return f"{details} {times} times" if times > 1 else details
