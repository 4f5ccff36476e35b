"""A finished run directory made without the engine. A slow join in plain Python writes what a correct run would."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import oracle
from mpijoin.config.dump import dump_job
from mpijoin.config.load import load_job
from mpijoin.data.files import expand_files
from mpijoin.rundir import RunDirectory
from mpijoin.sinks.parts import PartWriter

UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def read_rows(job, table_of):
    """Returns the rows of a stream as dicts with row number, time in ns, and fate by the late rule.

    table_of: a function that returns the table of a file.
    """
    rows = []
    for index, path in enumerate(expand_files(job.source.path)):
        table = table_of(path)
        kind = table.schema.field(job.time).type
        unit_ns = UNIT_NS[kind.unit if pa.types.is_timestamp(kind) else job.time_unit]
        ticks = table[job.time].cast(pa.int64()).to_pylist()
        keys = list(zip(*(table[name].to_pylist() for name in job.key)))
        highest = None
        for position, (tick, key) in enumerate(zip(ticks, keys)):
            time = None if tick is None else tick * unit_ns
            mark = None if highest is None else highest - job.lateness_ns
            fate = "joins"
            if None in key:
                fate = "null_key"
            elif time is None:
                fate = "null_time"
            elif mark is not None and time < mark:
                fate = "late"
            if time is not None:
                highest = time if highest is None else max(highest, time)
            mark_raw = None if mark is None else mark // unit_ns
            rows.append(
                {
                    "row": (index << 40) + position,
                    "time": time,
                    "key": key,
                    "fate": fate,
                    "mark": mark_raw,
                    "at": len(rows),
                }
            )
    return rows


def brute_results(job, streams):
    """Returns all combinations of rows that belong together by the definition. streams: the rows of each."""
    found = [()]
    for rows in streams:
        joins = [row for row in rows if row["fate"] == "joins"]
        found = [(*some, row) for some in found for row in joins if not some or row["key"] == some[0]["key"]]
        found = [some for some in found if waits(job, some)]
    return found


def waits(job, rows):
    """Returns whether each of these rows, one of each of the first streams, waits for the latest of them."""
    latest = max(row["time"] for row in rows)
    windows = [stream.window_ns for stream in job.streams]
    return all(window is None or latest <= row["time"] + window for row, window in zip(rows, windows))


def plain(column):
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def result_table(job, tables, results):
    """Returns the results with keys, times, rows and payload, in the types of the sources."""
    sides = list(zip(*results)) or [()] * len(tables)
    taken = [table.take(pa.array([row["at"] for row in rows], pa.int64())) for table, rows in zip(tables, sides)]
    names = ["key"] if len(job.streams[0].key) == 1 else [f"key_{name}" for name in job.streams[0].key]
    columns = {name: plain(taken[0][key]) for name, key in zip(names, job.streams[0].key)}
    for stream, table in zip(job.streams, taken):
        columns[f"{stream.name}_time"] = plain(table[stream.time])
    for stream, rows in zip(job.streams, sides):
        columns[f"{stream.name}_row"] = pa.array([row["row"] for row in rows], pa.int64())
    for stream, table in zip(job.streams, taken):
        for name in stream.columns or [n for n in table.column_names if n not in (stream.time, *stream.key)]:
            columns[f"{stream.name}_{name}"] = plain(table[name])
    chosen = job.output.columns or columns
    return pa.table({name: columns[name] for name in chosen})


def late_table(stream, table, rows):
    """Returns the table of a stream's late file."""
    late = [row for row in rows if row["fate"] in ("late", "null_time")]
    kept = table.select([stream.time, *stream.key]).take(pa.array([row["at"] for row in late], pa.int64()))
    names = {name: name + "_" if name in ("row", "watermark", "reason") else name for name in kept.column_names}
    kept = pa.table({names[name]: plain(kept[name]) for name in kept.column_names})
    kept = kept.append_column("row", pa.array([row["row"] for row in late], pa.int64()))
    kind = table.schema.field(stream.time).type
    kept = kept.append_column("watermark", pa.array([row["mark"] for row in late], pa.int64()).cast(kind))
    return kept.append_column("reason", pa.array([row["fate"] for row in late], pa.string()))


def fake_run(path: Path, document, tables) -> RunDirectory:
    """Makes a run directory for the job in `document`. `tables` maps each input file to the table it holds."""
    job = load_job({**document, "output": {"path": str(path), **document.get("output", {})}})
    run = RunDirectory.create(path, dump_job(job))
    rows = [read_rows(stream, lambda file: tables[Path(file)]) for stream in job.streams]
    whole = [
        pa.concat_tables([tables[Path(file)] for file in expand_files(stream.source.path)]) for stream in job.streams
    ]
    results = brute_results(job, rows)
    parts = []
    if job.output.results != "count":
        table = result_table(job, whole, results)
        writer = PartWriter(run.open_results, "rank-1", table.schema, part_bytes=1 << 20)
        writer.write(table)
        parts = writer.close()
    for stream, table, stream_rows in zip(job.streams, whole, rows):
        pq.write_table(late_table(stream, table, stream_rows), run.open_late(stream.name))
    run.commit([part.name for part in parts])
    certificate = oracle.certificate([[row["row"] for row in some] for some in results])
    told = {stream.name: counts(own) for stream, own in zip(job.streams, rows)}
    run.write_summary({"results": len(results), "certificate": certificate, "streams": told})
    return run


def counts(rows):
    fates = [row["fate"] for row in rows]
    late = fates.count("late") + fates.count("null_time")
    return {"read": len(fates), "joined": fates.count("joins"), "late": late, "null_key": fates.count("null_key")}
