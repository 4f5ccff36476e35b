"""What stands in the output folder of a command that starts Spark is told before Spark starts, and stays there."""

import re
from contextlib import nullcontext

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mpijoin.cli import main
from mpijoin.errors import JobError
from mpijoin.pipeline.profile.command import check_folder

JOB = """
[left]
path = "rows.parquet"
time = "ts"
time_unit = "s"
key = "k"
window = "9 s"
[right]
path = "rows.parquet"
time = "ts"
time_unit = "s"
key = "k"
[output]
path = "out"
"""


@pytest.mark.parametrize(
    "path, text",
    [
        ("data/raw.csv", ""),
        ("data", ""),
        ("data/part-00000-5f0c.snappy.parquet", ""),
        ("rejected/mine.txt", ""),
        ("report.json", "{}"),
        ("report.json", "mine"),
        ("report.json", '["rows", "disorder", "files"]'),
    ],
)
def test_prepare_replaces_nothing_that_no_earlier_call_made(tmp_path, capsys, path, text):
    (tmp_path / "raw.csv").write_text("ts,k\n1,a\n")
    foreign = tmp_path / "out" / path
    foreign.parent.mkdir(parents=True)
    foreign.write_text(text)
    how = ["--time", "ts", "--unit", "s", "--overwrite"]
    assert main(["prepare", str(tmp_path / "raw.csv"), "-o", str(tmp_path / "out"), *how]) == 2
    assert f"--overwrite does not remove {foreign}, which no earlier call made" in capsys.readouterr().err
    assert foreign.read_text() == text


@pytest.mark.parametrize("name", ["job.toml", "keys.csv", "expected.png"])
def test_profile_replaces_no_job_that_it_reads_and_nothing_that_no_profile_made(tmp_path, capsys, name):
    pq.write_table(pa.table({"ts": [1, 2], "k": ["a", "b"]}), tmp_path / "rows.parquet")
    job = tmp_path / ("job.toml" if name == "job.toml" else "given.toml")
    job.write_text(JOB)
    foreign = tmp_path / name
    if foreign != job:
        foreign.write_text("mine")
    before = foreign.read_text()
    told = f"--overwrite does not remove {foreign}, which no earlier call made"
    assert main(["profile", str(job), "-o", str(tmp_path), "--no-figures", "--overwrite"]) == 2
    assert told in capsys.readouterr().err and foreign.read_text() == before
    # This marks a folder of an earlier profile. All of it is to be replaced, but for the job that is given.
    (tmp_path / "profile.json").write_text("{}")
    with pytest.raises(JobError, match=re.escape(told)) if foreign == job else nullcontext():
        check_folder(tmp_path, True, [str(job)])
