"""The whole life of a rank, once it has a transport. The rank prepares its kernels, meets the other ranks, runs its
role, and leaves together with them."""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
import traceback
from contextlib import ExitStack, suppress
from functools import partial
from io import TextIOWrapper
from typing import Any, Callable, Sequence

from mpijoin.checkpoint.manifest import forget_after, numbers_in
from mpijoin.checkpoint.restore import Holder, Resumption, drop_later, restore_all, restore_own
from mpijoin.collector.runtime import CollectorRank
from mpijoin.coordinator.runtime import Master
from mpijoin.coordinator.sharing import share_out
from mpijoin.directives import Share
from mpijoin.errors import EXIT_DONE, PeerError
from mpijoin.join.tuning import measured_group_tuples
from mpijoin.launch import warmup
from mpijoin.launch.memory import memory_of_slave
from mpijoin.launch.provenance import own_command, provenance, resume_command
from mpijoin.launch.setup import RunSetup, merged_schemas
from mpijoin.launch.sharing import help_out
from mpijoin.launch.summary import RunOutcome, summarize, summary_text
from mpijoin.limits import named
from mpijoin.machine import KEPT_BYTES, core_count, keep_freed_memory, touch_heap, unmap_unchanged, use_small_pages
from mpijoin.messages import Stop
from mpijoin.policy import first_active
from mpijoin.producer.runtime import Producer
from mpijoin.rank import MASTER, Rank, describe, exit_code_of
from mpijoin.sinks.collector import Collector, Writers
from mpijoin.sinks.parts import PartWriter, part_prefix
from mpijoin.slave.joining import new_operator
from mpijoin.slave.runtime import Slave
from mpijoin.spill.forms import new_spiller
from mpijoin.spill.runs import Runs
from mpijoin.spill.scratch import open_scratch

# The name of the compiler's library.
COMPILER = "llvmlite"

# Every run of some size needs this memory, so it is touched before the clock starts. The first number is for the blocks
# of all slaves together. The second is for messages and parts of ticks, on the master and again on all slaves together.
# Under a hypervisor that takes free memory back, the first write to a page is ten times slower than later ones. It took
# 2.4 ms per MB, which was half of an insert's time until the blocks had been used once, and 12 ms of a message.
BLOCKS_TOUCHED_BYTES = 64 << 20
HEAP_TOUCHED_BYTES = 32 << 20
SPACE_S = 2.0  # For so long a failed run waits for space on the disk to say so.


class LogFile(logging.FileHandler):
    """A rank's log. It never ends a run. A line that the disk refuses because it is full is dropped, and so is a line
    that a link would lead elsewhere."""

    def _open(self) -> TextIOWrapper:
        how = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return open(os.open(self.baseFilename, how, 0o666), "a", encoding=self.encoding, errors=self.errors)

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Says nothing, because the terminal belongs to the run's own message."""

    def close(self) -> None:
        with suppress(OSError):
            super().close()


def rank_log(setup: RunSetup, rank: int) -> logging.Logger:
    """Returns the logger of the rank's own log file. It is never the root logger, because local ranks share a process.
    """
    log = logging.Logger(f"mpijoin.rank-{rank}", logging.INFO)
    if setup.directory:
        handler = LogFile(setup.directory.log(rank), delay=True)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
    else:
        # Without any handler, Python would write what is logged to the terminal.
        log.addHandler(logging.NullHandler())
    return log


def run_other(rank: Rank, setup_of: Callable[[], RunSetup], writers: Writers | None = None) -> int:
    """Lives the whole life of a slave, of a further producer or of the collector, and returns the exit code.

    `setup_of` waits for the setup and returns it. If there are `writers`, a collector writes there instead of into part
    files.
    """
    role: Slave | CollectorRank | Producer | None = None
    things = ExitStack()
    try:
        setup = setup_of()
        _ready(rank, setup)
        if rank.number == setup.roles.collector:
            rank.meet()
            role = CollectorRank(rank, new_collector(setup, writers or _part_writers(setup, rank.number)))
        elif rank.number in setup.roles.producers:
            share = rank.gather((Share,), (MASTER,))[MASTER]
            rank.meet()
            role = Producer(setup, rank, share)
        else:
            memory = memory_of_slave(setup, rank)
            holder, groups, number = _start_of(setup, rank, memory.octets, things)
            rank.meet()
            role = Slave(setup, rank, holder.operator, groups, number, holder.spiller, memory.allowed)
        _keep_loaded()
        role.run()
    except BaseException as error:
        exit_code = rank.report_failure(named(error), traceback.format_exc())
        if exit_code:
            _abandon(rank, role)
    things.close()
    return rank.leave(exit_code)


def run_master(
    setup: RunSetup, rank: Rank, progress: Any, debug: bool = False, writers: Writers | None = None
) -> RunOutcome:
    """Lives the whole life of the master: the run, and then its end, which is good or bad."""
    master = own_writers = None
    started_s = time.time()
    try:
        compile_s = _ready(rank, setup)
        resumption = _resumption(setup, rank) if setup.resumes else None
        position = share_out(setup, rank, resumption)
        rank.meet(resumption.manifest.run.elapsed_s if resumption else 0.0)
        collector = None
        if setup.roles.collector == MASTER:
            own_writers = writers or _part_writers(setup, MASTER)
            collector = new_collector(setup, own_writers, resumption)
        master = Master(setup, rank, progress, collector, resumption=resumption, position=position)
        if setup.job.checkpoint.is_on and (again := _resume_command(setup)):
            rank.log.info("should this run be stopped or killed, this goes on with it: %s", again)
            progress.note(f"mpijoin: should this run be stopped or killed, go on with: {again}")
        _keep_loaded()
        master.run()
        setup.check_locks()
        own_files = [part.name for part in own_writers.close()] if own_writers else []
        outcome = summarize(setup, master, compile_s, own_files, {"provenance": _provenance(setup, rank, started_s)})
        rank.log.info("done: %s", outcome.summary)
        rank.stop_all(Stop(outcome.exit_code))
    except BaseException as error:
        outcome = _fail(setup, rank, named(error), debug, started_s, (master, own_writers))
    progress.close(summary_text(outcome), is_bad=outcome.exit_code != EXIT_DONE)
    rank.leave(outcome.exit_code, setup.release)
    return outcome


def _ready(rank: Rank, setup: RunSetup) -> float:
    """Opens the log and prepares the role's kernels. Returns the seconds that compiling them took."""
    rank.log = rank_log(setup, rank.number)
    rank.inject(setup.job.inject)
    if _may_stop(setup):
        rank.signals.save_at(setup.job.checkpoint.stops_at)
    role = setup.roles.name(rank.number)
    cluster = setup.job.cluster
    # Freed memory that the process keeps counts as held, so the job's buffers limit it.
    keep_freed_memory(min(KEPT_BYTES, cluster.master_buffer_bytes, 2 * cluster.buffer_bytes))
    heap_bytes = HEAP_TOUCHED_BYTES // (len(setup.roles.slaves) if rank.number in setup.roles.slaves else 1)
    # Ranks that are threads of one process load kernels one after the other, but touch memory side by side. So every
    # second one touches memory first, while another loads.
    touches_first = rank.number % 2 == 0
    if touches_first:
        touch_heap(heap_bytes)
    compile_s = _ready_kernels(rank, setup, role)
    if not touches_first:
        touch_heap(heap_bytes)
    if len(setup.roles.producers) > 1 and rank.number in setup.roles.producers:
        # Those that are ahead keep more rows than there is touched memory, each of them.
        use_small_pages()
    for line in setup.chosen:
        rank.log.info("%s", line)
    restarts = os.environ.get("SLURM_RESTART_COUNT")
    rank.log.info(
        "rank %d of %d is %s, kernels ready in %.2f s%s",
        *(rank.number, setup.roles.size, role, compile_s),
        f", restarted {restarts} times" if restarts else "",
    )
    return compile_s


def _ready_kernels(rank: Rank, setup: RunSetup, role: str) -> float:
    """Compiles or loads the role's kernels. Returns the seconds that this took."""
    with rank.signals.at_once():
        compile_s = warmup.warm_up(role, rank.number, use_of(setup))
        if rank.number in setup.roles.slaves:
            compile_s += warmup.measure_theta(setup.job, setup.schema)
            compile_s += warmup.warm_up_condition(setup.job, setup.schema)
        if rank.number in setup.roles.producers:
            compile_s += warmup.warm_up_sources(setup.job)
        if role != "slave" and len(setup.roles.slaves) < core_count():
            # At a first start, slaves that are fewer than the cores have more to compile than anybody else.
            help_out(warmup.sets_of("slave", use_of(setup), backwards=rank.number % 2 == 1))
    unmap_unchanged(COMPILER)
    return compile_s


def _provenance(setup: RunSetup, rank: Rank, started_s: float) -> dict[str, Any]:
    return provenance(rank.hosts, setup.roles.size, rank.transport.library, started_s, own_command(), os.environ)


def _resume_command(setup: RunSetup) -> str:
    """Returns the command that continues this run, or "" where there is no such command."""
    return resume_command(own_command(), setup.roles.size, os.environ) if setup.checkpoints else ""


def use_of(setup: RunSetup) -> warmup.Use:
    """Returns what decides which kernels the run needs."""
    return warmup.use_of(setup.job, setup.schema, _groups_travel(setup), _may_stop(setup))


def _groups_travel(setup: RunSetup) -> bool:
    """Whether groups are read out or taken over, by moves or by checkpoints."""
    return setup.job.balance.policy != "none" or setup.job.checkpoint.is_on or setup.resumes


def _may_stop(setup: RunSetup) -> bool:
    """Whether a signal can make the run save and stop."""
    job = setup.job
    return setup.checkpoints is not None and bool(job.checkpoint.stops_at)


def _keep_loaded() -> None:
    """Exempts all objects that exist by now from garbage collection. They stay until the process ends."""
    # Only the command line turns the collection off (launch/command.py).
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def _resumption(setup: RunSetup, rank: Rank) -> Resumption:
    """Makes the master continue from a checkpoint. Files that were written after this checkpoint are removed."""
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


def _start_of(
    setup: RunSetup, rank: Rank, memory_bytes: int, things: ExitStack
) -> tuple[Holder, list[int], int]:
    """Returns what holds a slave's groups, their numbers, and the number of the checkpoint from which they come. The
    number is 0 where the run begins. things: what is closed when the rank's life ends."""
    runs = None
    make_operator = partial(new_operator, setup.job, setup.schema, memory_bytes, measured_group_tuples(setup.schema))
    if setup.job.memory.spills:
        scratch = things.enter_context(open_scratch(setup.job.memory.path, f"rank-{rank.number}"))
        rank.log.info("%s", scratch.told)
        runs = Runs(scratch)

    def make_holder() -> Holder:
        operator = make_operator()
        return Holder(operator, new_spiller(setup.job, operator, runs) if runs else None)

    if not setup.resumes:
        holder = make_holder()
        holder.operator.touch(BLOCKS_TOUCHED_BYTES // len(setup.roles.slaves))
        return holder, [], 0
    # The run continues from what lies in these folders.
    assert setup.directory and setup.checkpoints
    start_s = time.perf_counter()
    restored, groups, number = restore_own(rank, setup.checkpoints, setup.directory, make_holder)
    rank.log.info("%d groups of checkpoint %d taken out in %.3f s", len(groups), number, time.perf_counter() - start_s)
    return restored, groups, number


def new_collector(setup: RunSetup, writers: Writers, resumption: Resumption | None = None) -> Collector:
    """A collector for the run's slaves. It does not wait for slaves that start without any group."""
    cluster, slaves = setup.job.cluster, setup.roles.slaves
    active = resumption.active if resumption else first_active(setup.job.balance, cluster.slaves_min, slaves)
    return Collector(slaves, merged_schemas(setup), writers, idle=set(slaves) - set(active[: cluster.partitions]))


def _part_writers(setup: RunSetup, rank: int) -> Writers:
    # Without a directory, the results stay in memory and need no part writer.
    assert setup.directory
    folder, part_bytes = setup.directory.open_results, setup.job.output.part_bytes
    own = zip(setup.job.names or ("",), merged_schemas(setup))
    return Writers([PartWriter(folder, part_prefix(rank, name), schema, part_bytes) for name, schema in own])


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
    _abandon(rank, *things)
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


def _abandon(rank: Rank, *things: Any) -> None:
    """Abandons what is still open. Errors are only logged, because the run has already failed for another reason."""
    for thing in things:
        try:
            if thing is not None:
                thing.abandon()
        except Exception:
            rank.log.error("%s", traceback.format_exc())
