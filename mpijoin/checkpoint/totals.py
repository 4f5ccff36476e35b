"""What all slaves together had counted when a checkpoint was cut. The ledger of a run that goes on begins with it."""

from __future__ import annotations

from typing import Any, Sequence

from mpijoin.metrics.delay import DelayHistogram
from mpijoin.records import PER_STREAM, Counts, Delays, QueryCounts

MODULUS = 1 << 64


def total(counts: Sequence[Counts]) -> Counts:
    """Returns the sum of slaves' counts and of earlier sums, of which there must be at least one. The tuples that the
    slaves hold count as moved out: they are in the checkpoint, and the slaves of the next run get them as if they moved
    in."""
    columns = list(zip(*counts))
    streams = (tuple(map(sum, zip(*own))) for own in columns[:PER_STREAM])
    numbers = (sum(own) for own in columns[PER_STREAM:-2])
    delays = DelayHistogram.of(one.delays for one in counts).compact()
    # The counts before a run know of no queries.
    queries = tuple(map(_whole_query, zip(*(one.queries for one in counts if one.queries))))
    whole = Counts._make([*streams, *numbers, delays, queries])
    moved_out = tuple(map(sum, zip(whole.moved_out, whole.held)))
    return whole._replace(moved_out=moved_out, held=(0,) * len(whole.held), certificate=whole.certificate % MODULUS)


def _whole_query(counts: Sequence[QueryCounts]) -> QueryCounts:
    results, written, certificate = map(sum, zip(*counts))
    return QueryCounts(results, written, certificate % MODULUS)


def plain_of(counts: Counts) -> dict[str, Any]:
    """The counts as a manifest has them: field -> value, with the certificate as its 16 digits."""
    queries = [{**one._asdict(), **_digits(one)} for one in counts.queries]
    return {**counts._asdict(), **_digits(counts), "delays": counts.delays._asdict(), "queries": queries}


def counts_of(plain: dict[str, Any]) -> Counts:
    """Reads what `plain_of` has written."""
    delays = Delays.of(list(plain["delays"].values()))
    lists = {name: tuple(value) for name, value in plain.items() if isinstance(value, list)}
    queries = tuple(QueryCounts(**{**one, "certificate": int(one["certificate"], 16)}) for one in plain["queries"])
    certificate = int(plain["certificate"], 16)
    return Counts(**{**plain, **lists, "certificate": certificate, "delays": delays, "queries": queries})


def _digits(counts: Counts | QueryCounts) -> dict[str, str]:
    return {"certificate": f"{counts.certificate:016x}"}
