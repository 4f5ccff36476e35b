"""A master's decisions, made from a job; and what slaves answer, as these take it."""

from __future__ import annotations

from mpijoin.checkpoint.restore import Resumption
from mpijoin.config.job import Cluster, Job
from mpijoin.master import core
from mpijoin.master.pacing import Pacing
from mpijoin.master.reorganization import Reorganization
from mpijoin.master.views import never
from mpijoin.messages import Loads
from mpijoin.partitioning.table import PartitionTable
from mpijoin.policy import first_active, make_policy
from mpijoin.policy.view import GroupView


def new_core(
    job: Job, slaves: tuple[int, ...], finishing: tuple[int, ...], pacing: Pacing, resumption: Resumption | None = None
) -> core.MasterCore:
    """The decisions of this job's master."""
    cluster, policy, reorganization = job.cluster, make_policy(job.balance), None
    if resumption:
        table = PartitionTable(resumption.owners)
    else:
        table = PartitionTable.even(cluster.partitions, first_active(job.balance, cluster.slaves_min, slaves))
    manifest = resumption.manifest if resumption else None
    if policy:
        slaves_min, load_buffer_bytes = cluster.slaves_min or len(slaves), job.balance.load_buffer_bytes
        reorganization = Reorganization(
            policy, pacing.slots, slaves_min, job.run.seed, load_buffer_bytes, cluster.memory_bytes
        )
    return core.MasterCore(
        table,
        slaves,
        cluster.subgroups,
        cluster.buffer_bytes,
        waiting_bytes_max(cluster),
        finishing,
        pacing.paced,
        reorganization,
        *((manifest.run.slots, manifest.run.complete) if manifest else (0, never(len(job.streams)))),
    )


def waiting_bytes_max(cluster: Cluster) -> int:
    """Half of the master's buffer is for what waits for slaves or for its time, half for what is read ahead and
    scattered."""
    return cluster.master_buffer_bytes // 2


def loaded(loads: Loads) -> core.Loaded:
    """What a slave answered, as the core takes it: a group's load is its part of the slave's work."""
    total = max(1, int(loads.work.sum()))
    groups = tuple(
        GroupView(group, loads.busy * work / total, state_bytes, float(work))
        for group, work, state_bytes in zip(loads.groups.tolist(), loads.work.tolist(), loads.live_bytes.tolist())
    )
    return core.Loaded(loads.rank, loads.period, loads.backlog_bytes, loads.busy, loads.communication, groups)
