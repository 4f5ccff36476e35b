"""Starts whole runs as processes, breaks them on purpose, and tells how they ended and what they left behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NO_HANG_S = 60.0  # A run that still goes on then hangs. It is killed, and the test fails.
GONE_S = 2.0  # A launcher may end a moment before the ranks that it kills.
MAY_GO_ON, GO_ON = "mpijoin: should this run be stopped or killed, go on with: ", "mpijoin: to go on: "
COMPILES = "mpijoin: compiles kernels for jobs of this kind"
ENDED_S = 10.0  # A failing run may take so long from the failure to its end.

# This job is endless for a test. It has some 100 epochs a second, so that whatever breaks, breaks in the middle.
STREAM = 'kind = "synthetic"\nrate = 1500\ndomain = 1000\ntuples = 100_000_000\nwindow = "2 s"\n'
LONG_JOB = (
    f'[left]\n{STREAM}[right]\n{STREAM}[cluster]\npartitions = 6\ndistribution_epoch = "2 s"\n[output]\npath = "out"\n'
)


def mpirun_path():
    """Returns the launcher beside the interpreter, or else the one on the path."""
    beside = Path(sys.executable).parent / "mpirun"
    return str(beside) if beside.exists() else shutil.which("mpirun")


class Run:
    """Runs `mpijoin run job.toml` in `folder`, on `ranks` processes, or on threads of one process if ranks is None."""

    def __init__(self, folder, text=LONG_JOB, ranks=None, options=(), environ=None, cwd=None, program=None, **popen):
        self.folder, self.out, self.ranks = Path(folder), Path(folder) / "out", ranks
        (self.folder / "job.toml").write_text(text)
        program = program or [sys.executable, "-m", "mpijoin"]
        command = [*program, "run", str(self.folder / "job.toml"), *options]
        if ranks:
            launcher = mpirun_path() or pytest.skip("there is no mpirun")
            command = [launcher, "-n", str(ranks), *command]
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PMI_", "OMPI_", "SLURM_"))}
        environ = {**clean, "PYTHONPATH": str(ROOT), "MPIJOIN_TEST_RUN": str(self.folder), **(environ or {})}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen}
        self.process = subprocess.Popen(command, env=environ, cwd=cwd or folder, text=True, **streams)
        self.code = self.err = self.output = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for pid in [self.process.pid, *self.pids()]:
            if pid != self.process.pid or self.process.poll() is None:
                os.kill(pid, signal.SIGKILL)
        self.process.wait(NO_HANG_S)

    def pids(self):
        """Returns {pid: rank} of the run's Python processes that are alive."""
        mark, found = f"MPIJOIN_TEST_RUN={self.folder}".encode(), {}
        for entry in Path("/proc").iterdir():
            environ = _environ(entry) if entry.name.isdecimal() else []
            if mark in environ and b"mpijoin" in _read(entry / "cmdline").split(b"\0"):
                ranks = [one[9:] for one in environ if one.startswith(b"PMI_RANK=")]
                if ranks or not self.ranks:
                    found[int(entry.name)] = int(ranks[0]) if ranks else 0
        return found

    def pid_of(self, rank):
        return next(pid for pid, own in self.pids().items() if own == rank)

    def wait_for(self, ready, what="readiness", within_s=NO_HANG_S):
        """Sleeps until `ready()`, and fails if the run ends before."""
        deadline_s = time.monotonic() + within_s
        while not ready():
            assert time.monotonic() < deadline_s, f"no {what} after {within_s} s"
            if self.process.poll() is not None:
                pytest.fail(f"ended before {what}: {self.finish().err}")
            time.sleep(0.02)

    def wait_until_joining(self):
        """Sleeps until results have come to disk."""
        self.wait_for(lambda: any(self.out.glob("results/.open/*.parquet")), "first part file")

    def stop_while_joining(self, begun_s, within_s):
        """Asks for a checkpoint so long after all kernels are ready, and waits until the run has stopped at it."""
        logs = [self.out / f"logs/rank-{rank}.log" for rank in range(self.ranks)]

        def ready():
            return all(log.exists() and "kernels ready" in log.read_text() for log in logs)

        self.wait_for(ready, "start", within_s)  # Where nothing ran before, kernels are compiled first.
        time.sleep(begun_s)
        self.process.send_signal(signal.SIGUSR1)
        assert self.finish(within_s).code == 75, self.err

    def finish(self, within_s=NO_HANG_S):
        """Waits for the end of the run, which must leave no process behind."""
        self.output, self.err = self.process.communicate(timeout=within_s)
        self.code = self.process.returncode
        deadline_s = time.monotonic() + GONE_S
        while self.pids() and time.monotonic() < deadline_s:
            time.sleep(0.05)
        assert not self.pids(), f"left behind: {self.pids()}"
        return self

    @property
    def messages(self):
        """The lines that mpijoin itself printed, without those of progress, of a first start and of how to go on."""
        said = [line for line in self.err.splitlines() if line.startswith("mpijoin: ") and " tuples  " not in line]
        return [line for line in said if not line.startswith((MAY_GO_ON, GO_ON, COMPILES))]

    @property
    def resume_commands(self):
        """The commands that go on with the run, as it printed them at its start and at its end."""
        return [
            line.partition(": ")[2].partition(": ")[2]
            for line in self.err.splitlines()
            if line.startswith((MAY_GO_ON, GO_ON))
        ]

    @property
    def failed(self):
        """The content of failed.json. Fails if anything in the folder looks like that of a good run."""
        assert not (self.out / "summary.json").exists()
        assert not list(self.out.glob("results/*.parquet")) and not list(self.out.glob("late/*.parquet"))
        return json.loads((self.out / "failed.json").read_text())


def _read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _environ(entry):
    return _read(entry / "environ").split(b"\0")
