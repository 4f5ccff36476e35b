"""A folder belongs to one run at a time: a lock file in it says whose it is, and a dead owner does not keep it.

    lock-00001.json     created with O_EXCL, touched every BEAT_S seconds while the run goes on, removed at its end

Shared file systems need not know flock for that. Who finds a lock asks whether its owner lives. On the same machine the
process number and its start time tell. Elsewhere Slurm does, if the owner is one of its jobs; else the last touch does.

Who finds nothing but dead locks creates the next number, which exactly one of several can do, and removes the dead
ones. Before that it looks round once more: one that saw the folder empty a moment ago may have begun to count from 1
meanwhile.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Mapping

from mpijoin.errors import JobError, OutputError
from mpijoin.named import NamedTuple
from mpijoin.refusals import writing

LOCKS = "lock-*"  # all files that are made here
BEAT_S = 20.0
# an owner elsewhere that has not touched its lock for so long is dead: file systems cache times for a minute
SILENT_S = 300.0
WAIT_S = 2.0  # for an owner that is just dying: a launcher may end a moment before the ranks that it kills
WAIT_STEP_S = 0.1
SLURM_S = 10.0  # how long Slurm may take to answer
# states in which a job has no processes
WAITING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"}

GONE, HIDDEN = -1, -2  # instead of when a process began

_held: dict[str, Path] = {}  # token -> folder of the locks of this process: it need not guess about itself


class Owner(NamedTuple):
    """Who has a lock. machine: this boot of it, and which of its process numbers are meant · start: of the process, in
    the clock ticks of the machine · job, restarts: of Slurm, "" and 0 outside · token: unique."""

    host: str
    machine: str
    pid: int
    start: int
    since: str
    token: str
    cluster: str = ""
    job: str = ""
    step: str = ""
    restarts: int = 0

    def __str__(self) -> str:
        slurm = f" (Slurm job {self.job}{f', step {self.step}' if self.step else ''})" if self.job else ""
        return f"process {self.pid} on {self.host}{slurm} since {self.since}"


class FolderLock:
    """A lock that is held. `release` it at the end; it touches itself meanwhile."""

    def __init__(self, path: Path, token: str):
        self.path, self._token = path, token
        self._ended = threading.Event()
        _held[token] = path.parent.resolve()
        threading.Thread(target=self._beat, daemon=True).start()

    @property
    def is_held(self) -> bool:
        """False if the run stood still for so long that another took it for dead."""
        return self._token in _held and self.path.exists()

    def check(self) -> None:
        """Raises OutputError if the lock is lost."""
        if not self.is_held:
            taken = "another run has it now: this one stood still, and was taken for dead"
            gone = f"{self.path.name} in it is gone: the folder was removed or emptied during the run"
            raise OutputError(f"{self.path.parent}: {taken if any(self.path.parent.glob(LOCKS)) else gone}")

    def release(self) -> None:
        """Removes the lock, and the folder if nothing else is in it. Never raises; a second call does nothing."""
        self._ended.set()
        if _held.pop(self._token, None) is None:
            return
        with suppress(OSError):
            self.path.unlink()
            self.path.parent.rmdir()

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_S):
            with suppress(OSError):
                os.utime(self.path)


def take(folder: Path, what: str, environ: Mapping[str, str] = os.environ, wait_s: float = WAIT_S) -> FolderLock:
    """Takes the folder's lock; the folder is made if it is not there yet. what: the field of the job that names it.

    Raises JobError if a run that lives has it, or it is no folder, and OutputError if the file system refuses.
    """
    if folder.exists() and not folder.is_dir():
        raise JobError([f"{what}: {folder} is a file: wanted a folder"])
    own, deadline_s = this_owner(environ), time.monotonic() + wait_s
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        while isinstance(found := _try(folder, own, environ), str):
            if time.monotonic() >= deadline_s:
                raise JobError([f"{what}: {folder} is in use by {found}"])
            time.sleep(WAIT_STEP_S)
    return found


def user_of(folder: Path, environ: Mapping[str, str] = os.environ) -> str:
    """Says in words which run has the folder now, "" if none. It only looks."""
    return _living(sorted(folder.glob("lock-*.json")), environ)


def _try(folder: Path, own: Owner, environ: Mapping[str, str]) -> FolderLock | str:
    """Returns the lock, or says in words who has it."""
    found = sorted(folder.glob("lock-*.json"))
    if told := _living(found, environ):
        return told
    path = folder / f"lock-{max((_number(one) for one in found), default=0) + 1:05d}.json"
    if not _create(path, own):
        return "a run that has just begun"
    if told := _living([one for one in folder.glob("lock-*.json") if one != path], environ):
        path.unlink()
        return told
    for dead in found:
        dead.unlink(missing_ok=True)
    return FolderLock(path, own.token)


def _create(path: Path, own: Owner) -> bool:
    """Creates the lock file; False if another run has just done so."""
    try:
        file = open(path, "x", encoding="utf-8")
    except FileExistsError:
        return False
    try:
        with file:
            json.dump(own._asdict(), file)
    except OSError:
        path.unlink()  # a full disk
        raise
    return True


def _number(path: Path) -> int:
    digits = path.stem.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


def _living(paths: list[Path], environ: Mapping[str, str]) -> str:
    """Says in words which owner lives, the first of them, and what to do; "" if none does."""
    for path in paths:
        try:
            text, touched_s = path.read_text(encoding="utf-8"), path.stat().st_mtime
        except FileNotFoundError:
            continue  # released since
        owner, silent = _parsed(text), ""
        if owner is not None and owner.machine == _machine():
            lives = _lives_here(owner, path.parent)
        elif lives := owner is None or not _ended_for_slurm(owner, environ):
            silent_s = max(0.0, _now_s(path.parent) - touched_s)
            lives, silent = silent_s <= SILENT_S, f"; seen {silent_s:.0f} s ago, counts as dead after {SILENT_S:.0f} s"
        if lives:
            return (
                f"{owner or 'a run that has just begun'}{silent}: wait for it or stop it; if it is no run, remove"
                f" {path}"
            )
    return ""


def _parsed(text: str) -> Owner | None:
    """None: not written yet, or never to its end."""
    try:
        owner = Owner(**json.loads(text))
    except (ValueError, TypeError):
        return None
    numbers = isinstance(owner.pid, int) and isinstance(owner.start, int) and isinstance(owner.restarts, int)
    return owner if numbers and isinstance(owner.job, str) else None


def _lives_here(owner: Owner, folder: Path) -> bool:
    """Of a process of this machine. One's own lock that one does not hold was copied with its folder."""
    if (owner.pid, owner.start) == (os.getpid(), _start_of(os.getpid())):
        return _held.get(owner.token) == folder.resolve()
    return _start_of(owner.pid) in (owner.start, HIDDEN)


def _ended_for_slurm(owner: Owner, environ: Mapping[str, str]) -> bool:
    """Whether Slurm knows that the owner's job has no processes any more."""
    if environ.get("SLURM_CLUSTER_NAME", "") != owner.cluster or not owner.job.isdecimal():
        return False
    if environ.get("SLURM_JOB_ID") == owner.job and _restarts(environ) > owner.restarts:
        return True
    program = shutil.which("squeue", path=environ.get("PATH"))
    if program is None:
        return False
    command = [program, "--noheader", f"--jobs={owner.job}", "--format=%T"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SLURM_S, env=dict(environ))
    except (OSError, subprocess.TimeoutExpired):
        return False
    if done.returncode:
        return "Invalid job id" in done.stderr  # forgotten, some minutes after its end
    return set(done.stdout.split()) <= WAITING


def _restarts(environ: Mapping[str, str]) -> int:
    told = environ.get("SLURM_RESTART_COUNT", "")
    return int(told) if told.isdecimal() else 0


def this_owner(environ: Mapping[str, str]) -> Owner:
    """This process."""
    pid = os.getpid()
    return Owner(
        host=socket.gethostname(),
        machine=_machine(),
        pid=pid,
        start=_start_of(pid),
        since=time.strftime("%Y-%m-%d %H:%M:%S"),
        token=uuid.uuid4().hex,
        cluster=environ.get("SLURM_CLUSTER_NAME", ""),
        job=environ.get("SLURM_JOB_ID", ""),
        step=environ.get("SLURM_STEP_ID", ""),
        restarts=_restarts(environ),
    )


def _machine() -> str:
    """A value that is equal for two processes exactly if they know each other by the same numbers. A host's name is not
    enough: it may boot anew, and containers count their processes apart."""
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"


def _start_of(pid: int) -> int:
    """When a process of this machine began, in clock ticks; GONE, though its parent may not have noticed; or HIDDEN."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return GONE if fields[0] in "ZX" else int(fields[19])
    except OSError:
        return HIDDEN if _is_of_another_user(pid) else GONE


def _is_of_another_user(pid: int) -> bool:
    """Whether the process belongs to another user, of whose processes the system may show nothing but that they are
    there."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _now_s(folder: Path) -> float:
    """The time by the clock of the file system, which all who touch locks there have in common."""
    path = folder / f"lock-{uuid.uuid4().hex}.now"
    try:
        path.touch()
        return path.stat().st_mtime
    finally:
        path.unlink(missing_ok=True)
