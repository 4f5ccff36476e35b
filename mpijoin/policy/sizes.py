"""How many producers, and how many sub-groups, a run should have (WSJ, section VIII: "n_g" is future work there).

What a tuple costs is measured (`scripts/bench_scaling.py`, workload A, one core): PRODUCER_NS to read, decode, hash,
scatter and send it, SLAVE_NS to insert, join and expire it. A run takes as long as its busiest rank, so the producers'
work for each of them should be about the slaves' for each of those.
"""

from __future__ import annotations

from math import ceil

from mpijoin.named import NamedTuple

PRODUCER_NS, SLAVE_NS = 38.0, 39.0


class Choice(NamedTuple):
    """A number, and why it is the best. why: a clause without a full stop."""

    value: int
    why: str


def producers_of(ranks: int, shares: int) -> Choice:
    """How many of these ranks, which have no other role than producer or slave, produce. shares: the parts that the
    input can be shared out in.

    >>> [producers_of(ranks, 1000).value for ranks in (2, 3, 4, 5, 9, 16)]
    [1, 1, 2, 2, 4, 8]
    >>> producers_of(16, 3)
    Choice(value=3, why='the input has only 3 parts that can be shared out')
    """
    best = min(range(1, max(2, ranks)), key=lambda count: (_longest_ns(count, ranks), count))
    if best > shares:
        return Choice(max(1, shares), f"the input has only {_parts(shares)} that can be shared out")
    return Choice(
        best,
        f"a tuple takes a producer about {PRODUCER_NS:g} ns and a slave about {SLAVE_NS:g} ns or more, so that of"
        f" {ranks} ranks the busiest has the least to do",
    )


def ranks_with(slaves: int, shares: int) -> int:
    """The producers and slaves of a run with so many slaves whose producers are chosen.

    >>> [ranks_with(slaves, 1000) for slaves in (1, 2, 3, 8)], ranks_with(8, 1)
    ([2, 3, 5, 15], 9)
    """
    return next(ranks for ranks in range(slaves + 1, 3 * slaves + 2) if _slaves(ranks, shares) >= slaves)


def subgroups_of(slaves: int, epoch_bytes: float, buffer_bytes: int) -> Choice:
    """How many sub-groups serve these slaves. epoch_bytes: what comes in a distribution epoch, r t_d of section V-B ·
    buffer_bytes: what a producer may hold of it. The peak buffer is (r t_d / 2)(1 + 1/n_g), and each sub-group more
    makes messages of an epoch leave later, so it is the least number that fits.

    >>> [subgroups_of(16, octets, 100).value for octets in (50, 100, 110, 150, 199, 300)]
    [1, 1, 2, 3, 16, 1]
    """
    if epoch_bytes <= buffer_bytes:
        return Choice(1, f"the {_mb(epoch_bytes)} of an epoch fit into the {_mb(buffer_bytes)} of a producer's buffer")
    spare = 2 * buffer_bytes / epoch_bytes - 1
    if spare <= 0:
        why = f"half of the {_mb(epoch_bytes)} of an epoch exceeds the {_mb(buffer_bytes)} of a producer's buffer"
        return Choice(1, why)
    value = min(slaves, ceil(1 / spare - 1e-9))
    return Choice(value, f"so the {_mb(epoch_bytes)} of an epoch need no more than {_mb(_peak(epoch_bytes, value))}")


def _peak(epoch_bytes: float, subgroups: int) -> float:
    return epoch_bytes / 2 * (1 + 1 / subgroups)


def _longest_ns(producers: int, ranks: int) -> float:
    """What a tuple of the run takes of the time of its busiest rank."""
    return max(PRODUCER_NS / producers, SLAVE_NS / max(1, ranks - producers))


def _slaves(ranks: int, shares: int) -> int:
    return ranks - producers_of(ranks, shares).value


def _parts(count: int) -> str:
    return "one part" if count == 1 else f"{count} parts"


def _mb(octets: float) -> str:
    return f"{octets / 1e6:.3g} MB"
