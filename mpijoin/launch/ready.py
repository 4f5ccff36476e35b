"""What every rank does before it meets the others, whatever its role, and what it does with what a failed run leaves.
"""

from __future__ import annotations

import gc
import os
import traceback
from typing import Any

from mpijoin.launch import use, warmup
from mpijoin.launch.logs import rank_log
from mpijoin.launch.roles import RunSetup
from mpijoin.launch.sharing import help_out
from mpijoin.launch.use import Use
from mpijoin.machine import KEPT_BYTES, core_count, keep_freed_memory, touch_heap, unmap_unchanged, use_small_pages
from mpijoin.rank import Rank

# The name of the compiler's library.
COMPILER = "llvmlite"

# Messages and parts of ticks take so much memory, on the master and again on all slaves together. It is touched before
# the clock starts: under a hypervisor that takes free memory back, the first write to a page is ten times slower than
# later ones. It took 2.4 ms per MB, 12 ms of a message.
HEAP_TOUCHED_BYTES = 32 << 20


def compiles(setup: RunSetup) -> bool:
    """Whether nearly all of the engine has to be compiled, as at the first start of such a job."""
    own = [one for one in warmup.sets_of("slave", use_of(setup)) if not one.name.startswith(warmup.METRICS)]
    return not any(one.is_compiled for one in own)


def ready(rank: Rank, setup: RunSetup) -> None:
    """Opens the log and prepares the role's kernels."""
    rank.log = rank_log(setup, rank.number)
    rank.inject(setup.job.inject)
    if may_stop(setup):
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
    rank.compile_s = _ready_kernels(rank, setup, role)
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
        *(rank.number, setup.roles.size, role, rank.compile_s),
        f", restarted {restarts} times" if restarts else "",
    )


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


def use_of(setup: RunSetup) -> Use:
    """Returns what decides which kernels the run needs."""
    return use.use_of(setup.job, setup.schema, _groups_travel(setup), may_stop(setup))


def _groups_travel(setup: RunSetup) -> bool:
    """Whether groups are read out or taken over, by moves or by checkpoints."""
    return setup.job.balance.policy != "none" or setup.job.checkpoint.is_on or setup.resumes


def may_stop(setup: RunSetup) -> bool:
    """Whether a signal can make the run save and stop."""
    job = setup.job
    return setup.checkpoints is not None and bool(job.checkpoint.stops_at)


def keep_loaded() -> None:
    """Exempts all objects that exist by now from garbage collection. They stay until the process ends."""
    # Only the command line turns the collection off (launch/command.py).
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def abandon(rank: Rank, *things: Any) -> None:
    """Abandons what is still open. Errors are only logged, because the run has already failed for another reason."""
    for thing in things:
        try:
            if thing is not None:
                thing.abandon()
        except Exception:
            rank.log.error("%s", traceback.format_exc())
