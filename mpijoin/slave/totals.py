"""What a slave tells of itself at a checkpoint and at the end of the run."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from mpijoin.config.job import MWAY
from mpijoin.config.plan import text_of
from mpijoin.operators.base import CERTIFICATE_MASK, Operator, PlanChange, Totals
from mpijoin.records import Counts, Figures, Followed, PartInfo, SpillFigures
from mpijoin.slave.outlets import Outlets
from mpijoin.slave.report import EpochMeter


def counts_of(
    totals: Totals, outlets: Outlets, parts: Sequence[PartInfo], received: np.ndarray, epochs: EpochMeter
) -> Counts:
    """parts: of results, all closed · received: int64[2, streams], the rows of each stream that came from producers,
    and those that came as copies, up to the same point as the other counts."""
    own, copied = map(tuple, received.tolist())
    return Counts(
        received=own,
        joined=totals.joined,
        expired=totals.expired,
        held=totals.held,
        moved_in=totals.moved_in,
        moved_out=totals.moved_out,
        spilled=totals.spilled,
        taken_back=totals.taken_back,
        copied=copied,
        discarded=totals.discarded,
        replicas_in=totals.replicas_in,
        replicas_out=totals.replicas_out,
        results=outlets.found,
        written=sum(part.rows for part in parts),
        certificate=outlets.certificate & CERTIFICATE_MASK,
        comparisons=totals.comparisons,
        splits=totals.splits,
        merges=totals.merges,
        delays=epochs.delays.compact(),
        queries=outlets.queries(parts),
    )


def figures_of(
    epochs: EpochMeter, operator: Operator, busy_s: float, blocked_s: float, spilling: SpillFigures
) -> Figures:
    """busy_s, blocked_s: seconds spent joining, and waiting for the collector."""
    return Figures(
        **epochs.times_after_warmup(busy_s),
        blocked_s=blocked_s,
        window_bytes_max=epochs.window_bytes_max,
        blocks_max=operator.totals.blocks_max,
        theta_bytes=operator.theta_bytes,
        memory_limit_bytes=operator.memory().budget,
        memory_bytes_max=epochs.memory_bytes_max,
        last_runtime_result_s=epochs.last_runtime_result_s,
        spilling=spilling,
    )


def plans_of(operator: Operator, names: Sequence[str]) -> tuple[Followed, ...]:
    """Returns the plans that the operator has followed, if there are several ways to join. names: of the streams."""
    return tuple(_followed(change, names) for change in operator.plans)


def _followed(change: PlanChange, names: Sequence[str]) -> Followed:
    plan = text_of(change.plan, names) if change.plan else MWAY
    return Followed(change.tuples, plan, round(change.took_ns, 1), round(change.takes_ns, 1))
