"""The points of the figures: a setting of WSJ, section VI, brought to a side (simulated or real), and the job it
becomes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

SIMULATED, REAL = "simulated", "real"
SIDES = (SIMULATED, REAL)
COSTS = "wsj_2005"
PARTITIONS, DOMAIN, BIAS = 60, 10_000_000, 0.7
# the paper's tuples; without the payload, which is not carried where results are only counted
TUPLE_BYTES, BARE_BYTES = 64, 24
THETA_BYTES, BLOCK_BYTES, LOAD_BUFFER_BYTES = 1_500_000, 4096, 1_000_000
EPOCH_S, REORGANIZATION_S = 2.0, 20.0
REAL_MEMORY = "1 GB"


@dataclass(frozen=True)
class Scale:
    """What becomes of the paper's setting on one side. rate, epoch: so many times the paper's · window_s .. measured_s:
    of the run · sizes: of tuples, blocks and theta, so many times the paper's · node: of a core, that a slave has;
    None: all of it."""

    rate: float
    epoch: float
    window_s: float
    warmup_s: float
    measured_s: float
    sizes: float = 1.0
    node: float | None = None


SCALES = {
    SIMULATED: Scale(rate=1, epoch=1, window_s=600, warmup_s=600, measured_s=600),
    REAL: Scale(rate=100, epoch=0.1, window_s=6, warmup_s=7, measured_s=6, sizes=BARE_BYTES / TUPLE_BYTES, node=0.25),
}
QUICK_SCALES = {
    SIMULATED: replace(SCALES[SIMULATED], window_s=60, warmup_s=60, measured_s=40),
    REAL: replace(SCALES[REAL], window_s=2, warmup_s=2, measured_s=2),
}


@dataclass(frozen=True)
class Point:
    """rate: tuples per second and stream, epoch_s: t_d; both as in the paper · adaptive: the degree of declustering
    follows the load, from one slave to all of them · ordered: slaves are served one after the other, as in the paper ·
    subgroups: n_g."""

    side: str
    slaves: int = 4
    rate: float = 1500
    tuned: bool = True
    epoch_s: float = EPOCH_S
    adaptive: bool = False
    ordered: bool = False
    subgroups: int = 1

    @property
    def words(self) -> str:
        tuned = "" if self.tuned else ", without tuning"
        others = ", adaptive" * self.adaptive + ", ordered" * self.ordered
        others += f", {self.subgroups} sub-groups" * (self.subgroups > 1)
        return f"{self.side}: {self.slaves} slaves, {self.rate:g}/s, t_d {self.epoch_s:g} s{tuned}{others}"


def job_values(point: Point, scale: Scale) -> dict[str, Any]:
    """The job's sections, without where the run leaves its files."""
    stream = {
        "kind": "synthetic",
        "rate": point.rate * scale.rate,
        "bias": BIAS,
        "domain": DOMAIN,
        "duration": f"{scale.warmup_s + scale.measured_s:g} s",
        "window": f"{scale.window_s:g} s",
    }
    job = {
        "left": {**stream, "seed": 1},
        "right": {**stream, "seed": 2},
        "cluster": {
            "partitions": PARTITIONS,
            "distribution_epoch": f"{1e3 * point.epoch_s * scale.epoch:g} ms",
            "reorganization_epoch": f"{REORGANIZATION_S * scale.epoch:g} s",
        },
        "tuning": {
            "theta": f"{THETA_BYTES * scale.sizes:.0f} B" if point.tuned else "off",
            "block": f"{BLOCK_BYTES * scale.sizes:.0f} B",
        },
        "balance": {
            "policy": "threshold",
            "load_buffer": f"{LOAD_BUFFER_BYTES * scale.sizes * scale.rate * scale.epoch:.0f} B",
        },
        "run": {"speed": 1, "warmup": f"{scale.warmup_s:g} s"},
    }
    if point.adaptive:
        job["cluster"]["slaves_min"] = 1
    if point.ordered:
        job["cluster"] |= {"exchange": "ordered", "subgroups": point.subgroups}
    if point.side == SIMULATED:
        for name in ("left", "right"):
            job[name]["payload_bytes"] = TUPLE_BYTES - BARE_BYTES
        return {**job, "output": {"results": "parquet"}}  # so that the payload is carried; the model writes none
    job["memory"] = {"limit": REAL_MEMORY}
    job["inject"] = {"slow": {str(slave): scale.node for slave in range(1, point.slaves + 1)}}
    return {**job, "output": {"results": "count"}}


def key_of(point: Point, scale: Scale, costs_text: str) -> str:
    """16 hex digits over all that decides what a point will be."""
    costs = costs_text if point.side == SIMULATED else ""
    text = json.dumps([point.side, point.slaves, job_values(point, scale), asdict(scale), costs], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
