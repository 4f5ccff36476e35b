"""The collector of a run, and where it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpijoin.launch.roles import RunSetup, merged_schemas
from mpijoin.policy.choose import first_active
from mpijoin.sinks.collector import Collector, Writers
from mpijoin.sinks.parts import PartWriter, part_prefix

if TYPE_CHECKING:
    from mpijoin.checkpoint.restore import Resumption


def new_collector(setup: RunSetup, writers: Writers, resumption: Resumption | None = None) -> Collector:
    """A collector for the run's slaves. It does not wait for slaves that start without any group."""
    cluster, slaves = setup.job.cluster, setup.roles.slaves
    active = resumption.active if resumption else first_active(setup.job.balance, cluster.slaves_min, slaves)
    return Collector(slaves, merged_schemas(setup), writers, idle=set(slaves) - set(active[: cluster.partitions]))


def part_writers(setup: RunSetup, rank: int) -> Writers:
    # Without a directory, the results stay in memory and need no part writer.
    assert setup.directory
    folder, part_bytes = setup.directory.open_results, setup.job.output.part_bytes
    own = zip(setup.job.names or ("",), merged_schemas(setup))
    return Writers([PartWriter(folder, part_prefix(rank, name), schema, part_bytes) for name, schema in own])
