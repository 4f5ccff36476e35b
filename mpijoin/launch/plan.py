"""What every rank must know to begin: the job, the schema, who is master, slave and collector."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from mpijoin.checkpoint.files import refusals
from mpijoin.checkpoint.identity import check_identity
from mpijoin.checkpoint.manifest import newest_identity, numbers_in, prune, remove
from mpijoin.config.dump import dump_job
from mpijoin.config.job import FileSource, Job
from mpijoin.data.files import expand_files
from mpijoin.data.results import result_schema
from mpijoin.data.schema import JoinSchema
from mpijoin.errors import AlreadyDone, JobError
from mpijoin.rank import MASTER
from mpijoin.rundir import RunDirectory


@dataclass(frozen=True)
class Roles:
    """Which rank is what. With "collect" the last rank merges the results, rank 0 if there are only two (DESIGN, section 5).

    >>> Roles(4, True).slaves, Roles(4, True).name(3)
    ((1, 2), 'collector')
    """

    size: int
    collects: bool

    @property
    def collector(self) -> int | None:
        if not self.collects:
            return None
        return self.size - 1 if self.size > 2 else MASTER

    @property
    def slaves(self) -> tuple[int, ...]:
        return tuple(rank for rank in range(1, self.size) if rank != self.collector)

    def name(self, rank: int) -> str:
        if rank == MASTER:
            return "master"
        return "collector" if rank == self.collector else "slave"


@dataclass(frozen=True)
class Plan:
    """directory: None where a run writes no files · checkpoints: the folder for them, likewise · resumes: whether the run goes
    on from one that lies there."""

    job: Job
    schema: JoinSchema
    roles: Roles
    directory: RunDirectory | None
    checkpoints: Path | None = None
    resumes: bool = False


def prepare(job: Job, schema: JoinSchema, size: int, overwrite: bool = False, resume: bool = False) -> Plan:
    """Makes the run directory of a checked job, or opens that of a run to go on with.

    resume: from the newest checkpoint there; where there is none, from the start. Raises JobError where job and ranks do not
    fit or the path is taken, AlreadyDone where the run to go on with is done, OutputError where nothing can be written there.
    """
    roles = Roles(size, job.output.results == "collect")
    faults = _role_faults(job, roles)
    if faults:
        raise JobError(faults)
    if not job.output.path:
        return Plan(job, schema, roles, None)
    directory = RunDirectory(Path(job.output.path))
    checkpoints = Path(job.checkpoint.path) if job.checkpoint.path else directory.checkpoints
    resume = resume and directory.is_run
    if resume and directory.is_finished:
        directory.clean()
        remove(checkpoints)
        raise AlreadyDone(f"{directory.path}: this run is done, there is nothing to go on with")
    if resume:  # what was killed on purpose is to go on now
        job = replace(job, inject=replace(job.inject, kill={}, fail={}))
    if resume and numbers_in(checkpoints):
        check_identity(job, newest_identity(checkpoints))
        directory.reopen(dump_job(job))
        return Plan(job, schema, roles, directory, checkpoints, resumes=True)
    inputs = [path for one in job.streams if isinstance(one.source, FileSource) for path in expand_files(one.source.path)]
    RunDirectory.create(directory.path, dump_job(job), overwrite or resume, inputs)
    _make_checkpoints(checkpoints, overwrite or resume)
    return Plan(job, schema, roles, directory, checkpoints)


def _make_checkpoints(folder: Path, overwrite: bool) -> None:
    """An empty folder for the checkpoints of a run that begins."""
    if numbers_in(folder) and not overwrite:
        raise JobError([f"[checkpoint] path: {folder} holds another run's checkpoints: choose another, --resume or --overwrite"])
    with refusals(folder):
        folder.mkdir(parents=True, exist_ok=True)
    prune(folder, [])


def _role_faults(job: Job, roles: Roles) -> list[str]:
    if not roles.slaves:
        return [f"{roles.size} rank: a run needs a master and at least one slave: use mpirun -n 2 or more"]
    slaves = f"the slaves are ranks {roles.slaves[0]} to {roles.slaves[-1]}"
    faults = [f"[inject] slow: got rank {one.rank}, but {slaves}" for one in job.inject.slow if one.rank not in roles.slaves]
    least = job.cluster.slaves_min
    if least is not None and least > len(roles.slaves):
        faults.append(f"[cluster] slaves_min: got {least}, but there are {len(roles.slaves)} slaves")
    last = f"the ranks are 0 to {roles.size - 1}"
    named = [("delay", one.rank) for one in job.inject.delay]
    named += [(field, rank) for field in ("fail", "kill") for rank in getattr(job.inject, field)]
    return faults + [f"[inject] {field}: got rank {rank}, but {last}" for field, rank in named if rank >= roles.size]


def merged_schema(plan: Plan) -> pa.Schema:
    """The result columns as a collector writes them."""
    from mpijoin.sinks.table import nullable_fields

    return nullable_fields(result_schema(plan.job, plan.schema))
