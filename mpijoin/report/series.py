"""The data of each figure of one run, as they go into its CSV: columns of equal length with units in their names.

Moments are in seconds of the run's clock. In a table over time, each row is a bin from start_s to end_s.
"""

from __future__ import annotations

import itertools
from typing import Callable

import numpy as np

from mpijoin.metrics.delay import DelayHistogram
from mpijoin.named import NamedTuple
from mpijoin.report.bins import Records, bin_of, edges_of, flow, peak, so_far
from mpijoin.report.runs import DONE, RunData

Table = dict[str, np.ndarray]

DECADE_STEPS = 10  # The map of delays has so many fields for each factor of ten.
SHORTEST_US = 1_000  # Shorter delays fall into the lowest field of the map.
QUANTILES = {"p50_s": 0.5, "p95_s": 0.95, "p99_s": 0.99}
SHARES = ("cpu", "communication", "idle", "other")
SPENT = ("cpu_us", "comm_us", "idle_us", "wall_us")


def edges_us(run: RunData) -> np.ndarray:
    """Returns int64[bins + 1], the edges of the bins in all figures over time. The run must have records of slaves."""
    slaves = run.of_role("slave")
    return edges_of(slaves["end_us"], slaves["wall_us"])


def throughput(run: RunData) -> Table:
    """How many tuples, of each stream and in all, the slaves joined per second, and how many results they found."""
    edges = edges_us(run)
    seconds = np.diff(edges) / 1e6
    of_each = {f"{name}_tuples_per_s": _flow_of_all(run, edges, f"tuples_{name}") / seconds for name in run.streams}
    results = _flow_of_all(run, edges, "results") / seconds
    of_all = np.sum(list(of_each.values()), axis=0)
    return {**_times(edges), **of_each, "tuples_per_s": of_all, "results_per_s": results}


def delay_over_time(run: RunData) -> Table:
    """The production delay of the results in each bin: the mean, the maximum and, if there are histograms, quantiles.

    It is nan in a bin without results.
    """
    edges = edges_us(run)
    slaves = run.of_role("slave")
    place, bins = bin_of(edges, slaves["end_us"]), len(edges) - 1
    count = np.bincount(place, slaves["delay_count"], bins)
    sum_us = np.bincount(place, slaves["delay_sum_us"], bins)
    max_us = np.zeros(bins)
    np.maximum.at(max_us, place, slaves["delay_max_us"])
    mean_s = np.divide(sum_us, 1e6 * count, where=count > 0, out=np.full(bins, np.nan))
    longest = {"max_s": np.where(count > 0, max_us / 1e6, np.nan)}
    return {**_times(edges), "results": count.astype(np.int64), "mean_s": mean_s, **_quantiles(run, edges), **longest}


def delay_map(run: RunData) -> Table:
    """The number of results by bin of time and by delay, in equal steps of its logarithm.

    There is a row for each field of the map that has any results.
    """
    edges = edges_us(run)
    place, delay_us, count = _placed_delays(run, edges)
    step = np.floor(np.log10(np.maximum(delay_us, SHORTEST_US)) * DECADE_STEPS).astype(np.int64)
    steps = 1 + step.max()
    fields, inverse = np.unique(place * steps + step, return_inverse=True)
    place, step = np.divmod(fields, steps)
    return {
        "start_s": edges[place] / 1e6,
        "end_s": edges[place + 1] / 1e6,
        "delay_from_s": 10 ** (step / DECADE_STEPS) / 1e6,
        "delay_to_s": 10 ** ((step + 1) / DECADE_STEPS) / 1e6,
        "results": np.bincount(inverse, count, len(fields)).astype(np.int64),
    }


def shares_over_time(run: RunData) -> Table:
    """How all slaves together spent their wall time, as shares of it."""
    edges = edges_us(run)
    return {**_times(edges), **_shares(*(_flow_of_all(run, edges, field) for field in SPENT))}


def shares_by_slave(run: RunData) -> Table:
    """How each slave spent its wall time over the whole run, as shares of it."""
    spent = _each_slave(run, lambda records: np.array([records[field].sum() for field in SPENT])).astype(np.float64)
    return {"slave": np.array(run.slaves), **_shares(*spent.T)}


def occupancy(run: RunData) -> Table:
    """The bytes in each slave's stream buffer at the end of an epoch.

    In a paced run an epoch ends when the message of the next one comes. The last two records of such a run are left
    out, because the message that ends the input comes right behind the one before it.
    """
    if not run.paced:
        return per_slave(run, "buffer_bytes")
    return per_slave(run, "occupancy_bytes", slice(None, -2 if run.state == DONE else None))


def state(run: RunData) -> Table:
    """The bytes of tuples in each slave's windows, without the message that ends the input, which empties them all."""
    return per_slave(run, "window_bytes", slice(None, -1 if run.state == DONE else None))


def declustering(run: RunData) -> Table:
    """The number of slaves that have groups."""
    edges = edges_us(run)
    return {**_times(edges), "active_slaves": peak(edges, run.of_role("master"), "active")}


def moves(run: RunData) -> Table:
    """A row for each move of a group. Its pause is how long the group's input was held, and it took the time from its
    begin to its end."""
    own = run.moves
    seconds = {f"{name}_s": own[f"{name}_us"] / 1e6 for name in ("begun", "frozen", "delivered", "closed", "transfer")}
    pause_us = np.where(own["frozen_us"] > 0, np.maximum(0, own["delivered_us"] - own["frozen_us"]), 0)
    plain = (
        "move",
        "period",
        "group",
        "supplier",
        "consumer",
        "kind",
        "outcome",
        "bytes",
        "blocks",
        "gain_predicted",
        "gain_realised",
    )
    took_s = seconds["closed_s"] - seconds["begun_s"]
    return {**{name: own[name] for name in plain}, **seconds, "pause_s": pause_us / 1e6, "took_s": took_s}


class Event(NamedTuple):
    """A checkpoint, or what broke the run: a restart, or the checkpoint at which it stopped.

    at_s: the second of the run · breaks: whether it broke the run.
    """

    at_s: float
    breaks: bool


def events(run: RunData) -> list[Event]:
    """Returns the events that the figures over time mark, in order. Failed checkpoints are left out."""
    if not run.checkpoints:
        return []
    rows = zip(run.checkpoints["begun_us"].tolist(), run.checkpoints["outcome"].tolist())
    return sorted(
        {Event(begun_us / 1e6, outcome in ("resumed", "stopped")) for begun_us, outcome in rows if outcome != "failed"}
    )


def master(run: RunData) -> Table:
    """What waited at all producers together, how late one of them sent epochs in a paced run, and how many late rows
    they left out so far."""
    edges, producers = edges_us(run), [run.of_rank(rank) for rank in run.producers]
    waiting = np.array([peak(edges, records, "buffer_bytes") for records in producers])
    lags = [peak(edges, records, "lag_us") for records in producers]
    return {
        **_times(edges),
        "buffer_bytes": np.where(np.isnan(waiting).all(axis=0), np.nan, np.nansum(waiting, axis=0)),
        "lag_s": np.fmax.reduce(lags) / 1e6,
        "late_rows": np.sum([so_far(edges, records, "late")[1:] for records in producers], axis=0),
    }


def _times(edges: np.ndarray) -> Table:
    return {"start_s": edges[:-1] / 1e6, "end_s": edges[1:] / 1e6}


def _shares(cpu: np.ndarray, communication: np.ndarray, idle: np.ndarray, wall: np.ndarray) -> Table:
    """Shares of the wall time. `other` is what other processes took, or what a slave made slow on purpose slept."""
    known = cpu + communication + idle
    whole = np.maximum(np.maximum(wall, known), 1)
    return {name: part / whole for name, part in zip(SHARES, (cpu, communication, idle, whole - known))}


def _flow_of_all(run: RunData, edges: np.ndarray, field: str) -> np.ndarray:
    return _each_slave(run, lambda records: flow(edges, records, field)).sum(axis=0)


def per_slave(run: RunData, field: str, some: slice = slice(None)) -> Table:
    """Returns a column for each slave. some: which of its records count."""
    edges = edges_us(run)
    rows = _each_slave(run, lambda records: peak(edges, {name: own[some] for name, own in records.items()}, field))
    return {**_times(edges), **{f"slave_{slave}_bytes": row for slave, row in zip(run.slaves, rows)}}


def _each_slave(run: RunData, figure_of: Callable[[Records], np.ndarray]) -> np.ndarray:
    """Returns an array [slaves, ...] that holds figure_of(records) of each slave."""
    records, slaves = run.of_role("slave"), np.array(run.slaves)
    bounds = np.searchsorted(records["rank"], [slaves, slaves + 1]).T
    return np.array([figure_of({name: column[low:high] for name, column in records.items()}) for low, high in bounds])


def _quantiles(run: RunData, edges: np.ndarray) -> Table:
    if not run.delays:
        return {}
    place, delay_us, count = _placed_delays(run, edges)
    order = np.argsort(place, kind="stable")
    bounds = np.searchsorted(place[order], np.arange(len(edges)))
    quantiles = np.full((len(QUANTILES), len(edges) - 1), np.nan)
    for index, (low, high) in enumerate(itertools.pairwise(bounds)):
        if high > low:
            delays = DelayHistogram()
            delays.add(delay_us[order[low:high]], count[order[low:high]])
            quantiles[:, index] = [delays.quantile_us(share) / 1e6 for share in QUANTILES.values()]
    return dict(zip(QUANTILES, quantiles))


def _placed_delays(run: RunData, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the bin of time, the delay in us and the number of results of each bucket that a record filled."""
    delays = run.delays
    return bin_of(edges, delays["end_us"]), delays["bucket_us"], delays["count"]
