"""`mpijoin profile` on a real Spark: what it finds is compared with what is known, and with runs of the engine."""

import argparse
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import mpijoin
import oracle
from mpijoin.config.check import load_and_resolve, resolve
from mpijoin.config.job import SyntheticSource
from mpijoin.config.load import load_job
from mpijoin.data.schema import Column
from mpijoin.errors import InputError, JobError
from mpijoin.pipeline.profile.command import add_arguments, main_profile
from mpijoin.pipeline.profile.scan import extent, open_stream
from mpijoin.pipeline.profile.scan_all import scan
from mpijoin.sources.synthetic import SyntheticReader

ROOT = Path(__file__).parents[2]
ITALY = ROOT / "tests" / "data" / "italy_picks"
TUPLES = 1_000_000


def options_of(*arguments):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(list(map(str, arguments)))


def profile(spark, left, right, sample="auto", top=5, **both):
    """Of two paths; windows and other fields of [left] as left_window ..."""
    sections = {
        side: {"time": "ts", "key": "key", "path": str(path)} for side, path in (("left", left), ("right", right))
    }
    for name, value in both.items():
        side, _, field = name.partition("_")
        for section in sections if side == "both" else [side]:
            sections[section][field] = value
    job = load_job(sections)
    return scan(spark, job, resolve(job), top, sample)


def write(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def synthetic(path, stream, bias, tuples, domain=10_000_000, **parquet):
    columns = [Column("ts", pa.timestamp("ns")), Column("key", pa.int64())]
    source = SyntheticSource(rate=1500, bias=bias, domain=domain, tuples=tuples)
    table = pa.Table.from_batches(list(SyntheticReader(source, 7, stream, columns).blocks()))
    pq.write_table(table, path, **parquet)
    return path


def results_of(paths, windows):
    streams = {}
    for side, path, window in zip(("left", "right"), paths, windows):
        table = pq.read_table(path)
        unit = {} if pa.types.is_timestamp(table["ts"].type) else {"time_unit": "us"}
        streams[side] = {"table": table, "time": "ts", "key": "key", "window": window, **unit}
    return mpijoin.run({**streams, "output": {"results": "count"}}).results


@pytest.mark.parametrize("windows", [("20 s", "0 s"), ("20 s", "20 s"), ("0 s", "10 d")])
def test_expected_results_of_real_data_are_those_of_a_run(spark, windows):
    left, right = ITALY / "left.parquet", ITALY / "right.parquet"
    found = profile(spark, left, right, both_time_unit="us", left_window=windows[0], right_window=windows[1])
    assert found.expected.is_exact and found.expected.error == 0
    known = {("20 s", "0 s"): 32_799, ("20 s", "20 s"): 53_869}
    truth = known.get(windows) or results_of((left, right), windows)
    assert found.expected.results == truth
    assert found.expected.per_slot.sum() == truth and len(found.expected.per_slot) > 500


def test_real_data_is_as_it_is_known(spark):
    found = profile(spark, ITALY / "left.parquet", ITALY / "right.parquet", both_time_unit="us", left_window="20 s")
    left, right = found.sides
    assert (left.extent.rows, right.extent.rows) == (35_435, 49_854)
    assert (left.keys.sums.distinct, right.keys.sums.distinct, found.common) == (60, 60, 60)
    assert (left.extent.disorder, right.extent.disorder) == (0, 0)
    assert found.top[0].key == "YR.ED10"
    assert left.keys.top_share == pytest.approx(0.066, abs=5e-4) and right.keys.top_share == pytest.approx(
        0.0465, abs=5e-4
    )
    times = pq.read_table(ITALY / "left.parquet")["ts"].to_numpy()
    counts = np.histogram(times, 1 << 16, (times[0], times[-1] + 1))[0]
    assert np.abs(left.arrivals.counts - counts).sum() <= 2  # an edge may fall to either side
    assert left.arrivals.hurst == pytest.approx(0.61, abs=0.06)
    assert left.keys.cells is None and not left.keys.skew.is_trusted
    assert left.extent.blob_bytes == pytest.approx(7.3, abs=0.1)
    in_window = np.arange(1, len(times) + 1) - np.searchsorted(times, times - 20_000_000)
    assert in_window.max() <= left.state_tuples <= 2 * in_window.max()


@pytest.mark.parametrize("bias", [0.5, 0.7])
def test_b_of_a_million_tuples_comes_back(spark, tmp_path, bias):
    left = synthetic(tmp_path / "left.parquet", 0, bias, TUPLES)
    right = synthetic(tmp_path / "right.parquet", 1, bias, 1000)
    found = profile(spark, left, right, left_window="1 s").sides[0]
    assert found.keys.skew.is_trusted and found.keys.skew.bias == pytest.approx(bias, abs=0.01)
    assert found.keys.plot.line.r2 > 0.999
    assert found.arrivals.entropy.is_linear and found.arrivals.entropy.bias == pytest.approx(0.5, abs=0.02)
    assert found.arrivals.rate == pytest.approx(1500, rel=0.01)
    assert found.arrivals.hurst == pytest.approx(0.5, abs=0.05)
    keys, count = np.unique(pq.read_table(left)["key"].to_numpy(), return_counts=True)
    assert (found.keys.sums.distinct, found.keys.sums.most, found.keys.sums.rows) == (len(keys), count.max(), TUPLES)


def test_expected_results_of_skewed_streams_are_those_of_a_run_and_a_sample_comes_near(spark, tmp_path):
    left, right = (synthetic(tmp_path / f"{i}.parquet", i, 0.7, 300_000, 10_000, row_group_size=50_000) for i in (0, 1))
    truth = results_of((left, right), ("3 s", "2 s"))
    windows = {"left_window": "3 s", "right_window": "2 s"}
    exact = profile(spark, left, right, "exact", **windows).expected
    assert exact.is_exact and exact.results == truth > 10_000
    short = {"left_window": "20 ms", "right_window": "10 ms"}
    few = profile(spark, left, right, "exact", **short).expected
    sampled = profile(spark, left, right, 0.2, **short).expected
    assert not sampled.is_exact and sampled.counted == pytest.approx(0.2 * sampled.ranges.count, abs=1)
    assert abs(sampled.results - few.results) <= 2 * sampled.error < few.results


def test_results_of_three_streams_are_counted_by_their_latest_tuples(spark, tmp_path):
    generator = np.random.default_rng(3)
    windows = {"p": "2 ms", "s": "unbounded", "trigger": "0 s"}
    streams, rows = {}, []
    for name, window in windows.items():
        ts, key = np.sort(generator.integers(0, 40, 60)), generator.integers(0, 3, 60)
        path = write(tmp_path / f"{name}.parquet", ts=pa.array(ts), key=pa.array(key))
        streams[name] = {"path": str(path), "time": "ts", "time_unit": "ms", "key": "key", "window": window}
        rows.append([(int(when), int(what), row) for row, (when, what) in enumerate(zip(ts, key))])
    job = load_job({"streams": streams})
    found = scan(spark, job, resolve(job), 5, "exact")
    assert found.expected.results == len(oracle.join(rows, (2, None, 0))) > 100
    assert [side.name for side in found.sides] == list(windows) and found.common == 3
    assert sum(one.of_all for one in found.top) == 180 and len(found.top[0].tuples) == 3


def test_a_call_that_has_too_many_rows_is_cut_by_key(spark, tmp_path, monkeypatch):
    from mpijoin.pipeline.profile import results, scan_results

    left, right = (synthetic(tmp_path / f"{i}.parquet", i, 0.7, 20_000) for i in (0, 1))
    wanted = results_of((left, right), ("5 s", "5 s"))
    monkeypatch.setattr(scan_results, "sharing", lambda rows: results.sharing(rows, 3000))
    assert profile(spark, left, right, "exact", left_window="5 s", right_window="5 s").expected.results == wanted


def test_nulls_disorder_and_several_files(spark, tmp_path):
    folder = tmp_path / "left[1] {x}"  # signs that a glob would read otherwise
    folder.mkdir()
    write(
        folder / "a.parquet",
        ts=pa.array([10, 50, 20, None, 60], pa.int64()),
        key=pa.array([1, 1, None, 2, 3], pa.int32()),
    )
    write(folder / "b.parquet", ts=pa.array([5, 5, 4, 100], pa.int64()), key=pa.array([1, 2, 3, None], pa.int32()))
    right = write(
        tmp_path / "right.parquet", ts=pa.array([11, 12, 5, 61], pa.int64()), key=pa.array([1, 1, 2, 3], pa.int64())
    )
    found = profile(spark, folder, right, both_time_unit="ms", left_window="2 ms", right_window="0 s")
    left = found.sides[0]
    assert (left.extent.rows, left.extent.null_time, left.extent.null_key, left.extent.joinable) == (9, 1, 2, 6)
    assert (left.extent.first, left.extent.last) == (4, 60)
    assert left.extent.disorder == 30 and left.disorder_ns == 30_000_000
    assert found.sides[1].extent.disorder == 7
    assert found.expected.results == 4  # (10, 11), (10, 12), (5, 5), (60, 61)
    assert found.common == 3


def test_disorder_across_the_pieces_of_a_file(spark, tmp_path):
    """A file that several tasks read, whose pieces are each in order."""
    times = np.concatenate([np.arange(10_000), np.arange(9_000, 20_000), np.arange(19_990, 40_000)])
    path = tmp_path / "left.parquet"
    pq.write_table(pa.table({"ts": times, "key": times % 7}), path, row_group_size=5_000)
    spark.conf.set("spark.sql.files.maxPartitionBytes", "20000")
    try:
        own = {"path": str(path), "time": "ts", "time_unit": "us", "key": "key"}
        job = load_job({"left": own, "right": own})
        schema = resolve(job)
        stream = open_stream(spark, job.streams[0], schema.streams[0], schema.unit)
        assert stream.frame.rdd.getNumPartitions() > 2
        assert extent(stream).disorder == 999
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")


TIMES_US = [0, 1_000_000, 2_500_000]


@pytest.mark.parametrize(
    "values, kind",
    [
        (pa.array(["a", "b", "a"]), pa.timestamp("ms")),
        (pa.array(["a", "b", "a"]).dictionary_encode(), pa.timestamp("us")),
        (pa.array([b"a", b"b", b"a"]), pa.timestamp("ns")),
        (pa.array([True, False, True]), pa.timestamp("us", "UTC")),
        (pa.array([5, 6, 5], pa.uint64()), pa.timestamp("ns", "UTC")),
        (pa.array([2**63 + 5, 6, 2**63 + 5], pa.uint64()), pa.timestamp("us")),
        (pa.array([5, 6, 5], pa.uint8()), pa.timestamp("us")),
        (pa.array([-5, 6, -5], pa.int8()), pa.timestamp("us")),
        (pa.array([5, 6, 5], pa.date32()), pa.timestamp("us")),
        (pa.array([5, 6, 5], pa.timestamp("us")), pa.timestamp("us")),
    ],
    ids=lambda value: str(value.type if isinstance(value, pa.Array) else value),
)
def test_keys_and_times_of_every_type(spark, tmp_path, values, kind):
    per_unit = {"ms": 1000, "us": 1, "ns": 0.001}[kind.unit]
    times = pa.array([int(time / per_unit) for time in TIMES_US], pa.int64()).cast(kind)
    paths = [write(tmp_path / f"{side}.parquet", ts=times, key=values) for side in ("l", "r")]
    found = profile(spark, *paths, left_window="2.5 s", right_window="2 s")
    assert found.expected.results == 4
    assert (found.sides[0].keys.sums.distinct, found.common) == (2, 2)
    assert found.top[0].tuples == (2, 2)
    assert found.sides[0].arrivals.start_s == 0 and found.sides[0].extent.last * found.sides[0].tick_ns == 2_500_000_000


def test_keys_of_several_columns(spark, tmp_path):
    columns = {
        "ts": pa.array([0, 1, 2], pa.timestamp("us")),
        "net": ["a", "a", "b"],
        "my `key`": pa.array([1, 2, 1], pa.int16()),
    }
    paths = [write(tmp_path / f"{side}.parquet", **columns) for side in ("l", "r")]
    keys = ["net", "my `key`"]
    found = profile(spark, *paths, both_key=keys, left_window="1 s", right_window="1 s")
    assert found.expected.results == 3 and found.sides[0].keys.sums.distinct == 3
    assert found.top[0].key == "a, 1"


def test_one_tuple_and_one_moment(spark, tmp_path):
    one = write(tmp_path / "one.parquet", ts=pa.array([7], pa.timestamp("us")), key=[1])
    many = write(tmp_path / "many.parquet", ts=pa.array([7] * 5, pa.timestamp("us")), key=[1, 1, 2, 2, 1])
    found = profile(spark, one, many)
    assert found.expected.results == 3
    assert found.sides[0].arrivals.hurst is None


def test_times_too_far_apart_for_their_differences_are_refused(spark, tmp_path):
    ends = write(tmp_path / "ends.parquet", ts=pa.array([-(2**62), 0, 2**62], pa.timestamp("ns")), key=[1, 1, 1])
    with pytest.raises(InputError, match="the times from -4611686018427387904 to 4611686018427387904 .* so far apart"):
        profile(spark, ends, ends)


def test_nothing_to_join_is_said(spark, tmp_path):
    empty = write(tmp_path / "empty.parquet", ts=pa.array([1], pa.timestamp("us")), key=pa.array([None], pa.int64()))
    with pytest.raises(InputError, match="none with both a time and a key"):
        profile(spark, empty, empty)


def test_the_command_writes_a_job_that_runs(spark, tmp_path, capsys):
    folder = tmp_path / "out"
    left, right = ITALY / "left.parquet", ITALY / "right.parquet"
    how = ("--time", "ts", "--time-unit", "us", "--key", "key", "--window", "20 s", "-o", folder)
    assert main_profile(options_of(left, right, *how)) == 0
    text = capsys.readouterr().out
    assert (
        "32,799 (exact if no row is late)" in text
        and "YR.ED10" in text
        and f"mpijoin run {folder / 'job.toml'}" in text
    )
    names = {path.name for path in folder.iterdir()}
    assert names == {"profile.json", "job.toml"} | {
        f"{name}.{kind}"
        for name in ("arrivals", "burstiness", "entropy", "keys", "expected")
        for kind in ("png", "csv")
    }
    found = json.loads((folder / "profile.json").read_text())
    assert found["expected"]["results"] == 32_799 and found["expected"]["exact"]
    assert pyarrow.csv.read_csv(folder / "keys.csv").num_rows == 20
    job, _ = load_and_resolve(folder / "job.toml")
    assert job.output.path == str(folder / "run")
    run = mpijoin.run(folder / "job.toml")
    assert run.results == 32_799
    with pytest.raises(JobError, match="not empty"):
        main_profile(options_of(left, right, *how))
    assert (
        main_profile(options_of(left, right, *how, "--overwrite", "--no-figures", "--top", "3", "--bins", "100")) == 0
    )
    assert pyarrow.csv.read_csv(folder / "keys.csv").num_rows == 3
    assert pyarrow.csv.read_csv(folder / "arrivals.csv").num_rows == 128


def test_the_command_takes_a_job_file(spark, tmp_path, capsys):
    folder = tmp_path / "out"
    path = ROOT / "scripts" / "jobs" / "seismic.toml"
    how = ("--no-figures", "--set", "right.window=20 s")
    assert main_profile(options_of(path, "-o", folder, *how)) == 0
    assert "53,869" in capsys.readouterr().out
    assert main_profile(options_of(path, "-o", folder, *how, "--overwrite", "--quiet")) == 0
    said = capsys.readouterr()
    assert said.err == "" and said.out.startswith(f"profile: {folder}; to run: ") and said.out.count("\n") == 1
    written, wanted = load_job(folder / "job.toml"), load_job(path, ["right.window=20 s"])
    assert written == wanted._replace(cluster=written.cluster, tuning=written.tuning)


def test_what_the_command_refuses(tmp_path):
    csv = tmp_path / "x.csv"
    csv.write_text("ts,key\n1,1\n")
    left = ITALY / "left.parquet"
    refused = [
        ((left,) * 3, "wanted a job file, or two"),
        ((left, left), "--window: missing"),
        ((left, left, "--window", "soon"), "wanted a duration"),
        ((left, left, "--window", "1 s", "--time-unit", "us", "--time", "when"), "no column \"when\""),
        ((csv, csv, "--window", "1 s"), "mpijoin prepare"),
        ((ROOT / "scripts" / "jobs" / "wsj.toml",), "synthetic stream"),
        ((ROOT / "scripts" / "jobs" / "seismic.toml", "--window", "1 s"), "go with two paths"),
    ]
    for arguments, message in refused:
        with pytest.raises(JobError) as error:
            main_profile(options_of(*arguments, "-o", tmp_path / "out"))
        assert message in str(error.value)
    with pytest.raises(SystemExit):
        options_of(left, left, "--sample", "2")
    assert not (tmp_path / "out").exists()
