"""From a job to a finished run: who is master, slave and collector, on MPI or on threads of this process."""

from __future__ import annotations

import logging
import os
import pickle
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from typing import Any, Sequence

import numpy as np
import pyarrow as pa

from mpijoin.clock import RunClock
from mpijoin.config.check import resolve
from mpijoin.config.dump import dump_job
from mpijoin.config.job import FileSource, Job
from mpijoin.config.load import load_job
from mpijoin.data.files import expand_files
from mpijoin.data.results import result_schema
from mpijoin.data.schema import JoinSchema
from mpijoin.errors import EXIT_DONE, JobError, MpijoinError, PeerError
from mpijoin.machine import core_count, slave_memory_bytes
from mpijoin.messages import Finished, Stop
from mpijoin.rank import MASTER, Rank, Stopped, describe
from mpijoin.rundir import RunDirectory
from mpijoin.signals import SignalFlag
from mpijoin.sinks.collector import Collector
from mpijoin.sinks.parts import PartWriter
from mpijoin.summary import Outcome, summarize, summary_text
from mpijoin.transport.base import Channel, Transport
from mpijoin.transport.guard import check_launch, launched_by_mpi
from mpijoin.transport.local import LocalTransport

LOCAL_SLAVES_MAX = 4  # `mpijoin run` without mpirun: min(cores, 4) slaves
START_TIMEOUT_S = 600.0  # for ranks to meet: the first of a node may have to compile everything


@dataclass(frozen=True)
class Roles:
    """Which rank is what. With "collect" the last rank merges the results, rank 0 if there are only two (DESIGN, section 5)."""

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


@dataclass(frozen=True)
class Plan:
    """What every rank must know to begin; rank 0 makes it."""

    job: Job
    schema: JoinSchema
    roles: Roles
    directory: RunDirectory | None


def main_run(job_path: str, overrides: Sequence[str], ranks: int | None, overwrite: bool, debug: bool) -> int:
    """`mpijoin run`: returns the exit code, having said on rank 0 what happened."""
    signals = SignalFlag()
    signals.install()
    if launched_by_mpi(os.environ):
        return _run_mpi(job_path, overrides, overwrite, debug, signals)
    job = load_job(job_path, overrides)
    plan = prepare(job, local_size(job, ranks), overwrite)
    outcome = run_local(plan, signals, _progress(), debug)
    return outcome.exit_code


def local_size(job: Job, slaves: int | None) -> int:
    """Ranks of a local run: the master, so many slaves, and a collector if the job wants one."""
    return 1 + (slaves or min(core_count(), LOCAL_SLAVES_MAX)) + (job.output.results == "collect")


def prepare(job: Job, size: int, overwrite: bool) -> Plan:
    """Checks everything that can be checked before any rank works, and makes the run directory."""
    schema = resolve(job)
    roles = Roles(size, job.output.results == "collect")
    if not roles.slaves:
        raise JobError([f"{size} rank: a run needs a master and at least one slave: use mpirun -n 2 or more"])
    wrong = [rank for rank in job.inject.slow if rank not in roles.slaves]
    if wrong:
        raise JobError([f"inject.slow names rank {wrong[0]}, but the slaves are ranks {roles.slaves[0]} to {roles.slaves[-1]}"])
    directory = None
    if job.output.path:
        inputs = [path for one in job.streams if isinstance(one.source, FileSource) for path in expand_files(one.source.path)]
        directory = RunDirectory.create(job.output.path, dump_job(job), overwrite, inputs)
    return Plan(job, schema, roles, directory)


def run_local(plan: Plan, signals: SignalFlag, progress: Any, debug: bool = False, writer: Any = None) -> Outcome:
    """Runs all ranks as threads of this process; the calling thread is the master."""
    transports = LocalTransport.create(plan.roles.size)
    others = [
        threading.Thread(target=_run_other, args=(plan, transport, SignalFlag(), writer), name=f"rank-{transport.rank}")
        for transport in transports[1:]
    ]
    for thread in others:
        thread.start()
    try:
        return run_master(plan, transports[MASTER], signals, progress, debug, writer)
    finally:
        for thread in others:
            thread.join()


def _run_mpi(job_path: str, overrides: Sequence[str], overwrite: bool, debug: bool, signals: SignalFlag) -> int:
    from mpijoin.transport.mpi import MpiTransport

    transport = MpiTransport()
    try:
        check_launch(transport.size, os.environ)
        pa.set_cpu_count(1)  # one core per rank: Arrow's own threads would take those of other ranks
        if transport.rank != MASTER:
            plan = _receive_plan(transport, signals)
            return plan if isinstance(plan, int) else _run_other(plan, transport, signals, None)
        try:
            plan = prepare(load_job(job_path, overrides), transport.size, overwrite)
        except MpijoinError as error:
            _send_plan(transport, error.exit_code)
            transport.close()
            raise
        _send_plan(transport, plan)
        return run_master(plan, transport, signals, _progress(), debug, None).exit_code
    except PeerError as error:
        print(f"mpijoin: rank {transport.rank}: {error}", file=sys.stderr, flush=True)
        transport.abort(error.exit_code)
        return error.exit_code


def _send_plan(transport: Transport, plan: Plan | int) -> None:
    data = np.frombuffer(pickle.dumps(plan), np.uint8)  # once, before the clock starts; never on the data path
    for peer in range(1, transport.size):
        transport.send(peer, Channel.CONTROL, data)


def _receive_plan(transport: Transport, signals: SignalFlag) -> Plan | int:
    """The plan, or the exit code if there will be no run."""
    while True:
        signals.check()
        for message in transport.poll():
            plan = pickle.loads(message.data.tobytes())
            if isinstance(plan, int):
                transport.close()
            return plan
        transport.wait(0.1)


def _progress() -> Any:
    from mpijoin.progress import Progress

    return Progress()


def _logger(plan: Plan, rank: int) -> logging.Logger:
    """The rank's own log file; never the root logger, since local ranks share a process."""
    log = logging.Logger(f"mpijoin.rank-{rank}", logging.INFO)
    if plan.directory:
        handler = logging.FileHandler(plan.directory.log(rank), delay=True)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
    return log


def _meet(transport: Transport, clock: RunClock, role: str) -> float:
    """Compiles the role's kernels, waits for all ranks and starts the clock; returns the seconds of compiling."""
    from mpijoin.warmup import warm_up

    compile_s = warm_up(role)
    transport.barrier(START_TIMEOUT_S)
    clock.start()
    return compile_s


def _run_other(plan: Plan, transport: Transport, signals: SignalFlag, writer: Any) -> int:
    """A slave's or the collector's whole life; returns the exit code."""
    clock, log = RunClock(), _logger(plan, transport.rank)
    rank, role = Rank(transport, clock, signals, log), None
    try:
        is_collector = transport.rank == plan.roles.collector
        _meet(transport, clock, "collector" if is_collector else "slave")
        role = _CollectorRank(plan, rank, writer) if is_collector else _slave(plan, rank)
        log.info("rank %d of %d started as %s", transport.rank, transport.size, "collector" if is_collector else "slave")
        role.run()
        exit_code = EXIT_DONE
    except BaseException as error:
        trace = traceback.format_exc()
        if not isinstance(error, Stopped) or error.exit_code:
            log.error("%s", trace)
        exit_code = rank.report_failure(error, trace)
        if exit_code and role:
            role.abandon()
    return rank.leave(exit_code)


def _slave(plan: Plan, rank: Rank) -> Any:
    from mpijoin.slave.runtime import Slave

    ranks = len(plan.roles.slaves) + 1
    memory = plan.job.cluster.memory_bytes or slave_memory_bytes(os.environ, ranks)
    return Slave(plan.job, plan.schema, rank, plan.directory, memory, plan.roles.collector)


class _CollectorRank:
    """The loop of a rank that only merges results."""

    def __init__(self, plan: Plan, rank: Rank, writer: Any):
        self._rank = rank
        self._writer = writer or _part_writer(plan, rank.number)
        schema = merged_schema(plan)
        self._collector = Collector(plan.roles.slaves, schema, self._writer)
        self._said = False

    def run(self) -> None:
        while True:
            received = 0
            for _, message in self._rank.receive(self._collector.refuse):
                received += 1
                if type(message).__name__ in ("Rows", "EpochEnd"):
                    self._collector.take(message)
            if self._collector.finished and not self._said:
                self._said = True
                files = [part.name for part in self._writer.close() or ()]
                self._rank.send(MASTER, Finished(self._rank.number, {"rows": self._collector.rows}, files))
            if not received:
                self._rank.wait()

    def abandon(self) -> None:
        self._writer.abandon()


def merged_schema(plan: Plan) -> pa.Schema:
    from mpijoin.sinks.table import nullable_fields

    return nullable_fields(result_schema(plan.job, plan.schema))


def _part_writer(plan: Plan, rank: int) -> PartWriter:
    return PartWriter(plan.directory.open_results, f"rank-{rank}", merged_schema(plan), plan.job.output.part_bytes)


def run_master(plan: Plan, transport: Transport, signals: SignalFlag, progress: Any, debug: bool, writer: Any) -> Outcome:
    """The master's whole life: the run, then its end, good or bad."""
    from mpijoin.master.runtime import Master

    clock, log = RunClock(), _logger(plan, MASTER)
    rank = Rank(transport, clock, signals, log)
    master = own_writer = None
    try:
        compile_s = _meet(transport, clock, "master")
        collector = None
        if plan.roles.collector == MASTER:
            own_writer = writer or _part_writer(plan, MASTER)
            collector = Collector(plan.roles.slaves, merged_schema(plan), own_writer)
        finishing = (plan.roles.collector,) if plan.roles.collector else ()
        master = Master(plan.job, plan.schema, rank, plan.roles.slaves, plan.directory, progress, collector, finishing)
        master.run()
        own_files = [part.name for part in own_writer.close() or ()] if own_writer else []
        outcome = summarize(plan, master, compile_s, own_files)
        log.info("done: %s", outcome.summary)
        rank.stop_all(Stop(EXIT_DONE))
    except BaseException as error:
        outcome = _fail(plan, rank, error, debug)
        for broken in (master, own_writer):
            if broken:
                broken.abandon()
    progress.close(summary_text(outcome))
    rank.leave(outcome.exit_code)
    return outcome


def _fail(plan: Plan, rank: Rank, error: BaseException, debug: bool) -> Outcome:
    trace = traceback.format_exc()
    rank.log.error("%s", trace)
    exit_code = getattr(error, "exit_code", 130 if isinstance(error, KeyboardInterrupt) else 3)
    reason = describe(error)
    rank.stop_all(Stop(exit_code, reason))
    if plan.directory:
        plan.directory.write_failed({"reason": reason, "exit_code": exit_code, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z")})
    return Outcome(exit_code, {}, reason if not debug else f"{reason}\n{trace}", error)
