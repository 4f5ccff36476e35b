"""The run directory: refusals, what overwriting may remove, commit, and that a failed run leaves nothing whole."""

import json
import os
import shutil

import numpy as np
import pytest

from mpijoin.errors import InputError, JobError, OutputError
from mpijoin.rundir import RUN_MARK, RunDirectory, read_summary

JOB = "[left]\n[right]\n[run]\nseed = 0\n"


def make(path, **options):
    return RunDirectory.create(path, JOB, **options)


def put(folder, *names):
    for name in names:
        (folder / name).write_bytes(b"part")


def tree(path):
    return sorted(item.relative_to(path).as_posix() for item in path.rglob("*") if item.is_file())


def test_a_new_folder_gets_job_and_folders(tmp_path):
    run = make(tmp_path / "a" / "b")
    assert run.job.read_text() == RUN_MARK + JOB
    assert run.open_results.is_dir() and run.open_late("left").parent.is_dir()
    assert run.metrics.is_dir() and run.log(2) == run.path / "logs" / "rank-2.log"


def test_an_empty_folder_is_taken(tmp_path):
    make(tmp_path)
    assert tree(tmp_path) == ["job.toml"]


def test_a_non_empty_folder_is_refused_and_untouched(tmp_path):
    put(tmp_path, "thesis.tex")
    with pytest.raises(JobError, match="--overwrite") as caught:
        make(tmp_path)
    assert caught.value.exit_code == 2
    assert tree(tmp_path) == ["thesis.tex"]


def test_a_file_is_refused(tmp_path):
    put(tmp_path, "file")
    with pytest.raises(JobError, match="is a file"):
        make(tmp_path / "file", overwrite=True)


def finished(path):
    run = make(path)
    put(run.open_results, "rank-1-00000.parquet", "rank-2-00000.parquet")
    put(run.open_late("left").parent, "left.parquet", "right.parquet")
    put(run.metrics, "rank-0.parquet")
    put(run.path / "logs", "rank-0.log")
    run.commit(["rank-1-00000.parquet", "rank-2-00000.parquet"])
    run.write_summary({"results": 7})
    return run


def test_overwrite_replaces_a_whole_run(tmp_path):
    finished(tmp_path / "run")
    with pytest.raises(JobError, match="--overwrite"):
        make(tmp_path / "run")
    make(tmp_path / "run", overwrite=True)
    assert tree(tmp_path / "run") == ["job.toml"]


def test_overwrite_replaces_an_unfinished_and_a_failed_run(tmp_path):
    run = make(tmp_path / "run")
    put(run.open_results, "rank-1-00000.parquet", "manifest.json")
    put(run.open_late_parts, "left-00000.parquet", "right-00012.parquet", "left.parquet")
    assert run.write_failed({"reason": "x"})
    make(tmp_path / "run", overwrite=True)
    assert tree(tmp_path / "run") == ["job.toml"]


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "results/notes.txt",
        "late/middle.parquet",
        "results/mine.parquet",
        "metrics/sub/x.parquet",
        "logs/a.txt",
    ],
)
def test_overwrite_names_foreign_files_and_removes_nothing(tmp_path, name):
    run = finished(tmp_path / "run")
    (run.path / name).parent.mkdir(exist_ok=True)
    (run.path / name).write_text("mine")
    before = tree(run.path)
    with pytest.raises(JobError, match=name.split("/x.")[0]):
        make(run.path, overwrite=True)
    assert tree(run.path) == before


@pytest.mark.parametrize("text", [None, "[left]\n"])
def test_overwrite_takes_no_folder_whose_job_is_the_users_own(tmp_path, text):
    (tmp_path / "results").mkdir()
    put(tmp_path / "results", "rank-1-00000.parquet")
    if text is not None:
        (tmp_path / "job.toml").write_text(text)
    with pytest.raises(JobError, match="job.toml"):
        make(tmp_path, overwrite=True)
    assert (tmp_path / "results" / "rank-1-00000.parquet").exists()


def test_overwrite_spares_the_inputs_of_the_job(tmp_path):
    run = finished(tmp_path / "run")
    source = run.results / "rank-1-00000.parquet"
    with pytest.raises(JobError, match="reads from it.*rank-1-00000"):
        make(run.path, overwrite=True, inputs=[str(source)])
    assert source.exists()
    make(run.path, overwrite=True, inputs=[str(tmp_path / "elsewhere.parquet")])


@pytest.mark.parametrize("name", ["summary.json.new", "failed.json.new", "job.toml.new", "job.toml"])
def test_a_planted_link_is_replaced_and_not_followed(tmp_path, name):
    """By whoever else may write in the folder."""
    run, precious = make(tmp_path / "run"), tmp_path / "precious"
    precious.write_text("mine")
    (run.path / name).unlink(missing_ok=True)
    (run.path / name).symlink_to(precious)
    run.reopen("[run]\n")
    run.write_failed({})
    (run.path / "failed.json").unlink()
    run.write_summary({"results": 7})
    assert precious.read_text() == "mine" and read_summary(run.path) == {"results": 7}
    assert not any(path.is_symlink() for path in run.path.rglob("*") if path.name != name or name == "job.toml")


@pytest.mark.parametrize("name", ["results/.open", "late/.open", "late", "metrics", "logs"])
def test_a_planted_folder_is_refused_and_not_followed(tmp_path, name):
    run, precious = make(tmp_path / "run"), tmp_path / "precious"
    precious.mkdir()
    put(precious, "rank-9-00000.parquet", "rank-0.parquet.open")
    shutil.rmtree(run.path / name)
    (run.path / name).symlink_to(precious)
    before = tree(tmp_path)
    with pytest.raises(
        OutputError, match=f"{name}: cannot be written: is a link or a file, wanted a folder: remove it"
    ):
        run.reopen("[run]\n")
    assert tree(tmp_path) == before


def test_nothing_committed_is_withdrawn_into_a_planted_folder(tmp_path):
    run = finished(tmp_path / "run")
    (tmp_path / "precious").mkdir()
    run.open_results.symlink_to(tmp_path / "precious")
    assert run.write_failed({}) is False
    assert tree(tmp_path / "precious") == [] and (run.results / "rank-1-00000.parquet").exists()


@pytest.mark.parametrize("name", ["checkpoint/rank-notes.state", "checkpoint/20241122.json", "checkpoint/lock.txt"])
def test_overwrite_takes_no_file_for_a_checkpoint_that_is_called_nearly_so(tmp_path, name):
    run = finished(tmp_path / "run")
    run.checkpoints.mkdir()
    (run.path / name).write_text("mine")
    with pytest.raises(JobError, match=name):
        make(run.path, overwrite=True)


def test_overwrite_does_not_follow_links(tmp_path):
    run = finished(tmp_path / "run")
    (tmp_path / "precious").mkdir()
    put(tmp_path / "precious", "rank-1-00000.parquet")
    (run.path / "metrics" / "rank-0.parquet").unlink()
    (run.path / "metrics").rmdir()
    (run.path / "metrics").symlink_to(tmp_path / "precious")
    with pytest.raises(JobError, match="metrics"):
        make(run.path, overwrite=True)
    assert (tmp_path / "precious" / "rank-1-00000.parquet").exists()


def test_an_impossible_path_is_an_output_error_with_its_reason():
    with pytest.raises(OutputError, match="/proc/nowhere.*(No such file|Permission)") as caught:
        make("/proc/nowhere/run")
    assert caught.value.exit_code == 3


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_parent_is_an_output_error(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="Permission denied"):
        make(tmp_path / "run")


def test_commit_moves_parts_and_late_files(tmp_path):
    run = finished(tmp_path)
    assert tree(tmp_path) == [
        "job.toml", "late/left.parquet", "late/right.parquet", "logs/rank-0.log", "metrics/rank-0.parquet",
        "results/rank-1-00000.parquet", "results/rank-2-00000.parquet", "summary.json",
    ]  # fmt: skip
    assert not run.open_results.exists()


def test_late_files_replace_the_parts_that_they_are_made_of(tmp_path):
    run = make(tmp_path)
    put(run.open_late_parts, "left-00000.parquet", "left-00001.parquet", "left.parquet", "right.parquet")
    run.commit([], ["left-00000.parquet", "left-00001.parquet"])
    run.clean()
    assert tree(tmp_path) == ["job.toml", "late/left.parquet", "late/right.parquet"]


@pytest.mark.parametrize("listed", [["left-00000.parquet"], [f"left-0000{number}.parquet" for number in range(3)]])
def test_commit_wants_exactly_the_late_parts_that_are_there(tmp_path, listed):
    run = make(tmp_path)
    put(run.open_late_parts, "left-00000.parquet", "left-00001.parquet", "left.parquet")
    with pytest.raises(OutputError, match="left-00001.parquet is in no list|left-00002.parquet is missing"):
        run.commit([], listed)
    assert len(list(run.open_late_parts.iterdir())) == 3 and not list(run.late.glob("*.parquet"))


@pytest.mark.parametrize("listed", [["a-00000.parquet"], ["a-00000.parquet", "b-00000.parquet", "c-00000.parquet"]])
def test_commit_wants_exactly_the_parts_that_are_there(tmp_path, listed):
    run = make(tmp_path)
    put(run.open_results, "a-00000.parquet", "b-00000.parquet")
    with pytest.raises(OutputError, match="b-00000.parquet is in no list|c-00000.parquet is missing"):
        run.commit(listed)
    assert not list(run.results.glob("*.parquet"))


def test_the_manifest_is_written_before_the_first_rename(tmp_path, monkeypatch):
    run = make(tmp_path)
    put(run.open_results, "a-00000.parquet", "b-00000.parquet")
    real, moved = os.rename, []

    def rename(source, target):
        manifest = json.loads((run.open_results / "manifest.json").read_text())
        assert manifest == {"results": ["a-00000.parquet", "b-00000.parquet"], "late": []}
        if moved:
            raise OSError(5, "Input/output error", str(target))
        moved.append(target)
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(OutputError, match="Input/output error"):
        run.commit(["a-00000.parquet", "b-00000.parquet"])
    monkeypatch.undo()
    assert [item.name for item in run.results.glob("*.parquet")] == ["a-00000.parquet"]
    assert run.write_failed({"reason": "disk"})
    assert not list(run.results.glob("*.parquet"))


def test_a_failed_run_leaves_nothing_that_looks_whole(tmp_path):
    run = finished(tmp_path)
    assert run.write_failed({"reason": "ledger", "exit_code": 3, "rank": np.int64(1)})
    assert json.loads((tmp_path / "failed.json").read_text()) == {"reason": "ledger", "exit_code": 3, "rank": 1}
    assert not (tmp_path / "summary.json").exists()
    assert not list(run.results.glob("*.parquet")) and not list(run.late.glob("*.parquet"))
    with pytest.raises(OutputError, match="failed.json"):
        run.write_summary({})
    with pytest.raises(InputError, match="ledger"):
        read_summary(tmp_path)


def test_write_failed_says_when_it_cannot(tmp_path):
    assert RunDirectory(tmp_path / "gone").write_failed({"reason": "x"}) is False


def test_read_summary_reads_back(tmp_path):
    finished(tmp_path)
    assert read_summary(tmp_path) == {"results": 7}
    assert not list(tmp_path.glob("*.new"))


def test_read_summary_tells_what_it_found_instead(tmp_path):
    with pytest.raises(InputError, match="no run directory"):
        read_summary(tmp_path / "gone")
    (tmp_path / "job.toml").write_text("[left]\npath = 'a.csv'\n")
    with pytest.raises(InputError, match="no run directory: its job.toml is not of a run"):
        read_summary(tmp_path)
    run = make(tmp_path / "run")
    with pytest.raises(InputError, match="still going on or was killed"):
        read_summary(run.path)
    (run.path / "summary.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        read_summary(run.path)
    (run.path / "summary.json").write_text("[]")
    with pytest.raises(InputError, match="found list"):
        read_summary(run.path)


def test_late_files_are_those_of_the_streams_of_the_job(tmp_path):
    run = RunDirectory.create(tmp_path / "run", '[streams.picks]\n[streams.S_2]\n')
    put(run.open_late_parts, "picks-00000.parquet", "picks.parquet", "S_2.parquet")
    run.commit([], ["picks-00000.parquet"])
    assert tree(run.late) == [".open/picks-00000.parquet", "S_2.parquet", "picks.parquet"]
    run.clean()
    RunDirectory.create(run.path, JOB, overwrite=True)
    assert tree(run.path) == ["job.toml"]
    put(run.late, "picks.parquet")  # which this job does not make
    with pytest.raises(JobError, match="what no run made: late/picks.parquet"):
        RunDirectory.create(run.path, JOB, overwrite=True)
