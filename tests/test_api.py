"""`mpijoin.run`: tables in and out, errors as exceptions, signals left as they were."""

import os
import signal
import threading
import time
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mpijoin
from mpijoin.cli import main
from mpijoin.config.job import FileSource, Job, StreamJob
from mpijoin.config.load import load_job
from mpijoin.errors import Checkpointed, InputError, Interrupted, JobError, MpijoinError, OutputError
from mpijoin.machine import core_count

STREAM = {"time": "ts", "time_unit": "s", "key": "key", "window": "5 s"}


def table(times=(10, 20), keys=("a", "b"), **columns):
    return pa.table({"ts": list(times), "key": list(keys), **columns})


def job(left=None, right=None, **sections):
    tables = {"left": table() if left is None else left, "right": table((11, 99)) if right is None else right}
    sides = {name: {"table": one, **STREAM} for name, one in tables.items()}
    return {**sides, "memory": {"limit": "16 MiB"}, **sections}


def test_tables_in_and_a_table_out():
    done = mpijoin.run(job(table(v=[1.5, 2.5])), slaves=1)
    assert done.path is None and done.results == 1
    assert done.table().to_pylist() == [
        {"key": "a", "left_time": 10, "right_time": 11, "left_row": 0, "right_row": 0, "left_v": 1.5}
    ]
    assert done.summary["certificate"] == "48218226ff3cd4bf"


def test_no_results_are_an_empty_table_with_its_columns():
    done = mpijoin.run(job(right=table((50, 60))), slaves=2)
    assert done.table().num_rows == 0
    assert done.table().column_names == ["key", "left_time", "right_time", "left_row", "right_row"]


@pytest.mark.parametrize("results", ["parquet", "collect"])
def test_results_on_disk_are_read_from_there(tmp_path, results):
    done = mpijoin.run(job(output={"path": str(tmp_path / "run"), "results": results}), slaves=2)
    assert done.path == tmp_path / "run"
    assert done.table()["right_time"].to_pylist() == [11]


@pytest.mark.parametrize("results", ["parquet", "collect"])
def test_a_run_that_finds_nothing_leaves_a_file_that_tells_the_columns(tmp_path, results):
    found, nothing = (
        mpijoin.run(
            job(table(v=[1.5, 2.5]), right, output={"path": str(tmp_path / name), "results": results}), slaves=2
        )
        for name, right in (("some", table((11, 99))), ("none", table((50, 60))))
    )
    (file,) = (nothing.path / "results").iterdir()
    assert pq.read_schema(file).remove_metadata() == found.table().schema.remove_metadata()
    assert (nothing.table().num_rows, nothing.table().schema) == (0, found.table().schema)
    mpijoin.run(job(output={"path": str(nothing.path)}), slaves=1, overwrite=True)


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("times", [(11, 99), (50, 60)], ids=["some", "none"])
def test_a_run_that_only_counts_has_no_table(tmp_path, on_disk, times):
    output = {"results": "count", **({"path": str(tmp_path / "run")} if on_disk else {})}
    done = mpijoin.run(job(right=table(times), output=output), slaves=1)
    assert done.results == (times == (11, 99))
    with pytest.raises(OutputError, match="counted its results"):
        done.table()


class Frame:
    """What another library's data frame is to Arrow."""

    def __init__(self, own):
        self.own = own

    def __arrow_c_stream__(self, requested_schema=None):
        return self.own.__arrow_c_stream__(requested_schema)


FRAMES = {
    "batch": lambda own: own.to_batches()[0],
    "pandas": lambda own: own.to_pandas(),
    "stream": Frame,
    "table": lambda own: own,
}


@pytest.mark.parametrize("name", FRAMES)
def test_whatever_arrow_can_read_is_a_table(name):
    if name == "pandas":
        pytest.importorskip("pandas")
    done = mpijoin.run(job(FRAMES[name](table(v=[1.5, 2.5]))), slaves=1)
    assert done.table()["left_v"].to_pylist() == [1.5] and done.summary["certificate"] == "48218226ff3cd4bf"


def test_a_reader_gives_its_rows_to_all_that_read_it():
    """Arrow's own would be empty for the second stream, and for the second run."""
    whole = table((11, 12))
    reader, alone = whole.to_reader(), mpijoin.run(job(whole, whole), slaves=1)
    for _ in range(2):
        done = mpijoin.run(job(reader, reader), slaves=1)
        assert (done.results, done.summary["certificate"]) == (alone.results, alone.summary["certificate"])
    assert alone.results > 0


@pytest.mark.parametrize("start", [mpijoin.run, mpijoin.start])
def test_a_run_either_begins_anew_or_goes_on(start, tmp_path):
    with pytest.raises(mpijoin.MpijoinError, match="overwrite, resume: got both, wanted one"):
        start(job(output={"path": str(tmp_path / "run")}), slaves=1, overwrite=True, resume=True)
    assert set(mpijoin.__all__) <= set(dir(mpijoin))


@pytest.mark.parametrize("start", [mpijoin.run, mpijoin.start])
@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_what_stops_the_source_of_a_reader_stops_the_call(start, raised):
    def batches():
        yield table().to_batches()[0]
        raise raised("sensor gone")

    with pytest.raises(raised, match="sensor gone"):
        start(job(pa.RecordBatchReader.from_batches(table().schema, batches())))


def test_a_reader_that_cannot_be_read_is_a_fault():
    def batches():
        yield pa.record_batch({"other": [1]})

    with pytest.raises(JobError, match=r"\[left\] table: reading it failed: "):
        mpijoin.run(job(pa.RecordBatchReader.from_batches(table().schema, batches())))


@pytest.mark.parametrize("command", [["verify"], ["why", "--stream", "left", "--row", "0"]])
def test_what_reads_the_streams_again_wants_them_in_files(tmp_path, capsys, command):
    done = mpijoin.run(job(output={"path": str(tmp_path / "run")}), slaves=1)
    assert main([command[0], str(done.path), *command[1:]]) == 2
    said = capsys.readouterr().err
    assert f"the rows of left, right came from a Python program, and are not there any more: {command[0]} reads" in said


@pytest.mark.parametrize("wrong", [{"ts": [1]}, [1], "t.parquet", object(), None])
def test_what_is_no_table_is_a_fault_that_says_what_would_be(wrong):
    sides = job()
    sides["left"]["table"] = wrong
    with pytest.raises(JobError, match=r"\[left\] table: got .*wanted a pyarrow.Table, a RecordBatch, or a frame"):
        mpijoin.run(sides)


def test_a_frame_that_arrow_refuses_is_a_fault_with_the_reason():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(
        JobError,
        match=(
            r"\[left\] table: got a pandas.*DataFrame, which Arrow cannot read \(Expected bytes, got a 'int' object;"
            r" Conv"
        ),
    ):
        mpijoin.run(job(pandas.DataFrame({"ts": [1, 2], "key": ["a", 3]})))


@pytest.mark.parametrize(
    "arguments, problem",
    [
        ({"slaves": 0}, "slaves: got 0, wanted a whole number of slaves, at least 1"),
        ({"slaves": 1.5}, "slaves: got 1.5"),
        ({"slaves": "2"}, 'slaves: got "2"'),
        ({"slaves": 4 * core_count() + 1}, "slaves: got .* slaves, wanted at most .*, unless also oversubscribe=True"),
        ({"slaves": 10**6, "oversubscribe": True}, "slaves: got 1000000 slaves, wanted at most 500, since all are"),
        ({"overrides": "left.window=3 s"}, "overrides: got .*, wanted a list"),
        ({"overrides": [3]}, "overrides: got 3, wanted texts"),
    ],
)
def test_arguments_of_a_wrong_kind_are_faults(arguments, problem):
    with pytest.raises(JobError, match=problem):
        mpijoin.run(job(), **arguments)


@pytest.mark.parametrize(
    "wrong, problem", [(None, "job: got None"), (3, "job: got 3"), ([], r"job: got \[\], wanted a Job, the path")]
)
def test_what_is_no_job_is_a_fault(wrong, problem):
    with pytest.raises(JobError, match=problem):
        mpijoin.run(wrong)
    with pytest.raises(JobError, match="a Job has its values already"):
        mpijoin.run(load_job(job()), ["run.seed=3"])


def test_names_that_are_no_strings_are_faults():
    wrong = job(cluster={1: 2})
    wrong["left"][3] = 4
    wrong[None] = {}
    with pytest.raises(JobError) as error:
        mpijoin.run(wrong)
    assert [fault.partition(": no such")[0] for fault in error.value.faults] == ["[None]", "[left] 3", "[cluster] 1"]


LATE = table((10, 1, 20, 2), ("a", "a", "b", "c"), v=[1, 2, 3, 4])


def test_late_rows_can_be_had_in_memory_and_from_disk(tmp_path):
    kept, written = (
        mpijoin.run(job(LATE, output=output), slaves=1) for output in ({}, {"path": str(tmp_path / "run")})
    )
    assert kept.late("left").to_pylist() == [
        {"ts": 1, "key": "a", "v": 2, "row": 1, "watermark": 10, "reason": "late"},
        {"ts": 2, "key": "c", "v": 4, "row": 3, "watermark": 20, "reason": "late"},
    ]
    for stream in ("left", "right"):
        assert kept.late(stream).to_pylist() == written.late(stream).to_pylist()
        assert kept.late(stream).schema.remove_metadata() == written.late(stream).schema.remove_metadata()
    assert mpijoin.run(job(LATE, output={"results": "count"}), slaves=1).late("left").num_rows == 2
    with pytest.raises(JobError, match='late: got "up", wanted "left" or "right"'):
        kept.late("up")


def test_many_late_rows_in_memory_are_those_that_were_read():
    rows = 300_000
    left = pa.table({"ts": [10 ** 6, *list(range(rows))], "key": ["a"] * (rows + 1), "v": range(rows + 1)})
    late = mpijoin.run(job(left), slaves=1).late("left")
    assert late["ts"].to_pylist() == list(range(rows)) and late["v"].to_pylist() == list(range(1, rows + 1))


def test_nothing_is_written_to_the_terminal_unless_asked(capfd):
    failing = job(LATE, run={"late": "fail"})
    for _ in range(2):
        with pytest.raises(InputError):
            mpijoin.run(failing, slaves=1)
    mpijoin.run(job(), slaves=1)
    assert capfd.readouterr() == ("", "")
    with pytest.raises(InputError):
        mpijoin.run(failing, slaves=1, debug=True)
    assert "Traceback" in capfd.readouterr().err


def test_overrides_and_job_values_are_taken_too(tmp_path):
    pq.write_table(table(), tmp_path / "left.parquet")
    pq.write_table(table((11, 99)), tmp_path / "right.parquet")
    sides = (
        StreamJob(name, FileSource(str(tmp_path / f"{name}.parquet")), time_unit="s") for name in ("left", "right")
    )
    assert mpijoin.run(Job(tuple(sides)), slaves=1).results == 0
    assert mpijoin.run(job(), ['left.window="0 s"'], slaves=1).results == 0


def test_faults_of_the_job_are_raised_together():
    with pytest.raises(JobError) as error:
        mpijoin.run(job(cluster={"partitions": 0}, tuning={"block": "1 B"}))
    assert len(error.value.faults) == 2


def test_the_output_path_must_be_empty_unless_it_may_be_overwritten(tmp_path):
    wanted = job(output={"path": str(tmp_path / "run")})
    mpijoin.run(wanted, slaves=1)
    with pytest.raises(MpijoinError, match="overwrite"):
        mpijoin.run(wanted, slaves=1)
    assert mpijoin.run(wanted, slaves=1, overwrite=True).results == 1


def test_an_error_in_the_middle_is_raised_and_leaves_no_half_results(tmp_path):
    late = table((10, 1), ("a", "a"))
    with pytest.raises(InputError, match=r'\[left\] has late rows and \[run\] late = "fail": row 1'):
        mpijoin.run(job(late, run={"late": "fail"}, output={"path": str(tmp_path / "run")}), slaves=2)
    assert (tmp_path / "run" / "failed.json").exists()
    assert not list((tmp_path / "run").glob("results/*.parquet"))


def test_a_frame_of_which_rows_were_taken_has_no_column_more():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"ts": [1, 10, 20], "key": ["b", "a", "b"]})
    found = mpijoin.run(job(frame[frame.key == "a"]), slaves=1).table()
    assert found.column_names == ["key", "left_time", "right_time", "left_row", "right_row"] and found.num_rows == 1


def test_a_path_may_be_a_path_of_pathlib(tmp_path):
    pq.write_table(table(), tmp_path / "one.parquet")
    side = {"time": "ts", "time_unit": "s", "key": "key", "path": tmp_path / "one.parquet"}
    done = mpijoin.run({"left": side, "right": side, "output": {"path": tmp_path / "run"}}, slaves=1)
    assert (done.results, done.path) == (2, tmp_path / "run")


@pytest.mark.parametrize("producers", [1, 2])
def test_a_column_may_be_called_as_what_lies_in_a_struct(tmp_path, producers):
    inner = pa.array([{"b": 7}, {"b": 8}])
    pq.write_table(pa.table({"a.b": [5, 6], "a": inner, "key": ["x", "y"]}), tmp_path / "one.parquet", row_group_size=1)
    side = {"path": str(tmp_path / "one.parquet"), "time": "a.b", "time_unit": "s", "key": "key", "columns": []}
    job = {"left": side, "right": side, "cluster": {"producers": producers}}
    assert sorted(mpijoin.run(job, slaves=1).table()["left_time"].to_pylist()) == [5, 6]


@pytest.mark.parametrize("joined", ["left", "right", "full", "anti"])
@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view(), pa.binary(1)], ids=str)
def test_rows_without_partner_have_keys_and_columns_of_each_type(joined, kind):
    """Arrow computes with none of the views."""
    first, second, third = values = ["a", "b", "c"] if kind == pa.string_view() else [b"a", b"b", b"c"]
    left = pa.table({"ts": [1, 1, 1], "key": pa.array([first, second, None], kind), "v": pa.array(values, kind)})
    right = pa.table({"ts": [1, 1, 1], "key": pa.array([first, third, None], kind), "v": pa.array(values, kind)})
    found = mpijoin.run({**job(left, right), "join": {"type": joined}}, slaves=1).table()
    lone = {(second, second, None), (None, third, None)}
    wanted = {
        "left": {(first, first, first), *lone},
        "right": {(first, first, first), (third, None, second), (None, None, third)},
        "full": {(first, first, first), *lone, (third, None, second), (None, None, third)},
        "anti": {(second, second), (None, third)},
    }
    rows = [tuple(row[name] for name in ("key", "left_v", "right_v") if name in row) for row in found.to_pylist()]
    assert found.schema.field("key").type == kind and len(rows) == len(wanted[joined]) and set(rows) == wanted[joined]


@pytest.mark.parametrize("values", [pa.string_view(), pa.binary_view()], ids=str)
def test_a_dictionary_may_be_of_views(values):
    """Categories of polars are such."""
    a, b = ("a", "b") if values == pa.string_view() else (b"a", b"b")
    own = pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.uint32()), pa.array([a, b], values))
    table = pa.table({"ts": [1, 1, 1], "key": own, "v": own})
    found = mpijoin.run(job(table, table), slaves=1).table().to_pylist()
    assert sorted((row["key"], row["left_v"], row["right_v"]) for row in found) == [(a, a, a), (b, b, b)]


def test_the_nearest_partner_may_be_at_the_other_end_of_time():
    """The distance from one end to the other takes 64 bits without a sign."""
    ends = [-(2**63), 2**63 - 1]
    stream = {"time": "ts", "time_unit": "ns", "key": "key", "window": "unbounded"}
    tables = (pa.table({"ts": times, "key": ["a", "a"]}) for times in ([-5, 5], ends))
    sides = {name: {"table": table, **stream} for name, table in zip(("left", "right"), tables)}
    found = mpijoin.run({**sides, "join": {"match": "nearest"}}, slaves=1).table().to_pylist()
    assert sorted((row["left_time"], row["right_time"]) for row in found) == [(-5, ends[0]), (5, ends[1])]


@pytest.mark.parametrize("times, told", [
    (pa.array([2**61, 2**60], pa.timestamp("us")), "time 1152921504606846976 us, watermark 2305843009213693952 us"),
    (pa.array([1001, 1], pa.timestamp("ns", "Mars/Olympus")), "time 1970-01-01 00:00:00.000000001, watermark 1970"),
])  # fmt: skip
def test_a_late_row_is_told_whatever_time_it_has(times, told):
    late = pa.table({"ts": times, "key": ["a", "b"], "day": pa.array([2**30, 2**30], pa.date32())})
    sides = {name: {"table": late, "key": "key"} for name in ("left", "right")}
    with pytest.raises(InputError, match=rf"row 1 \(late\), {told}"):
        mpijoin.run({**sides, "run": {"late": "fail"}}, slaves=1)


def test_signal_handlers_are_those_of_before():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    mpijoin.run(job(), slaves=1)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@contextmanager
def pressed(number, ready=lambda: True):
    """A signal comes half a second after the run is ready for it."""

    def press():
        while not ready():
            time.sleep(0.05)
        time.sleep(0.5)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=press, daemon=True)
    thread.start()
    yield
    thread.join()


ENDLESS = {"kind": "synthetic", "rate": 1000, "tuples": 10**9, "window": "1 s", "domain": 100}


def endless(**sections):
    return {
        "left": dict(ENDLESS),
        "right": dict(ENDLESS),
        "output": {"results": "count"},
        "run": {"speed": 1},
        **sections,
    }


def test_ctrl_c_is_a_keyboard_interrupt_and_no_exception():
    with pytest.raises(KeyboardInterrupt, match="stopped by Ctrl-C") as caught, pressed(signal.SIGINT):
        mpijoin.run(endless(), slaves=1)
    assert isinstance(caught.value.__cause__, Interrupted) and not isinstance(caught.value, Exception)


def test_ctrl_c_that_saves_is_one_too_and_the_run_can_go_on(tmp_path):
    checkpoint = {"every": "100 ms", "path": str(tmp_path / "saved")}
    wanted = endless(output={"path": str(tmp_path / "run"), "results": "count"}, checkpoint=checkpoint)
    def is_saved():
        return any((tmp_path / "saved").glob("[0-9]*.json"))
    with pytest.raises(KeyboardInterrupt) as caught, pressed(signal.SIGINT, is_saved):
        mpijoin.run(wanted, slaves=1)
    assert isinstance(caught.value.__cause__, Checkpointed) and is_saved()


def test_sigterm_stays_an_error_of_ours():
    with pytest.raises(Interrupted, match="SIGTERM"), pressed(signal.SIGTERM):
        mpijoin.run(endless(), slaves=1)
