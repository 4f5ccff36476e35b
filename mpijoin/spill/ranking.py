"""Which groups go first when a slave must give up some of its state, to its disk or to another slave.

LAD, section 2: "For each partition group, we record its current size, represented by P_size. We also record how many
tuples have been generated from this partition group, denoted by P_output. We define the productivity of each partition
group as P_output / P_size."
"""

from __future__ import annotations

import numpy as np

from mpijoin.config import job
from mpijoin.errors import ProtocolError
from mpijoin.operators.base import GroupInfo, Memory
from mpijoin.policy.chance import chance
from mpijoin.policy.plan import RANKINGS


def ranked(info: GroupInfo, groups: np.ndarray, ranking: str, seed: int = 0) -> np.ndarray:
    """Returns the places of the groups that hold tuples, in the order in which they go: int64[k].

    info: of `groups`, int64[m] · ranking: one of RANKINGS, else ProtocolError · seed: "random" is a hash of it and of
    the group. Of groups that rank alike, the one with the smallest number goes first.
    """
    octets = info.live_bytes.sum(axis=1)
    productivity = info.outputs / np.maximum(1, octets)
    match ranking:
        case job.LEAST_PRODUCTIVE:
            keys = productivity
        case job.MOST_PRODUCTIVE:
            keys = -productivity
        case job.LARGEST:
            keys = -octets
        case job.RANDOM:
            keys = np.array([chance(seed, group) for group in groups.tolist()], np.uint64)
        case _:
            raise ProtocolError(f"got the ranking {ranking!r}, wanted one of {', '.join(RANKINGS)}")
    order = np.lexsort((groups, keys))
    going: np.ndarray = order[octets[order] > 0]
    return going


def held_bytes(info: GroupInfo, memory: Memory) -> np.ndarray:
    """Returns what each group takes of an operator's memory, in whole pages: int64[m]. info: of all its groups."""
    octets: np.ndarray = info.blocks * memory.held // max(1, int(info.blocks.sum()))
    return octets


def within(octets: np.ndarray, most: int) -> np.ndarray:
    """Returns the places of those that go, one after the other, while all together have at most `most` bytes: int64[k].
    One that would be too much is passed over.

    >>> within(np.array([40, 90, 20, 50]), 110)
    array([0, 2, 3])
    """
    taken, left = [], most
    for place, one in enumerate(octets.tolist()):
        if one <= left:
            taken.append(place)
            left -= one
    return np.array(taken, np.int64)
