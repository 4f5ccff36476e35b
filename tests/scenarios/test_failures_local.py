"""What goes wrong in a run without mpirun, for real: one message, the documented exit code, no hang, nothing that looks
whole."""

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from launching import COMPILES, ENDED_S, LONG_JOB, ROOT, Run

FILES = (
    '[left]\npath = "left.parquet"\nwindow = "1 s"\n[right]\npath = "right.parquet"\nwindow = "1 s"\n[output]\npath ='
    ' "out"\n'
)


def write_inputs(folder, rows=200_000, shuffled=()):
    """left.parquet and right.parquet: a tuple per ms, 1000 keys, small row groups; `shuffled` streams have late
    rows."""
    random = np.random.default_rng(7)
    for name in ("left", "right"):
        time_us = np.arange(rows, dtype=np.int64) * 1000
        if name in shuffled:
            time_us[rows // 2 :] -= 1_000_000
        columns = {"ts": pa.array(time_us, pa.timestamp("us")), "key": random.integers(0, 1000, rows)}
        pq.write_table(pa.table(columns), folder / f"{name}.parquet", row_group_size=5000)


def ended(folder, text, *options, **kwargs):
    with Run(folder, text, options=options, **kwargs) as run:
        return run.finish()


def damage_in_the_middle(path):
    """Overwrites pages halfway; the footer stays, so that only reading finds out."""
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.seek(size // 2)
        file.write(b"\xff" * (size // 8))


@pytest.mark.parametrize("rank, named", [(0, ""), (1, "rank 1: ")])
def test_an_exception_on_a_rank_ends_the_run(tmp_path, rank, named):
    run = ended(tmp_path, LONG_JOB, "--set", f"inject.fail={{{rank}=5}}")
    told = f"{named}internal error: RuntimeError: [inject] fail: epoch 5 has come (--debug shows where)"
    assert (run.code, run.messages, run.failed["reason"]) == (3, [f"mpijoin: {told}"], told)
    assert "Traceback" not in run.err and "Traceback" in (tmp_path / f"out/logs/rank-{rank}.log").read_text()


def test_an_exception_on_the_collector_ends_the_run(tmp_path):
    run = ended(tmp_path, LONG_JOB + 'results = "collect"\n', "--ranks", "2", "--set", "inject.fail={3=5}")
    assert (run.code, run.failed["exit_code"]) == (3, 3) and run.messages[0].startswith(
        "mpijoin: rank 3: internal error"
    )


def test_debug_shows_where_the_other_rank_failed(tmp_path):
    run = ended(tmp_path, LONG_JOB, "--debug", "--set", "inject.fail={1=5}")
    assert run.code == 3 and run.err.count("Traceback") == 1 and "slave/runtime.py" in run.err


@pytest.mark.parametrize(
    "number, code, name",
    [(signal.SIGINT, 130, "Ctrl-C"), (signal.SIGTERM, 143, "SIGTERM"), (signal.SIGHUP, 143, "SIGTERM")],
)
def test_a_signal_stops_the_run(tmp_path, number, code, name):
    # By nohup, the tests may have been started with one of them ignored.
    with Run(tmp_path, preexec_fn=partial(signal.signal, signal.SIGHUP, signal.SIG_DFL)) as run:
        run.wait_until_joining()
        run.process.send_signal(number)
        run.finish(ENDED_S)
    assert (run.code, run.messages) == (code, [f"mpijoin: stopped by {name}"])
    assert (run.failed["exit_code"], run.failed["reason"]) == (code, f"stopped by {name}")


def test_a_signal_while_kernels_compile_stops_the_run(tmp_path):
    cache = tmp_path / "compiled"
    with Run(tmp_path, environ={"NUMBA_CACHE_DIR": str(cache)}) as run:
        run.wait_for(lambda: any(cache.rglob("*.o")), "first compiled kernel")
        run.process.send_signal(signal.SIGINT)
        run.finish(ENDED_S)
    assert (run.code, run.messages) == (130, ["mpijoin: stopped by Ctrl-C"])
    assert run.err.startswith(f"{COMPILES}, once per machine and version: up to a minute or two\n")
    assert "Traceback" not in run.err and "Exception ignored" not in run.err


def test_a_signal_while_the_job_is_read_saves_as_the_job_says(tmp_path):
    os.mkfifo(tmp_path / "job.toml")
    line = [sys.executable, "-m", "mpijoin", "run", str(tmp_path / "job.toml")]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        with open(tmp_path / "job.toml", "w") as job:
            process.send_signal(signal.SIGUSR1)
            job.write(LONG_JOB)
        _, said = process.communicate(timeout=ENDED_S)
    assert process.returncode == 75 and said.endswith("mpijoin: stopped by SIGUSR1\n"), said


def test_a_damaged_input_is_named(tmp_path):
    write_inputs(tmp_path)
    damage_in_the_middle(tmp_path / "right.parquet")
    run = ended(tmp_path, FILES)
    assert run.code == 2 and len(run.messages) == 1
    assert run.messages[0].startswith(f"mpijoin: {tmp_path}/right.parquet: cannot be read as Parquet: ")
    assert run.failed["exit_code"] == 2


def test_a_cut_input_is_named_before_anything_is_made(tmp_path):
    write_inputs(tmp_path, rows=1000)
    os.truncate(tmp_path / "left.parquet", 500)
    run = ended(tmp_path, FILES)
    assert run.code == 2 and f"{tmp_path}/left.parquet" in run.messages[0]
    assert not run.out.exists()


def test_wrong_columns_are_told_all_at_once_before_anything_is_made(tmp_path):
    write_inputs(tmp_path, rows=10)
    pq.write_table(pa.table({"ts": pa.array([1], pa.timestamp("us")), "key": [0.5]}), tmp_path / "left.parquet")
    pq.write_table(pa.table({"when": [1], "key": [1]}), tmp_path / "right.parquet")
    run = ended(tmp_path, FILES, "--set", "cluster.partitions=0")
    assert run.code == 2 and run.messages[0].startswith("mpijoin: ") and "faults" in run.messages[0]
    for told in ("3 faults", "[cluster] partitions: got 0", '[right] time: no column "ts"', "double"):
        assert told in run.err
    assert not run.out.exists()


@pytest.mark.parametrize("first_ns, lateness", [(-(2**63), "0 s"), (-(10**18), "100000 d")])
def test_several_producers_begin_at_the_earliest_time_that_there_is(tmp_path, first_ns, lateness):
    """What is late, too, may lie before it."""
    times = pa.array([first_ns + index for index in range(6)])
    for name in ("left", "right"):
        pq.write_table(pa.table({"ts": times, "key": ["a"] * 6}), tmp_path / f"{name}.parquet", row_group_size=2)
    unit = f'time_unit = "ns"\nlateness = "{lateness}"\n'
    text = FILES.replace("window", f"{unit}window")
    done = ended(tmp_path, text, "--set", "cluster.producers=2")
    summary = json.loads((done.out / "summary.json").read_text())
    assert (done.code, summary["results"], summary["producers"]) == (0, 36, 2)


def test_late_rows_fail_a_run_that_says_so(tmp_path):
    write_inputs(tmp_path, shuffled=("left",))
    run = ended(tmp_path, FILES, "--set", "run.late=fail")
    assert run.code == 2 and '[left] has late rows and [run] late = "fail": row 100000 (late)' in run.messages[0]
    assert run.failed["exit_code"] == 2


def test_the_memory_budget_ends_the_run(tmp_path):
    run = ended(
        tmp_path, LONG_JOB, "--set", "left.window=1 d", "--set", "right.window=1 d", "--set", "memory.limit=1 MB"
    )
    assert run.code == 3 and len(run.messages) == 1 and run.failed["exit_code"] == 3
    assert "rank" in run.messages[0] and "memory" in run.messages[0] and "group" in run.messages[0]


def test_an_output_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    run = ended(tmp_path, LONG_JOB, "--set", f"output.path={tmp_path}/file/out")
    told = (
        f"[output] path: {tmp_path}/file/out cannot be a folder, {tmp_path}/file is a file: wanted a folder that is new"
        " or empty"
    )
    assert run.code == 2 and run.messages == [f"mpijoin: {told}"]


def test_a_folder_that_is_not_ours_is_refused(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    tmp_path.joinpath("closed").mkdir(mode=0o500)
    run = ended(tmp_path, LONG_JOB, "--set", f"output.path={tmp_path}/closed/out")
    assert run.code == 3 and run.messages == [f"mpijoin: {tmp_path}/closed/out: cannot be written: Permission denied"]


def test_a_second_run_into_the_same_path_is_refused_and_leaves_the_first(tmp_path):
    write_inputs(tmp_path, rows=1000)
    assert ended(tmp_path, FILES).code == 0
    before = (tmp_path / "out/summary.json").read_bytes()
    run = ended(tmp_path, FILES)
    assert run.code == 2 and "is not empty" in run.messages[0]
    assert (tmp_path / "out/summary.json").read_bytes() == before
    assert ended(tmp_path, FILES, "--overwrite").code == 0


@pytest.mark.parametrize("results", ["parquet", "collect"])
def test_a_full_disk_ends_the_run(tmp_path, small_disk, results):
    run = ended(tmp_path, LONG_JOB, "--set", f"output.path={small_disk}/out", "--set", f"output.results={results}")
    assert run.code == 3 and len(run.messages) == 1
    assert f"{small_disk}/out/results/.open/rank-" in run.messages[0]
    assert run.messages[0].endswith(".parquet: cannot be written: No space left on device")
    assert "Traceback" not in run.err and not list(small_disk.glob("out/results/*.parquet"))
    assert json.loads((small_disk / "out/failed.json").read_text())["exit_code"] == 3


def test_a_broken_terminal_does_not_end_the_run(tmp_path):
    write_inputs(tmp_path, rows=1000)
    reader, writer = os.pipe()
    os.close(reader)
    with Run(tmp_path, FILES, stderr=writer) as run:
        os.close(writer)
        run.finish()
    assert run.code == 0 and (run.out / "summary.json").exists()


@pytest.fixture
def read_only():
    """Makes a folder read-only, also for root, until the test is over."""
    folders = []

    def close(folder):
        folders.append(str(folder))
        if os.geteuid():
            modes(0o555, 0o444)
            return
        for how in (["--bind", str(folder)], ["-o", "remount,ro,bind"]):
            if subprocess.run(["mount", *how, str(folder)], capture_output=True, timeout=10).returncode:
                pytest.skip("root can write everywhere, and nothing can be mounted here")

    def modes(of_folder, of_file):
        for path in [Path(folders[-1]), *Path(folders[-1]).rglob("*")]:
            path.chmod(of_folder if path.is_dir() else of_file)

    yield close
    while folders:
        if os.geteuid():
            modes(0o755, 0o644)
        subprocess.run(["umount", "-l", folders.pop()], capture_output=True, timeout=10)


ONE_KERNEL = "import numpy; from mpijoin.partitioning.hashing import mix; print(mix(numpy.uint64(1)))"


def test_a_read_only_installation_and_home_keep_kernels_in_the_temporary_folder(tmp_path, read_only):
    package, home, temporary = tmp_path / "installed", tmp_path / "home", tmp_path / "temporary"
    shutil.copytree(ROOT / "mpijoin", package / "mpijoin", ignore=shutil.ignore_patterns("__pycache__"))
    home.mkdir()
    temporary.mkdir()
    read_only(package)
    read_only(home)
    environ = {
        **os.environ,
        "PYTHONPATH": str(package),
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "XDG_CACHE_HOME": "",
    }
    environ.pop("NUMBA_CACHE_DIR", None)
    subprocess.run([sys.executable, "-c", ONE_KERNEL], env=environ, cwd=home, timeout=60, check=True)
    assert list(temporary.glob(f"mpijoin-{os.getuid()}/**/*.o"))


def test_the_current_folder_may_be_read_only(tmp_path, read_only):
    write_inputs(tmp_path, rows=1000)
    (tmp_path / "here").mkdir()
    read_only(tmp_path / "here")
    run = ended(tmp_path, FILES, cwd=tmp_path / "here")
    assert run.code == 0 and (run.out / "summary.json").exists()


def test_check_and_run_say_that_the_output_cannot_be_written(tmp_path, read_only):
    write_inputs(tmp_path, rows=1000)
    (tmp_path / "kept").mkdir()
    read_only(tmp_path / "kept")
    (tmp_path / "job.toml").write_text(FILES.replace('"out"', '"kept/of/runs"'))
    told = []
    for command in ("check", "run"):
        line = [sys.executable, "-m", "mpijoin", command, str(tmp_path / "job.toml")]
        done = subprocess.run(line, capture_output=True, text=True, timeout=ENDED_S)
        told.append((done.returncode, done.stderr))
    text = f"[output] path: {tmp_path}/kept/of/runs cannot be written: this user may make no files in {tmp_path}/kept"
    assert told[0] == told[1] and told[0][0] == 2 and told[0][1].startswith(f"mpijoin: {text}")


def test_the_current_folder_may_be_gone(tmp_path):
    write_inputs(tmp_path, rows=1000)
    (tmp_path / "job.toml").write_text(FILES)
    (tmp_path / "gone").mkdir()
    here = ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh"]
    run = ["-m", "mpijoin", "run", str(tmp_path / "job.toml"), "--quiet"]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([*here, sys.executable, *run], cwd=tmp_path / "gone", env=environ, timeout=ENDED_S, check=True)
    assert json.loads((tmp_path / "out/summary.json").read_text())["provenance"]["folder"] == ""


def test_several_processes_that_do_not_know_each_other_are_told_once(tmp_path):
    said = []
    for rank in ("0", "1"):
        pytest.importorskip("mpi4py")
        # As if an mpirun of another MPI had started two of four: each finds itself alone.
        run = ended(tmp_path, LONG_JOB, environ={"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": rank})
        assert run.code == 2 and not run.out.exists()
        said += run.messages
    assert len(said) == 1 and "use the mpirun that belongs to the MPI library" in said[0]
