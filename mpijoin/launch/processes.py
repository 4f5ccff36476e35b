"""This process is one rank of a run whose ranks are MPI processes."""

from __future__ import annotations

import os
from functools import partial
from importlib import import_module
from typing import Callable

import pyarrow as pa

from mpijoin.clock import RunClock
from mpijoin.errors import LaunchError
from mpijoin.launch.begin import begin_of, setup_in
from mpijoin.launch.roles import RunSetup
from mpijoin.messages import Begin, Stop
from mpijoin.rank import MASTER, Rank, exit_code_of
from mpijoin.signals import SignalFlag
from mpijoin.transport.base import Transport
from mpijoin.transport.guard import check_launch

# Modules of this package: of the master, and of slaves. A further producer and the collector load their own later.
LEADS, SERVES = ("setup", "master", "warm_producer"), ("others", "slave", "warm_slave")


def load_role(number: int) -> None:
    """Loads what a rank of this number most likely needs. That is done before MPI starts, because the first steps of
    MPI wait for the other ranks in a busy loop."""
    for name in LEADS if number == MASTER else SERVES:
        import_module(f"mpijoin.launch.{name}")


def run_mpi(make_setup: Callable[[int], RunSetup], signals: SignalFlag, debug: bool, quiet: bool = False) -> int:
    """Does this process's part in the run, and returns the exit code. Rank 0 prints what happened.

    `make_setup` makes the setup from the number of ranks, and is called on rank 0 only. An error that it raises is
    raised there again, once all ranks have left. Raises LaunchError if MPI does not connect the ranks.
    """
    transport = open_transport()
    # A rank has one core. More threads of Arrow would take the cores of other ranks.
    pa.set_cpu_count(1)
    rank = Rank(transport, RunClock(), signals)
    return _lead(rank, make_setup, debug, quiet) if rank.number == MASTER else _serve(rank)


def _lead(rank: Rank, make_setup: Callable[[int], RunSetup], debug: bool, quiet: bool) -> int:
    from mpijoin.launch.master import run_master
    from mpijoin.progress import Progress

    try:
        rank.signals.check()
        setup = make_setup(rank.transport.size)
    except BaseException as error:
        exit_code = exit_code_of(error)
        rank.stop_all(Stop(exit_code, "there is no setup"))
        rank.leave(exit_code)
        raise
    _send_setup(rank, setup)
    return run_master(setup, rank, Progress(quiet=quiet), debug).exit_code


def _serve(rank: Rank) -> int:
    from mpijoin.launch.others import run_other

    return run_other(rank, partial(_receive_setup, rank))


def open_transport() -> Transport:
    """Returns the endpoint of this process. Raises LaunchError if MPI is missing, or does not know the other processes.
    """
    try:
        from mpijoin.transport.mpi import MpiTransport
    except (ImportError, RuntimeError) as error:
        raise LaunchError(f"MPI cannot be loaded: {error}; install one: pip install mpijoin[mpi]") from error
    transport = MpiTransport()
    try:
        check_launch(transport.size, os.environ)
    except LaunchError:
        transport.close()
        raise
    return transport


def _send_setup(rank: Rank, setup: RunSetup) -> None:
    begin = begin_of(setup)
    for peer in range(1, rank.transport.size):
        rank.send(peer, begin)


def _receive_setup(rank: Rank) -> RunSetup:
    """Waits for the setup from the master. Raises Stopped if there will be no run, and ProtocolError if the setup
    cannot be used."""
    return setup_in(rank.gather((Begin,), (MASTER,))[MASTER])
