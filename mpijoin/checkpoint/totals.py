"""What all slaves together had counted when a checkpoint was cut: the ledger of a run that goes on begins with it."""

from __future__ import annotations

from typing import Any, Iterable

from mpijoin.metrics.delay import DelayHistogram

STREAMS = ("left", "right")
SUMS = ("results", "written", "comparisons", "splits", "merges")
STREAM_SUMS = ("received", "joined", "expired", "moved_in", "moved_out")
MODULUS = 1 << 64


def nothing() -> dict[str, Any]:
    """Before a run."""
    return total([])


def total(counts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The sum of slaves' counts, and of earlier sums. What they hold leaves them: it is in the checkpoint, from which
    the slaves to come get it as if it had been moved to them."""
    counts = list(counts)
    names = (*SUMS, *(f"{name}_{stream}" for name in STREAM_SUMS for stream in STREAMS))
    sums = {name: sum(one[name] for one in counts) for name in names}
    for stream in STREAMS:
        sums[f"moved_out_{stream}"] += sum(one[f"held_{stream}"] for one in counts)
        sums[f"held_{stream}"] = 0
    certificate = sum(int(one["certificate"], 16) for one in counts) % MODULUS
    return {
        **sums,
        "certificate": f"{certificate:016x}",
        "delays": DelayHistogram.of(one["delays"] for one in counts).compact(),
    }
