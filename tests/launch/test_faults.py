"""What stands in the way of a run here and now: its folders, the walltime, the number of ranks."""

import os
from pathlib import Path

import pytest

import mpijoin
from launching import Run
from mpijoin.cli import main
from mpijoin.config.job import Job, Memory, Output
from mpijoin.config.load import load_job
from mpijoin.errors import JobError
from mpijoin.launch.embedded import local_slaves
from mpijoin.launch.setup import launch_faults
from mpijoin.machine import core_count


def test_check_and_run_agree_on_a_path_that_is_taken(job_file, capsys):
    assert main(["check", job_file]) == 0
    assert mpijoin.run(job_file, slaves=1).results == 1
    told = [main(arguments) for arguments in (["check", job_file], ["run", job_file])]
    lines = capsys.readouterr().err.splitlines()
    assert told == [2, 2] and lines[0] == lines[1]
    assert lines[0].endswith(
        "is not empty: choose another, or go on with the run in it (--resume) or replace it (--overwrite)"
    )
    assert main(["check", job_file, "--overwrite"]) == 0
    assert main(["check", job_file, "--resume"]) == 0


def test_check_alters_nothing(job_file, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    main(["check", job_file, "--overwrite", "--set", f'checkpoint.path="{tmp_path}/elsewhere"'])
    assert sorted(tmp_path.rglob("*")) == before


def test_overwrite_spares_what_no_run_made_and_check_says_so_before(job_file, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    assert main(["check", job_file, "--overwrite"]) == 2
    assert "it holds what no run made: (no job.toml of a run), thesis.tex" in capsys.readouterr().err


def test_a_run_names_faults_of_job_place_and_ranks_together(job_file, tmp_path, capsys):
    (tmp_path / "out").write_text("a file")
    changes = ["cluster.partitions=0", "cluster.slaves_min=3", "left.time=when"]
    changes += ["inject.slow.9=0.5", "inject.memory.8=1 MB"]
    assert main(["run", job_file, "--ranks", "2", *(f"--set={one}" for one in changes)]) == 2
    said = capsys.readouterr().err
    for text in (
        "[cluster] partitions: got 0",
        "slaves_min: got 3",
        'no column "when"',
        "is a file",
        "slow: got rank 9",
        "memory: got rank 8, but the slaves are ranks 1 to 2",
    ):
        assert text in said
    assert said.startswith("mpijoin: 6 faults\n")


def slurm(monkeypatch, start, end):
    monkeypatch.setenv("SLURM_JOB_START_TIME", start)
    monkeypatch.setenv("SLURM_JOB_END_TIME", end)


def test_a_margin_longer_than_slurms_walltime_would_stop_at_once(monkeypatch):
    document = {
        "left": {"path": "/l.parquet"},
        "right": {"path": "/r.parquet"},
        "output": {"path": "/out"},
        "checkpoint": {"margin": "10 min"},
    }
    assert launch_faults(load_job(document)) == []
    slurm(monkeypatch, "1000", "1600")
    (found,) = launch_faults(load_job(document))
    assert found.text.startswith(
        '[checkpoint] margin: got "10 min" of Slurm\'s "10 min", wanted less than the walltime'
    )
    slurm(monkeypatch, "1000", "1601")
    assert launch_faults(load_job(document)) == []
    document["checkpoint"]["walltime"] = "1 h"
    slurm(monkeypatch, "1000", "1600")
    assert launch_faults(load_job(document)) == [], "what the job says counts"


@pytest.mark.parametrize("wanted", [0, -1, 1.5, "2", True, float])
def test_a_number_of_slaves_that_is_none_is_refused(wanted):
    with pytest.raises(JobError, match=r"slaves: got .*, wanted a whole number of slaves, at least 1"):
        local_slaves(wanted, oversubscribe=True, called="slaves")


def test_more_slaves_than_make_sense_are_refused_before_any_is_made(job_file, capsys):
    most = 4 * core_count()
    assert local_slaves(most, False, "slaves") == most
    assert local_slaves(most + 1, True, "slaves") == most + 1
    assert main(["run", job_file, "--ranks", str(most + 1)]) == 2
    assert f"--ranks: got {most + 1} slaves, wanted at most {most}, four per core, unless" in capsys.readouterr().err
    assert main(["run", job_file, "--ranks", "501", "--oversubscribe"]) == 2
    assert "--ranks: got 501 slaves, wanted at most 500, since all are threads of this" in capsys.readouterr().err
    assert not os.path.exists(os.path.join(os.path.dirname(job_file), "out"))


@pytest.mark.mpi
def test_ranks_are_the_launchers_under_mpirun(tmp_path):
    with Run(tmp_path, ranks=2, options=["--ranks", "7"]) as run:
        run.finish()
    assert run.code == 2
    assert run.messages == ["mpijoin: --ranks 7: the launcher has started 2 ranks already: leave --ranks out"]
    assert not run.out.exists()


def scratch_faults(path, spill="generations"):
    memory = Memory(spill=spill, path=str(path))
    return [one.text for one in launch_faults(Job((), memory=memory, output=Output(path="")))]


def test_a_folder_for_rows_on_disk_must_be_one_or_can_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    assert scratch_faults(tmp_path) == scratch_faults(tmp_path / "new" / "newer") == []
    blocked = f"[memory] path: {tmp_path}/file/x cannot be a folder, {tmp_path}/file is a file"
    assert scratch_faults(tmp_path / "file" / "x") == [f"{blocked}: wanted a folder on a disk of each node's own"]
    assert scratch_faults(tmp_path / "file" / "x", "off") == [], "without effect"
    assert not (tmp_path / "new").exists()


def test_a_folder_for_rows_on_disk_must_be_writable(tmp_path):
    (tmp_path / "mine").mkdir(mode=0o500)
    for folder in (tmp_path, *tmp_path.parents):  # so that another user sees it
        if folder.owner() == tmp_path.owner() and folder != Path(folder.anchor) and not os.stat(folder).st_mode & 1:
            folder.chmod(0o711)
    is_root = os.geteuid() == 0
    if is_root:
        os.setresuid(65534, 65534, 0)
    try:
        told = scratch_faults(tmp_path / "mine") + scratch_faults(tmp_path / "mine" / "new")
    finally:
        if is_root:
            os.setresuid(0, 0, 0)
    wanted = "wanted a folder that each slave may write to"
    assert told == [
        f"[memory] path: {tmp_path}/mine cannot be written: {wanted}",
        f"[memory] path: {tmp_path}/mine/new cannot be made, {tmp_path}/mine cannot be written: {wanted}",
    ]
