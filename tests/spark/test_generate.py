"""`mpijoin generate` on a real Spark makes the rows of the engine's own source, whatever the partitions and
executors."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mpijoin
from mpijoin.cli import main
from mpijoin.config.columns import synthetic_schema
from mpijoin.config.job import B_MODEL, ZIPF, Change, SyntheticSource
from mpijoin.config.load import load_job
from mpijoin.data.schema import Column
from mpijoin.errors import InputError, OutputError
from mpijoin.pipeline.generate.command import replace_former
from mpijoin.pipeline.generate.pieces import pieces_of
from mpijoin.pipeline.generate.plan import StreamPlan, file_plans
from mpijoin.pipeline.generate.write import write_files
from mpijoin.pipeline.session import plain_errors
from mpijoin.sources.blocks import BlockLimit
from mpijoin.sources.synthetic import SyntheticReader

S = 10**9
SOURCES = {
    "poisson": SyntheticSource(tuples=5000),
    "changes": SyntheticSource(
        duration_ns=5 * S, payload_bytes=9, changes=(Change(2 * S, rate=300.0, bias=0.9), Change(3 * S, rate=900.0))
    ),
    "disorder": SyntheticSource(duration_ns=4 * S, disorder_ns=S, keys=ZIPF, permute=3),
    "disorder of all": SyntheticSource(tuples=3000, disorder_ns=100 * S, payload_bytes=3),
    "bursts": SyntheticSource(tuples=5000, arrivals=B_MODEL, burst=0.8),
    "bursts in disorder": SyntheticSource(duration_ns=3 * S, arrivals=B_MODEL, disorder_ns=S // 3),
    "none": SyntheticSource(tuples=0),
    "one": SyntheticSource(tuples=1, disorder_ns=S),
    "too short": SyntheticSource(duration_ns=1),
}


def read_by_the_engine(source, seed=4, stream=1):
    schema = synthetic_schema(source)
    columns = [Column(field.name, field.type) for field in schema]
    return pa.Table.from_batches(
        list(SyntheticReader(source, seed, stream, columns, BlockLimit(700)).blocks()), schema
    ).combine_chunks()


def made_by_spark(spark, folder, source, rows):
    folder.mkdir()
    plan = StreamPlan("one", source, 4, 1, rows)
    files = write_files(spark, plan, file_plans(plan, pieces_of(spark, plan)), folder)
    assert [path.name for path in sorted(folder.iterdir())] == [file.file for file in files]
    tables = [pq.read_table(folder / file.file) for file in files]
    assert [table.num_rows for table in tables] == [file.rows for file in files]
    return pa.concat_tables([synthetic_schema(source).empty_table(), *tables]).combine_chunks(), files


@pytest.mark.parametrize("name", SOURCES)
def test_the_rows_are_those_of_the_engine(spark, tmp_path, name):
    source = SOURCES[name]
    wanted = read_by_the_engine(source)
    sums = set()
    for rows in (701, 100_000) if wanted.num_rows else (10,):
        found, files = made_by_spark(spark, tmp_path / str(rows), source, rows)
        assert found.equals(wanted)
        sums.add(sum(int(file.checksum, 16) for file in files) % 2**64)
        time = found["ts"].cast(pa.int64()).to_numpy()
        if len(time):
            lag = np.maximum.accumulate(time) - time
            assert max(file.lag_ns for file in files) <= lag.max() <= source.disorder_ns
            assert (
                min(f.first_ns for f in files if f.rows) == time.min()
                and max(f.last_ns for f in files if f.rows) == time.max()
            )
    assert len(sums) == 1


def test_times_and_keys_are_packed_and_payload_is_compressed(spark, tmp_path):
    source = SyntheticSource(tuples=5000, payload_bytes=20)
    _, (file,) = made_by_spark(spark, tmp_path / "made", source, 100_000)
    group = pq.read_metadata(tmp_path / "made" / file.file).row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    assert [column.compression for column in columns] == ["UNCOMPRESSED", "UNCOMPRESSED", "ZSTD"]
    assert ["DELTA_BINARY_PACKED" in column.encodings for column in columns] == [True, True, False]


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_partitions_of_spark_change_nothing(spark, tmp_path, partitions, monkeypatch):
    source, plain = SOURCES["disorder"], type(spark).range
    monkeypatch.setattr(
        type(spark), "range", lambda self, start, stop, numPartitions: plain(self, start, stop, 1, partitions)
    )
    assert made_by_spark(spark, tmp_path / "out", source, 500)[0].equals(read_by_the_engine(source))


JOB = """
[left]
kind = "synthetic"
tuples = 4000
domain = 500
window = "300 ms"
[right]
kind = "synthetic"
duration = "3 s"
domain = 500
disorder = "200 ms"
window = "100 ms"
lateness = "200 ms"
"""


def test_the_command_leaves_streams_manifest_and_a_job_that_gives_the_same_pairs(spark, tmp_path, capsys):
    job, folder = tmp_path / "job.toml", tmp_path / "streams"
    job.write_text(JOB)
    assert main(["generate", str(job), "-o", str(folder), "--set", "run.seed=5"]) == 0
    manifest = json.loads((folder / "manifest.json").read_text())["streams"]
    assert list(manifest) == ["left", "right"] and manifest["left"]["rows"] == 4000
    assert [manifest[name]["stream"] for name in manifest] == [0, 1] and manifest["right"]["seed"] == 5
    assert 0 < manifest["right"]["lag_ns"] <= 2e8 and manifest["left"]["lag_ns"] == 0
    job.write_text(JOB)
    direct = mpijoin.run(str(job), overrides=["run.seed=5", f"output.path={tmp_path / 'direct'}"])
    read = mpijoin.run(str(folder / "job.toml"), overrides=[f"output.path={tmp_path / 'read'}"])
    # One file a stream: even the row numbers, and so the certificates, are the same.
    assert read.summary["certificate"] == direct.summary["certificate"] and read.results == direct.results > 1000
    assert main(["generate", str(job), "-o", str(folder)]) == 2 and "is not empty" in capsys.readouterr().err
    capsys.readouterr()
    again = ["generate", str(job), "-o", str(folder), "--overwrite", "--rows-per-file", "1000", "--quiet"]
    assert main(again) == 0
    said = capsys.readouterr()
    assert said.err == "" and said.out.count("\n") == 1 and f"join them: mpijoin run {folder / 'job.toml'}" in said.out
    assert len(list((folder / "left").iterdir())) == 4


def test_each_synthetic_stream_of_a_job_is_made(spark, tmp_path):
    job, folder = tmp_path / "job.toml", tmp_path / "streams"
    synthetic = 'kind = "synthetic"\ntuples = {}\nwindow = "1 s"\n'
    (tmp_path / "own.csv").write_text("ts,key\n1,1\n")
    tables = [f"[streams.{name}]\n{synthetic.format(rows)}" for name, rows in (("picks", 30), ("S_2", 20))]
    job.write_text("\n".join([tables[0], '[streams.own]\npath = "own.csv"\ntime_unit = "s"\n', tables[1]]))
    assert main(["generate", str(job), "-o", str(folder)]) == 0
    manifest = json.loads((folder / "manifest.json").read_text())["streams"]
    assert {name: (one["rows"], one["stream"]) for name, one in manifest.items()} == {"picks": (30, 0), "S_2": (20, 2)}
    read = load_job(folder / "job.toml")
    assert [(stream.name, stream.source.path) for stream in read.streams] == [
        ("picks", str(folder / "picks")), ("own", str(tmp_path / "own.csv")), ("S_2", str(folder / "S_2")),
    ]  # fmt: skip
    assert pq.read_table(folder / "S_2").num_rows == 20


def test_files_of_others_survive_overwrite(tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    for name in ("left", ".open/left"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "part").write_text(name)
    replace_former(tmp_path / ".open", tmp_path, [StreamPlan("left", SOURCES["one"], 1, 0, 10)])
    assert (tmp_path / "mine.txt").exists() and (tmp_path / "left/part").read_text() == ".open/left"


def test_what_no_call_has_made_is_not_replaced(tmp_path, capsys):
    job, folder = tmp_path / "streams/job.toml", tmp_path / "streams"
    (folder / "left").mkdir(parents=True)
    job.write_text(JOB)
    (folder / "left/mine.txt").write_text("precious")
    call = ["generate", str(job), "-o", str(folder), "--overwrite"]
    assert main(call) == 2
    said = capsys.readouterr().err
    assert f"does not remove {job}, which no earlier" in said and f"does not remove {folder / 'left/mine.txt'}" in said
    job.rename(tmp_path / "other.toml")
    job.write_text("mine")
    assert main(["generate", str(tmp_path / "other.toml"), *call[2:]]) == 2 and job.read_text() == "mine"
    assert (folder / "left/mine.txt").read_text() == "precious" and str(job) in capsys.readouterr().err


def test_a_stream_without_rows_is_made_and_read_and_pieces_are_no_larger_than_the_stream(spark, tmp_path):
    job, folder = tmp_path / "job.toml", tmp_path / "streams"
    job.write_text(JOB.replace("tuples = 4000", "tuples = 0"))
    assert main(["generate", str(job), "-o", str(folder), "--rows-per-file", str(10**20)]) == 0
    ran = mpijoin.run(str(folder / "job.toml"), overrides=["output.results=count"])
    joined = {name: stream["joined"] for name, stream in ran.summary["streams"].items()}
    assert ran.results == joined["left"] == 0 < joined["right"]


def test_what_goes_wrong_is_said_plainly(spark, tmp_path, capsys):
    plan = StreamPlan("left", SyntheticSource(tuples=5000, rate=1e-7), 1, 0, 1000)
    with pytest.raises(InputError, match=r"\[left\] rate: times leave 64-bit"):
        pieces_of(spark, plan)
    plan = StreamPlan("left", SOURCES["poisson"], 1, 0, 1000)
    with pytest.raises(OutputError, match="gone/left-00000.*cannot be written"), plain_errors():
        write_files(spark, plan, file_plans(plan, pieces_of(spark, plan)), tmp_path / "gone")
    job = tmp_path / "job.toml"
    job.write_text(JOB.replace('"3 s"', '"3 x"'))
    assert main(["generate", str(job), "-o", str(tmp_path / "out")]) == 2
    assert "[right] duration" in capsys.readouterr().err and not (tmp_path / "out").exists()
