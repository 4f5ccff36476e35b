"""The whole life of a rank that is not the master, once it has a transport. It prepares its kernels, meets the other
ranks, runs its role, and leaves together with them. It loads what its own role needs and nothing else."""

from __future__ import annotations

import traceback
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Callable

from mpijoin.directives import Share
from mpijoin.launch.ready import abandon, keep_loaded, ready
from mpijoin.launch.roles import RunSetup
from mpijoin.limits import named
from mpijoin.rank import MASTER, Rank

if TYPE_CHECKING:
    from mpijoin.sinks.collector import Writers


def run_other(rank: Rank, setup_of: Callable[[], RunSetup], writers: Writers | None = None) -> int:
    """Lives the whole life of a slave, of a further producer or of the collector, and returns the exit code.

    `setup_of` waits for the setup and returns it. If there are `writers`, a collector writes there instead of into part
    files.
    """
    role: Any = None
    things = ExitStack()
    try:
        setup = setup_of()
        ready(rank, setup)
        role = _role_of(setup, rank, things, writers)
        keep_loaded()
        role.run()
    except BaseException as error:
        exit_code = rank.report_failure(named(error), traceback.format_exc())
        if exit_code:
            abandon(rank, role)
    things.close()
    return rank.leave(exit_code)


def _role_of(setup: RunSetup, rank: Rank, things: ExitStack, writers: Writers | None) -> Any:
    """Makes what the rank runs, and meets the other ranks."""
    if rank.number == setup.roles.collector:
        from mpijoin.collector.runtime import CollectorRank
        from mpijoin.launch.collecting import new_collector, part_writers

        rank.meet()
        return CollectorRank(rank, new_collector(setup, writers or part_writers(setup, rank.number)))
    if rank.number in setup.roles.producers:
        from mpijoin.producer.runtime import Producer

        share = rank.gather((Share,), (MASTER,))[MASTER]
        rank.meet()
        return Producer(setup, rank, share)
    from mpijoin.launch.slave import new_slave

    return new_slave(setup, rank, things)
