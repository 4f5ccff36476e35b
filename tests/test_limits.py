"""What a shell or a batch system may do to a process: closed streams, readers that leave, limits, odd bytes in paths.

Each ends in one sentence and the documented exit code, never in an internal error.
"""

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mpijoin.cli import main
from mpijoin.errors import EXIT_FAILED, InputError
from mpijoin.limits import LimitError, named

JOB = """
[left]
path = "left"
window = "20 s"
[right]
path = "left/0.parquet"
[output]
path = "out"
[memory]
limit = "16 MiB"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "left").mkdir()
    pq.write_table(
        pa.table({"ts": pa.array([1, 10**6], pa.timestamp("us")), "key": [1, 2]}), tmp_path / "left" / "0.parquet"
    )
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path


def shell(folder, line, **limits):
    """Runs a line of bash in the folder, in which $M is mpijoin. limits: soft and hard, such as NOFILE=20."""

    def lower():
        for name, most in limits.items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))

    environ = {**os.environ, "M": f"{sys.executable} -m mpijoin", "PYTHONPATH": str(Path(__file__).parents[1])}
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lower,
        errors="replace",
    )


def test_a_run_needs_no_terminal_at_all(folder):
    done = shell(folder, "$M run job.toml 0<&- 1>&- 2>&-")
    assert done.returncode == 0 and (folder / "out" / "summary.json").exists()
    done = shell(folder, "$M check job.toml 2>&-; exit $?")
    assert (done.returncode, done.stdout) == (2, ""), "what is said to a closed stream is not said to another"


def test_a_reader_that_leaves_is_no_failure(folder):
    done = shell(
        folder, "$M check job.toml | true; echo ${PIPESTATUS[0]}; $M check --fields | head -n 1; echo ${PIPESTATUS[0]}"
    )
    assert done.stderr == ""
    first, head, second = done.stdout.splitlines()
    assert (first, second) == ("0", "0") and head.startswith("Every field")
    done = shell(folder, "$M check job.toml --set left.window=x 2>&1 | true; echo ${PIPESTATUS[0]}")
    assert (done.stdout, done.stderr) == ("2\n", "")


def overlapping(folder, files):
    table = pa.table({"ts": pa.array([1, 10**6], pa.timestamp("us")), "key": [1, 2]})
    for number in range(files):
        pq.write_table(table, folder / "left" / f"{number}.parquet")


def test_too_many_open_files_are_named_with_the_limit_and_the_run_is_marked_as_failed(folder):
    overlapping(folder, 60)
    done = shell(folder, "$M run job.toml --ranks 1", NOFILE=40)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("mpijoin: ")]
    assert "too many open files: this process may have 40 at once (ulimit -n): allow more" in line and "left/" in line
    failed = json.loads((folder / "out" / "failed.json").read_text())
    assert failed["exit_code"] == 2 and "ulimit -n" in failed["reason"]


def test_a_run_takes_as_many_open_files_as_it_may_have(folder):
    overlapping(folder, 60)
    assert shell(folder, "ulimit -Sn 40; $M run job.toml --ranks 1").returncode == 0


def test_too_little_address_space_is_told_before_a_library_fails(folder):
    done = shell(folder, "$M run job.toml --ranks 1", AS=600 << 20)
    assert done.returncode == 2 and not (folder / "out").exists()
    assert done.stderr.startswith(
        "mpijoin: out of memory: this process may have 600 MiB of address space (ulimit -v), wanted"
    )


def test_memory_auto_fits_into_the_address_space_that_there_is(folder):
    done = shell(folder, "$M run job.toml --ranks 2 --set memory.limit=auto", AS=3 << 30)
    assert (done.returncode, done.stderr.count("results from")) == (0, 1), done.stderr


def test_memory_that_cannot_be_reserved_is_told_with_the_field(folder):
    done = shell(folder, "$M run job.toml --ranks 1 --set 'memory.limit=\"64 GiB\"'", AS=4 << 30)
    assert done.returncode == 2 and "internal" not in done.stderr
    assert "raise the limit, or set [memory] limit lower" in done.stderr
    assert json.loads((folder / "out" / "failed.json").read_text())["exit_code"] == 2


@pytest.mark.parametrize(
    "error, code",
    [
        (OSError(errno.EMFILE, "Too many open files"), 2),
        (MemoryError(), EXIT_FAILED),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), EXIT_FAILED),
        (np.linalg.LinAlgError("singular"), None),
        (RuntimeError("can't start new thread"), EXIT_FAILED),
        (OSError(errno.ENOSPC, "No space left on device"), None),
        (InputError("a.csv: Cannot allocate memory"), None),
    ],
)
def test_only_errors_of_limits_are_taken_for_such(error, code):
    """Where the user has set no limit on address space the machine has no more: the run failed."""
    found = named(error)
    assert (found is error) == (code is None)
    if code is not None:
        assert isinstance(found, LimitError) and found.exit_code == code and found.__cause__ is error


def test_odd_bytes_in_paths_are_faults(folder):
    """A zero byte, and what is no UTF-8: job.toml could not hold it."""
    done = shell(
        folder,
        "$M check job.toml --set 'left.path=\"a\\u0000b\"' --set output.path=$'\\xff' --set checkpoint.path=$'a\\0b'",
    )
    assert done.returncode == 2, done.stderr
    assert '[left] path: got "a\\u0000b", wanted a path, which has no zero byte in it' in done.stderr
    assert '[output] path: got "\\udcff", wanted a text in UTF-8' in done.stderr


def test_a_folder_whose_name_is_no_utf8_is_a_fault_and_no_crash(folder):
    done = shell(
        folder, "mkdir $'\\xe9t\\xe9' && cp -r job.toml left $'\\xe9t\\xe9' && cd $'\\xe9t\\xe9' && $M run job.toml"
    )
    assert done.returncode == 2 and "internal" not in done.stderr
    assert done.stderr.count("wanted a text in UTF-8") == 3, "both inputs and the output"


def test_a_file_whose_name_is_no_utf8_is_to_be_renamed(folder):
    done = shell(folder, "mv left/0.parquet $'left/\\xff.parquet' && $M check job.toml --set right.path=left")
    assert (
        done.returncode == 2 and done.stderr.count("left/\\udcff.parquet: got a name that is not in UTF-8: rename") == 2
    )


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_zero_byte_in_the_name_of_a_job_is_no_defect(command, capsys):
    assert main([command, "a\0b"]) == 2
    assert capsys.readouterr().err == 'mpijoin: "a\\u0000b": cannot be read: embedded null byte\n'
