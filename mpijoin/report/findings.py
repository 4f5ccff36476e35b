"""What a reader wants to know first: the numbers of a run, and whether anything about it asks for a second look."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mpijoin.config.job import ROTATE
from mpijoin.config.units import plural, rounded_duration
from mpijoin.named import NamedTuple
from mpijoin.report import series
from mpijoin.report.runs import DONE, STOPPED, UNFINISHED, RunData
from mpijoin.report.words import amount, bytes_amount, seconds

GOOD, LOOK, BAD = "good", "look", "bad"

# A run is uneven if the CPU share of the busiest slave, divided by the mean, is above this. The limit lies beyond the
# 5 % of noise and the weight of one group of sixty.
UNEVEN = 1.25
# These are shares of the slaves' time. If they idle more than the first, fewer slaves would do. If they idle less than
# the second, more would help, unless the slaves have no core for more than the third.
HUNGRY_IDLE, FULL_IDLE, CROWDED = 0.5, 0.05, 0.25


class Verdict(NamedTuple):
    """A sentence that judges one aspect of a run. level: GOOD, LOOK or BAD."""

    level: str
    text: str


class Headline(NamedTuple):
    value: str
    name: str


def headlines(run: RunData) -> list[Headline]:
    """Returns the large numbers at the top. Without a summary they come from the metrics."""
    summary = run.summary
    if not summary and not run.slaves:
        return []
    if not summary:
        slaves = run.of_role("slave")
        tuples = int(sum(slaves[f"tuples_{name}"].sum() for name in run.streams))
        return [
            Headline(amount(slaves["results"].sum()), "results so far"),
            Headline(amount(tuples), "tuples joined so far"),
        ]
    found = [
        Headline(amount(summary["results"]), "results"),
        Headline(amount(summary["tuples_per_s"]), "tuples/s"),
        Headline(seconds(summary["wall_s"]), "simulated time" if run.is_simulated else "wall time"),
        Headline(str(summary["slaves"]), "slave" if summary["slaves"] == 1 else "slaves"),
    ]
    if summary["delay_s"]:
        found += [Headline(seconds(summary["delay_s"][name]), f"delay, {text}") for name, text in DELAYS.items()]
    if (summary.get("checkpoints") or {}).get("restarts"):
        found.append(Headline(str(summary["checkpoints"]["restarts"]), "restarts"))
    if (memory := summary.get("memory") or {}).get("spills"):
        found.append(Headline(bytes_amount(memory["spilled_bytes"]), f"spilled, {plural(memory['spills'], 'time')}"))
        if run.job.memory.spill != ROTATE:  # It joins as it reads back, and nothing is left to clean up.
            found.append(Headline(seconds(memory["cleanup_s"]), "clean-up"))
    if summary["moves"]:
        moved = f"groups moved by {summary['move_kind']}, {bytes_amount(summary['moved_bytes'])}"
        found.append(Headline(amount(summary["moves"]), moved))
    if shared := summary.get("shared"):
        most = max(one["slaves"] for one in shared)
        found.append(Headline(str(len(shared)), f"partitions shared, by up to {most} slaves"))
    return found


DELAYS = {"mean": "mean", "p99": "99th percentile"}


def verdicts(run: RunData) -> list[Verdict]:
    """Returns a sentence each on the outcome, overload, late rows, memory, balance and the use of the slaves."""
    found = [_outcome(run), *_overload(run), *_late(run), *_memory(run), *_checkpoints(run)]
    if run.slaves:
        found += [*_balance(run), *_use(run)]
    return found


def busiest(run: RunData) -> tuple[int, float]:
    """Returns the slave with the largest share of CPU, and this share divided by the mean.

    The mean is that of all slaves that joined anything.
    """
    table, joined = series.shares_by_slave(run), _joined(run)
    if not table["cpu"][joined].sum():
        return run.slaves[0], 1.0
    shares = np.where(joined, table["cpu"], 0.0)
    return int(table["slave"][shares.argmax()]), float(shares.max() / shares[joined].mean())


def _joined(run: RunData) -> np.ndarray:
    """Returns bool[slaves]: which slaves ever had a group, as their comparisons show."""
    return np.array([bool(run.of_rank(slave)["comparisons"].any()) for slave in run.slaves])


def _outcome(run: RunData) -> Verdict:
    if run.state == DONE:
        answer = "simulated, without an answer" if run.is_simulated else f"certificate {run.summary['certificate']}"
        return Verdict(GOOD, f"Done: the ledger balances, {answer}.")
    go_on = f" To go on: {run.go_on}" if run.go_on else ""
    reason = run.reason.rstrip(".")
    if run.state == STOPPED:
        return Verdict(LOOK, f"{reason[:1].upper()}{reason[1:]}, as it was asked to.{go_on}")
    if run.state == UNFINISHED:
        saved = (
            " It left a checkpoint: the command that started it goes on with --resume." if _has_checkpoint(run) else ""
        )
        return Verdict(BAD, f"Unfinished: {reason}.{saved}")
    return Verdict(BAD, f"Failed: {reason}.{go_on}")


def _has_checkpoint(run: RunData) -> bool:
    folder = Path(run.job.checkpoint.path) if run.job.checkpoint.path else run.path / "checkpoint"
    return any(folder.glob("*.json"))


def _overload(run: RunData) -> list[Verdict]:
    overload = run.summary.get("overload")
    if overload is None:
        times = run.summary.get("held_back_by")
        if not times:
            return []
        slowest = max(times, key=times.get)
        paused = f"Reading had to pause {plural(times[slowest], 'time')}"
        return [Verdict(LOOK, f"{paused} for slave {slowest}, which joined more slowly.")]
    behind = f"slave {overload['slowest_slave']} was up to {seconds(overload['behind_s_max'])} behind the clock"
    if overload["overloaded"]:
        end = seconds(overload["behind_s_end"])
        return [
            Verdict(BAD, f"Overloaded: {behind} (at the end {end}), the master up to {seconds(overload['lag_s_max'])}.")
        ]
    return [Verdict(GOOD, f"Not overloaded: {behind}, with epochs of {seconds(overload['epoch_s'])}.")]


def _late(run: RunData) -> list[Verdict]:
    if run.state != DONE:
        return []
    unit = run.summary["time_unit"]
    counts = run.summary["streams"]
    texts = [
        f"{one['late']:,} late rows of {name} did not join"
        + (
            f" (a lateness of {rounded_duration(one['lateness_needed'], unit)} covers them)"
            if one["lateness_needed"]
            else ""
        )
        for name, one in counts.items()
        if one["late"]
    ]
    return [Verdict(LOOK, "; ".join(texts) + ".")] if texts else [Verdict(GOOD, "No row came too late.")]


def _memory(run: RunData) -> list[Verdict]:
    memory = run.summary.get("memory") or {}
    if not memory.get("spills"):
        return []
    told = f"The state did not fit into {bytes_amount(memory['limit_bytes'])} at a slave: spilling took"
    told += f" {seconds(memory['spill_s'])}"
    if run.job.memory.spill == ROTATE:
        return [Verdict(LOOK, f"{told}, and {bytes_amount(memory['read_back_bytes'])} were read back to be joined.")]
    cleaned = f"{amount(memory['cleanup_results'])} results came from the clean-up only"
    return [Verdict(LOOK, f"{told} and clean-up {seconds(memory['cleanup_s'])}, and {cleaned}.")]


def _checkpoints(run: RunData) -> list[Verdict]:
    saved = run.summary.get("checkpoints") or {}
    if not saved.get("failed"):
        return []
    of_all = plural(saved["failed"] + saved["written"], "checkpoint")
    return [Verdict(BAD, f"{saved['failed']:,} of {of_all} could not be written; the log says why.")]


def _balance(run: RunData) -> list[Verdict]:
    if len(run.slaves) < 2:
        return []
    slave, excess = busiest(run)
    text = f"slave {slave} used {excess:.2f} times the CPU time that slaves used in the mean"
    if excess > UNEVEN:
        return [Verdict(LOOK, f"Uneven: {text}.")]
    return [Verdict(GOOD, f"Balanced: the busiest, {text}.")]


def _use(run: RunData) -> list[Verdict]:
    joined = _joined(run)
    if not joined.any():
        return []
    shares = series.shares_by_slave(run)
    idle, other = (float(shares[name][joined].mean()) for name in ("idle", "other"))
    if idle > HUNGRY_IDLE and (run.summary.get("overload") or {}).get("overloaded"):
        return [Verdict(LOOK, f"Slaves with groups were idle for {idle:.0%} of their time: the load was uneven.")]
    if idle > HUNGRY_IDLE:
        return [Verdict(GOOD, f"Slaves with groups were idle for {idle:.0%} of their time: fewer of them would do.")]
    if idle < FULL_IDLE and other > CROWDED and not run.job.inject.slow:
        text = f"Slaves with groups had work, but no core, for {other:.0%} of their time: more cores would help."
        return [Verdict(LOOK, text)]
    if idle < FULL_IDLE:
        text = f"Slaves with groups were idle for only {idle:.0%} of their time: more of them would help."
        return [Verdict(LOOK, text)]
    return []
