"""What the file system refuses is told with the file and the reason, by one wrapper for all who write or read."""

import ast
import errno
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mpijoin.data.files import decoding
from mpijoin.errors import CheckpointError, InputError, JobError, OutputError
from mpijoin.refusals import reading, writing
from small_files import file_size_limit

PACKAGE = Path(__file__).parents[1] / "mpijoin"


@pytest.mark.parametrize("wrapper, kind, done", [(writing, OutputError, "written"), (reading, InputError, "read")])
def test_the_systems_own_file_is_named_before_the_callers(tmp_path, wrapper, kind, done):
    with pytest.raises(kind) as caught, wrapper(tmp_path):
        os.stat(tmp_path / "gone")
    assert str(caught.value) == f"{tmp_path}/gone: cannot be {done}: No such file or directory"
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_a_refusal_that_names_no_file_gets_the_callers(tmp_path):
    path = tmp_path / "a"
    refused = pytest.raises(OutputError, match=f"^{path}: cannot be written: File too large$")
    with refused, file_size_limit(3), writing(path), open(path, "wb", buffering=0) as file:
        while True:
            file.write(b"four")


def test_arrows_long_sentence_is_cut_to_the_systems(tmp_path):
    with pytest.raises(OutputError) as caught, writing(tmp_path / "no" / "a.parquet"):
        pq.write_table(pa.table({"a": [1]}), tmp_path / "no" / "a.parquet")
    assert str(caught.value) == f"{tmp_path}/no/a.parquet: cannot be written: No such file or directory"


def test_words_of_our_own_are_kept(tmp_path):
    with pytest.raises(OutputError, match="/b: cannot be written: is a link, wanted a folder$"), writing(tmp_path):
        raise NotADirectoryError(errno.ENOTDIR, "is a link, wanted a folder", "/b")
    with pytest.raises(OutputError, match=f"{tmp_path}: cannot be written: out of ideas$"), writing(tmp_path):
        raise OSError("out of ideas")


def test_too_many_open_files_say_what_to_do():
    with pytest.raises(InputError, match="^/a: cannot be read: too many open files: .*ulimit -n"), reading("/"):
        raise OSError(errno.EMFILE, "Too many open files", "/a")


def test_the_caller_chooses_the_error():
    refused = pytest.raises(CheckpointError, match="^/a: cannot be written: Permission denied$")
    with refused, writing("/a", CheckpointError):
        raise PermissionError(errno.EACCES, "Permission denied")
    with pytest.raises(JobError) as caught, reading("/a", lambda text: JobError([f"it is {text}"])):
        raise PermissionError(errno.EACCES, "Permission denied")
    assert caught.value.faults == ["it is /a: cannot be read: Permission denied"]


def test_other_errors_pass():
    with pytest.raises(ValueError, match="^not ours$"), writing("/a"):
        raise ValueError("not ours")
    with pytest.raises(ValueError, match="^not ours$"), decoding("/a.csv"):
        raise ValueError("not ours")


# What is said there is about a program, not a file.
OTHERS = {"sweep/submit.py"}


def test_nobody_else_words_what_the_file_system_refuses():
    files = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}
    handlers = {
        name
        for name, path in files.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler) and node.name and node.type and ast.unparse(node.type) == "OSError"
    }
    assert handlers == {"refusals.py"} | OTHERS
