"""One point measured: a job simulated, or run under mpirun, and the figures of its summary."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Mapping, Sequence

from benching.launch import launch
from mpijoin.config.check import resolve
from mpijoin.config.dump import dump_job
from mpijoin.config.load import load_job
from mpijoin.simulate.cluster import Manner, simulate
from mpijoin.simulate.costs import load_costs
from wsj_figures.points import COSTS, SIMULATED, Point, Scale, job_values

CORES = 2  # of a real run, whatever the machine has


def measure(point: Point, scale: Scale) -> dict[str, float]:
    """Runs it; the figures that `figures_of` names. Raises what ends a simulated run, SystemExit for a real one."""
    with tempfile.TemporaryDirectory() as name:
        values = job_values(point, scale)
        values["output"]["path"] = f"{name}/run"
        job = load_job(values, [])
        if point.side == SIMULATED:
            summary = simulate(job, resolve(job), point.slaves, Manner(load_costs(COSTS)), overwrite=True).summary
        else:
            path = Path(name, "job.toml")
            path.write_text(dump_job(job))
            summary = launch(path, Path(name, "run"), point.slaves + 1, sorted(os.sched_getaffinity(0))[:CORES]).summary
    return figures_of(summary, scale)


def figures_of(summary: Mapping[str, Any], scale: Scale) -> dict[str, float]:
    """Of the run after its warm-up.

    delay_s, delay_p99_s: of all results, nan without any · cpu, comm, comm_min, comm_max: a slave's time joining and
    communicating, as shares of the time in which the input came (cpu is above 1 where it took longer to join) ·
    comm_sum: of all slaves · wait, wait_min ...: likewise, with the time in which messages waited for the turn of their
    slave · late, late_min ...: likewise, if each slave came as late for a message as it had been served the last time ·
    idle: as share of the time that the run took · active: mean number of slaves with groups.
    """
    slaves, delays = summary["per_slave"].values(), summary["delay_s"] or {}
    input_s, run_s = scale.measured_s, max(scale.measured_s, summary["wall_s"] - scale.warmup_s)
    comm = [slave["comm_s"] / input_s for slave in slaves]
    wait, late = (
        [own + slave[name] / input_s for own, slave in zip(comm, slaves)] for name in ("turn_s", "turn_offset_s")
    )
    return {
        **_spread("wait", wait),
        **_spread("late", late),
        "delay_s": delays.get("mean", float("nan")),
        "delay_p99_s": delays.get("p99", float("nan")),
        "cpu": sum(slave["busy_s"] for slave in slaves) / len(slaves) / input_s,
        "idle": sum(slave["idle_s"] for slave in slaves) / len(slaves) / run_s,
        **_spread("comm", comm),
        "active": summary["declustering"]["mean"],
        "behind_s": summary["overload"]["behind_s_end"],
        "moves": summary["moves"],
        "window_bytes_max": max(slave["window_bytes_max"] for slave in slaves),
    }


def _spread(name: str, shares: Sequence[float]) -> dict[str, float]:
    """The mean, least, most and sum of the slaves' shares."""
    mean, least, most = sum(shares) / len(shares), min(shares), max(shares)
    return {name: mean, f"{name}_min": least, f"{name}_max": most, f"{name}_sum": sum(shares)}
