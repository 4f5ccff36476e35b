"""DCAPE's own comparisons (section 5), small: what local plans and moves of groups bring, alone and together.

    python scripts/dcape_experiments.py                           simulated, about five minutes
    python scripts/dcape_experiments.py --only plans --how real   one of them under mpirun, about two minutes

Three streams are joined by one key. The fixed plan joins "streams A with B then C"; with LM (local optimization, plan =
"auto") slaves choose for themselves. Half of the tuples belong to the first of five slaves. Where groups move, policy
"balance" decides which, and they move by each kind of moves that there is (`[balance] move`).

plans (figures 7, 8)    LM, moves, both or neither, while "the input rates of B and C" fall to 5 % "at the 30th second":
                        results so far, and tuples in the system (that wait, or are in windows), at some moments.
windows (figures 9-12)  Moves with the fixed plan at three rates and four windows: results as a part of those without
                        moves, and how long it takes to move a group.
falling (figure 13)     As the first one, but the policy is asked for the first time just after the rates fall.
dear (section 5.3)      As this one, but "the cost for state moving and recomputation is high": a byte of state takes as
                        long as two comparisons, at either slave. Only simulated.
meeting (section 1.2)   "Significant fluctuations in selectivities": at first A and B hardly ever have equal keys. C
                        loses those of B at the 30th second, and A gets them a window later: another tree is best then.
                        Only under mpirun, as slaves decide about plans after many more tuples than the paper has.

All settings get the same rows at the same pace. Results count that are found before the input ends; all answers must be
equal in the end. A simulated run joins real tuples in virtual time, with the paper's rates and seconds. Slaves compare
slowly there, so that the first one falls behind. Under mpirun ten seconds of the paper are one, rates are two thousand
times as high, and slaves have a small part of a core, which they get back for what is left when the input has ended.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benching.launch import launch
from mpijoin.config.check import resolve
from mpijoin.config.load import load_job
from mpijoin.config.moves import MOVES
from mpijoin.partitioning.hashing import hash_keys
from mpijoin.report.bins import so_far
from mpijoin.report.runs import load_run
from mpijoin.simulate.cluster import Manner, simulate
from mpijoin.simulate.costs import load_costs
from peers.tables import aligned

SLAVES, PARTITIONS, NAMES = 5, 120, "abc"
# Partitions are dealt out to the slaves in turn. Half of those in use belong to the first, an eighth to each other one.
USED = tuple(one for one in range(PARTITIONS) if one % SLAVES == 0 or one // SLAVES < PARTITIONS // SLAVES // 4)
SELDOM = 0.0002  # how often a tuple meets one of another stream where it seldom does
FIXED, AUTO = "((a b) c)", "auto"
FALLS_S, FALLEN = 30.0, 0.05
EPOCH_S, REORGANIZATION_S = 2.0, 10.0
NEVER = 1e9
JOB = """\
[cluster]
partitions = {partitions}
distribution_epoch = "{epoch_us} us"
reorganization_epoch = "{reorganization_us} us"
[memory]
limit = "2 GB"
[tuning]
block = "512 B"
[run]
speed = 1
[output]
results = "count"
"""
STREAM = """\
[streams.{name}]
path = {path}
time = "ts"
time_unit = "us"
key = "key"
window = "{window_us} us"
"""


class Scale(NamedTuple):
    """quicker: how many seconds of the paper are one · tuples: for one of the paper's in each second."""

    how: str
    quicker: float = 1.0
    tuples: int = 1

    @property
    def counted(self) -> float:
        """How many tuples stand for one of the paper's."""
        return self.tuples / self.quicker

    def us(self, seconds: float) -> int:
        """Seconds of the paper in microseconds of a run."""
        return round(1e6 * seconds / self.quicker)


SIMULATED, REAL = Scale("simulated"), Scale("real", 10.0, 2000)


class Experiment(NamedTuple):
    """Times are seconds of the paper. rates: of each stream · falls_s: when those of B and C fall · first_look_s: when
    the policy is asked for the first time, and how long it is until the next times · moments_s: when results are
    counted, the last of which is the end · comparison_us: what a simulated slave takes to compare two tuples · share:
    of its speed, at which a real slave joins · keys: how many there are · meets: whether all streams have all of them;
    otherwise B seldom meets A, and later C · state_byte_us: what a simulated slave takes to read out or install a byte
    of state; None: what this machine takes."""

    rates: tuple[float, ...]
    windows_s: tuple[float, ...]
    falls_s: float
    first_look_s: float
    moments_s: tuple[float, ...]
    comparison_us: float
    share: float
    keys: int = 600  # With 100 tuples/s and a window of 30 s, a tuple has five partners in each other stream.
    meets: bool = True
    state_byte_us: float | None = None

    @property
    def loads(self) -> list[tuple[float, float]]:
        return [(rate, window_s) for rate in self.rates for window_s in self.windows_s]

    @property
    def seconds(self) -> float:
        return self.moments_s[-1]


MOMENTS_S = (18.0, 36.0, 54.0, 72.0, 90.0)
EXPERIMENTS = {
    "plans": Experiment((100.0,), (30.0,), FALLS_S, REORGANIZATION_S, MOMENTS_S, 300.0, 0.08),
    "windows": Experiment((30.0, 40.0, 50.0), (15.0, 30.0, 45.0, 60.0), NEVER, REORGANIZATION_S, (120.0,), 200.0, 0.08),
    "falling": Experiment((100.0,), (30.0,), FALLS_S, FALLS_S + EPOCH_S, MOMENTS_S, 300.0, 0.08),
    "dear": Experiment(
        (100.0,), (30.0,), FALLS_S, FALLS_S + EPOCH_S, MOMENTS_S, 200.0, 0.08, state_byte_us=400.0
    ),
    "meeting": Experiment(
        (100.0,), (30.0,), NEVER, REORGANIZATION_S, (30.0, 60.0, 75.0, 90.0, 105.0, 120.0), 0.0, 0.2, 94, meets=False
    ),
}


class Setting(NamedTuple):
    """move: the kind of moves; "": nothing moves."""

    name: str
    plan: str
    move: str

    @property
    def values(self) -> tuple[str, ...]:
        moving = ('balance.policy="balance"', f'balance.move="{self.move}"') if self.move else ()
        return (f'join.plan="{self.plan}"', *moving)


def settings_of(experiment: str) -> list[Setting]:
    moves = [Setting(move, FIXED, move) for move in MOVES]
    if experiment == "windows":
        return [Setting("no-adapt", FIXED, ""), *moves]
    both = [Setting(f"LM, {move}", AUTO, move) for move in MOVES]
    return [Setting("no-adapt", FIXED, ""), Setting("LM", AUTO, ""), *moves, *both]


class Found(NamedTuple):
    """What came of some runs of one setting, in the mean, in tuples and seconds of the paper. results, in_system: at
    each moment · whole: all results."""

    experiment: str
    how: str
    rate: float
    window_s: float
    setting: str
    results: list[float]
    in_system: list[float]
    whole: float
    moves: float
    move_s: float


class Inputs(NamedTuple):
    """Streams that lie in files. arrivals_us: of all their tuples, in order."""

    job: Path
    arrivals_us: np.ndarray
    experiment: Experiment
    scale: Scale


def make_inputs(experiment: Experiment, rate: float, window_s: float, scale: Scale, seed: int, home: Path) -> Inputs:
    keys = keys_by_partition(round(experiment.keys * scale.counted))
    text = JOB.format(
        partitions=PARTITIONS, epoch_us=scale.us(EPOCH_S), reorganization_us=scale.us(experiment.first_look_s)
    )
    arrivals = []
    for number, name in enumerate(NAMES):
        chance = np.random.default_rng([seed, number])
        fallen = FALLEN if number else 1.0
        times = times_of(experiment, rate * scale.tuples / scale.quicker, fallen, scale, chance)
        places = places_of(
            experiment, number, times < scale.us(FALLS_S + (0 if number else window_s)), keys.shape[1], chance
        )
        own = keys[chance.integers(0, len(keys), len(times)), places]
        path = home / f"{name}.parquet"
        pq.write_table(pa.table({"ts": times, "key": own}), path, row_group_size=20_000)
        arrivals.append(times)
        text += STREAM.format(name=name, path=json.dumps(str(path)), window_us=scale.us(window_s))
    job = home / "job.toml"
    job.write_text(text)
    return Inputs(job, np.sort(np.concatenate(arrivals)), experiment, scale)


def times_of(
    experiment: Experiment, rate: float, fallen: float, scale: Scale, chance: np.random.Generator
) -> np.ndarray:
    """Returns the moments of a stream's tuples, int64[n]: "arrival patterns modeled as the widely adopted Poisson
    process" (section 5.1). rate: in tuples per second of the paper · fallen: the part of it that is left later."""
    falls_s = min(experiment.falls_s, experiment.seconds)
    found = [
        chance.uniform(start_s, end_s, chance.poisson(rate * share * (end_s - start_s)))
        for start_s, end_s, share in ((0.0, falls_s, 1.0), (falls_s, experiment.seconds, fallen))
    ]
    return np.sort(np.concatenate(found) * 1e6 / scale.quicker).astype(np.int64)


def places_of(
    experiment: Experiment, stream: int, is_early: np.ndarray, count: int, chance: np.random.Generator
) -> np.ndarray:
    """Returns which of its partition's keys each tuple has, int64[n]. is_early: bool[n], whether the stream still has
    the keys that it has at first."""
    places = chance.integers(0, count, len(is_early))
    if experiment.meets:
        return places
    # B has the upper half of the keys. The lower one is what A has early, and C late; else they have all.
    half, chosen = count // 2, chance.random(len(is_early)) >= SELDOM
    if stream == 1:
        return np.where(chosen, half + places // 2, places)
    return np.where(is_early == (stream == 0), places // 2, places)


def keys_by_partition(count: int) -> np.ndarray:
    """Returns int64[partitions in use, n]: their keys, `count` in all."""
    each = max(1, count // len(USED))
    keys = np.arange(4 * PARTITIONS * (each + 8), dtype=np.int64)
    found = ((hash_keys(keys) >> np.uint64(32)) * np.uint64(PARTITIONS) >> np.uint64(32)).astype(np.int64)
    return np.stack([keys[found == one][:each] for one in USED])


def run(inputs: Inputs, setting: Setting, folder: Path, cores: Sequence[int]) -> Mapping[str, Any]:
    """Makes a run in a folder. Returns its summary."""
    if inputs.scale.how == SIMULATED.how:
        job = load_job(inputs.job, [*setting.values, f"output.path={json.dumps(str(folder))}"])
        costs = replace(load_costs("this_machine"), comparison_ns=1e3 * inputs.experiment.comparison_us)
        if inputs.experiment.state_byte_us is not None:
            costs = replace(costs, state_byte_ns=1e3 * inputs.experiment.state_byte_us)
        return simulate(job, resolve(job), SLAVES, Manner(costs, modelled=False), overwrite=True).summary
    return launch(inputs.job, folder, SLAVES + 1, cores, [*setting.values, slowed(inputs)]).summary


def slowed(inputs: Inputs) -> str:
    """Returns the setting that makes every slave slow until the input ends."""
    share, end_us = inputs.experiment.share, inputs.scale.us(inputs.experiment.seconds)
    slow = (f'{{rank = {slave}, share = {share}, to = "{end_us} us"}}' for slave in range(1, SLAVES + 1))
    return f"inject.slow=[{', '.join(slow)}]"


class Measured(NamedTuple):
    """What came of one run, as of `Found`."""

    results: np.ndarray
    in_system: np.ndarray
    whole: float
    moves: float
    move_s: float
    certificate: str


def measured(inputs: Inputs, summary: Mapping[str, Any], folder: Path) -> Measured:
    scale, data = inputs.scale, load_run(folder, folder.name)
    edges_us = np.array([0, *(scale.us(one) for one in inputs.experiment.moments_s)])
    results, expired = (
        np.sum([so_far(edges_us, data.of_rank(slave), name)[1:] for slave in data.slaves], axis=0)
        for name in ("results", "expired")
    )
    arrived = np.searchsorted(inputs.arrivals_us, edges_us[1:])
    figures = (summary["results"] / scale.counted, summary["moves"], summary["move_s_mean"] * scale.quicker)
    return Measured(results / scale.counted, (arrived - expired) / scale.counted, *figures, summary["certificate"])


def compare(name: str, scale: Scale, rate: float, window_s: float, rounds: int, cores: Sequence[int]) -> list[Found]:
    """Runs all settings of an experiment with one load, in turns, each time with other rows."""
    every: dict[str, list[Measured]] = {one.name: [] for one in settings_of(name)}
    for seed in range(rounds):
        with tempfile.TemporaryDirectory() as home:
            inputs = make_inputs(EXPERIMENTS[name], rate, window_s, scale, seed, Path(home))
            for setting in settings_of(name):
                summary = run(inputs, setting, Path(home) / "run", cores)
                every[setting.name].append(measured(inputs, summary, Path(home) / "run"))
        if len({own[-1].certificate for own in every.values()}) != 1:
            raise SystemExit(f"{name}: settings differ in their answers: {every}")
    print(f"{name}, {scale.how}: {rate:g} tuples/s, window {window_s:g} s", file=sys.stderr, flush=True)
    return [found_of(setting, own, name, scale.how, rate, window_s) for setting, own in every.items()]


def found_of(setting: str, own: Sequence[Measured], *case: Any) -> Found:
    lists = [np.mean([getattr(one, name) for one in own], axis=0).tolist() for name in ("results", "in_system")]
    numbers = [float(np.mean([getattr(one, name) for one in own])) for name in ("whole", "moves", "move_s")]
    return Found(*case, setting, *lists, *numbers)


def table_of(found: Sequence[Found]) -> list[list[str]]:
    """Returns a row for each setting: results so far, and tuples in the system, at each moment."""
    first = found[0]
    moments = [f"{one:g} s" for one in EXPERIMENTS[first.experiment].moments_s]
    table = [
        [f"{first.experiment}, {first.how}", *moments, "of no-adapt", "in system:", *moments, "moves", "each took"]
    ]
    for one in found:
        shares = [f"{results / one.whole:.0%}" for results in one.results]
        ratio = f"{one.results[-1] / max(1.0, first.results[-1]):.2f}"
        system = [f"{tuples / 1e3:.1f} k" for tuples in one.in_system]
        table.append([one.setting, *shares, ratio, "", *system, *moved(one)])
    return table


def ratios_of(found: Sequence[Found]) -> list[list[str]]:
    """Returns a row for each load: the results of each kind of moves as a part of those without moves, and how long a
    move took."""
    table = [
        [
            f"{found[0].experiment}, {found[0].how}",
            "window",
            "no-adapt",
            *(f"{move}: ratio, moves, each" for move in MOVES),
        ]
    ]
    for base in (one for one in found if one.setting == "no-adapt"):
        row = [f"{base.rate:g} tuples/s", f"{base.window_s:g} s", f"{base.results[-1] / base.whole:.0%}"]
        for one in found:
            if one.setting in MOVES and (one.rate, one.window_s) == (base.rate, base.window_s):
                row.append(", ".join([f"{one.results[-1] / max(1.0, base.results[-1]):.2f}", *moved(one)]))
        table.append(row)
    return table


def moved(one: Found) -> list[str]:
    return [f"{one.moves:.0f}", f"{one.move_s:.1f} s" if one.moves else "-"]


def warm_up(cores: Sequence[int]) -> None:
    """Short runs, which compile what is not compiled yet. A slow slave would take long for that."""
    experiment = EXPERIMENTS["plans"]._replace(moments_s=(5.0,), share=1.0)
    with tempfile.TemporaryDirectory() as home:
        inputs = make_inputs(experiment, 10.0, 5.0, REAL, 0, Path(home))
        for plan in (FIXED, AUTO):
            run(inputs, Setting("", plan, MOVES[-1]), Path(home) / "run", cores)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=list(EXPERIMENTS), choices=list(EXPERIMENTS))
    parser.add_argument("--how", choices=[SIMULATED.how, REAL.how], default=SIMULATED.how)
    parser.add_argument("--rounds", type=int, default=1, help="each with other rows")
    parser.add_argument("--quick", action="store_true", help="only the least and the greatest load")
    parser.add_argument("--cores", type=int, nargs="+", default=[0, 1])
    parser.add_argument("-o", "--output", help="where to write the figures as JSON")
    arguments = parser.parse_args()
    scale = SIMULATED if arguments.how == SIMULATED.how else REAL
    if scale is REAL:
        warm_up(arguments.cores)
    every = []
    for name in arguments.only:
        experiment, found = EXPERIMENTS[name], []
        if not (experiment.comparison_us if scale is SIMULATED else experiment.state_byte_us is None):
            continue
        for load in (experiment.loads[0], experiment.loads[-1]) if arguments.quick else experiment.loads:
            found += compare(name, scale, *load, arguments.rounds, arguments.cores)
        print(aligned(ratios_of(found) if name == "windows" else table_of(found)), flush=True)
        every += found
    if arguments.output:
        Path(arguments.output).write_text(json.dumps([one._asdict() for one in every], indent=1) + "\n")


if __name__ == "__main__":
    main()
