"""Runs of the engine itself that verify must agree with: inputs at the edges of what a stream may hold."""

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mpijoin
from mpijoin.verify import verify

ISO = "ts,key,seen\n2024-05-01T00:00:00,7,00:00:01\n2024-05-01T00:00:09,7,00:00:02\n2024-05-01T00:00:04,7,00:00:03\n"


def joined(folder, left, right, **sections):
    """(summary, report of verify) of a real run on one slave."""
    output = {"path": str(folder / "run"), **sections.pop("output", {})}
    job = {"left": left, "right": right, "memory": {"limit": "64 MiB"}, "output": output, **sections}
    return mpijoin.run(job, slaves=1).summary, verify(folder / "run")


@pytest.mark.parametrize("results", ["parquet", "collect", "count"])
def test_one_late_row_of_a_csv_file_with_ordinary_times(tmp_path, results):
    (tmp_path / "picks.csv").write_text(ISO)
    side = {"path": str(tmp_path / "picks.csv"), "time": "ts", "key": "key", "window": "5 s"}
    summary, report = joined(tmp_path, side, side, output={"results": results})
    assert summary["streams"]["left"]["late"] == 1 and summary["results"] == 2 and report.ok, report.text()
    late = pq.read_table(tmp_path / "run" / "late" / "left.parquet")
    assert late["row"].to_pylist() == [2] and late.schema.field("ts").type == pa.timestamp("ms")
    assert ("seen" in late.column_names) == (results != "count")


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("s", "UTC"), pa.date64()], ids=str)
def test_one_late_row_of_what_parquet_does_not_know(tmp_path, kind):
    time = kind if pa.types.is_timestamp(kind) else pa.int64()
    days = pa.array([0, 1, 1], pa.int32()).cast(pa.date32())
    table = pa.table(
        {"ts": pa.array([10, 20, 15]).cast(time), "key": days.cast(kind), "clock": pa.array([1, 2, 3], pa.time32("s"))}
    )
    with pa.OSFile(str(tmp_path / "l.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    side = {"path": str(tmp_path / "l.arrow"), "time": "ts", "key": "key", "window": "5 s"}
    side |= {} if pa.types.is_timestamp(kind) else {"time_unit": "s"}
    summary, report = joined(tmp_path, side, side)
    assert summary["streams"]["right"]["late"] == 1 and summary["results"] == 2 and report.ok, report.text()


@pytest.mark.parametrize("lateness", ["0 s", "50 ms", "2 s"])
def test_a_synthetic_stream_with_late_rows(tmp_path, lateness):
    source = {"kind": "synthetic", "tuples": 3000, "rate": 1000, "domain": 50, "payload_bytes": 12, "window": "100 ms"}
    left, right = ({**source, "seed": seed, "disorder": "200 ms", "lateness": lateness} for seed in (1, 2))
    summary, report = joined(tmp_path, left, right)
    assert (summary["streams"]["left"]["late"] > 100) == (lateness != "2 s") and report.ok, report.text()


def test_the_lowest_time_before_a_null_one(tmp_path):
    table = pa.table({"ts": pa.array([-(2**63), None, -(2**63) + 1, None]), "key": [1, 1, 1, 1]})
    pq.write_table(table, tmp_path / "l.parquet")
    side = {"path": str(tmp_path / "l.parquet"), "time": "ts", "time_unit": "ns", "key": "key", "window": "1 ns"}
    summary, report = joined(tmp_path, side, side)
    assert summary["streams"]["left"]["late"] == 2 and summary["results"] == 4 and report.ok, report.text()
    marks = pq.read_table(tmp_path / "run" / "late" / "left.parquet")["watermark"].to_pylist()
    assert marks == [None, -(2**63) + 1]


def test_csv_files_with_types_of_the_job_and_values_over_several_lines(tmp_path):
    left = "ts,key,note\n1,007,\"two\nlines\"\n2,7,\n3,8," + "x" * 3_000_000 + "\n"
    with gzip.open(tmp_path / "l.csv.gz", "wt") as file:
        file.write(left)
    (tmp_path / "r.csv").write_text("ts,key\n1,7\n2,8\n")
    side = {"time": "ts", "time_unit": "s", "key": "key", "window": "5 s"}
    left, right = (
        {**side, "path": str(tmp_path / "l.csv.gz")},
        {**side, "path": str(tmp_path / "r.csv"), "types": {"key": "string"}},
    )
    summary, report = joined(tmp_path / "strings", left, right)
    assert summary["results"] == 2 and report.ok, report.text()
    numbers = {"types": {"key": "int64"}}
    summary, report = joined(tmp_path / "numbers", {**left, **numbers}, {**right, **numbers})
    assert summary["results"] == 3 and report.ok, report.text()
    assert pq.read_table(tmp_path / "numbers" / "run" / "results")["left_note"].to_pylist()[0] in (
        "two\nlines",
        "",
        "x" * 3_000_000,
    )
