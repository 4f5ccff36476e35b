"""`mpijoin why` against the results and late files of real runs."""

import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mpijoin
from mpijoin.cli import main


def rows_of(seed, rows):
    """A stream out of order, with null keys and null times."""
    rng = random.Random(seed)
    times = [None if rng.random() < 0.03 else 3 * i - rng.randrange(25) for i in range(rows)]
    keys = [None if rng.random() < 0.05 else f"key {rng.randrange(2)}" for _ in times]
    return pa.table({"ts": pa.array(times, pa.int64()), "key": keys})


@pytest.fixture(scope="module", params=[("left", "right"), ("a", "b", "c")], ids=["two", "three"])
def run(request, tmp_path_factory):
    """A finished run, and the names of its streams."""
    folder = tmp_path_factory.mktemp("why")
    streams = {}
    for seed, name in enumerate(request.param):
        pq.write_table(rows_of(seed, 120), folder / f"{name}.parquet")
        how = {"time": "ts", "time_unit": "s", "key": "key", "window": "9 s", "lateness": "15 s"}
        streams[name] = {"path": str(folder / f"{name}.parquet"), **how}
    return mpijoin.run({"streams": streams, "output": {"path": str(folder / "run")}}, slaves=1), request.param


def asked(capsys, run, *arguments):
    assert main(["why", str(run.path), *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_row_has_the_results_and_the_fate_that_the_run_wrote(capsys, run):
    done, names = run
    written = done.table().to_pylist()
    own = names[1]
    late = {row["row"]: row for row in done.late(own).to_pylist()}
    assert written and late
    for row in [*range(0, 120, 2), *list(late)[:3]]:
        told = asked(capsys, done, "--stream", own, "--row", str(row))
        if row in late:
            assert told["fate"] == late[row]["reason"]
            if told["fate"] == "late":
                assert told["late"]["by_ns"] == (late[row]["watermark"] - late[row]["ts"]) * 10**9 > 0
        else:
            assert told["fate"] in ("joined", "null_key")
            wanted = {tuple(one[f"{name}_row"] for name in names) for one in written if one[f"{own}_row"] == row}
            assert told["results"]["count"] == len(wanted)
            first = {tuple(one[name] for name in names) for one in told["results"]["first"]}
            assert first <= wanted and len(first) == min(10, len(wanted))
            if len(names) == 2:
                other = told["streams"].get(names[0], {"partners": {"count": 0, "first": []}})
                assert other["partners"]["count"] == len(wanted)
                assert {one["row"] for one in other["partners"]["first"]} == {rows[0] for rows in first}
        assert told["notes"] == []


def test_what_a_row_just_missed_lies_outside_the_windows_and_nearest(capsys, run):
    done, names = run
    other = names[0]
    table = pq.read_table(done.path.parent / f"{other}.parquet").to_pylist()
    late = set(done.late(other)["row"].to_pylist())
    told = asked(capsys, done, "--stream", names[1], "--row", "60")
    assert told["fate"] == "joined"
    time, key = int(told["time"]), told["key"][0]
    same = [(one["ts"], row) for row, one in enumerate(table) if one["key"] == key and row not in late]
    after, before = (sorted(one for one in same if sign * (one[0] - time) > 9) for sign in (1, -1))
    missed = told["streams"][other]["missed"]
    assert [(int(one["time"]), one["row"]) for one in missed["after"]] == after[:3]
    assert [(int(one["time"]), one["row"]) for one in missed["before"]] == before[-3:]
    assert [one["missed_by_ns"] for one in missed["after"]] == [(at - time - 9) * 10**9 for at, _ in after[:3]]


def test_a_row_is_named_by_file_or_by_key_and_time_and_shown(capsys, run):
    done, names = run
    by_row = asked(capsys, done, "--stream", names[0], "--row", f"{names[0]}.parquet:60")
    assert by_row["row"] == 60
    named = ["--stream", names[0], "--key", by_row["key"][0], "--time", by_row["time"]]
    assert asked(capsys, done, *named) == by_row
    assert main(["why", str(done.path), *named]) == 0
    shown = capsys.readouterr().out
    assert f"{names[0]}: row 60 ({names[0]}.parquet:60)" in shown and f"\n{names[1]}: " in shown


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--row", "1"], "--stream: is missing, wanted "),
        (["--stream", "x", "--row", "1"], '--stream: got "x", wanted '),
        (["--row", "120"], "has 120 rows, got position 120"),
        (["--row", str(1 << 40)], "would be number 1 of 1 file, from 0"),
        (["--row", "x.parquet:1"], 'got file "x.parquet"'),
        (["--row", "-1"], "wanted the row's number from 0"),
        (["--key", "key 1"], "wanted either --row ROW, or --key KEY and --time TIME"),
        (["--key", "key 1", "--time", "-999"], "with other times"),
        (["--key", "none", "--time", "1"], "nor one of this key"),
        (["--key", "key 1", "--time", "noon"], '--time: got "noon", wanted a value of type int64'),
    ],
)
def test_what_is_no_row_is_refused(capsys, run, arguments, said):
    done, names = run
    stream = [] if "--stream" in arguments or "missing" in said else ["--stream", names[0]]
    assert main(["why", str(done.path), *stream, *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_row_without_a_key_is_a_result_of_its_own_in_an_outer_join(capsys, tmp_path):
    pq.write_table(pa.table({"ts": [1, 2], "key": ["a", None]}), tmp_path / "rows.parquet")
    stream = {"path": str(tmp_path / "rows.parquet"), "time": "ts", "time_unit": "s", "key": "key", "window": "9 s"}
    sides = {"left": stream, "right": {**stream, "columns": []}}
    done = mpijoin.run({**sides, "join": {"type": "left"}, "output": {"path": str(tmp_path / "run")}}, slaves=1)
    assert {row["left_row"] for row in done.table().to_pylist()} == {0, 1}
    assert asked(capsys, done, "--stream", "left", "--row", "0")["key"] == ["a"]
    without = asked(capsys, done, "--stream", "left", "--row", "1")
    assert (without["fate"], without["key"]) == ("null_key", [None])
    assert main(["why", str(done.path), "--stream", "left", "--row", "1"]) == 0
    assert "it is a result without a partner" in capsys.readouterr().out


SAID = {  # of a row of each stream with a partner, and of one without
    "left": ("is in 1 result", "is a result of its own", "is in 1 result", "is in no result"),
    "full": ("is in 1 result", "is a result of its own", "is in 1 result", "is a result of its own"),
    "semi": ("has 1 partner in right, and is a result", "has no partner in right, and is no result",
             "has 1 partner in left, which is a result", "has no partner in left."),
    "anti": ("has 1 partner in right, and is no result", "has no partner in right, and is a result",
             "has 1 partner in left, which is therefore no result", "has no partner in left."),
    "last": ("is one result, with the last of its partners", "is in no result",
             "is a partner of 1 row of left; each is one result, with its last partner", "is in no result"),
    "reduce": ("is one result, worked out of 1 partner", "is in no result",
               "is a partner of 1 row of left; what is worked out of these counts it", "is in no result"),
}  # fmt: skip
JOINS = {"last": {"match": "last"}, "reduce": {"reduce": {"n": "count()"}}}  # the others are types


@pytest.mark.parametrize("kind", SAID)
def test_what_a_row_is_in_depends_on_the_type_of_the_join(capsys, tmp_path, kind):
    stream, sides = {"time": "ts", "time_unit": "s", "key": "key", "window": "9 s"}, {}
    for name, keys in (("left", [1, 2]), ("right", [1, 3])):
        pq.write_table(pa.table({"ts": [1, 2], "key": keys}), tmp_path / f"{name}.parquet")
        sides[name] = {**stream, "path": str(tmp_path / f"{name}.parquet")}
    join = JOINS.get(kind, {"type": kind})
    mpijoin.run({**sides, "join": join, "output": {"path": str(tmp_path / "run")}}, slaves=1)
    said = iter(SAID[kind])
    for name in ("left", "right"):
        for row in ("0", "1"):
            assert main(["why", str(tmp_path / "run"), "--stream", name, "--row", row]) == 0
            shown, wanted = capsys.readouterr().out, next(said)
            assert wanted in shown or wanted.replace("has no partner", "has 0 partners") in shown, shown


@pytest.mark.parametrize("where", [
    "left.x > right.x",
    "right.time - left.time <= '4 s' and left.x is not null and left.name >= right.name and left.at < right.at + '1 d'",
])  # fmt: skip
def test_rows_that_fail_the_condition_are_told_apart_from_partners(capsys, tmp_path, where):
    rng, streams = random.Random(7), {}
    for name in ("left", "right"):
        values = [None if rng.random() < 0.1 else rng.random() for _ in range(80)]
        names = [rng.choice((None, "", "ä", "b", "long " * 9)) for _ in range(80)]
        days = pa.array([rng.randrange(-3, 3) for _ in range(80)], pa.int32()).view(pa.date32())
        table = pa.table({"ts": [2 * i for i in range(80)], "key": [i % 2 for i in range(80)], "x": values})
        table = table.append_column("name", [names]).append_column("at", days)
        pq.write_table(table, tmp_path / f"{name}.parquet")
        how = {"time": "ts", "time_unit": "s", "key": "key", "window": "9 s"}
        streams[name] = {"path": str(tmp_path / f"{name}.parquet"), **how}
    runs = []
    for join in ({"where": where}, {}):
        output = {"path": str(tmp_path / f"run-{len(runs)}"), "columns": ["left_row", "right_row"]}
        job = {**streams, "join": join, "output": output}
        runs.append(mpijoin.run(job, slaves=1))
    wanted, within = ({tuple(row.values()) for row in run.table().to_pylist()} for run in runs)
    assert 0 < len(wanted) < len(within)
    for row in range(0, 80, 9):
        told = asked(capsys, runs[0], "--stream", "left", "--row", str(row))
        other = told["streams"]["right"]
        own = {right for left, right in wanted if left == row}
        assert told["results"]["count"] == other["partners"]["count"] == len(own)
        assert {one["row"] for one in other["partners"]["first"]} == own
        failed = {right for left, right in within if left == row} - own
        assert {one["row"] for one in other["failed"]["first"]} == failed
