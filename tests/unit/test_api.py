"""`mpijoin.run`: tables in and out, errors as exceptions, signals left as they were."""

import signal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mpijoin
from mpijoin.config.job import FileSource, Job, StreamJob
from mpijoin.errors import InputError, JobError, MpijoinError, OutputError

STREAM = {"time": "ts", "time_unit": "s", "key": "key", "window": "5 s"}


def table(times=(10, 20), keys=("a", "b"), **columns):
    return pa.table({"ts": list(times), "key": list(keys), **columns})


def job(left=None, right=None, **sections):
    sides = {"left": {"table": left or table(), **STREAM}, "right": {"table": right or table((11, 99)), **STREAM}}
    return {**sides, "cluster": {"memory": "16 MiB"}, **sections}


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


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_run_that_only_counts_has_no_table(tmp_path, on_disk):
    output = {"results": "count", **({"path": str(tmp_path / "run")} if on_disk else {})}
    done = mpijoin.run(job(output=output), slaves=1)
    assert done.results == 1
    with pytest.raises(OutputError, match="only|counted its results"):
        done.table()


def test_overrides_and_job_values_are_taken_too(tmp_path):
    pq.write_table(table(), tmp_path / "left.parquet")
    pq.write_table(table((11, 99)), tmp_path / "right.parquet")
    sides = [StreamJob(name, FileSource(str(tmp_path / f"{name}.parquet")), time_unit="s") for name in ("left", "right")]
    assert mpijoin.run(Job(*sides), slaves=1).results == 0
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


def test_signal_handlers_are_those_of_before():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    mpijoin.run(job(), slaves=1)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
