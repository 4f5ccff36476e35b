"""Each rank's whole life once it has a transport: ready its kernels, meet the others, run its role, leave with them."""

from __future__ import annotations

import gc
import logging
import os
import time
import traceback
from contextlib import suppress
from typing import Any, Callable

from mpijoin import warmup
from mpijoin.collector.runtime import CollectorRank
from mpijoin.errors import PeerError
from mpijoin.machine import slave_memory_bytes
from mpijoin.master.runtime import Master
from mpijoin.messages import Stop
from mpijoin.plan import Plan, merged_schema
from mpijoin.policy import first_active
from mpijoin.rank import MASTER, Rank, describe, exit_code_of
from mpijoin.sinks.collector import Collector
from mpijoin.sinks.parts import PartWriter
from mpijoin.slave.runtime import Slave
from mpijoin.summary import Outcome, summarize, summary_text


class LogFile(logging.FileHandler):
    """A rank's log. It never ends a run: what a full disk refuses is dropped."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Says nothing: the terminal belongs to the run's own message."""

    def close(self) -> None:
        with suppress(OSError):
            super().close()


def rank_log(plan: Plan, rank: int) -> logging.Logger:
    """The rank's own log file; never the root logger, since local ranks share a process."""
    log = logging.Logger(f"mpijoin.rank-{rank}", logging.INFO)
    if plan.directory:
        handler = LogFile(plan.directory.log(rank), delay=True)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
    return log


def run_other(rank: Rank, plan_of: Callable[[], Plan], writer: Any = None) -> int:
    """A slave's or the collector's whole life; returns the exit code.

    plan_of: waits for the plan · writer: where a collector writes instead of into part files.
    """
    role = None
    try:
        plan = plan_of()
        _begin(rank, plan)
        make = _collector if rank.number == plan.roles.collector else _slave
        role = make(plan, rank, writer)
        role.run()
    except BaseException as error:
        exit_code = rank.report_failure(error, traceback.format_exc())
        if exit_code:
            _abandon(rank, role)
    return rank.leave(exit_code)


def run_master(plan: Plan, rank: Rank, progress: Any, debug: bool = False, writer: Any = None) -> Outcome:
    """The master's whole life: the run, then its end, good or bad."""
    master = own_writer = None
    try:
        compile_s = _begin(rank, plan)
        collector = None
        if plan.roles.collector == MASTER:
            own_writer = writer or _part_writer(plan, MASTER)
            collector = new_collector(plan, own_writer)
        finishing = (plan.roles.collector,) if plan.roles.collector else ()
        master = Master(plan.job, plan.schema, rank, plan.roles.slaves, plan.directory, progress, collector, finishing)
        master.run()
        own_files = [part.name for part in own_writer.close()] if own_writer else []
        outcome = summarize(plan, master, compile_s, own_files)
        rank.log.info("done: %s", outcome.summary)
        rank.stop_all(Stop(outcome.exit_code))
    except BaseException as error:
        outcome = _fail(plan, rank, error, debug)
        _abandon(rank, master, own_writer)
    progress.close(summary_text(outcome))
    rank.leave(outcome.exit_code)
    return outcome


def _begin(rank: Rank, plan: Plan) -> float:
    """Opens the log, readies the role's kernels, meets the others, starts the clock; returns the seconds of compiling."""
    rank.log = rank_log(plan, rank.number)
    rank.inject(plan.job.inject)
    role = plan.roles.name(rank.number)
    with rank.signals.at_once():
        compile_s = warmup.warm_up(role, rank.number, plan.job.balance.policy != "none")
        if rank.number in plan.roles.slaves:
            compile_s += warmup.measure_theta(plan.job, plan.schema)
        if rank.number == MASTER:
            compile_s += warmup.warm_up_sources(plan.job)
    rank.log.info("rank %d of %d is %s, kernels ready in %.2f s", rank.number, plan.roles.size, role, compile_s)
    rank.meet()
    if not gc.isenabled():  # the command line has put it off (launch.main_run)
        gc.freeze()
        gc.enable()
    return compile_s


def _slave(plan: Plan, rank: Rank, writer: Any) -> Slave:
    ranks = len(plan.roles.slaves) + 1
    memory_bytes = plan.job.cluster.memory_bytes or slave_memory_bytes(os.environ, ranks)
    job = warmup.with_theta(plan.job, plan.schema)
    rank.log.info("theta is %s", job.tuning.theta)
    return Slave(job, plan.schema, rank, plan.directory, memory_bytes, plan.roles.collector)


def _collector(plan: Plan, rank: Rank, writer: Any) -> CollectorRank:
    writer = writer or _part_writer(plan, rank.number)
    return CollectorRank(rank, new_collector(plan, writer), writer)


def new_collector(plan: Plan, writer: Any) -> Collector:
    """Of the run's slaves, those that begin without groups not waited for."""
    idle = set(plan.roles.slaves) - set(first_active(plan.job.balance, plan.job.cluster.slaves_min, plan.roles.slaves))
    return Collector(plan.roles.slaves, merged_schema(plan), writer, idle=idle)


def _part_writer(plan: Plan, rank: int) -> PartWriter:
    return PartWriter(plan.directory.open_results, f"rank-{rank}", merged_schema(plan), plan.job.output.part_bytes)


def _fail(plan: Plan, rank: Rank, error: BaseException, debug: bool) -> Outcome:
    """Says so to the others and to the run directory."""
    trace = traceback.format_exc()
    if isinstance(error, PeerError) and error.trace:
        trace = error.trace  # of the rank that failed
    rank.log.error("%s", trace)
    exit_code, reason = exit_code_of(error), describe(error)
    rank.stop_all(Stop(exit_code, reason))
    if plan.directory:
        plan.directory.write_failed({"reason": reason, "exit_code": exit_code, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z")})
    return Outcome(exit_code, {}, f"{reason}\n{trace}" if debug else reason, error)


def _abandon(rank: Rank, *things: Any) -> None:
    """Lets go of what was open. Errors are logged only: the run has failed for another reason already."""
    for thing in things:
        try:
            if thing is not None:
                thing.abandon()
        except Exception:
            rank.log.error("%s", traceback.format_exc())
