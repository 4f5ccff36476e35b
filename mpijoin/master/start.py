"""From a job to the core that decides for its master, and from a slave's answer to the event that the core takes."""

from __future__ import annotations

import os

from mpijoin.checkpoint.restore import Resumption
from mpijoin.checkpoint.schedule import Schedule, walltime_end_s
from mpijoin.clock import RunClock
from mpijoin.config.job import Cluster, Job
from mpijoin.data.schema import UNIT_NS, JoinSchema
from mpijoin.launch.setup import RunSetup
from mpijoin.master.core import MasterCore
from mpijoin.master.pacing import Pacing, Tempo
from mpijoin.master.reorganization import Loaded, Reorganization
from mpijoin.master.setup import MasterSetup
from mpijoin.master.views import never
from mpijoin.orders import PER_GROUP, Loads
from mpijoin.partitioning.table import PartitionTable
from mpijoin.policy import first_active, make_policy
from mpijoin.policy.view import GroupView


def new_core(run: RunSetup, clock: RunClock, pacing: Pacing, resumption: Resumption | None = None) -> MasterCore:
    """The decisions of this job's master. clock: of the run, which has begun or goes on now."""
    job, slaves = run.job, run.roles.slaves
    cluster = job.cluster
    if resumption:
        table = PartitionTable(resumption.owners)
    else:
        table = PartitionTable.even(cluster.partitions, first_active(job.balance, cluster.slaves_min, slaves))
    state = resumption.manifest.run if resumption else None
    return MasterCore(
        MasterSetup(
            table,
            slaves,
            cluster.buffer_bytes,
            waiting_bytes_max(cluster),
            subgroups=cluster.subgroups,
            finishing=(run.roles.collector,) if run.roles.collector else (),
            pacing=pacing if pacing.paced else None,
            reorganization=_reorganization(job, slaves, pacing.slots),
            schedule=_schedule(job, clock, pacing.slots) if run.checkpoints else None,
            now_s=state.elapsed_s if state else 0.0,
            slots=state.slots if state else 0,
            complete=state.complete if state else never(len(job.streams)),
        )
    )


def _reorganization(job: Job, slaves: tuple[int, ...], slots: int) -> Reorganization | None:
    policy, cluster = make_policy(job.balance, job.memory), job.cluster
    if policy is None:
        return None
    slaves_min, load_buffer_bytes = cluster.slaves_min or len(slaves), job.balance.load_buffer_bytes
    return Reorganization(policy, slots, slaves_min, job.run.seed, load_buffer_bytes, job.memory.limit_bytes)


def _schedule(job: Job, clock: RunClock, slots: int) -> Schedule:
    """In seconds of the run's clock, which counts from the first start of a run that goes on."""
    now_s = clock.wall_s
    end_s = walltime_end_s(job.checkpoint, os.environ, clock.started_s + now_s)
    return Schedule(job.checkpoint, slots, now_s, None if end_s is None else end_s - clock.started_s)


def pacing_of(job: Job, schema: JoinSchema) -> Pacing:
    """The lengths of the job's epochs."""
    cluster, speed = job.cluster, job.run.speed
    epoch_ns = cluster.distribution_epoch_ns
    tempo = Tempo(
        windows=tuple(schema.ticks(stream.window_ns) for stream in job.streams),
        subgroups=cluster.subgroups,
        unit_s=0.0 if isinstance(speed, str) else UNIT_NS[schema.unit] / 1e9 / speed,
        epoch=None if epoch_ns is None else max(1, schema.ticks(epoch_ns)),
        epoch_ns=epoch_ns,
        reorganization_ns=cluster.reorganization_epoch_ns,
        communication=job.tuning.communication,
    )
    return Pacing(tempo)


def waiting_bytes_max(cluster: Cluster) -> int:
    """Half of the master's buffer is for what waits for slaves or for its time. The other half is for what is read
    ahead and scattered."""
    return cluster.master_buffer_bytes // 2


def loaded(loads: Loads) -> Loaded:
    """A slave's answer as the core takes it. The load of a group is its part of the slave's work."""
    total = max(1, int(loads.work.sum()))
    groups = tuple(
        GroupView(group, loads.busy * work / total, state_bytes, float(work), results, disk_bytes)
        for group, work, state_bytes, results, disk_bytes in zip(*(getattr(loads, name).tolist() for name in PER_GROUP))
    )
    spent = (loads.backlog_bytes, loads.busy, loads.communication)
    return Loaded(loads.rank, loads.period, *spent, groups, loads.held_bytes, loads.limit_bytes)
