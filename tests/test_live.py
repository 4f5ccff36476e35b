"""`mpijoin.start`: results are read while the run goes on, a slow reader holds it up, and every end is told."""

import doctest
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mpijoin
from mpijoin import api, live
from mpijoin.errors import ChangedInputError, Checkpointed, InputError, Interrupted, JobError, OutputError
from mpijoin.sinks.queue import QUEUE_BYTES_MAX
from mpijoin.slave.runtime import UNSENT_BYTES_MAX

SOON_S = 60.0  # what is waited for comes much sooner, but a machine may be busy
MEMORY = {"memory": {"limit": "32 MiB"}}
ENDLESS = {"kind": "synthetic", "rate": 1000, "tuples": 10**9, "window": "1 s", "domain": 100}


def endless(**sections):
    return {"left": dict(ENDLESS), "right": dict(ENDLESS), "run": {"speed": 1}, **MEMORY, **sections}


def rows(seed, count=3000):
    random = np.random.default_rng(seed)
    return pa.table({"ts": np.arange(count) // 2, "key": random.integers(0, 40, count), "v": random.random(count)})


def joined(*tables, window="30 s", **sections):
    stream = {"time": "ts", "time_unit": "s", "key": "key", **({"window": window} if window else {})}
    streams = {name: {"table": table, **stream} for name, table in zip(("left", "right", "third"), tables)}
    return {"streams": streams, **MEMORY, **sections}


def many_results():
    """10 million results, of 400 MB."""
    table = pa.table({"ts": np.arange(20_000) // 40, "key": np.arange(20_000) % 40})
    stream = {"table": table, "time": "ts", "time_unit": "s", "key": "key", "window": "1000 s"}
    return {"left": stream, "right": stream, **MEMORY}


def multiset(table):
    return sorted(map(repr, table.to_pylist()))


def await_that(holds):
    deadline_s = time.monotonic() + SOON_S
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def no_thread_stays():
    before = set(threading.enumerate())
    yield
    await_that(lambda: set(threading.enumerate()) <= before)


@pytest.mark.parametrize("module", [api, live])
def test_the_examples_hold(module):
    found = doctest.testmod(module)
    assert found.attempted > 3 and found.failed == 0


def test_results_come_while_the_run_goes_on():
    with mpijoin.start(endless(), slaves=2) as run:
        reader = run.reader()
        for _ in range(3):
            assert reader.read_next_batch().num_rows > 0
        assert not run.is_done
        run.stop()
        with pytest.raises(Interrupted, match=r"stopped by stop\(\)"):
            reader.read_all()
        with pytest.raises(Interrupted, match=r"stopped by stop\(\)"):
            run.wait()
        assert run.is_done


JOBS = {
    "inner": lambda: joined(rows(1), rows(2)),
    "left": lambda: joined(rows(1), rows(2).slice(500), join={"type": "left"}),
    "semi": lambda: joined(rows(1), rows(2).slice(500), join={"type": "semi"}),
    "where": lambda: joined(rows(1), rows(2), join={"where": "left.v < right.v"}),
    "three": lambda: joined(rows(1), rows(2), rows(3)),
    "aggregate": lambda: joined(
        rows(1), window=None, aggregate={"history": "5 rows", "columns": {"n": "count()", "mean": "mean(v)"}}
    ),
    "nothing": lambda: joined(rows(1), rows(2).slice(0, 0)),
}


@pytest.mark.parametrize("name", JOBS)
def test_the_reader_yields_what_the_table_of_a_run_holds(name):
    wanted = mpijoin.run(JOBS[name](), slaves=2).table()
    with mpijoin.start(JOBS[name](), slaves=2) as run:
        reader = run.reader()
        assert reader.schema == wanted.schema
        found = reader.read_all()
        done = run.wait()
    assert (found.num_rows > 0) == (name != "nothing")
    assert multiset(found) == multiset(wanted) and done.results == wanted.num_rows
    assert done.path is None and done.late("left").num_rows == 0
    with pytest.raises(OutputError, match="the results went to the run's reader"):
        done.table()


def test_a_slow_reader_makes_the_run_wait_and_memory_stays_bounded():
    with mpijoin.start(many_results(), slaves=1) as run:
        reader = run.reader()
        await_that(lambda: run.waiting_bytes > QUEUE_BYTES_MAX)
        most = read = 0
        for _ in range(100):
            read += reader.read_next_batch().num_rows
            most = max(most, run.waiting_bytes)
            time.sleep(0.02)
        assert not run.is_done and read < 10**7
        # What was on its way comes, too: what the slave may send ahead, and what it found at once.
        assert most < QUEUE_BYTES_MAX + 2 * UNSENT_BYTES_MAX
        assert read + sum(batch.num_rows for batch in reader) == 10**7
        assert run.wait().results == 10**7 and run.waiting_bytes == 0


def test_a_reader_may_pause_for_longer_than_ranks_may_be_silent(monkeypatch):
    monkeypatch.setattr("mpijoin.rank.SILENCE_S", 2.0)
    with mpijoin.start(many_results(), slaves=2) as run:
        reader = run.reader()
        await_that(lambda: run.waiting_bytes > QUEUE_BYTES_MAX)
        time.sleep(5.0)
        assert not run.is_done
        assert sum(batch.num_rows for batch in reader) == 10**7
        run.wait()


def test_the_run_waits_for_its_reader_before_that_is_asked_for():
    with mpijoin.start(many_results(), slaves=1) as run:
        await_that(lambda: run.waiting_bytes > QUEUE_BYTES_MAX)
        time.sleep(1.0)
        assert not run.is_done
        assert sum(batch.num_rows for batch in run.reader()) == 10**7


@pytest.mark.parametrize("batches", [0, 1])
def test_a_reader_that_nobody_holds_stops_the_run(batches):
    run = mpijoin.start(many_results(), slaves=2)
    reader = run.reader()
    for _ in range(batches):
        reader.read_next_batch()
    del reader
    await_that(lambda: run.is_done)
    with pytest.raises(Interrupted, match="stopped by its reader, which nobody held any more"):
        run.wait()


def test_leaving_the_loop_lets_the_reader_go():
    run = mpijoin.start(endless(), slaves=1)
    for _ in run.reader():
        break
    with pytest.raises(Interrupted, match="its reader"):
        run.wait()


def test_a_reader_that_was_only_closed_is_no_reason_to_wait_for_ever():
    with mpijoin.start(many_results(), slaves=1) as run:
        with run.reader() as reader:
            reader.read_next_batch()
        with pytest.raises(JobError, match=r"the reader is not at its end: read on, or stop\(\) the run"):
            run.wait()


def test_the_end_of_the_block_stops_the_run_without_an_error():
    with mpijoin.start(endless(), slaves=1) as run:
        reader = run.reader()
        reader.read_next_batch()
    assert run.is_done
    with pytest.raises(Interrupted):
        reader.read_all()


def paced_files(folder):
    """A row per ms on each side, for 300 s, at thirty times their speed."""
    table = pa.table({"ts": pa.array(np.arange(300_000) * 1000, pa.timestamp("us")), "key": np.arange(300_000) % 1000})
    sides = {}
    for name in ("left", "right"):
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=5000, compression="none", use_dictionary=False)
        sides[name] = {"path": str(folder / f"{name}.parquet"), "time": "ts", "key": "key", "window": "1 s"}
    return {**sides, "run": {"speed": 30}, **MEMORY}


def test_a_file_that_is_cut_is_an_error_of_the_reader_and_of_wait(tmp_path):
    with mpijoin.start(paced_files(tmp_path), slaves=2) as run:
        reader = run.reader()
        reader.read_next_batch()
        os.truncate(tmp_path / "left.parquet", 2_000_000)
        with pytest.raises(ChangedInputError, match=r"left\.parquet: .*changed while it was read") as read:
            for _ in reader:
                pass
        with pytest.raises(ChangedInputError) as waited:
            run.wait()
        with pytest.raises(ChangedInputError):
            reader.read_next_batch()
    assert str(read.value) == str(waited.value)


LATE = {"left": {"table": pa.table({"ts": [10, 1], "key": [1, 1]}), "time": "ts", "time_unit": "s", "window": "1 s"}}
FAILING = {**LATE, "right": LATE["left"], "run": {"late": "fail"}, **MEMORY}


def test_the_message_survives_arrows_c_interface():
    run = mpijoin.start(FAILING, slaves=1)
    with pytest.raises(pa.ArrowException, match=r'\[left\] has late rows and \[run\] late = "fail": row 1'):
        pa.table(run.reader())
    with pytest.raises(InputError):
        run.wait()


def test_an_error_that_nobody_was_told_is_raised_at_the_end_of_the_block(capfd):
    with pytest.raises(InputError, match="late rows"), mpijoin.start(FAILING, slaves=1) as run:
        await_that(lambda: run.is_done)
    with mpijoin.start(FAILING, slaves=1, debug=True) as run, pytest.raises(InputError):
        run.wait()
    out, err = capfd.readouterr()
    assert out == "" and err.count("Traceback (most recent call last)") == 1


def test_faults_of_the_job_are_raised_before_anything_runs():
    with pytest.raises(JobError, match="slaves: got 0"):
        mpijoin.start(joined(rows(1), rows(2)), slaves=0)
    with pytest.raises(JobError) as error:
        mpijoin.start(joined(rows(1), rows(2), cluster={"partitions": 0}, tuning={"block": "1 B"}))
    assert len(error.value.faults) == 2


def test_several_runs_may_go_on_at_once():
    wanted = multiset(mpijoin.run(JOBS["inner"](), slaves=1).table())
    with mpijoin.start(endless(), slaves=1) as paced, mpijoin.start(JOBS["inner"](), slaves=1) as quick:
        reader = paced.reader()
        reader.read_next_batch()
        assert multiset(quick.reader().read_all()) == wanted
        reader.read_next_batch()
        assert not paced.is_done and quick.wait().results == len(wanted)


def test_without_a_reader_wait_keeps_the_results():
    wanted = mpijoin.run(JOBS["left"](), slaves=2).table()
    with mpijoin.start(JOBS["left"](), slaves=2) as run:
        done = run.wait()
        assert run.wait() is done and multiset(done.table()) == multiset(wanted)
        assert done.table().schema == wanted.schema
        with pytest.raises(JobError, match=r"reader: wait\(\) keeps the results"):
            run.reader()


def test_kept_results_may_be_more_than_the_queue_may_hold():
    with mpijoin.start(many_results(), slaves=2) as run:
        assert run.wait().table().num_rows == 10**7


def test_there_is_one_reader():
    with mpijoin.start(endless(), slaves=1) as run:
        reader = run.reader()
        with pytest.raises(JobError, match="the run has its reader already"):
            run.reader()
        reader.read_next_batch()


def test_threads_may_share_the_reader_and_each_of_them_finds_its_end():
    found = [0, 0, 0]

    def read(reader, thread):
        for batch in reader:
            found[thread] += batch.num_rows

    with mpijoin.start(joined(rows(1), rows(2)), slaves=1) as run:
        reader = run.reader()
        threads = [threading.Thread(target=read, args=(reader, thread), daemon=True) for thread in range(len(found))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SOON_S)
        assert not any(thread.is_alive() for thread in threads)
        assert sum(found) == run.wait().results > 0


@pytest.mark.parametrize("results", ["parquet", "collect"])
def test_a_job_with_an_output_path_has_no_reader(tmp_path, results):
    output = {"path": str(tmp_path / "run"), "results": results}
    with mpijoin.start(joined(rows(1), rows(2), output=output), slaves=2) as run:
        with pytest.raises(JobError, match=r"the results go to \[output\] path .*run: read wait\(\)\.table\(\) when"):
            run.reader()
        done = run.wait()
    assert multiset(done.table()) == multiset(mpijoin.run(JOBS["inner"](), slaves=1).table())
    with mpijoin.start(joined(rows(1), rows(2), output=output), slaves=2, resume=True) as again:
        assert again.wait().summary == done.summary


def test_a_job_that_counts_has_no_reader():
    with mpijoin.start(joined(rows(1), rows(2), output={"results": "count"}), slaves=1) as run:
        with pytest.raises(JobError, match="the job only counts its results"):
            run.reader()
        done = run.wait()
    assert done.results == mpijoin.run(JOBS["inner"](), slaves=1).results
    with pytest.raises(OutputError, match="the job counted its results"):
        done.table()


def test_a_stopped_run_goes_on_from_its_checkpoint(tmp_path):
    checkpoint, output = {"every": "100 ms"}, {"path": str(tmp_path / "run")}
    job = {**paced_files(tmp_path), "checkpoint": checkpoint, "output": output}
    with mpijoin.start(job, slaves=2) as run:
        await_that(lambda: any((tmp_path / "run/checkpoint").glob("[0-9]*.json")))
        run.stop()
        with pytest.raises(Checkpointed):
            run.wait()
    with mpijoin.start(job, ["run.speed=\"max\""], slaves=2, resume=True) as again:
        done = again.wait()
    whole = {**job, "output": {"results": "count"}, "run": {}, "checkpoint": {}}
    assert done.summary["certificate"] == mpijoin.run(whole, slaves=2).summary["certificate"]
    assert done.summary["checkpoints"]["restarts"] == 1


def press_ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def ctrl_c():
    """Ctrl-C as in a terminal. A process in the background of a script inherits that it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("use", ["read", "wait", "between"])
def test_ctrl_c_ends_the_run_and_is_raised_then(use):
    run = mpijoin.start(endless(**({"output": {"results": "count"}} if use == "wait" else {})), slaves=2)
    threading.Timer(2.0, press_ctrl_c).start()
    with pytest.raises(KeyboardInterrupt):
        if use == "read":
            run.reader().read_all()
        elif use == "wait":
            run.wait()
        else:
            with run:
                run.reader().read_next_batch()
                time.sleep(SOON_S)
    assert run.is_done


LEFT_BEHIND = """
import sys, mpijoin
stream = {"kind": "synthetic", "rate": 1000, "tuples": 10**9, "window": "1 s", "domain": 100}
output = {"path": sys.argv[1], "results": "count"}
run = mpijoin.start({"left": stream, "right": stream, "run": {"speed": 1}, "output": output}, slaves=1)
print("begun", flush=True)
"""


def test_the_end_of_the_process_stops_what_still_goes_on(tmp_path):
    folder = tmp_path / "run"
    ended = subprocess.run(
        [sys.executable, "-c", LEFT_BEHIND, str(folder)], capture_output=True, text=True, timeout=SOON_S
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "begun\n", "")
    assert "stopped by the end of the process" in (folder / "failed.json").read_text()
    assert not list(folder.glob("lock-*"))
