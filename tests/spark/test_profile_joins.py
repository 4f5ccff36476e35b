"""`mpijoin profile` of jobs with a type of join, a condition, match or reduce, on a real Spark, against DuckDB."""

import argparse
import json
import re

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mpijoin.config.check import resolve
from mpijoin.config.dump import dump_job
from mpijoin.config.load import load_job
from mpijoin.pipeline.profile import scan_pairs
from mpijoin.pipeline.profile.advice import advise
from mpijoin.pipeline.profile.command import add_arguments, main_profile
from mpijoin.pipeline.profile.report import text_of
from mpijoin.pipeline.profile.scan_all import scan

ROWS = 4000
WINDOWS = {"left": "400 s", "right": "100 s"}
IN_WINDOW = "r.ts BETWEEN l.ts - 100 AND l.ts + 400"
ALONE = {"left": "l", "right": "r", "full": "lr", "anti": "l"}


def made(chance, rows, null_keys=0.0):
    """Half of the rows have key 0. x is one of 0 to 99, y a third null, z often NaN."""
    key = np.where(chance.random(rows) < 0.5, 0, chance.integers(1, 200, rows))
    return pa.table({
        "ts": pa.array(np.sort(chance.integers(0, 2000, rows))),
        "key": pa.array(key, mask=chance.random(rows) < null_keys),
        "x": pa.array(chance.integers(0, 100, rows).astype(np.uint8)),
        "y": pa.array(chance.integers(-50, 50, rows), pa.int16(), mask=chance.random(rows) < 1 / 3),
        "z": pa.array(np.where(chance.random(rows) < 0.3, np.nan, chance.normal(size=rows)), pa.float32()),
        "t": pa.array(chance.random(rows) < 0.5, mask=chance.random(rows) < 0.3),
    })  # fmt: skip


@pytest.fixture(scope="module")
def streams(tmp_path_factory):
    """Paths of two streams with about 900,000 pairs; of two small ones with nulls among their keys."""
    folder, chance = tmp_path_factory.mktemp("streams"), np.random.default_rng(4)
    for size, rows, null_keys in (("large", ROWS, 0), ("small", 400, 0.1)):
        for side in ("left", "right"):
            pq.write_table(made(chance, rows, null_keys), folder / f"{size}_{side}.parquet")
    return folder


def job_of(streams, size, where="", **join):
    sections = {
        side: {"path": str(streams / f"{size}_{side}.parquet"), "time": "ts", "time_unit": "s", "key": "key",
               "window": window}
        for side, window in WINDOWS.items()
    }  # fmt: skip
    return load_job({**sections, "join": join | ({"where": where} if where else {})})


def profiled(spark, *args, **join):
    job = job_of(*args, **join)
    return scan(spark, job, resolve(job), 3, "exact")


def truth(streams, size, holds="true", type="inner", match="all", reduce=None):
    """The number of results by DuckDB. holds: the condition over l and r."""
    with duckdb.connect() as database:
        for name, side in (("l", "left"), ("r", "right")):
            path = streams / f"{size}_{side}.parquet"
            database.execute(f"CREATE TABLE {name} AS SELECT *, row_number() OVER () AS n FROM '{path}'")
        database.execute(f"CREATE TABLE pairs AS SELECT l.n AS l, r.n AS r FROM l JOIN r ON l.key = r.key "
                         f"WHERE {IN_WINDOW} AND ({holds})")  # fmt: skip
        parts = [f"FROM {one} WHERE n NOT IN (SELECT {one} FROM pairs)" for one in ALONE.get(type, "")]
        if type == "semi" or match != "all" or reduce:
            parts.append("FROM (SELECT DISTINCT l FROM pairs)")
        elif type != "anti":
            parts.append("FROM pairs")
        return sum(database.execute(f"SELECT count(*) {part}").fetchone()[0] for part in parts)


@pytest.mark.parametrize(
    "where, holds",
    [("key == 0 and left.x == 7", "l.key = 0 AND l.x = 7"), ("left.y > right.y", "l.y > r.y")],
)
def test_a_condition_keeps_as_many_pairs_as_its_sample_says(spark, streams, where, holds):
    """The error is one at 95 %, so half as much again is let pass."""
    found = profiled(spark, streams, "large", where)
    all_pairs, wanted = truth(streams, "large"), truth(streams, "large", holds)
    assert found.pairs.is_exact and found.pairs.results == all_pairs > 500_000
    (sample,) = found.expected.samples
    assert sample.of == all_pairs and sample.taken == pytest.approx(95_000, rel=0.02)
    assert not found.expected.is_exact
    assert abs(found.expected.results - wanted) <= 1.5 * found.expected.error < 0.15 * wanted
    assert found.expected.per_slot.sum() == pytest.approx(found.expected.results)


def test_the_hot_key_decides_and_a_sample_of_keys_would_have_been_wrong(streams):
    """Nearly all pairs have the hot key, which is one of 200: what the cases above rest on."""
    share = truth(streams, "large", "l.key = 0") / truth(streams, "large")
    assert 0.98 < share < 0.999


@pytest.mark.parametrize(
    "where, holds, join",
    [
        ("not (left.y > 0 and right.t)", "NOT (l.y > 0 AND r.t)", {"type": "full"}),
        ("left.z >= right.z or right.y is null", "l.z >= r.z OR r.y IS NULL", {"type": "anti"}),
        ("abs(left.time - right.time) < '9 s' and left.x * left.y > 100",
         "abs(l.ts - r.ts) < 9 AND l.x::BIGINT * l.y > 100", {"match": "nearest"}),
        ("", "true", {"type": "left", "reduce": {"n": "count()"}}),
    ],
)  # fmt: skip
def test_results_of_a_small_join_are_counted_exactly(spark, streams, where, holds, join):
    found = profiled(spark, streams, "small", where, **join)
    assert found.expected.is_exact and found.expected.error == 0
    assert found.expected.results == truth(streams, "small", holds, **join) > 0
    assert found.expected.per_slot.sum() == pytest.approx(found.expected.results)
    assert found.pairs.results == truth(streams, "small")


@pytest.mark.parametrize("kind, where, holds", [("full", "left.x > right.x", "l.x > r.x"), ("semi", "", "true")])
def test_partners_may_lie_in_the_range_of_time_before_or_after(spark, tmp_path, kind, where, holds):
    chance = np.random.default_rng(6)
    for side in ("left", "right"):
        columns = {"ts": np.sort(chance.integers(0, 100_000, 3000)), "key": chance.integers(0, 9, 3000)}
        table = pa.table(columns | {"x": chance.integers(0, 9, 3000)})
        pq.write_table(table, tmp_path / f"spread_{side}.parquet")
    found = profiled(spark, tmp_path, "spread", where, type=kind).expected
    assert found.ranges.count > 20 and found.is_exact
    assert found.results == truth(tmp_path, "spread", holds, kind) > 1000


@pytest.mark.parametrize("join", [{"type": "full"}, {"match": "last"}])
def test_rows_are_estimated_within_the_error(spark, streams, join, monkeypatch):
    """From samples of some hundreds, of rows of which many have partners that all fail the condition."""
    monkeypatch.setattr(scan_pairs, "ROWS_SAMPLED", 800)
    monkeypatch.setattr(scan_pairs, "PAIRS_SAMPLED", 20_000)
    found = profiled(spark, streams, "large", "left.y > 0 and right.x == left.x", **join)
    wanted = truth(streams, "large", "l.y > 0 AND r.x = l.x", **join)
    assert not found.expected.is_exact
    assert abs(found.expected.results - wanted) <= 1.5 * found.expected.error < 0.3 * wanted
    assert all(sample.taken < sample.of for sample in found.expected.samples)


def test_ranges_of_time_and_pairs_are_sampled_together(spark, tmp_path):
    """Short windows: most ranges of time are left out, and the condition holds in the second half only."""
    chance = np.random.default_rng(8)
    for side in ("left", "right"):
        ts = np.sort(chance.integers(0, 2_000_000, 60_000))
        table = pa.table({"ts": ts, "key": chance.integers(0, 3, 60_000), "x": (ts > 1_000_000).astype(np.int8)})
        pq.write_table(table, tmp_path / f"large_{side}.parquet")
    job = job_of(tmp_path, "large", "left.x == 1 and right.x == 1", type="left")
    found = scan(spark, job, resolve(job), 3, 0.2)
    expected = found.expected
    wanted = truth(tmp_path, "large", "l.x = 1 AND r.x = 1", "left")
    assert 0 < expected.counted < 0.3 * expected.ranges.count
    assert abs(expected.results - wanted) <= 1.5 * expected.error < 0.5 * wanted
    assert "ranges of time" in text_of(found, advise(found), 64)


def test_what_no_sampled_pair_holds_is_below_a_bound(spark, streams):
    found = profiled(spark, streams, "large", "left.x == 200")
    assert found.expected.is_bound and 10 < found.expected.results == found.expected.error < 200
    text = text_of(found, advise(found), 64)
    assert re.search(r"results expected: below \d+ \(95 %, an estimate\)", text)
    assert "the condition holds for none of" in text


def test_the_command_tells_all_and_leaves_a_job_with_the_same_join(spark, streams, tmp_path, capsys):
    path, folder = tmp_path / "job.toml", tmp_path / "out"
    job = job_of(streams, "large", "left.x > 2 * right.x", type="full")
    path.write_text(dump_job(job._replace(output=job.output._replace(path="run"))))
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert main_profile(parser.parse_args([str(path), "-o", str(folder), "--no-figures"])) == 0
    text = capsys.readouterr().out
    told = json.loads((folder / "profile.json").read_text())["expected"]
    assert load_job(folder / "job.toml").join == job.join
    assert told["pairs"]["results"] == truth(streams, "large")
    assert f"pairs of equal keys in the windows: {told['pairs']['results']:,} (exact" in text
    assert abs(told["results"] - truth(streams, "large", "l.x > 2 * r.x", "full")) <= 1.5 * told["error_95"]
    assert told["type"] == "full" and [sample["stream"] for sample in told["samples"]] == [None, "left", "right"]
    assert "of them rows of left without partner" in text and "rows of right without partner" in text
