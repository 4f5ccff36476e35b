"""The data of the figures about state that did not fit into memory, as they go into their CSVs.

Moments are in seconds of the run's clock, as in series.py.
"""

from __future__ import annotations

import itertools

import numpy as np

from mpijoin.report.bins import Records, bin_of, edges_of, so_far
from mpijoin.report.runs import RunData
from mpijoin.report.series import Table, edges_us, per_slave

# A slave's curve of memory has a point for each record. Where there are more than these, it keeps the highest and the
# lowest point of each of half as many bins, so that the teeth stay.
POINTS_MAX = 1000
SPILL, CLEANUP, RELOCATION = "spill", "clean-up", "relocation"


def has_spilled(run: RunData) -> bool:
    """Whether any slave wrote state to its disk, or took over what another one had written."""
    slaves = run.of_role("slave")
    return bool(slaves["spills"].any() or slaves["disk_bytes"].any())


def memory(run: RunData) -> Table:
    """What each slave had in memory, and its limit: rows for slave after slave, in order of time."""
    kept = [_teeth(run.of_rank(slave)) for slave in run.slaves]
    return {
        "slave": np.concatenate([one["rank"] for one in kept]),
        "end_s": np.concatenate([one["end_us"] for one in kept]) / 1e6,
        "memory_bytes": np.concatenate([one["memory_bytes"] for one in kept]),
        "limit_bytes": np.concatenate([one["memory_limit_bytes"] for one in kept]),
    }


def _teeth(records: Records) -> Records:
    """Returns the records to draw of a slave, of which there is at least one."""
    end_us, held = records["end_us"], records["memory_bytes"]
    if len(end_us) <= POINTS_MAX:
        return records
    edges = edges_of(end_us, records["wall_us"])
    edges = np.linspace(edges[0], edges[-1], POINTS_MAX // 2 + 1)
    place = bin_of(edges, end_us)
    order = np.lexsort((held, place))  # In each bin, the lowest comes first and the highest last.
    firsts = np.flatnonzero(np.diff(place[order], prepend=-1))
    lasts = np.append(firsts[1:], len(order)) - 1
    kept = np.unique(order[np.concatenate([firsts, lasts])])
    return {name: column[kept] for name, column in records.items()}


def happenings(run: RunData) -> Table:
    """When slaves spilled and cleaned up, and when groups left them: a row for each span of time."""
    rows = [one for slave in run.slaves for one in _spans(slave, run.of_rank(slave))]
    if run.moves:
        moved = run.moves["outcome"] == "moved"
        moves = (run.moves[name][moved].tolist() for name in ("supplier", "begun_us", "closed_us", "bytes"))
        rows += [(slave, RELOCATION, begun, closed, octets) for slave, begun, closed, octets in zip(*moves)]
    slave, kind, start_us, end_us, octets = (list(column) for column in zip(*rows)) if rows else ([] for _ in range(5))
    seconds = {name: np.array(column, float) / 1e6 for name, column in (("start_s", start_us), ("end_s", end_us))}
    return {"slave": np.array(slave), "kind": np.array(kind), **seconds, "bytes": np.array(octets)}


def _spans(slave: int, records: Records) -> list[tuple[int, str, int, int, int]]:
    """Returns the spills and the clean-ups of a slave. Records of one clean-up are one span."""
    end_us = records["end_us"]
    found = []
    for at in np.flatnonzero(records["spills"]).tolist():
        began = int(end_us[at] - records["spill_us"][at])
        found.append((slave, SPILL, began, int(end_us[at]), int(records["spilled_bytes"][at])))
    cleans = np.flatnonzero(records["cleanup_us"]).tolist()
    for _, part in itertools.groupby(enumerate(cleans), key=lambda one: one[1] - one[0]):
        run_of = [at for _, at in part]
        began = int(end_us[run_of[0]] - min(records["cleanup_us"][run_of[0]], records["wall_us"][run_of[0]]))
        read = int(records["read_back_bytes"][run_of].sum())
        found.append((slave, CLEANUP, began, int(end_us[run_of[-1]]), read))
    return found


def results_so_far(run: RunData) -> Table:
    """How many results all slaves had found while they joined, and how many the clean-up had found, up to each end_s.

    The first row is the beginning.
    """
    edges = edges_us(run)
    every, cleaned = (
        np.sum([so_far(edges, run.of_rank(slave), field) for slave in run.slaves], axis=0)
        for field in ("results", "cleanup_results")
    )
    moments_s = edges / 1e6
    return {
        "start_s": np.append(moments_s[:1], moments_s[:-1]),
        "end_s": moments_s,
        "runtime_results": every - cleaned,
        "cleanup_results": cleaned,
    }


def on_disk(run: RunData) -> Table:
    """What each slave had on its disk, and how many groups of all slaves still owed results."""
    table = per_slave(run, "disk_bytes")
    owed = per_slave(run, "owed_groups")
    groups = np.nansum([column for name, column in owed.items() if name.startswith("slave_")], axis=0)
    return {**table, "owed_groups": groups}


def in_memory(run: RunData) -> Table:
    """What all slaves together had in memory: the most of each slave in each bin of time."""
    table = per_slave(run, "memory_bytes")
    whole = np.nansum([column for name, column in table.items() if name.startswith("slave_")], axis=0)
    return {"start_s": table["start_s"], "end_s": table["end_s"], "memory_bytes": whole}
