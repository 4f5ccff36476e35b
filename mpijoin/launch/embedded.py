"""A run inside this process: every rank is a thread."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

from mpijoin.clock import RunClock
from mpijoin.config.job import Job
from mpijoin.launch.life import run_master, run_other
from mpijoin.launch.plan import Plan
from mpijoin.launch.summary import Outcome
from mpijoin.machine import core_count
from mpijoin.rank import MASTER, Rank
from mpijoin.signals import SignalFlag
from mpijoin.transport.base import Transport
from mpijoin.transport.local import LocalTransport

SLAVES_MAX = 4  # `mpijoin run` without mpirun: min(cores, 4) slaves
JOIN_S = 1.0  # for threads that the run has left; one that compiles cannot be stopped


def local_size(job: Job, slaves: int | None) -> int:
    """Ranks of a local run: the master, so many slaves, and a collector if the job wants one."""
    return 1 + (slaves or min(core_count(), SLAVES_MAX)) + (job.output.results == "collect")


def run_local(plan: Plan, signals: SignalFlag, progress: Any, debug: bool = False, writer: Any = None) -> Outcome:
    """Runs all ranks as threads of this process; the calling thread is the master.

    progress: as `progress.Progress` · writer: where a collector writes instead of into part files.
    """
    transports = LocalTransport.create(plan.roles.size)
    others = [
        # Daemons: a thread that hangs or compiles must not keep a process from ending whose run has failed.
        threading.Thread(target=run_other, args=(_rank(one, SignalFlag()), partial(_same, plan), writer), daemon=True)
        for one in transports[1:]
    ]
    for thread in others:
        thread.start()
    try:
        return run_master(plan, _rank(transports[MASTER], signals), progress, debug, writer)
    finally:
        deadline_s = time.monotonic() + JOIN_S
        for thread in others:
            thread.join(max(0.0, deadline_s - time.monotonic()))


def _rank(transport: Transport, signals: SignalFlag) -> Rank:
    return Rank(transport, RunClock(), signals)


def _same(plan: Plan) -> Plan:
    return plan
