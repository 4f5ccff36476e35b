"""The data of each figure of one run: columns of equal length, units in their names, as they go into its CSV.

Moments are seconds of the run's clock; a row of a table over time is a bin, and `end_s` its end.
"""

from __future__ import annotations

from typing import Callable

import numpy as np

from mpijoin.metrics.delay import DelayHistogram
from mpijoin.report.bins import bin_of, edges_of, flow, peak
from mpijoin.report.runs import RunData

Table = dict[str, np.ndarray]

DECADE_STEPS = 10  # bins of the heat map to a factor of ten in delay
QUANTILES = {"p50_s": 0.5, "p95_s": 0.95, "p99_s": 0.99}
SHARES = ("cpu", "communication", "idle", "other")


def edges_us(run: RunData) -> np.ndarray:
    """int64[bins + 1]: of all figures over time of this run."""
    slaves = run.of_role("slave")
    busy = slaves["wall_us"] > 0
    return edges_of(slaves["end_us"][busy], slaves["wall_us"][busy]) if busy.any() else np.array([0, 1_000_000])


def end_s(edges: np.ndarray) -> np.ndarray:
    return edges[1:] / 1e6


def throughput(run: RunData) -> Table:
    """Tuples joined and results found by all slaves, per second."""
    edges = edges_us(run)
    seconds = np.diff(edges) / 1e6
    names = {"left_tuples_per_s": "tuples_left", "right_tuples_per_s": "tuples_right", "results_per_s": "results"}
    return {"end_s": end_s(edges), **{name: _flows(run, edges, field).sum(axis=0) / seconds for name, field in names.items()}}


def delay_over_time(run: RunData) -> Table:
    """Production delay of the results that came in each bin: mean and maximum, and quantiles where there are histograms; nan
    where no result came."""
    edges = edges_us(run)
    slaves = run.of_role("slave")
    place = bin_of(edges, slaves["end_us"])
    bins = len(edges) - 1
    count = np.bincount(place, slaves["delay_count"], bins)
    longest = np.zeros(bins)
    np.maximum.at(longest, place, slaves["delay_max_us"])
    filled = count > 0
    mean_us = np.bincount(place, slaves["delay_sum_us"], bins) / np.where(filled, count, 1)
    table = {"end_s": end_s(edges), "results": count, "mean_s": np.where(filled, mean_us / 1e6, np.nan)}
    table.update(_quantiles(run, edges))
    return {**table, "max_s": np.where(filled, longest / 1e6, np.nan)}


def delay_heat(run: RunData) -> Table:
    """Results by bin of time and, in equal steps of the logarithm, delay: a row for each field of the map that has any."""
    edges = edges_us(run)
    place, delay_us, count = _placed_delays(run, edges)
    step = np.floor(np.log10(np.maximum(delay_us, 1_000)) * DECADE_STEPS).astype(np.int64)
    key = place * 1_000 + step
    fields, inverse = np.unique(key, return_inverse=True)
    place, step = fields // 1_000, fields % 1_000
    return {
        "start_s": edges[place] / 1e6,
        "end_s": edges[place + 1] / 1e6,
        "delay_from_s": 10 ** (step / DECADE_STEPS) / 1e6,
        "delay_to_s": 10 ** ((step + 1) / DECADE_STEPS) / 1e6,
        "results": np.bincount(inverse, count, len(fields)),
    }


def shares_over_time(run: RunData) -> Table:
    """How the slaves spent their wall time, in shares of it, all slaves together."""
    edges = edges_us(run)
    names = ("cpu_us", "comm_us", "idle_us", "wall_us")
    return {"end_s": end_s(edges), **_shares(*(_flows(run, edges, name).sum(axis=0) for name in names))}


def shares_by_slave(run: RunData) -> Table:
    """The same of each slave over the whole run."""
    records = [run.of_rank(slave) for slave in run.slaves]
    spent = (np.array([own[name].sum() for own in records], float) for name in ("cpu_us", "comm_us", "idle_us", "wall_us"))
    return {"slave": np.array(run.slaves), **_shares(*spent)}


def occupancy(run: RunData) -> Table:
    """Bytes in each slave's stream buffer: at the end of an epoch, of a paced run when the next one's message came."""
    return _per_slave(run, "occupancy_bytes" if run.paced else "buffer_bytes")


def state(run: RunData) -> Table:
    """Bytes of tuples in each slave's windows."""
    return _per_slave(run, "window_bytes")


def declustering(run: RunData) -> Table:
    """Slaves that have groups."""
    edges, master = edges_us(run), run.of_role("master")
    return {"end_s": end_s(edges), "active_slaves": peak(edges, master["end_us"], master["wall_us"], master["active"])}


def moves(run: RunData) -> Table:
    """A row for each move of a group; pause: how long its input was held."""
    own = run.moves
    seconds = {f"{name}_s": own[f"{name}_us"] / 1e6 for name in ("begun", "frozen", "delivered", "closed", "transfer")}
    held = own["frozen_us"] > 0
    pause = {"pause_s": np.where(held, np.maximum(0, own["delivered_us"] - own["frozen_us"]) / 1e6, 0.0)}
    plain = ("move", "period", "group", "supplier", "consumer", "outcome", "bytes", "blocks", "gain_predicted", "gain_realised")
    return {**{name: own[name] for name in plain}, **seconds, **pause}


def master(run: RunData) -> Table:
    """What waited at the master, how late it sent its epochs (paced), and late rows that it kept out, so far."""
    edges, own = edges_us(run), run.of_role("master")
    states = {name: peak(edges, own["end_us"], own["wall_us"], own[name]) for name in ("buffer_bytes", "lag_us")}
    late = np.cumsum(flow(edges, own["end_us"], own["wall_us"], own["late"]))
    return {"end_s": end_s(edges), "buffer_bytes": states["buffer_bytes"], "lag_s": states["lag_us"] / 1e6, "late_rows": late}


def _shares(cpu: np.ndarray, communication: np.ndarray, idle: np.ndarray, wall: np.ndarray) -> Table:
    """Shares of the wall time; `other`: what other processes took, or a slave made slow on purpose slept."""
    known = cpu + communication + idle
    whole = np.maximum(wall, known)
    parts = dict(zip(SHARES, (cpu, communication, idle, whole - known)))
    return {name: np.where(whole > 0, part / np.where(whole > 0, whole, 1), np.nan) for name, part in parts.items()}


def _flows(run: RunData, edges: np.ndarray, field: str) -> np.ndarray:
    """float64[slaves, bins]."""
    return _each_slave(run, field, lambda end_us, wall_us, values: flow(edges, end_us, wall_us, values))


def _per_slave(run: RunData, field: str) -> Table:
    edges = edges_us(run)
    rows = _each_slave(run, field, lambda end_us, wall_us, values: peak(edges, end_us, wall_us, values))
    return {"end_s": end_s(edges), **{f"slave_{slave}_bytes": row for slave, row in zip(run.slaves, rows)}}


def _each_slave(run: RunData, field: str, bring: Callable[..., np.ndarray]) -> np.ndarray:
    records = run.of_role("slave")
    bounds = np.searchsorted(records["rank"], [run.slaves, np.array(run.slaves) + 1])
    columns = [records[name] for name in ("end_us", "wall_us", field)]
    return np.array([bring(*(column[low:high] for column in columns)) for low, high in bounds.T])


def _quantiles(run: RunData, edges: np.ndarray) -> Table:
    if not run.delays:
        return {}
    place, delay_us, count = _placed_delays(run, edges)
    order = np.argsort(place, kind="stable")
    bounds = np.searchsorted(place[order], np.arange(len(edges)))
    quantiles = np.full((len(QUANTILES), len(edges) - 1), np.nan)
    for index, (low, high) in enumerate(zip(bounds, bounds[1:])):
        if high > low:
            delays = DelayHistogram()
            delays.add(delay_us[order[low:high]], count[order[low:high]])
            quantiles[:, index] = [delays.quantile_us(share) / 1e6 for share in QUANTILES.values()]
    return dict(zip(QUANTILES, quantiles))


def _placed_delays(run: RunData, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bin of time, delay in us and number of results of each bucket that an epoch filled."""
    slaves, delays = run.of_role("slave"), run.delays
    epochs = 1 + max(slaves["epoch"].max(), delays["epoch"].max())
    key = slaves["rank"] * epochs + slaves["epoch"]
    order = np.argsort(key, kind="stable")
    wanted = delays["rank"] * epochs + delays["epoch"]
    found = np.searchsorted(key[order], wanted, side="right") - 1  # the last record of that rank and epoch
    known = (found >= 0) & (key[order][found] == wanted)
    place = bin_of(edges, slaves["end_us"][order][found[known]])
    return place, delays["bucket_us"][known], delays["count"][known]
