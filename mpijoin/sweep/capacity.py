"""The capacity of paced runs. It is the highest rate at which neither the master nor any slave falls behind.

WSJ, section VI-A: "this metric [the delay] also provide an indication of the capacity of the system: when the system is
overloaded, the incoming tuples stays a longer period of time in buffer". This module looks at the buffers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pyarrow.parquet as pq

from mpijoin.errors import MpijoinError

# The bisection ends when the lowest rate that was not sustained is at most this factor above the highest that was.
RATE_STEP = 1.08
# This rate is in tuples per second and stream. If not even this is sustained, something is broken.
RATE_MIN = 100.0
# The rank may be behind by so many epochs, which is as much as the load buffer holds.
BEHIND_MAX = 2.0
# This share of the epochs must be in time. A few may be late, because a busy neighbour says nothing about capacity.
SUSTAINED = 0.9


class NoCapacity(MpijoinError):
    """Not even the lowest rate that was tried can be sustained."""


def epoch_records(path: Path, *names: str) -> list[dict[str, Any]]:
    """Returns one row per rank and epoch of a run directory, with rank, role and the named fields of EpochRecord."""
    columns = ["rank", "role", *names]
    files = sorted((path / "metrics").glob("rank-*.parquet"))
    return [row for file in files for row in pq.read_table(file, columns=columns).to_pylist()]


def is_sustained(path: Path, epoch_s: float) -> bool:
    """Whether a run kept up. Its epochs must have gone out at most two epochs late, and must have left at most two
    epochs' bytes unjoined."""
    rows = epoch_records(path, "lag_us", "occupancy_bytes", "received_bytes")
    lags_us = [row["lag_us"] for row in rows if row["role"] == "master"]
    in_time = [lag_us <= BEHIND_MAX * epoch_s * 1e6 for lag_us in lags_us]
    ends_in_time = all(in_time[-2:])
    for slave in {row["rank"] for row in rows if row["role"] == "slave"}:
        own = [row for row in rows if row["rank"] == slave]
        epoch_bytes = sum(row["received_bytes"] for row in own) / len(own)
        small = [row["occupancy_bytes"] <= BEHIND_MAX * epoch_bytes for row in own]
        ends_in_time &= all(small[-2:])
        in_time += small
    return bool(in_time) and ends_in_time and sum(in_time) >= SUSTAINED * len(in_time)


def mean_epoch_s(path: Path) -> float:
    """Returns the mean distribution epoch of a run directory. An automatic one changes during the run."""
    ends_us = sorted(row["end_us"] for row in epoch_records(path, "end_us") if row["role"] == "master")
    return max(1e-3, (ends_us[-1] - ends_us[0]) / 1e6 / max(1, len(ends_us) - 1))


def highest(sustained: Callable[[float], bool], low: float, high: float, step: float = RATE_STEP) -> float:
    """Returns the highest rate that is sustained, within the factor `step`. It bisects on a logarithmic scale.

    The search begins at `low`, and goes down if that is too much already. It ends at `high`. This rate is tried last,
    and only if all rates below it were sustained, because a run far above the capacity takes long. If it is sustained
    too, it is returned, and the capacity is at least this rate. Raises NoCapacity if no rate from RATE_MIN on is
    sustained.
    """
    is_refuted = False
    while not sustained(low):
        low, high, is_refuted = low / 2, low, True
        if low < RATE_MIN:
            raise NoCapacity(f"not even {2 * low:,.0f} tuples/s/stream are sustained")
    while high / low > step:
        middle = (low * high) ** 0.5
        if sustained(middle):
            low = middle
        else:
            high, is_refuted = middle, True
    return low if is_refuted or not sustained(high) else high
