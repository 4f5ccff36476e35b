"""Run directories for the tests of the report. The engine's own writers write them, with made-up figures."""

from __future__ import annotations

import numpy as np

from mpijoin.config.dump import dump_job
from mpijoin.config.load import load_job
from mpijoin.metrics.delay import DelayHistogram, DelaysFile
from mpijoin.metrics.moves import MovesFile
from mpijoin.metrics.write import MetricsFile
from mpijoin.rundir import RunDirectory

SECOND = 1_000_000
EPOCHS = 6  # Each takes a second. The last one brings no rows but ends the input.
# The delays of each slave's results, which are the same in every epoch.
DELAYS_US = {1: [100_000, 300_000], 2: [200_000, 2_000_000]}
MOVE = {
    "move": 0, "period": 1, "group": 7, "supplier": 2, "consumer": 1, "kind": "mslb", "outcome": "moved",
    "bytes": 5_000_000, "blocks": 9, "begun_us": 2_000_000, "frozen_us": 2_500_000, "delivered_us": 2_750_000,
    "closed_us": 3_000_000, "transfer_us": 100_000, "gain_predicted": 0.2, "gain_realised": 0.1,
}  # fmt: skip
STREAMS = ("left", "right")
MEMORY = {
    "limit_bytes": 10_000_000, "bytes_max": 9_500_000, "spills": 0, "spilled_bytes": 0, "read_back_bytes": 0,
    "disk_bytes_max": 0, "spill_s": 0.0, "write_s": 0.0, "cleanup_s": 0.0, "cleanup_results": 0,
}  # fmt: skip


def stream(rate):
    return {"kind": "synthetic", "rate": rate, "duration": "5 s", "window": "2 s"}


def job_of(path, rate=1000, speed=1.0, more=None):
    sections = {"left": stream(rate), "right": stream(rate), "output": {"path": str(path), "results": "count"}}
    sections["run"] = {"speed": speed}
    for name, values in (more or {}).items():
        sections[name] = {**sections.get(name, {}), **values}
    return load_job(sections)


def summary_of(slaves, paced=True, **more):
    counts = {"read": 5000, "joined": 4990, "late": 0, "null_key": 0, "lateness_needed": 0}
    overload = {
        "overloaded": False,
        "behind_s_max": 0.3,
        "behind_s_end": 0.2,
        "slowest_slave": 2,
        "lag_s_max": 0.01,
        "epoch_s": 1.0,
    }
    return {
        "results": 1234, "certificate": "00000000000000ff",
        "streams": {name: dict(counts) for name in STREAMS}, "time_unit": "us",
        "slaves": slaves, "wall_s": 6.0, "tuples_per_s": 1666.7, "moves": 1, "moved_bytes": 5_000_000,
        "move_kind": "mslb", "move_s_mean": 1.0, "move_s_max": 1.0, "move_pause_s_max": 0.25,
        "held_back_by": {}, "memory": MEMORY, "last_runtime_result_s": 5.0,
        "delay_s": {"mean": 0.65, "p50": 0.25, "p95": 2.0, "p99": 2.0, "max": 2.0} if paced else None,
        "overload": overload if paced else None, "declustering": {"min": 1, "mean": 1.5, "max": 2}, **more,
    }  # fmt: skip


def make_run(
    path, rate=1000, speed=1.0, slaves=2, epochs=EPOCHS, summary=None, moves=(MOVE,), job=None, metrics=True,
    spills=False,
):  # fmt: skip
    """Makes a run. summary: what differs from `summary_of`, or None if the run is unfinished · spills: whether its
    slaves write state to the disk, as in SPILLED."""
    paced = speed != "max"
    run = RunDirectory.create(path, dump_job(job_of(path, rate, speed, job)))
    if metrics:
        write_master(run, epochs)
        for slave in range(1, slaves + 1):
            write_slave(run, slave, epochs, paced, SPILLED if spills else {})
        if moves:
            file = MovesFile(run.metrics)
            for move in moves:
                file.add(dict(move))
            file.close()
    if summary is not None:
        run.write_summary({**summary_of(slaves, paced), **summary})
    return path


def write_master(run, epochs):
    file = MetricsFile(run.metrics, 0, STREAMS)
    for epoch in range(epochs):
        file.add(
            rank=0, role="master", epoch=epoch, end_us=(epoch + 1) * SECOND, wall_us=SECOND, cpu_us=SECOND // 10,
            idle_us=9 * SECOND // 10, active=1 if epoch < 2 else 2, lag_us=1000 * epoch, buffer_bytes=10_000 * epoch,
            late=epoch,
        )  # fmt: skip
    file.close()


# What slaves have in memory, on disk and owed in epochs of a run that spills twice and cleans up in its last epoch.
LIMIT_BYTES = MEMORY["limit_bytes"]
SPILLED = {
    0: {"memory_bytes": 5_000_000},
    1: {"memory_bytes": 9_000_000},
    2: {"memory_bytes": 6_000_000, "spills": 1, "spill_us": 250_000, "spilled_bytes": 3_000_000,
        "disk_bytes": 3_000_000, "owed_groups": 4, "owed_bytes": 3_000_000},
    3: {"memory_bytes": 9_500_000, "disk_bytes": 3_000_000, "owed_groups": 4, "owed_bytes": 3_000_000},
    4: {"memory_bytes": 7_000_000, "spills": 1, "spill_us": 500_000, "spilled_bytes": 4_000_000,
        "disk_bytes": 7_000_000, "owed_groups": 6, "owed_bytes": 7_000_000},
    5: {"memory_bytes": 2_000_000, "cleanup_us": 750_000, "read_back_bytes": 7_000_000, "cleanup_results": 50,
        "results": 50},
}  # fmt: skip


def write_slave(run, slave, epochs, paced, spilled):
    """Writes epochs of one second. Slave s joins 100 s + 10 k rows of each stream in epoch k, and so on. spilled: what
    differs from that, for each epoch."""
    file, delays = MetricsFile(run.metrics, slave, STREAMS), DelaysFile(run.metrics, slave) if paced else None
    for epoch in range(epochs):
        last = epoch == epochs - 1
        rows = 0 if last else 100 * slave + 10 * epoch
        measured = {}
        if paced and not last:
            histogram = delays_of(slave)
            delays.add(epoch, (epoch + 1) * SECOND, histogram)
            own = DELAYS_US.get(slave, [100_000, 200_000])
            measured = {"delay_count": 4, "delay_sum_us": 2 * sum(own), "delay_max_us": max(own)}
        row = dict(
            rank=slave, role="slave", epoch=epoch, end_us=(epoch + 1) * SECOND, wall_us=SECOND, cpu_us=slave * 200_000,
            comm_us=100_000, idle_us=SECOND - slave * 200_000 - 100_000 - (50_000 if slave == 2 else 0),
            tuples=(rows, rows), results=3 * rows, comparisons=100 * rows, window_bytes=1000 * slave * (epoch + 1),
            occupancy_bytes=500 * slave + epoch, buffer_bytes=700 * slave + epoch, memory_limit_bytes=LIMIT_BYTES,
            **measured,
        )  # fmt: skip
        file.add(**{**row, **spilled.get(epoch, {})})
    file.close()
    if delays:
        delays.close()


def delays_of(slave):
    histogram = DelayHistogram()
    histogram.add(np.array(DELAYS_US.get(slave, [100_000, 200_000])), np.array([2, 2]))
    return histogram
