"""What all slaves together had counted when a checkpoint was cut. The ledger of a run that goes on begins with it."""

from __future__ import annotations

from typing import Any, Sequence

from mpijoin.metrics.delay import DelayHistogram
from mpijoin.records import PER_STREAM, Counts, Delays

MODULUS = 1 << 64


def total(counts: Sequence[Counts]) -> Counts:
    """Returns the sum of slaves' counts and of earlier sums, of which there must be at least one. The tuples that the
    slaves hold count as moved out: they are in the checkpoint, and the slaves of the next run get them as if they moved
    in."""
    streams = (tuple(map(sum, zip(*own))) for own in list(zip(*counts))[:PER_STREAM])
    numbers = (sum(own) for own in list(zip(*counts))[PER_STREAM:-1])
    whole = Counts._make([*streams, *numbers, DelayHistogram.of(one.delays for one in counts).compact()])
    moved_out = tuple(map(sum, zip(whole.moved_out, whole.held)))
    return whole._replace(moved_out=moved_out, held=(0,) * len(whole.held), certificate=whole.certificate % MODULUS)


def plain_of(counts: Counts) -> dict[str, Any]:
    """The counts as a manifest has them: field -> value, with the certificate as its 16 digits."""
    return {**counts._asdict(), "certificate": f"{counts.certificate:016x}", "delays": counts.delays._asdict()}


def counts_of(plain: dict[str, Any]) -> Counts:
    """Reads what `plain_of` has written."""
    delays = Delays.of(list(plain["delays"].values()))
    lists = {name: tuple(value) for name, value in plain.items() if isinstance(value, list)}
    return Counts(**{**plain, **lists, "certificate": int(plain["certificate"], 16), "delays": delays})
