"""The capacity of paced runs: the highest rate at which neither the master nor any slave falls behind.

WSJ, section VI-A: "this metric [the delay] also provide an indication of the capacity of the system: when the system is
overloaded, the incoming tuples stays a longer period of time in buffer". Here it is the buffers that are looked at.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pyarrow.parquet as pq

from mpijoin.errors import MpijoinError

RATE_STEP = 1.08  # bisection ends when the highest rate that was sustained and the lowest that was not are so close
RATE_MIN = 100.0  # tuples per second and stream; if not even this is sustained something is broken
BEHIND_MAX = 2.0  # epochs: as much as the load buffer holds
SUSTAINED = 0.9  # of the epochs must be in time: one that a busy neighbour spoils says nothing of capacity


class NoCapacity(MpijoinError):
    """Not even the lowest rate that is tried can be sustained."""


def epoch_records(path: Path, *names: str) -> list[dict[str, Any]]:
    """One row per rank and epoch of a run directory, with its rank, role and these fields of EpochRecord."""
    columns = ["rank", "role", *names]
    files = sorted((path / "metrics").glob("rank-*.parquet"))
    return [row for file in files for row in pq.read_table(file, columns=columns).to_pylist()]


def is_sustained(path: Path, epoch_s: float) -> bool:
    """Whether the epochs of a run directory went out at most two epochs late and left at most two epochs' bytes
    unjoined."""
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
    """The mean distribution epoch of a run directory: an automatic one changes while it runs."""
    ends_us = sorted(row["end_us"] for row in epoch_records(path, "end_us") if row["role"] == "master")
    return max(1e-3, (ends_us[-1] - ends_us[0]) / 1e6 / max(1, len(ends_us) - 1))


def highest(sustained: Callable[[float], bool], low: float, high: float, step: float = RATE_STEP) -> float:
    """The highest rate that is sustained, within the factor `step`, by bisection on a logarithmic scale.

    low: where the search begins; if it is too much already the search goes down · high: where it ends. It is tried
    last, and only if all below held, since a run far above the capacity takes long. If it holds too it is what is
    returned, and the capacity is at least that. Raises NoCapacity if nothing from RATE_MIN on is sustained.
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
