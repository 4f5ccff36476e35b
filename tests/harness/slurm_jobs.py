"""Submits jobs to Slurm and waits for them.

`sbatch --wait` asks only after 2 and after 10 seconds whether a job has ended.
"""

import os
import re
import subprocess
import sys
import time

WAIT_S = 240.0
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}


def slurm(*command, cwd=None, **environment):
    """Runs a command of Slurm's, or one that submits. Returns what it says."""
    environ = os.environ | {"MPIJOIN_ENVIRONMENT": sys.prefix} | environment
    done = subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def submitted(folder, *command, **environment):
    """Submits a job from `folder`: options of sbatch, a script, and its arguments. Returns the number of the job."""
    return slurm("sbatch", "--parsable", *command, cwd=folder, **environment).strip()


def fields(number):
    """Returns what Slurm knows of a job."""
    return dict(re.findall(r"(\w+)=(\S*)", slurm("scontrol", "show", "job", number)))


def wait_for(ready, what):
    """Waits until `ready()` returns something true, and returns that."""
    deadline_s = time.monotonic() + WAIT_S
    while not (found := ready()):
        assert time.monotonic() < deadline_s, f"no {what} after {WAIT_S} s"
        time.sleep(0.2)
    return found


def ended(number):
    """Waits for the end of a job. Returns its state and its exit code."""

    def end():
        known = fields(number)
        return (known["JobState"], int(known["ExitCode"].split(":")[0])) if known["JobState"] in ENDED else None

    return wait_for(end, f"end of job {number}")


def run_job(folder, *command):
    """Submits a job as `submitted` does, and waits for its end. Returns its exit code and its log."""
    _, code = ended(submitted(folder, "-o", "job.log", *command))
    return code, (folder / "job.log").read_text()
