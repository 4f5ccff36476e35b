"""What every rank must know before it can begin: the job, the schema, and which rank is master, slave or collector."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mpijoin.config.job import Job
from mpijoin.data.schema import JoinSchema
from mpijoin.named import NamedTuple
from mpijoin.rank import MASTER

if TYPE_CHECKING:  # Ranks that are not the master have no locks.
    from mpijoin.lock import FolderLock
    from mpijoin.rundir import RunDirectory


class Roles(NamedTuple):
    """The role of each rank. The first ranks are producers, and rank 0 is the coordinator, too. With results =
    "collect" the last rank merges the results. If that would leave no slave, rank 0 does so.

    >>> Roles(4, True).slaves, Roles(4, True).name(3)
    ((1, 2), 'collector')
    >>> Roles(4, False, 2).slaves, Roles(4, False, 2).name(1)
    ((2, 3), 'producer')
    """

    size: int
    collects: bool
    producer_count: int = 1

    @property
    def collector(self) -> int | None:
        if not self.collects:
            return None
        return self.size - 1 if self.size > self.producer_count + 1 else MASTER

    @property
    def producers(self) -> tuple[int, ...]:
        return tuple(range(self.producer_count))

    @property
    def collectors(self) -> tuple[int, ...]:
        """The collector, if there is one."""
        return () if self.collector is None else (self.collector,)

    @property
    def slaves(self) -> tuple[int, ...]:
        return tuple(rank for rank in range(self.producer_count, self.size) if rank != self.collector)

    def name(self, rank: int) -> str:
        if rank == MASTER:
            return "master"
        if rank < self.producer_count:
            return "producer"
        return "collector" if rank == self.collector else "slave"


class RunSetup(NamedTuple):
    """`directory` and `checkpoints` are the folders of the run and of its checkpoints. They are None where a run writes
    no files. `resumes` says whether the run continues from a checkpoint that lies there. `locks` are those of both
    folders, and only the master has them. A run without a directory keeps the late rows of each stream in `late`, whose
    objects have `write(table)`. `chosen` has a line about each value that the job leaves to the launch."""

    job: Job
    schema: JoinSchema
    roles: Roles
    directory: RunDirectory | None
    checkpoints: Path | None = None
    resumes: bool = False
    locks: tuple[FolderLock, ...] = ()
    late: tuple[Any, ...] = ()
    chosen: tuple[str, ...] = ()

    @property
    def has_locks(self) -> bool:
        """Whether this run may still write to its folders."""
        return all(lock.is_held for lock in self.locks)

    def check_locks(self) -> None:
        """Raises OutputError if a lock is lost."""
        for lock in self.locks:
            lock.check()

    def release(self) -> None:
        """Releases the folders for others. A second call does nothing."""
        for lock in reversed(self.locks):  # The last one may lie in the folder of the first one.
            lock.release()


def merged_schemas(setup: RunSetup) -> list[pa.Schema]:
    """Returns the result columns of each query, or of the one join, as a collector writes them."""
    from mpijoin.data.results import result_schema

    return [result_schema(one, setup.schema) for one in setup.job.each]
