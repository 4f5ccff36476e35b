"""The data of the figure of plans (DCAPE): by which tree of joins each slave joined, and when.

A summary says after how many of its tuples a slave changed its plan. When that was, the slave's records tell.
"""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from mpijoin.report.bins import Records
from mpijoin.report.runs import Columns, RunData
from mpijoin.report.series import Table, edges_us


def has_plans(run: RunData) -> bool:
    """Whether it is known by which plans the slaves joined. A run without a choice of plans, or without an end, does
    not say."""
    return bool(run.summary.get("plans"))


def plans(run: RunData) -> Table:
    """The plans of each slave: rows for slave after slave, in order of time. The last plan lasts until the run ends.

    from_tuple: how many tuples had come to the slave by then.
    """
    end_us, since_us = int(edges_us(run)[-1]), _resumed_us(run.checkpoints)
    rows: list[tuple[int, str, int, float, float]] = []
    for slave in run.slaves:
        followed: Sequence[dict[str, Any]] = run.summary["plans"].get(str(slave), [])
        began_us = _moments_us(run.of_rank(slave), run.streams, since_us, [one["tuples"] for one in followed])
        spans = zip(followed, began_us, [*began_us[1:], end_us])
        rows += [(slave, one["plan"], one["tuples"], start / 1e6, end / 1e6) for one, start, end in spans]
    names = ("slave", "plan", "from_tuple", "start_s", "end_s")
    return {name: np.array(column) for name, column in zip(names, zip(*rows))}


def _resumed_us(checkpoints: Columns) -> int:
    """Returns when the run went on from a checkpoint for the last time, since slaves count their tuples from there."""
    if not checkpoints:
        return 0
    return int(checkpoints["begun_us"][checkpoints["outcome"] == "resumed"].max(initial=0))


def _moments_us(records: Records, streams: Sequence[str], since_us: int, tuples: Sequence[int]) -> list[float]:
    """Returns when a slave had got so many tuples. Within an epoch they are taken to come evenly."""
    own = {name: column[records["end_us"] > since_us] for name, column in records.items()}
    if not len(own["end_us"]):
        return [float(since_us)] * len(tuples)
    came = np.cumsum(np.sum([own[f"tuples_{name}"] for name in streams], axis=0))
    start_us = max(since_us, int(own["end_us"][0] - own["wall_us"][0]))
    moments = np.interp(tuples, np.append(0, came), np.append(start_us, own["end_us"]))
    return [float(one) for one in moments]
