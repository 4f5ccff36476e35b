"""Runs in Slurm jobs that are stopped, killed, requeued and chained: whatever happens, the answer is that of an
undisturbed run."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from slurm_jobs import ended, fields, slurm, submitted, wait_for

ROOT = Path(__file__).parents[2]
STREAM = 'kind = "synthetic"\nrate = 1000\ntuples = 60_000\ndomain = 3000\nwindow = "2 s"\n'
JOB = f"""
[left]
{STREAM}
[right]
{STREAM}
[cluster]
partitions = 12
distribution_epoch = "500 ms"
reorganization_epoch = "1 s"
[checkpoint]
epochs = 1
[output]
path = "out"
"""
PACED = ("--set", "run.speed=0.5")  # two minutes: longer than any test waits for it

pytestmark = pytest.mark.slow


def submit(folder, ranks, *arguments, **environment):
    """Submits join.sbatch with job.toml from `folder`; returns the job's number."""
    options = ["-n", str(ranks), "-t", "30", "-o", "%j.log"]
    return submitted(folder, *options, str(ROOT / "slurm/join.sbatch"), "job.toml", *arguments, **environment)


def submit_chain(folder, links, *arguments):
    """Submits a chain of three ranks; returns the numbers of its links."""
    options = ["--links", str(links), "-n", "3", "-t", "30", "-o", "%j.log"]
    said = slurm(str(ROOT / "slurm/chain.sh"), *options, "job.toml", *arguments, cwd=folder)
    return re.search(r"submitted ([\d ]+);", said)[1].split()


def wait_until_saved(out, checkpoint):
    """Until this checkpoint is on disk, by the master's word."""
    log = out / "logs/rank-0.log"
    wait_for(lambda: log.exists() and f"checkpoint {checkpoint}: " in log.read_text(), f"checkpoint {checkpoint}")


def answer(out):
    """The results' number and certificate; all of them are in the files."""
    assert not (out / "failed.json").exists()
    summary = json.loads((out / "summary.json").read_text())
    assert pq.read_table(out / "results").num_rows == summary["results"]
    return summary["results"], summary["certificate"]


def summary_of(out):
    return json.loads((out / "summary.json").read_text())


def reason(out):
    failure = json.loads((out / "failed.json").read_text())
    return failure["exit_code"], failure["reason"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "job.toml").write_text(JOB)
    number = submit(folder, 4)
    assert ended(number) == ("COMPLETED", 0), (folder / f"{number}.log").read_text()
    return answer(folder / "out")


def test_a_signal_stops_a_job_and_fewer_or_more_ranks_go_on(folder, undisturbed):
    number = submit(folder, 4, *PACED)
    wait_until_saved(folder / "out", 1)
    slurm("scancel", "--signal=USR1", number)
    assert ended(number) == ("FAILED", 75)
    exit_code, why = reason(folder / "out")
    assert exit_code == 75 and "SIGUSR1" in why
    log = (folder / f"{number}.log").read_text()
    assert "requeue" not in log and "mpijoin: to go on: sbatch -n 4" in log and "--resume" in log, log
    shutil.copytree(folder / "out", folder / "copy")
    numbers = [submit(folder, 3, "--resume"), submit(folder, 6, "--resume", "--set", "output.path=copy")]
    for number, out in zip(numbers, ("out", "copy")):
        assert ended(number) == ("COMPLETED", 0), (folder / f"{number}.log").read_text()
        assert answer(folder / out) == undisturbed
    assert [summary_of(folder / out)["ranks"] for out in ("out", "copy")] == [3, 6]
    assert ended(submit(folder, 2, "--resume")) == ("COMPLETED", 0)  # done already


def test_a_killed_slave_ends_the_job_and_the_next_one_goes_on(folder, undisturbed):
    # after 4 s of 6, a checkpoint every second
    number = submit(folder, 4, "--set", "run.speed=10", "--set", "inject.kill={2=8}")
    state, exit_code = ended(number)
    assert (state, exit_code) == ("FAILED", 137), (folder / f"{number}.log").read_text()
    number = submit(folder, 4, "--resume", "--set", "inject.kill={2=8}")
    assert ended(number) == ("COMPLETED", 0), (folder / f"{number}.log").read_text()
    assert answer(folder / "out") == undisturbed
    assert summary_of(folder / "out")["checkpoints"]["resumed_from"] > 0


def test_the_walltime_ends_soon_and_the_job_requeues_itself(folder, undisturbed):
    """All of the walltime is margin, so it stops as soon as it can; what the restart finds in the job lets it
    finish."""
    hurried = JOB.replace("[checkpoint]\n", '[checkpoint]\nmargin = "30 min"\n')
    (folder / "job.toml").write_text(hurried + "[run]\nspeed = 0.5\n")
    number = submit(folder, 3, "--overwrite", MPIJOIN_REQUEUE="1")
    wait_for((folder / "out/logs/rank-0.log").exists, "start")
    (folder / "job.toml").write_text(JOB)
    assert ended(number) == ("COMPLETED", 0), (folder / f"{number}.log").read_text()
    log = (folder / f"{number}.log").read_text()
    assert "the walltime ends soon" in log and log.count(": back into the queue") == 1, log
    assert "restarted 1 times: mpijoin run job.toml --resume" in log
    assert fields(number)["Restarts"] == "1" and summary_of(folder / "out")["checkpoints"]["restarts"] == 1
    assert answer(folder / "out") == undisturbed


def test_a_job_that_somebody_requeues_goes_on_after_a_kill_and_restarts_have_an_end(folder, undisturbed):
    """As after a node failure. Killed ranks leave shared memory behind, which those of the restart must not take for
    theirs."""
    own = {"MPIJOIN_REQUEUE": "1", "MPIJOIN_RESTARTS_MAX": "1"}
    number = submit(folder, 3, *PACED, **own)
    wait_until_saved(folder / "out", 1)
    slurm("scancel", "--signal=KILL", f"{number}.0")
    assert ended(number)[0] == "FAILED"
    slurm("scontrol", "requeue", number)
    log = folder / "out/logs/rank-0.log"
    wait_for(lambda: "restarted 1 times" in log.read_text() and "goes on from checkpoint" in log.read_text(), "restart")
    newest = max(map(int, re.findall(r"checkpoint (\d+)", log.read_text())))
    wait_until_saved(folder / "out", newest + 1)
    slurm("scancel", "--signal=USR1", number)
    assert ended(number) == ("FAILED", 75)
    assert "not requeued: restarted 1 times already" in (folder / f"{number}.log").read_text()
    assert ended(submit(folder, 3, "--resume")) == ("COMPLETED", 0)
    assert answer(folder / "out") == undisturbed


def test_a_chain_goes_on_after_a_killed_link_and_leaves_the_queue_when_it_is_done(folder, undisturbed):
    links = submit_chain(folder, 4, "--set", "run.speed=10", "--set", "inject.kill={2=8}")
    assert [ended(link)[0] for link in links] == ["FAILED", "COMPLETED", "CANCELLED", "CANCELLED"]
    assert answer(folder / "out") == undisturbed


def test_a_chain_has_an_end_and_another_one_goes_on(folder, undisturbed):
    walltime = ("--set", "checkpoint.walltime=2 s", "--set", "checkpoint.margin=1 s")
    assert [ended(link) for link in submit_chain(folder, 2, *PACED, *walltime)] == [("FAILED", 75)] * 2
    assert reason(folder / "out")[0] == 75
    assert [ended(link)[0] for link in submit_chain(folder, 2)] == ["COMPLETED", "CANCELLED"]
    assert answer(folder / "out") == undisturbed
    assert summary_of(folder / "out")["checkpoints"]["restarts"] == 2


def test_a_bad_job_ends_its_chain(folder):
    links = submit_chain(folder, 3, "--set", "cluster.partitions=0")
    assert [ended(link) for link in links] == [("FAILED", 2), ("CANCELLED", 0), ("CANCELLED", 0)]
    assert "ends the chain" in (folder / f"{links[0]}.log").read_text()


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("-n", "3"), "no job file"),
        (("--links", "0", "job.toml"), '--links: got "0"'),
        (("job.toml", "--overwrite"), "remove the run directory"),
        (("--partition=nowhere", "job.toml"), "link 1 cannot be submitted"),
    ],
)
def test_what_chain_refuses(folder, arguments, said):
    done = subprocess.run(
        [str(ROOT / "slurm/chain.sh"), *arguments], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and said in done.stderr
