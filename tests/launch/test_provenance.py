"""Where a run comes from, and the command that goes on with it, as summary, failure and log tell them."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import mpijoin
from launching import ROOT, Run, mpirun_path
from mpijoin.launch.provenance import launcher, provenance, resume_command, typed
from mpijoin.rundir import part_of

STREAM = 'kind = "synthetic"\nrate = 5000\ndomain = 1000\nduration = "{}"\nwindow = "1 s"\n'
PACED = (
    '[left]\n{0}[right]\n{0}[run]\nspeed = 1\n[checkpoint]\nevery = "500 ms"\n[output]\npath = "out"\nresults ='
    ' "count"\n'
)

MPICH = {"PMI_SIZE": "5", "HYDI_CONTROL_FD": "7"}
OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "5"}
SRUN = {"PMI_SIZE": "5", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "5"}
MPIRUN_IN_JOB = {**MPICH, "SLURM_STEP_ID": "1", "SLURM_STEP_NUM_TASKS": "5"}


@pytest.mark.parametrize(
    "environ, wanted",
    [({}, []), (MPICH, ["mpirun", "-n", "5"]), (OPEN_MPI, ["mpirun", "-n", "5"]), (SRUN, ["srun", "-n", "5"]),
     (MPIRUN_IN_JOB, ["mpirun", "-n", "5"])],
)  # fmt: skip
def test_the_launcher_is_known_by_what_it_leaves_in_the_environment(environ, wanted):
    assert launcher(5, environ) == wanted


@pytest.mark.parametrize(
    "command, wanted",
    [(["/usr/bin/mpijoin", "run", "a b.toml"], ["mpijoin", "run", "a b.toml"]),
     (["/x/mpijoin/__main__.py", "run", "j"], ["python", "-m", "mpijoin", "run", "j"]),
     (["study.py", "3"], ["python", "study.py", "3"]), (["-c"], ["python"]), ([""], ["python"])],
)  # fmt: skip
def test_programs_are_named_as_they_are_typed(command, wanted):
    assert typed(command, 1, {}) == wanted


def test_the_command_that_goes_on_finds_the_job_from_anywhere_and_overwrites_nothing(tmp_path, monkeypatch):
    (tmp_path / "my job.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    given = ["/usr/bin/mpijoin", "run", "my job.toml", "--set", "left.window=5 min", "--overwrite", "--ranks", "3"]
    again = shlex.split(resume_command(given, 1, {}))
    assert again == [
        "mpijoin",
        "run",
        f"{tmp_path}/my job.toml",
        "--set",
        "left.window=5 min",
        "--ranks",
        "3",
        "--resume",
    ]
    assert shlex.split(resume_command([*given, "--resume"], 5, MPICH)) == ["mpirun", "-n", "5", *again]
    batch = {**SRUN, "MPIJOIN_LAUNCHER": "sbatch -n 5 slurm/join.sbatch"}
    assert shlex.split(resume_command(given, 5, batch)) == ["sbatch", "-n", "5", "slurm/join.sbatch", *again[2:]]
    assert resume_command(["study.py"], 1, {}) == ""


def test_ranks_are_gathered_by_host_and_the_batch_job_is_named():
    environ = {"SLURM_JOB_ID": "77", "SLURM_JOB_NAME": "picks", "SLURM_ARRAY_TASK_ID": ""}
    told = provenance({1: "n1", 0: "n0", 2: "n1"}, 3, "MPICH 5.0", 0.0, ["mpijoin", "run", "j"], environ)
    assert told["hosts"] == {"n0": [0], "n1": [1, 2]} and told["mpi"] == "MPICH 5.0"
    assert told["slurm"] == {"job_id": "77", "job_name": "picks"} and told["version"] == mpijoin.__version__
    assert told["started"].startswith(("1970-01-01T", "1969-12-31T"))


def test_a_run_from_python_tells_where_it_comes_from(tmp_path):
    (tmp_path / "job.toml").write_text(PACED.format(STREAM.format("10 ms")))
    told = mpijoin.run(tmp_path / "job.toml", slaves=2).summary["provenance"]
    assert told["hosts"] == {os.uname().nodename: [0, 1, 2]} and told["mpi"] is None and told["folder"] == os.getcwd()
    assert told["python"] == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.mpi
def test_the_printed_command_goes_on_with_a_stopped_run(tmp_path):
    if not mpirun_path():
        pytest.skip("there is no mpirun")
    with Run(tmp_path, PACED.format(STREAM.format("5 s")), ranks=3) as run:
        run.wait_for(lambda: any(run.out.glob("checkpoint/0*.json")), "first checkpoint")
        os.kill(run.pid_of(0), signal.SIGUSR1)
        run.finish()
    assert run.code == 75 and run.failed["provenance"]["hosts"] == {os.uname().nodename: [0, 1, 2]}
    assert run.failed["provenance"]["mpi"] and "\0" not in run.failed["provenance"]["mpi"]
    assert run.failed["provenance"]["command"] == f"mpirun -n 3 python -m mpijoin run {tmp_path}/job.toml"
    assert outcomes_in(run.out)[-1] == "stopped" and outcomes_in(run.out).count("whole") >= 1
    first, last = run.resume_commands
    log = (run.out / "logs/rank-0.log").read_text()
    assert first == last == run.failed["go_on"] and log.count(last) == 2
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        last, shell=True, cwd="/", env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}, timeout=60
    )
    assert done.returncode == 0 and (run.out / "summary.json").exists()
    found = outcomes_in(run.out)
    assert found.count("resumed") == 1 and "stopped" not in found and {"whole", "resumed"} == set(found)


def outcomes_in(folder):
    """Of checkpoints, as the run has recorded them."""
    files = sorted((folder / "metrics").glob("checkpoints*.parquet"), key=lambda file: part_of(file.name))
    return [outcome for file in files for outcome in pq.read_table(file)["outcome"].to_pylist()]
