"""A run inside this process. Every rank is a thread."""

from __future__ import annotations

import threading
import time
from functools import partial
from operator import index
from typing import Any

from mpijoin.clock import RunClock
from mpijoin.config.units import show
from mpijoin.errors import JobError
from mpijoin.launch.helping import helpers
from mpijoin.launch.master import run_master
from mpijoin.launch.others import run_other
from mpijoin.launch.ready import use_of
from mpijoin.launch.roles import RunSetup
from mpijoin.launch.summary import RunOutcome
from mpijoin.machine import core_count
from mpijoin.rank import MASTER, Rank
from mpijoin.signals import SignalFlag
from mpijoin.sinks.collector import Writers
from mpijoin.transport.base import Transport
from mpijoin.transport.local import LocalTransport

# Without mpirun, `mpijoin run` has min(cores, 4) slaves.
SLAVES_MAX = 4
# Each slave has its own memory and threads. More slaves than this would only take turns.
SLAVES_PER_CORE_MAX = 4
# Not even on purpose: a thousand threads of one process take ten times as long as three hundred.
OVERSUBSCRIBED_MAX = 500
# The run waits this long for its threads to end. A thread that compiles cannot be stopped.
JOIN_S = 1.0


def local_slaves(wanted: Any, oversubscribe: bool, called: str) -> int:
    """Returns the number of slaves of a local run. If `wanted` is None, this is one per core, but at most four.

    `called` is the name by which the user knows the number. Raises JobError if `wanted` is no number of slaves, or is
    larger than makes sense.
    """
    if wanted is None:
        return min(core_count(), SLAVES_MAX)
    try:
        slaves = 0 if isinstance(wanted, bool) else index(wanted)
    except TypeError:
        slaves = 0
    if slaves < 1:
        raise JobError([f"{called}: got {show(wanted)}, wanted a whole number of slaves, at least 1"])
    if slaves > OVERSUBSCRIBED_MAX:
        many = f"wanted at most {OVERSUBSCRIBED_MAX}, since all are threads of this process: use mpirun for more"
        raise JobError([f"{called}: got {slaves} slaves, {many}"])
    most = SLAVES_PER_CORE_MAX * core_count()
    if slaves > most and not oversubscribe:
        more = "--oversubscribe" if called.startswith("--") else "oversubscribe=True"
        raise JobError([f"{called}: got {slaves} slaves, wanted at most {most}, four per core, unless also {more}"])
    return slaves


def run_local(
    setup: RunSetup, signals: SignalFlag, progress: Any, debug: bool = False, writers: Writers | None = None
) -> RunOutcome:
    """Runs all ranks as threads of this process. The calling thread is the master.

    `progress` has the methods of `progress.Progress`. If there are `writers`, a collector writes there instead of into
    part files.
    """
    transports = LocalTransport.create(setup.roles.size)
    others = [
        # They are daemons, because a thread that hangs or compiles must not keep the process alive after a failed run.
        threading.Thread(target=run_other, args=(_rank(one, SignalFlag()), partial(_same, setup), writers), daemon=True)
        for one in transports[1:]
    ]
    with helpers(use_of(setup)):
        for thread in others:
            thread.start()
        try:
            return run_master(setup, _rank(transports[MASTER], signals), progress, debug, writers)
        finally:
            deadline_s = time.monotonic() + JOIN_S
            for thread in others:
                thread.join(max(0.0, deadline_s - time.monotonic()))


def _rank(transport: Transport, signals: SignalFlag) -> Rank:
    return Rank(transport, RunClock(), signals)


def _same(setup: RunSetup) -> RunSetup:
    return setup
