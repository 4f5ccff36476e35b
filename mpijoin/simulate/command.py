"""`mpijoin simulate`: it runs a job on simulated slaves, with the messages and the exit codes of a real run."""

from __future__ import annotations

from typing import Callable, Sequence

from mpijoin.config.check import load_and_resolve
from mpijoin.config.units import duration_ns
from mpijoin.errors import EXIT_DONE, JobError
from mpijoin.launch.summary import summary_text
from mpijoin.progress import Progress, ProgressView
from mpijoin.simulate.cluster import Manner, simulate
from mpijoin.simulate.costs import load_costs
from mpijoin.transport.simulated import Disturbance

SLAVES_MAX = 65535  # No job has more partitions, so no more slaves could have any.
STALL_SHARE = 20  # Stalls of a mean length L come every 20 L in the mean.


class Unlimited(Progress):
    """The display of slaves that have enough memory for any state."""

    def update(self, make_view: Callable[[], ProgressView]) -> None:
        super().update(lambda: make_view()._replace(limit_bytes=0))


def main_simulate(
    job_path: str,
    overrides: Sequence[str],
    slaves: int,
    costs: str,
    overwrite: bool,
    delays: str,
    stalls: str,
    quiet: bool = False,
) -> int:
    """Simulates the job and prints what happened. Returns the exit code. delays, stalls: durations as text."""
    if slaves > SLAVES_MAX:
        raise JobError([f"--slaves: got {slaves}, wanted at most {SLAVES_MAX}: no job has more partitions"])
    job, schema = load_and_resolve(job_path, overrides)
    manner = Manner(load_costs(costs), disturbance=disturbance(job.run.seed, delays, stalls))
    progress = Progress(quiet=quiet) if job.memory.limit_bytes else Unlimited(quiet=quiet)
    try:
        outcome = simulate(job, schema, slaves, manner, overwrite, progress)
    except BaseException:
        progress.close()
        raise
    progress.close(summary_text(outcome), is_bad=outcome.exit_code != EXIT_DONE)
    return outcome.exit_code


def disturbance(seed: int, delays: str, stalls: str) -> Disturbance:
    """Makes the disturbance from options of the command line. Raises JobError, which names what is no duration."""
    lengths_s, faults = [], []
    for name, text in (("--delays", delays), ("--stalls", stalls)):
        try:
            lengths_s.append(duration_ns(text) / 1e9)
        except ValueError as error:
            faults.append(f"{name}: {error}")
    if faults:
        raise JobError(faults)
    delay_s, stall_s = lengths_s
    return Disturbance(seed, delay_s, stall_s, STALL_SHARE * stall_s)
