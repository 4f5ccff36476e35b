"""Makes the setup of a run: checks job and ranks, locks the folders, and makes the run directory."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Callable, Iterator, Mapping, Sequence

from mpijoin.checkpoint.identity import answer_of, check_identity
from mpijoin.checkpoint.manifest import newest_identity, numbers_in, prune, remove
from mpijoin.config.check import load_and_resolve
from mpijoin.config.dump import dump_job
from mpijoin.config.faults import Fault, fault
from mpijoin.config.job import FileSource, Job, Memory
from mpijoin.config.units import format_duration, plural, show
from mpijoin.data.files import expand_files
from mpijoin.data.schema import JoinSchema
from mpijoin.errors import AlreadyDone, InputError, JobError
from mpijoin.launch.roles import Roles, RunSetup
from mpijoin.launch.sizes import sized
from mpijoin.lock import FolderLock, take, user_of
from mpijoin.refusals import reading
from mpijoin.run_files import blocking_file, kind_of, room_faults
from mpijoin.rundir import RunDirectory, read_summary
from mpijoin.spill.scratch import choose_root, remove_leftovers


def setup_of(
    path: str, overrides: Sequence[str], size_of: Callable[[Job], int], overwrite: bool = False, resume: bool = False
) -> RunSetup:
    """Returns the setup that `prepare` makes for the run of a job file on `size_of(job)` ranks. Raises JobError with
    every fault that it finds."""
    job, schema = load_and_resolve(path, overrides, lambda job: launch_faults(job, size_of(job), overwrite, resume))
    return prepare(job, schema, size_of(job), overwrite, resume)


def prepare(job: Job, schema: JoinSchema, size: int, overwrite: bool = False, resume: bool = False) -> RunSetup:
    """Makes the run directory of a checked job, or opens the directory of a run that is to continue. The caller must
    release the locks of the setup.

    With `resume` the run continues from the newest checkpoint there, or begins if there is none. Raises JobError if the
    job and the ranks do not fit, or if the path is taken or in use. Raises AlreadyDone if the run that is to continue
    is done, and OutputError if nothing can be written there.
    """
    faults = launch_faults(job, size, overwrite, resume)
    if faults:
        raise JobError([one.text for one in faults])
    job, chosen = sized(job, size)
    roles = roles_of(job, size)
    if not job.output.path:
        return RunSetup(job, schema, roles, None, chosen=chosen)
    directory = RunDirectory(Path(job.output.path))
    checkpoints = _checkpoint_folder(job)
    resume = resume and directory.is_run
    locks = _lock(directory.path, checkpoints)
    try:
        job, resumes = _open(job, directory, checkpoints, overwrite, resume)
    except BaseException:
        release_all(locks)
        raise
    return RunSetup(job, schema, roles, directory, checkpoints, resumes, locks, chosen=chosen)


def _open(job: Job, directory: RunDirectory, checkpoints: Path, overwrite: bool, resume: bool) -> tuple[Job, bool]:
    """Opens both folders, which are locked. Returns the job as it is run now, and whether it continues from a
    checkpoint."""
    if resume and directory.is_finished:
        try:
            read_summary(directory.path)
        except InputError as error:
            raise InputError(f"{error}, so nobody knows how this run ended: --overwrite runs it again") from error
        with reading(directory.job):
            check_identity(job, answer_of(directory.job.read_text(encoding="utf-8", errors="replace")))
        directory.clean()
        remove(checkpoints)
        if job.memory.spills:  # Ranks may have been killed after the summary was written, and none starts here again.
            remove_leftovers(choose_root(job.memory.path).path)
        raise AlreadyDone(f"{directory.path}: this run is done, there is nothing to go on with")
    if resume:
        # A run that was killed on purpose shall not be killed again.
        job = job._replace(inject=job.inject._replace(kill={}, fail={}))
    if resume and numbers_in(checkpoints):
        from mpijoin.checkpoint.restore import check_spilled  # late: it loads the engine, which `check` does without

        check_identity(job, newest_identity(checkpoints))
        check_spilled(job, checkpoints)
        directory.reopen(dump_job(job))
        directory.make_query_folders(job.names)
        return job, True
    RunDirectory.create(directory.path, dump_job(job), overwrite or resume, _input_files(job))
    directory.make_query_folders(job.names)
    prune(checkpoints, [])
    return job, False


def _lock(folder: Path, checkpoints: Path) -> tuple[FolderLock, ...]:
    """Locks both folders. Raises JobError if one of them is in use, and OutputError if it cannot be written."""
    locks = [take(folder, "[output] path")]
    try:
        return (*locks, take(checkpoints, "[checkpoint] path"))
    except BaseException:
        release_all(locks)
        raise


def roles_of(job: Job, size: int) -> Roles:
    """The role of each of so many ranks."""
    return Roles(size, job.output.results == "collect", job.cluster.producers)


def release_all(locks: Sequence[FolderLock]) -> None:
    """Releases the last lock first, because it may lie in the folder of the first one."""
    for lock in reversed(locks):
        lock.release()


def launch_faults(job: Job, size: int | None = None, overwrite: bool = False, resume: bool = False) -> list[Fault]:
    """Returns what stands in the way of a run of this job here and now. It only looks, and alters nothing.

    `size` is the number of ranks, or None if it is not known yet. `overwrite` and `resume` are those of `prepare`.
    """
    faults = [] if size is None else _role_faults(job, roles_of(sized(job, size)[0], size))
    faults += _walltime_faults(job, os.environ)
    faults += _output_faults(job, overwrite, resume)
    faults += _scratch_faults(job.memory)
    # A checkpoint folder inside the run directory needs no check of its own.
    if job.checkpoint.path:
        faults += _checkpoint_faults(Path(job.checkpoint.path), overwrite or resume)
    return faults


def _output_faults(job: Job, overwrite: bool, resume: bool) -> Iterator[Fault]:
    path = Path(job.output.path)
    if not job.output.path or (resume and RunDirectory(path).is_run):
        return
    try:
        with reading(path):
            texts = room_faults(path, overwrite or resume, _input_files(job))
            # To advise --resume or --overwrite would only lead into the next refusal.
            if texts and not (overwrite or resume) and (user := user_of(path)):
                texts = [f"[output] path: {path} is in use by {user}"]
    except InputError as error:
        texts = [f"[output] path: {error}"]
    yield from (Fault(("output.path",), text) for text in texts)


def _checkpoint_faults(folder: Path, taken_over: bool) -> Iterator[Fault]:
    try:
        with reading(folder):
            blocked, used = blocking_file(folder), not taken_over and bool(numbers_in(folder))
            user = user_of(folder) if used else ""
    except InputError as error:
        yield fault("checkpoint", "path", str(error))
        return
    if blocked:
        it = "it" if blocked == folder else blocked
        text = f"{folder} cannot be a folder, {it} is {kind_of(blocked)}: wanted a folder that all ranks see"
        yield fault("checkpoint", "path", text)
    elif used:
        held = "holds another run's checkpoints: choose another, --resume or --overwrite"
        yield fault("checkpoint", "path", f"{folder} is in use by {user}" if user else f"{folder} {held}")


def _scratch_faults(memory: Memory) -> Iterator[Fault]:
    """Looks at the folder for rows on disk as it is on this node. The slaves on other nodes have folders of their
    own."""
    if not memory.spills:
        return
    folder = choose_root(memory.path).path
    there = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
    if not there.is_dir():
        it = "it" if there == folder else there
        text = f"{folder} cannot be a folder, {it} is {kind_of(there)}: wanted a folder on a disk of each node's own"
        yield fault("memory", "path", text)
    elif not os.access(there, os.W_OK | os.X_OK):
        what = "cannot be written" if there == folder else f"cannot be made, {there} cannot be written"
        yield fault("memory", "path", f"{folder} {what}: wanted a folder that each slave may write to")


def _checkpoint_folder(job: Job) -> Path:
    return Path(job.checkpoint.path) if job.checkpoint.path else RunDirectory(Path(job.output.path)).checkpoints


def _input_files(job: Job) -> list[str]:
    """Returns the paths of all files that the job reads. It leaves out paths that cannot be found, because other checks
    report them."""
    paths: list[str] = []
    for stream in job.streams:
        with suppress(InputError):
            paths += (
                expand_files(stream.source.path) if isinstance(stream.source, FileSource) and stream.source.path else []
            )
    return paths


def _walltime_faults(job: Job, environ: Mapping[str, str]) -> Iterator[Fault]:
    """Yields a fault if the margin is as long as Slurm's walltime or longer. The run would then stop at once, and again
    whenever it is requeued."""
    times = [environ.get(name, "") for name in ("SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME")]
    margin_ns = job.checkpoint.margin_ns
    if margin_ns is None or job.checkpoint.walltime_ns is not None or not all(map(str.isdecimal, times)):
        return
    whole_ns = (int(times[1]) - int(times[0])) * 1_000_000_000
    if margin_ns >= whole_ns:
        got = f"got {show(format_duration(margin_ns))} of Slurm's {show(format_duration(max(0, whole_ns)))}"
        yield fault("checkpoint", "margin", f"{got}, wanted less than the walltime: the run would stop at once")


def _role_faults(job: Job, roles: Roles) -> list[Fault]:
    if not roles.slaves:
        return [_too_few(roles)]
    slaves = f"the slaves are ranks {roles.slaves[0]} to {roles.slaves[-1]}"
    named = [("slow", one.rank) for one in job.inject.slow] + [("memory", one.rank) for one in job.inject.memory]
    faults = [
        fault("inject", field, f"got rank {rank}, but {slaves}") for field, rank in named if rank not in roles.slaves
    ]
    least = job.cluster.slaves_min
    if least is not None and least > len(roles.slaves):
        faults.append(fault("cluster", "slaves_min", f"got {least}, but there are {len(roles.slaves)} slaves"))
    last = f"the ranks are 0 to {roles.size - 1}"
    named = [("delay", one.rank) for one in job.inject.delay]
    named += [(field, rank) for field in ("fail", "kill") for rank in getattr(job.inject, field)]
    return faults + [
        fault("inject", field, f"got rank {rank}, but {last}") for field, rank in named if rank >= roles.size
    ]


def _too_few(roles: Roles) -> Fault:
    if roles.producer_count == 1:
        return Fault((), f"{roles.size} rank: a run needs a master and at least one slave: use mpirun -n 2 or more")
    wanted = f"a run needs {roles.producer_count} producers and at least one slave"
    ranks = plural(roles.size, "rank")
    return fault("cluster", "producers", f"{ranks}: {wanted}: use mpirun -n {roles.producer_count + 1} or more")
