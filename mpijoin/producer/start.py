"""From a job to what its producers begin with."""

from __future__ import annotations

from mpijoin.config.job import Cluster, Job
from mpijoin.data.schema import UNIT_NS, JoinSchema
from mpijoin.producer.pacing import Pacing, Tempo


def pacing_of(job: Job, schema: JoinSchema, producers: int) -> Pacing:
    """The lengths of the job's epochs, where so many producers share its input."""
    cluster, speed = job.cluster, job.run.speed
    epoch_ns = cluster.distribution_epoch_ns
    tempo = Tempo(
        windows=tuple(schema.ticks(stream.window_ns) for stream in job.streams),
        subgroups=cluster.subgroups,
        unit_s=0.0 if isinstance(speed, str) else UNIT_NS[schema.unit] / 1e9 / speed,
        epoch=None if epoch_ns is None else max(1, schema.ticks(epoch_ns)),
        epoch_ns=epoch_ns,
        reorganization_ns=cluster.reorganization_epoch_ns,
        shared=producers > 1,
        communication=job.tuning.communication,
    )
    return Pacing(tempo)


def waiting_bytes_max(cluster: Cluster) -> int:
    """Half of a producer's buffer is for what waits for slaves or for its time. The other half is for what is read
    ahead and scattered."""
    return cluster.master_buffer_bytes // 2
