"""verify agrees with right runs of every kind of input, and finds each kind of damage and names it."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import oracle
from fake_run import fake_run
from mpijoin import cli
from mpijoin.config.dump import dump_job
from mpijoin.config.load import load_job
from mpijoin.errors import InputError
from mpijoin.rundir import RunDirectory
from mpijoin.verify import main, verify
from mpijoin.verify.combinations import _hashes

DATA = Path(__file__).parent.parent / "data"


def stream_table(seed, rows, time_type=pa.int64(), step=3, keys=4):
    """A disordered stream with null times, null keys and payload of several types."""
    rng = random.Random(seed)
    ticks, now = [], 1000
    for _ in range(rows):
        now += rng.randrange(step)
        ticks.append(None if rng.random() < 0.02 else now - (rng.randrange(15) if rng.random() < 0.2 else 0))
    return pa.table(
        {
            "ts": pa.array(ticks, pa.int64()).cast(time_type),
            "key": pa.array([None if rng.random() < 0.03 else rng.randrange(keys) for _ in ticks], pa.int32()),
            "value": pa.array([rng.choice([None, 0.0, -0.0, float("nan"), 1.5]) for _ in ticks], pa.float64()),
            "text": pa.array([rng.choice([None, "", "one", "zwölf"]) for _ in ticks]),
        }
    )


def write(path, table):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
        return {path: pyarrow.csv.read_csv(path)}
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        opener = pa.ipc.new_file if path.suffix == ".arrow" else pa.ipc.new_stream
        with opener(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=50)
    return {path: table}


def stream(path, window="5 us", lateness="4 us", **more):
    return {
        "path": str(path),
        "time": "ts",
        "time_unit": "us",
        "key": "key",
        "window": window,
        "lateness": lateness,
        **more,
    }


@pytest.fixture
def run(tmp_path):
    tables = write(tmp_path / "l.parquet", stream_table(1, 300)) | write(tmp_path / "r.parquet", stream_table(2, 250))
    job = {
        "left": stream(tmp_path / "l.parquet"),
        "right": stream(tmp_path / "r.parquet", window="9 us", lateness="8 us"),
    }
    return fake_run(tmp_path / "run", job, tables)


def part_of(run):
    (path,) = run.results.glob("*.parquet")
    return path


def rewrite(path, change):
    pq.write_table(change(pq.read_table(path)), path)


def resummarize(run, **changes):
    path = run.path / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def text_of(run):
    report = verify(run.path)
    assert not report.ok
    return report.text()


def test_a_right_run_is_verified(run, capsys):
    report = verify(run.path)
    assert report.ok and report.results == json.loads((run.path / "summary.json").read_text())["results"] > 100
    assert main(run.path) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("verified: ") and "left: 300 rows" in shown and report.certificate in shown
    late = pq.read_table(run.late / "left.parquet")["reason"].to_pylist()
    assert late.count("late") > 5 and late.count("null_time") > 2


def test_the_certificates_hash_is_that_of_the_design():
    rows = [(0, 0, 5), (1, 2, 3), (2, 1, -1), (2**42 + 7, 2**63 - 1, 0)]
    for streams in (1, 2, 3):
        columns = [pa.array(own, pa.int64()) for own in list(zip(*rows))[:streams]]
        hashes = _hashes(pa.RecordBatch.from_arrays(columns, [str(i) for i in range(streams)]))
        assert hashes.tolist() == [oracle.result_hash(some[:streams]) for some in rows]
    assert [f"{oracle.result_hash(some[:2]):016x}" for some in rows[:3]] == [
        "48218226ff3cd4bf",
        "081a5c1377856b73",
        "f2826f98653e9e57",
    ]


def test_a_missing_and_a_doubled_row_are_named(run):
    table = pq.read_table(part_of(run))
    lost, twice = table.slice(3, 1).to_pylist()[0], table.slice(9, 1).to_pylist()[0]
    rewrite(part_of(run), lambda t: pa.concat_tables([t.slice(0, 3), t.slice(4), t.slice(9, 1), t.slice(9, 1)]))
    text = text_of(run)
    assert "results: 1 missing and 2 unexpected" in text and text.startswith("DIFFERENT")
    assert (
        f"missing     left_row {lost['left_row']}, right_row {lost['right_row']} (left key {lost['key']}, left ts"
        in text
    )
    assert f"unexpected  left_row {twice['left_row']}, right_row {twice['right_row']} 2 times" in text


def test_a_pair_that_does_not_belong_is_unexpected(run):
    rewrite(part_of(run), lambda t: pa.concat_tables([t, t.slice(0, 1).set_column(4, "right_row", pa.array([10**9]))]))
    text = text_of(run)
    assert "0 missing and 1 unexpected" in text and f"right_row {10**9}" in text and "right key null" in text


def test_only_ten_of_each_side_are_shown(run):
    rewrite(part_of(run), lambda t: t.slice(25))
    text = text_of(run)
    assert "results: 25 missing and 0 unexpected" in text and text.count("missing     left_row") == 10


def changed(column, make):
    def change(table):
        index = table.column_names.index(column)
        values = table[column].to_pylist()
        at = next(i for i, value in enumerate(values) if make(value) is not NotImplemented)
        values[at] = make(values[at])
        return table.set_column(index, table.schema.field(index), pa.array(values, table.schema.field(index).type))

    return change


@pytest.mark.parametrize(
    ("column", "make", "told"),
    [
        ("left_text", lambda v: "two" if v == "one" else NotImplemented, "got 'two', wanted 'one'"),
        ("right_text", lambda v: "" if v is None else NotImplemented, "got '', wanted null"),
        ("right_text", lambda v: None if v == "" else NotImplemented, "got null, wanted ''"),
        ("left_value", lambda v: 0.0 if str(v) == "-0.0" else NotImplemented, "got 0.0, wanted -0.0"),
        ("left_value", lambda v: None if v != v else NotImplemented, "got null, wanted nan"),
        ("key", lambda v: v + 1, "got"),
        ("right_time", lambda v: v + 1, "got"),
    ],
)
def test_a_changed_value_is_named_with_its_row(run, column, make, told):
    rewrite(part_of(run), changed(column, make))
    text = text_of(run)
    assert f"results: column {column} differs in 1 row" in text and told in text
    assert text.startswith("DIFFERENT: ") and "missing" not in text


def test_wrong_columns_and_types_are_named(run):
    rewrite(part_of(run), lambda t: t.drop_columns(["left_text"]))
    assert "has columns key, left_time" in text_of(run)


def test_a_column_of_another_type_is_named(run):
    rewrite(part_of(run), lambda t: t.set_column(0, "key", t["key"].cast(pa.int64())))
    assert "column key is int64, wanted int32" in text_of(run)


def test_a_truncated_part_is_named(run):
    part_of(run).write_bytes(part_of(run).read_bytes()[:-20])
    assert "rank-1-00000.parquet cannot be read" in text_of(run)


@pytest.mark.parametrize(("field", "value"), [("results", 7), ("certificate", "0" * 16)])
def test_a_wrong_summary_is_named(run, field, value):
    resummarize(run, **{field: value})
    assert f"  {field}: got {value}, wanted" in text_of(run)


@pytest.mark.parametrize("command", [["verify"], ["why", "--stream", "left", "--row", "1"]])
def test_a_simulated_run_has_nothing_to_compare_and_no_rows(run, capsys, command):
    resummarize(run, simulated=True)
    assert cli.main([command[0], str(run.path), *command[1:]]) == 2
    assert f"simulated run, which has no rows: {command[0]} needs one of mpijoin run" in capsys.readouterr().err


def test_wrong_stream_counts_are_named(run):
    resummarize(run, streams={"left": {"read": 300, "joined": 1, "late": 0}})
    text = text_of(run)
    assert (
        "left.joined: got 1, wanted" in text and "left.null_key: got None, wanted" in text and "left.read" not in text
    )


def test_a_late_row_lost_or_added_is_named(run):
    lost = pq.read_table(run.late / "left.parquet")["row"][0].as_py()
    rewrite(run.late / "left.parquet", lambda t: t.slice(1))
    rewrite(run.late / "right.parquet", lambda t: pa.concat_tables([t, t.slice(0, 1)]))
    text = text_of(run)
    assert f"late/left.parquet: 1 missing and 0 unexpected\n  missing     row {lost}, reason" in text
    assert "late/right.parquet: 0 missing and 1 unexpected" in text


@pytest.mark.parametrize(
    ("column", "make", "told"),
    [
        ("reason", lambda v: "null_time" if v == "late" else NotImplemented, "1 missing and 1 unexpected"),
        ("watermark", lambda v: v + 1 if v else NotImplemented, "column watermark differs"),
        ("watermark", lambda v: None if v else NotImplemented, "column watermark differs"),
        ("ts", lambda v: v + 1 if v else NotImplemented, "column ts differs"),
        ("key", lambda v: 99, "column key differs"),
    ],
)
def test_a_changed_late_file_is_named(run, column, make, told):
    rewrite(run.late / "left.parquet", changed(column, make))
    assert told in text_of(run)


def test_late_files_that_are_gone_damaged_or_foreign_are_named(run):
    (run.late / "left.parquet").unlink()
    (run.late / "right.parquet").write_bytes(b"PAR1")
    text = text_of(run)
    assert "late/left.parquet is missing: wanted" in text and "late/right.parquet cannot be compared" in text
    pq.write_table(pa.table({"ts": [1]}), run.late / "left.parquet")
    pq.write_table(
        pa.table({"ts": ["x"], "key": [1], "row": [1], "watermark": [1], "reason": ["late"]}),
        run.late / "right.parquet",
    )
    text = text_of(run)
    assert "no column key, row, watermark, reason" in text and "column ts is string, wanted int64" in text


def test_exit_code_three_and_the_report_on_a_difference(run, capsys):
    resummarize(run, results=1)
    assert main(run.path) == 3
    assert capsys.readouterr().out.startswith("DIFFERENT")


def test_inputs_that_changed_are_told(run, tmp_path):
    pq.write_table(stream_table(9, 301), tmp_path / "l.parquet")
    later = os.stat(run.job).st_mtime + 10
    os.utime(tmp_path / "l.parquet", (later, later))
    text = text_of(run)
    assert "l.parquet was changed after the run began" in text and "left.read: got 300, wanted 301" in text


def test_inputs_that_are_gone_are_told(run, tmp_path):
    (tmp_path / "l.parquet").unlink()
    with pytest.raises(InputError, match="l.parquet: no such file"):
        verify(run.path)


def test_inputs_that_lost_a_column_or_are_damaged_are_told(run, tmp_path):
    pq.write_table(stream_table(1, 300).drop_columns(["key"]), tmp_path / "l.parquet")
    with pytest.raises(InputError, match="l.parquet has no column key: the input has changed"):
        verify(run.path)
    whole = stream_table(1, 300)
    pq.write_table(whole, tmp_path / "l.parquet")
    data = bytearray((tmp_path / "l.parquet").read_bytes())
    data[4:400] = bytes(396)
    (tmp_path / "l.parquet").write_bytes(data)
    with pytest.raises(InputError, match="l.parquet: cannot be read as Parquet"):
        verify(run.path)


def test_an_input_whose_times_have_lost_their_unit_is_told(tmp_path):
    inputs = [tmp_path / "l.parquet", tmp_path / "r.parquet"]
    stamps = stream_table(1, 30, pa.timestamp("us"))
    tables = write(inputs[0], stamps) | write(inputs[1], stamps)
    job = {side: {"path": str(path), "time": "ts", "key": "key"} for side, path in zip(("left", "right"), inputs)}
    run = fake_run(tmp_path / "run", job, tables)
    pq.write_table(stream_table(1, 30), inputs[0])
    with pytest.raises(InputError, match="l.parquet: column ts is int64 now: the input has changed since the run"):
        verify(run.path)


def test_a_folder_without_a_finished_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="no run directory"):
        verify(tmp_path)


def test_several_files_of_every_format_are_read_in_path_order(tmp_path):
    for suffix in (".parquet", ".arrow", ".ipc", ".csv"):
        folder = tmp_path / suffix[1:]
        tables = {}
        for index in range(3):
            for side in ("left", "right"):
                table = stream_table(index * 2 + len(side), 90, keys=3)
                tables |= write(folder / side / f"part{index}{suffix}", table)
        job = {side: stream(folder / side, columns=["value"]) for side in ("left", "right")}
        report = verify(fake_run(folder / "run", job, tables).path)
        assert report.ok, report.text()
        assert report.results > 50


def test_composite_keys_of_every_kind_are_compared(tmp_path):
    rng = random.Random(5)

    def table(rows, string_type, seed):
        rng.seed(seed)
        return pa.table(
            {
                "at": pa.array(sorted(rng.randrange(200) for _ in range(rows)), pa.timestamp("ms")),
                "station": pa.array([rng.choice(["A", "B", None]) for _ in range(rows)], string_type),
                "day": pa.array([rng.randrange(2) for _ in range(rows)], pa.date32()),
                "flag": pa.array([rng.random() < 0.5 for _ in range(rows)]),
                "price": pa.array([rng.choice([None, 1, 2]) for _ in range(rows)])
                .cast(pa.decimal128(20, 0))
                .cast(pa.decimal128(24, 2)),
                "raw": pa.array([bytes([rng.randrange(256), 255]) for _ in range(rows)], pa.binary(2)),
            }
        )

    tables = write(tmp_path / "l.parquet", table(150, pa.dictionary(pa.int8(), pa.string()), 1))
    tables |= write(tmp_path / "r.parquet", table(150, pa.large_string(), 2))
    side = {"time": "at", "key": ["station", "day", "flag"], "window": "20 ms"}
    job = {
        "left": {"path": str(tmp_path / "l.parquet"), **side},
        "right": {"path": str(tmp_path / "r.parquet"), **side},
    }
    run = fake_run(tmp_path / "run", job, tables)
    report = verify(run.path)
    assert report.ok and report.results > 100, report.text()
    rewrite(part_of(run), changed("left_raw", lambda v: b"zz"))
    assert "got b'zz', wanted b'" in text_of(run)


@pytest.mark.parametrize("windows", [("0 s", "0 s"), ("0 s", "7 us"), ("1 us", "0 s"), ("292 y", "292 y")])
def test_windows_from_nothing_to_everything(tmp_path, windows):
    windows = [str(2**63 // 10**9 - 1) + " s" if window == "292 y" else window for window in windows]
    tables = write(tmp_path / "l.parquet", stream_table(3, 120)) | write(tmp_path / "r.parquet", stream_table(4, 120))
    job = {
        side: stream(tmp_path / f"{side[0]}.parquet", window=window) for side, window in zip(("left", "right"), windows)
    }
    report = verify(fake_run(tmp_path / "run", job, tables).path)
    assert report.ok and report.results > 10, report.text()


def test_times_at_the_ends_of_the_range_do_not_wrap(tmp_path):
    ends = pa.table({"ts": pa.array([-(2**63), -(2**63) + 1, 0, 2**63 - 2, 2**63 - 1]), "key": [1] * 5})
    tables = write(tmp_path / "l.parquet", ends) | write(tmp_path / "r.parquet", ends)
    job = {side: stream(tmp_path / f"{side[0]}.parquet", window="1 ns", time_unit="ns") for side in ("left", "right")}
    report = verify(fake_run(tmp_path / "run", job, tables).path)
    assert report.ok and report.results == 9, report.text()


def test_different_units_and_seconds_that_parquet_does_not_know(tmp_path):
    tables = write(tmp_path / "l.arrow", stream_table(3, 150, pa.timestamp("s", "UTC"))) | write(
        tmp_path / "r.arrow", stream_table(4, 150, pa.timestamp("ms", "UTC"))
    )
    side = {"time": "ts", "key": "key", "lateness": "4 s"}
    job = {
        "left": {"path": str(tmp_path / "l.arrow"), "window": "1 s", **side},
        "right": {"path": str(tmp_path / "r.arrow"), "window": "20 min", **side},
    }
    run = fake_run(tmp_path / "run", job, tables)
    report = verify(run.path)
    assert report.ok and report.results > 20, report.text()
    rewrite(part_of(run), lambda t: t.slice(1))
    assert "left ts 1970-01-01 00:" in text_of(run)


@pytest.mark.parametrize(
    "columns",
    [
        ["left_row", "right_row"],
        ["right_row", "left_text", "left_row"],
        ["left_row", "right_text"],
        ["key", "left_value"],
    ],
)
def test_chosen_columns_are_compared_in_their_order(tmp_path, columns):
    tables = write(tmp_path / "l.parquet", stream_table(1, 200)) | write(tmp_path / "r.parquet", stream_table(2, 200))
    job = {side: stream(tmp_path / f"{side[0]}.parquet") for side in ("left", "right")}
    run = fake_run(tmp_path / "run", {**job, "output": {"columns": columns}}, tables)
    assert verify(run.path).ok
    rewrite(part_of(run), lambda t: pa.concat_tables([t.slice(2), t.slice(5, 1)]))
    assert "results: 2 missing and 1 unexpected" in text_of(run)


def test_a_count_is_verified_without_files(tmp_path):
    tables = write(tmp_path / "l.parquet", stream_table(1, 200)) | write(tmp_path / "r.parquet", stream_table(2, 200))
    job = {side: stream(tmp_path / f"{side[0]}.parquet") for side in ("left", "right")}
    run = fake_run(tmp_path / "run", {**job, "output": {"results": "count"}}, tables)
    report = verify(run.path)
    assert report.ok and "count and certificate alone" in report.text()
    resummarize(run, certificate="f" * 16)
    assert "certificate: got ffff" in text_of(run)


def test_streams_without_any_row_or_pair_are_verified(tmp_path):
    tables = write(tmp_path / "l.parquet", stream_table(1, 50)) | write(tmp_path / "r.parquet", stream_table(2, 0))
    job = {side: stream(tmp_path / f"{side[0]}.parquet") for side in ("left", "right")}
    report = verify(fake_run(tmp_path / "run", job, tables).path)
    assert report.ok and report.results == 0


def test_columns_with_the_names_that_files_use_themselves(tmp_path):
    def renamed(table):
        return table.rename_columns(["row", "time", "low", "c1"])

    tables = write(tmp_path / "l.parquet", renamed(stream_table(1, 200)))
    tables |= write(tmp_path / "r.parquet", renamed(stream_table(2, 200)))
    side = {"time": "row", "time_unit": "us", "key": "time", "window": "3 us", "lateness": "2 us"}
    job = {name: {"path": str(tmp_path / f"{name[0]}.parquet"), **side} for name in ("left", "right")}
    run = fake_run(tmp_path / "run", job, tables)
    report = verify(run.path)
    assert report.ok and report.results > 50, report.text()
    rewrite(run.late / "left.parquet", changed("row_", lambda v: v + 1 if v else NotImplemented))
    assert "column row differs" in text_of(run)


@pytest.mark.parametrize("kind", [pa.uint8(), pa.int16(), pa.uint64()])
def test_watermarks_end_where_a_narrow_time_column_does(tmp_path, kind):
    table = pa.table({"ts": pa.array([3, 50, 10, None, 20], kind), "key": [1] * 5})
    tables = write(tmp_path / "l.parquet", table) | write(tmp_path / "r.parquet", table)
    job = {side: stream(tmp_path / f"{side[0]}.parquet", lateness="35 us") for side in ("left", "right")}
    run = fake_run(tmp_path / "run", job, tables)
    report = verify(run.path)
    assert report.ok, report.text()
    rewrite(run.late / "left.parquet", changed("watermark", lambda v: v + 2))
    assert "got 17, wanted 15" in text_of(run)


@pytest.mark.parametrize("results", ["count", "parquet"])
def test_a_synthetic_stream_is_made_once_more(tmp_path, results):
    source = {"kind": "synthetic", "tuples": 3000, "rate": 1000, "domain": 50, "payload_bytes": 12, "window": "100 ms"}
    document = {"left": {**source, "seed": 1}, "right": {**source, "seed": 2}}
    job = load_job({**document, "output": {"path": str(tmp_path / "run"), "results": results}})
    run = RunDirectory.create(tmp_path / "run", dump_job(job))
    run.commit([])
    counts = {"read": 3000, "joined": 3000, "late": 0, "null_key": 0}
    run.write_summary({"streams": {"left": counts, "right": counts}})
    report = verify(run.path)
    assert report.results > 3000 and "left.read" not in report.text()
    resummarize(run, results=report.results, certificate=report.certificate)
    assert verify(run.path).ok == (results == "count")


def real_run(path, folder, left, right):
    """A run directory with only a summary: for real data whose count is known."""
    job = load_job(
        {
            "left": {"path": str(folder / "left.parquet"), **left},
            "right": {"path": str(folder / "right.parquet"), **right},
            "output": {"path": str(path), "results": "count"},
        }
    )
    run = RunDirectory.create(path, dump_job(job))
    run.commit([])
    run.write_summary({})
    return verify(path)


def test_known_counts_of_real_data(tmp_path):
    side = {"time": "ts", "time_unit": "us", "key": "key"}
    picks = real_run(tmp_path / "picks", DATA / "italy_picks", {**side, "window": "20 s"}, {**side, "window": "20 s"})
    assert picks.results == 53_869 and "results: got None, wanted 53869" in picks.text()
    flights = real_run(
        tmp_path / "flights", DATA / "nycflights13_jan", {**side, "window": "1 h"}, {**side, "window": "1 h"}
    )
    assert flights.results == 58_770


CUT_SHORT = """
import os, sys
import pyarrow as pa
from mpijoin.errors import ChangedInputError
from mpijoin.verify.inputs import _file_batches
from types import SimpleNamespace

batches = _file_batches(sys.argv[1], SimpleNamespace(fields={"ts": pa.int64(), "key": pa.int64()}))
next(batches)
os.truncate(sys.argv[1], os.path.getsize(sys.argv[1]) // 2)
try:
    print(sum(batch.num_rows for batch in batches))
except ChangedInputError as error:
    print(error)
"""


@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
def test_an_arrow_file_that_is_cut_short_while_it_is_verified_is_named(tmp_path, make):
    """Under a map the process would end by SIGBUS, without a word."""
    path, times = tmp_path / "l.arrow", pa.array(range(400_000))
    with make(str(path), pa.schema({"ts": pa.int64(), "key": pa.int64()})) as writer:
        writer.write_table(pa.table({"ts": times, "key": times}))
    done = subprocess.run([sys.executable, "-c", CUT_SHORT, str(path)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith(f"{path}: ")
