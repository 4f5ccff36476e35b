"""Which slave gets which group when a run goes on, on as many ranks as before or on another number."""

from __future__ import annotations

from typing import Sequence

from mpijoin.checkpoint.manifest import Manifest


def assign(manifest: Manifest, partitions: int, slaves: Sequence[int], active: Sequence[int]) -> list[int]:
    """Returns the slave of each partition. slaves: those there are now · active: those of them that are to have groups.

    If the slaves are the same as before, each keeps the groups that it had. Otherwise the largest groups are given out
    first, each to the slave with the fewest bytes so far; groups without bytes go to the slave with the fewest groups.
    """
    known = {group.group: group for group in manifest.groups}
    if tuple(slaves) == manifest.run.slaves and {group.slave for group in manifest.groups} == set(active):
        return [known[one].slave if one in known else active[one % len(active)] for one in range(partitions)]
    sizes = {one: known[one].alive if one in known else 0 for one in range(partitions)}
    bytes_of, count_of, owners = dict.fromkeys(active, 0), dict.fromkeys(active, 0), [0] * partitions
    for one in sorted(sizes, key=lambda one: (-sizes[one], one)):
        loads = {slave: (bytes_of[slave], count_of[slave]) for slave in active}
        slave = min(active, key=lambda slave: (loads[slave] if sizes[one] else loads[slave][::-1], slave))
        owners[one] = slave
        bytes_of[slave] += sizes[one]
        count_of[slave] += 1
    return owners
