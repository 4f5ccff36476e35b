"""From a job to the core that decides for its master, and from a slave's answer to the event that the core takes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mpijoin.checkpoint.schedule import Schedule, walltime_end_s
from mpijoin.clock import RunClock
from mpijoin.config.job import FIXED, Job
from mpijoin.coordinator.master import MasterCore
from mpijoin.coordinator.reorganization import Loaded, Reorganization
from mpijoin.coordinator.setup import MasterSetup
from mpijoin.launch.roles import RunSetup
from mpijoin.orders import PER_GROUP, Loads
from mpijoin.partitioning.table import PartitionTable
from mpijoin.policy.choose import first_active, make_policy
from mpijoin.policy.view import GroupView
from mpijoin.producer.pacing import Pacing
from mpijoin.producer.start import waiting_bytes_max
from mpijoin.producer.views import never

if TYPE_CHECKING:
    from mpijoin.checkpoint.restore import Resumption


def new_core(run: RunSetup, clock: RunClock, pacing: Pacing, resumption: Resumption | None = None) -> MasterCore:
    """The decisions of this job's master. clock: of the run, which has begun or goes on now."""
    job, slaves = run.job, run.roles.slaves
    cluster, producers = job.cluster, len(run.roles.producers)
    if resumption:
        table = PartitionTable(resumption.owners)
    else:
        table = PartitionTable.even(cluster.partitions, first_active(job.balance, cluster.slaves_min, slaves))
    state = resumption.manifest.run if resumption else None
    return MasterCore(
        MasterSetup(
            table,
            slaves,
            max(1, cluster.buffer_bytes // producers),
            waiting_bytes_max(cluster),
            subgroups=cluster.subgroups,
            divided=cluster.skew_buffer == FIXED,
            finishing=(*run.roles.producers[1:], *((run.roles.collector,) if run.roles.collector else ())),
            pacing=pacing if pacing.paced else None,
            reorganization=_reorganization(job, slaves, pacing.slots, state.elapsed_s if state else 0.0),
            move_kind=job.balance.move,
            schedule=_schedule(job, clock, pacing.slots) if run.checkpoints else None,
            now_s=state.elapsed_s if state else 0.0,
            slots=state.slots if state else 0,
            complete=state.complete if state else never(len(job.streams)),
            producers=producers,
            lead=pacing.lead,
        )
    )


def _reorganization(job: Job, slaves: tuple[int, ...], slots: int, now_s: float) -> Reorganization | None:
    policy, cluster = make_policy(job.balance, job.memory), job.cluster
    if policy is None:
        return None
    slaves_min, load_buffer_bytes = cluster.slaves_min or len(slaves), job.balance.load_buffer_bytes
    own = (job.run.seed, load_buffer_bytes, job.memory.limit_bytes, now_s, job.may_spread)
    return Reorganization(policy, slots, slaves_min, *own)


def _schedule(job: Job, clock: RunClock, slots: int) -> Schedule:
    """In seconds of the run's clock, which counts from the first start of a run that goes on."""
    now_s = clock.wall_s
    end_s = walltime_end_s(job.checkpoint, os.environ, clock.started_s + now_s)
    return Schedule(job.checkpoint, slots, now_s, None if end_s is None else end_s - clock.started_s)


def loaded(loads: Loads) -> Loaded:
    """A slave's answer as the core takes it. The load of a group is its part of the slave's work."""
    total = max(1, int(loads.work.sum()))
    groups = tuple(
        GroupView(group, loads.busy * work / total, state_bytes, float(work), results, disk_bytes)
        for group, work, state_bytes, results, disk_bytes in zip(*(getattr(loads, name).tolist() for name in PER_GROUP))
    )
    spent = (loads.backlog_bytes, loads.busy, loads.communication)
    return Loaded(loads.rank, loads.period, *spent, groups, loads.held_bytes, loads.limit_bytes)
