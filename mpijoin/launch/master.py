"""The whole life of the master, once it has a transport: it prepares its kernels, meets the other ranks, runs its role,
and leaves together with them."""

from __future__ import annotations

import os
import sys
import time
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any, Sequence

from mpijoin.checkpoint.manifest import forget_after, numbers_in
from mpijoin.coordinator.runtime import Master
from mpijoin.coordinator.sharing import share_out
from mpijoin.errors import EXIT_DONE, PeerError
from mpijoin.launch.provenance import own_command, provenance, resume_command
from mpijoin.launch.ready import abandon, compiles, keep_loaded, ready
from mpijoin.launch.roles import RunSetup
from mpijoin.launch.summary import RunOutcome, summarize, summary_text
from mpijoin.limits import named
from mpijoin.messages import Stop
from mpijoin.rank import MASTER, Rank, describe, exit_code_of

if TYPE_CHECKING:
    from mpijoin.checkpoint.restore import Resumption
    from mpijoin.sinks.collector import Writers

SPACE_S = 2.0  # For so long a failed run waits for space on the disk to say so.


def run_master(
    setup: RunSetup, rank: Rank, progress: Any, debug: bool = False, writers: Writers | None = None
) -> RunOutcome:
    """Lives the whole life of the master: the run, and then its end, which is good or bad."""
    master = own_writers = None
    started_s = time.time()
    try:
        if compiles(setup):
            once = "once per machine and version: up to a minute or two"
            progress.note(f"mpijoin: compiles kernels for jobs of this kind, {once}")
        ready(rank, setup)
        resumption = _resumption(setup, rank) if setup.resumes else None
        position = share_out(setup, rank, resumption)
        collector = None
        if setup.roles.collector == MASTER:
            from mpijoin.launch.collecting import new_collector, part_writers

            own_writers = writers or part_writers(setup, MASTER)
            collector = new_collector(setup, own_writers, resumption)
        rank.meet(resumption.manifest.run.elapsed_s if resumption else 0.0)
        master = Master(setup, rank, progress, collector, resumption=resumption, position=position)
        if setup.job.checkpoint.is_on and (again := _resume_command(setup)):
            rank.log.info("should this run be stopped or killed, this goes on with it: %s", again)
            progress.note(f"mpijoin: should this run be stopped or killed, go on with: {again}")
        keep_loaded()
        master.run()
        setup.check_locks()
        own_files = [part.name for part in own_writers.close()] if own_writers else []
        further = {"provenance": _provenance(setup, rank, started_s)}
        outcome = summarize(setup, master, rank.compile_s, own_files, further)
        rank.log.info("done: %s", outcome.summary)
        rank.stop_all(Stop(outcome.exit_code))
    except BaseException as error:
        outcome = _fail(setup, rank, named(error), debug, started_s, (master, own_writers))
    progress.close(summary_text(outcome), is_bad=outcome.exit_code != EXIT_DONE)
    rank.leave(outcome.exit_code, setup.release)
    return outcome


def _provenance(setup: RunSetup, rank: Rank, started_s: float) -> dict[str, Any]:
    return provenance(rank.hosts, setup.roles.size, rank.transport.library, started_s, own_command(), os.environ)


def _resume_command(setup: RunSetup) -> str:
    """Returns the command that continues this run, or "" where there is no such command."""
    return resume_command(own_command(), setup.roles.size, os.environ) if setup.checkpoints else ""


def _resumption(setup: RunSetup, rank: Rank) -> Resumption:
    """Makes the master continue from a checkpoint. Files that were written after this checkpoint are removed."""
    from mpijoin.checkpoint.restore import drop_later, restore_all  # late: it loads the engine of a slave

    # The run continues from what lies in these folders.
    assert setup.directory and setup.checkpoints
    found = restore_all(rank, setup.checkpoints, setup.job, setup.roles.slaves, setup.directory, partial(_warn, rank))
    manifest = found.manifest
    forget_after(setup.checkpoints, manifest.number)
    drop_later(setup.directory, manifest)
    rank.log.info(
        "goes on from checkpoint %d, %.3f s into the run: %.3g MB in %d groups taken out in %.3f s",
        *(manifest.number, manifest.run.elapsed_s, manifest.octets / 1e6, len(manifest.groups), found.seconds),
    )
    return found


def _warn(rank: Rank, text: str) -> None:
    rank.log.warning("%s", text)
    print(f"mpijoin: {text}\n", end="", file=sys.stderr, flush=True)  # in one write: other ranks write there, too


def _fail(
    setup: RunSetup, rank: Rank, error: BaseException, debug: bool, started_s: float, things: Sequence[Any]
) -> RunOutcome:
    """Tells the other ranks and the run directory that the run has failed. The run began at `started_s`, in seconds
    since 1970. `things` are abandoned."""
    trace = traceback.format_exc()
    # The trace of the rank that failed says more than the one of this rank.
    if isinstance(error, PeerError) and error.trace:
        trace = error.trace
    rank.log.error("%s", trace)
    exit_code, reason = exit_code_of(error), describe(error)
    rank.stop_all(Stop(exit_code, reason))
    # This comes first, because the files that are still open may be the ones that the system has run out of.
    abandon(rank, *things)
    if setup.directory and setup.has_locks:
        failure = {"reason": reason, "exit_code": exit_code, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
        saved = setup.checkpoints is not None and bool(numbers_in(setup.checkpoints))
        again = _resume_command(setup) if saved else ""
        failure |= {"go_on": again, "provenance": _provenance(setup, rank, started_s)}
        # Where the disk is full, other ranks give space back once they have heard of the end.
        deadline_s = time.monotonic() + SPACE_S
        while not setup.directory.write_failed(failure) and time.monotonic() < deadline_s:
            time.sleep(SPACE_S / 100)
        if saved:
            how = f"to go on: {again}" if again else "to go on, run the job again with resume=True"
            rank.log.info("%s", how)
            reason = f"{reason}\nmpijoin: {how}"
    return RunOutcome(exit_code, {}, f"{reason}\n{trace}" if debug else reason, error)
