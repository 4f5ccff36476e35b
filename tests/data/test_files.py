"""Which files a path stands for, and what columns they hold."""

import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from mpijoin.data.files import CSV, IPC, PARQUET, count_rows, expand_files, file_format, file_schema
from mpijoin.errors import InputError

NOBODY = 65534  # a user who owns nothing
TABLE = pa.table({"ts": pa.array([1, 2, 3], pa.timestamp("us")), "key": ["a", "b", "c"]})


def touch(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")


def test_the_format_is_told_by_the_extension():
    names = ["a.parquet", "A.PARQUET", "a.arrow", "a.ipc", "a.feather", "a.csv"]
    assert [file_format(name) for name in names] == [PARQUET, PARQUET, IPC, IPC, IPC, CSV]
    with pytest.raises(InputError, match=r"a\.txt: got extension '\.txt', wanted one of \.parquet"):
        file_format("a.txt")


def test_a_file_stands_for_itself(tmp_path):
    touch(tmp_path, "_a.csv")
    assert expand_files(str(tmp_path / "_a.csv")) == [str(tmp_path / "_a.csv")]


def test_a_folder_stands_for_the_data_files_directly_inside_sorted(tmp_path):
    touch(tmp_path, "b.parquet", "a.parquet", ".c.parquet", "_d.parquet", "_SUCCESS", "notes.md", "sub/e.parquet")
    assert expand_files(str(tmp_path)) == [str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]


def test_a_glob_stands_for_what_it_matches(tmp_path):
    touch(tmp_path, "b1.csv", "b0.csv", "a.csv", "b.md", "sub/b2.csv")
    assert expand_files(str(tmp_path / "b*")) == [str(tmp_path / "b0.csv"), str(tmp_path / "b1.csv")]
    assert expand_files(str(tmp_path / "**" / "b*"))[-1] == str(tmp_path / "sub" / "b2.csv")


def test_a_file_whose_name_looks_like_a_glob_is_that_file(tmp_path):
    touch(tmp_path, "a[1].csv", "a1.csv")
    assert expand_files(str(tmp_path / "a[1].csv")) == [str(tmp_path / "a[1].csv")]


@pytest.mark.parametrize(
    "files, path, problem",
    [
        ([], "none.parquet", "no such file or folder"),
        ([], "", "no data files there"),
        (["a.md"], "", "no data files there"),
        (["a.csv"], "*.parquet", "no data files there"),
        (["a.md"], "a.md", "got extension '.md'"),
        (["a.csv", "b.arrow"], "", r"several formats, CSV \(a.csv\), Arrow IPC \(b.arrow\), wanted one"),
    ],
)
def test_a_path_without_one_kind_of_data_is_refused(tmp_path, files, path, problem):
    touch(tmp_path, *files)
    with pytest.raises(InputError, match=problem):
        expand_files(str(tmp_path / path))


@pytest.fixture
def listed_only():
    """A folder whose file may be listed but not looked at. Root, who may look at all, is somebody else meanwhile."""
    with tempfile.TemporaryDirectory() as above:
        os.chmod(above, 0o755)
        folder, user = Path(above, "in"), os.geteuid()
        folder.mkdir()
        touch(folder, "a.csv")
        folder.chmod(0o444)
        try:
            os.seteuid(user or NOBODY)
            yield folder
        finally:
            os.seteuid(user)
            folder.chmod(0o755)


@pytest.mark.parametrize("name", ["", "a.csv", "*.csv"])
def test_what_may_not_be_looked_at_is_not_told_to_be_missing(listed_only, name):
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        expand_files(os.path.join(listed_only, name))


def test_what_is_neither_file_nor_folder_is_called_so(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="neither a file nor a folder"):
        expand_files(str(tmp_path / "pipe"))


def test_a_folder_that_cannot_be_listed_is_refused(tmp_path, monkeypatch):
    def refuse(folder):
        raise PermissionError(13, "Permission denied", folder)

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        expand_files(str(tmp_path))


def write_stream(path):
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, TABLE.schema) as writer:
        writer.write_table(TABLE)


def test_the_schema_of_each_format_is_read(tmp_path):
    names = [str(tmp_path / name) for name in ("a.parquet", "a.feather", "a.arrow", "a.csv")]
    pq.write_table(TABLE, names[0])
    pyarrow.feather.write_feather(TABLE, names[1])
    write_stream(names[2])
    with open(names[3], "w") as file:
        file.write("ts,key\n2024-01-01 00:00:00.5,a\n")
    assert [file_schema(name) for name in names[:3]] == [TABLE.schema] * 3
    assert file_schema(names[3]) == pa.schema([("ts", pa.timestamp("ns")), ("key", pa.string())])


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.csv"])
def test_an_empty_file_is_refused_by_name(tmp_path, name):
    touch(tmp_path, name)
    with pytest.raises(InputError, match=rf"{name}: cannot be read as "):
        file_schema(str(tmp_path / name))


def test_a_truncated_parquet_file_is_refused_in_one_line(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError) as caught:
        file_schema(str(path))
    assert str(caught.value).startswith(f"{path}: cannot be read as Parquet: ")
    assert "\n" not in str(caught.value) and caught.value.exit_code == 2


def test_rows_are_counted_where_footers_tell(tmp_path):
    paths = [str(tmp_path / name) for name in ("a.parquet", "b.parquet")]
    for path in paths:
        pq.write_table(TABLE, path)
    assert count_rows(paths) == 6
    assert count_rows([*paths, "c.csv"]) is None
