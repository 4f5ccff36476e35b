"""Flux's own comparisons, small: what the transient-skew buffer and the load policy bring.

    python scripts/flux_experiments.py                     simulated, about ten minutes
    python scripts/flux_experiments.py --only skew --real  one of them, simulated and under mpirun
    python scripts/flux_experiments.py --quick             all of them with few points

skew (figure 3)         A load goes round the slaves, 0.5 s on each. The producer's buffer is shared by all slaves (the
                        transient-skew buffer), or an even part of it is each slave's own queue (Exchange).
reaction (figure 7)     One slave is loaded from the first second on, without a policy and with "flux-load": the
                        throughput in each second.
degradation (figure 8)  More and more of the slaves are loaded.
collection (figure 9)   Keys are skewed, and delta_min varies; without a load, and with one on two slaves.

A load takes 57 % of a slave's time, as the paper's does. Throughput is in tuples per second of the whole run, unless
another is named, as a part of what is reached without any load and with uniform keys. Simulated slaves take 20 us for a
tuple. Real ones are slowed to a part of their speed, so that the cores are never busy and all ranks fit on them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Iterator, NamedTuple, Sequence

import numpy as np
import pyarrow.parquet as pq

from benching.launch import launch
from mpijoin.config.check import resolve
from mpijoin.config.dump import dump_job
from mpijoin.config.job import Job
from mpijoin.config.load import load_job
from mpijoin.report.style import line_style, new_figure, save_png, styled
from mpijoin.simulate.cluster import Manner, simulate
from mpijoin.simulate.costs import load_costs
from peers.tables import aligned

LEFT = 0.43  # of a slave's speed, under the paper's load, which "degrades throughput ... by about 57%"
PARTITIONS = 64
TURN_S = 0.5  # for so long the rotating load stays with a slave
TUPLE_NS = 20_000.0  # of a simulated slave
SIMULATED_SLAVES, REAL_SLAVES = 4, 4
REAL_SHARE = 0.25  # of its speed, at which a real slave runs without any load
HEAD = ("experiment", "how", "line", "x", "tuples/s", "of the unloaded", "moves")
X_LABELS = {"skew": "buffer, MB", "reaction": "second", "degradation": "loaded slaves", "collection": "delta_min, ms"}


class Case(NamedTuple):
    """One run. slow: loads, as `[inject] slow` has them · x: where it is in the figure."""

    experiment: str
    line: str
    x: float
    slow: tuple[dict[str, Any], ...] = ()
    policy: str = "none"
    buffer_bytes: int = 1 << 20
    skew_buffer: str = "shared"
    collection_min_ms: float = 250.0
    bias: float = 0.5


class Found(NamedTuple):
    case: Case
    how: str
    tuples_per_s: float
    moves: int
    per_second: list[float]


def load_on(slave: int, start_s: float = 1.0, end_s: float | None = None) -> dict[str, Any]:
    end = {} if end_s is None else {"to": f"{end_s} s"}
    return {"rank": slave, "share": LEFT, "from": f"{start_s} s", **end}


def rotating(slaves: int, seconds: float) -> tuple[dict[str, Any], ...]:
    """The load that stays half a second with each slave in turn, for so long."""
    turns = range(round(seconds / TURN_S))
    return tuple(load_on(1 + turn % slaves, turn * TURN_S, (turn + 1) * TURN_S) for turn in turns)


def cases(experiment: str, slaves: int, quick: bool) -> Iterator[Case]:
    """The unloaded run first, and then those of the experiment."""
    yield Case(experiment, "unloaded", 0.0)
    match experiment:
        case "skew":
            for megabytes in (0.12, 0.5) if quick else (0.06, 0.12, 0.25, 0.5, 1.0, 2.0):
                for kind in ("shared", "fixed"):
                    bound = int(megabytes * (1 << 20))
                    yield Case(experiment, kind, megabytes, rotating(slaves, 120), "none", bound, kind)
        case "reaction":
            for policy in ("none", "flux-load"):
                yield Case(experiment, policy, 0.0, (load_on(1),), policy)
        case "degradation":
            for loaded in (slaves // 2,) if quick else range(1, slaves + 1):
                for policy in ("none", "flux-load"):
                    yield Case(experiment, policy, loaded, tuple(map(load_on, range(1, loaded + 1))), policy)
        case "collection":
            for loads, name in (((), ""), ((load_on(1), load_on(2)), ", loaded")):
                yield Case(experiment, f"none{name}", 0.0, loads, bias=0.9)
                for least_ms in (10, 250) if quick else (10, 50, 150, 250, 500, 1000):
                    own = {"collection_min_ms": least_ms, "bias": 0.9}
                    yield Case(experiment, f"flux-load{name}", least_ms, loads, "flux-load", **own)


def job_of(case: Case, tuples: int, slow: Sequence[dict[str, Any]], output: str) -> Job:
    """tuples: of each of the two streams. Half of a producer's buffer is for what waits for slaves."""
    stream = {"kind": "synthetic", "bias": case.bias, "tuples": tuples, "rate": 25_000, "window": "1 s"}
    return load_job(
        {
            "left": {**stream, "seed": 1},
            "right": {**stream, "seed": 2},
            "cluster": {
                "partitions": PARTITIONS,
                "distribution_epoch": "50 ms",
                "reorganization_epoch": "1 s",
                "buffer": "64 KiB",
                "master_buffer": f"{2 * case.buffer_bytes} B",
                "skew_buffer": case.skew_buffer,
            },
            "balance": {"policy": case.policy, "collection_min": f"{case.collection_min_ms:g} ms"},
            "inject": {"slow": list(slow)},
            "output": {"results": "count", "path": output},
        }
    )


def simulated(case: Case, tuples: int) -> Found:
    with tempfile.TemporaryDirectory() as folder:
        job = job_of(case, tuples, case.slow, f"{folder}/run")
        costs = replace(load_costs("this_machine"), tuple_ns=TUPLE_NS)
        summary = simulate(job, resolve(job), SIMULATED_SLAVES, Manner(costs)).summary
        return found_of(case, "simulated", summary, Path(folder) / "run")


def real(case: Case, tuples: int, cores: Sequence[int]) -> Found:
    always = tuple({"rank": slave, "share": REAL_SHARE} for slave in range(1, REAL_SLAVES + 1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.toml"
        path.write_text(dump_job(job_of(case, tuples, always + case.slow, f"{folder}/run")))
        launched = launch(path, Path(folder) / "run", REAL_SLAVES + 1, cores)
        return found_of(case, "real", launched.summary, Path(folder) / "run")


def found_of(case: Case, how: str, summary: dict[str, Any], folder: Path) -> Found:
    joined = sum(stream["joined"] for stream in summary["streams"].values())
    return Found(case, how, joined / summary["wall_s"], summary["moves"], throughput(folder))


def throughput(folder: Path) -> list[float]:
    """The tuples that slaves joined in each whole second of the run."""
    ends, counts = [], []
    for path in (folder / "metrics").glob("rank-*.parquet"):
        table = pq.read_table(path, columns=["role", "end_us", "tuples_left", "tuples_right"])
        own = table.filter(np.array(table["role"].to_pylist()) == "slave")
        ends.append(own["end_us"].to_numpy() // 1_000_000)
        counts.append(own["tuples_left"].to_numpy() + own["tuples_right"].to_numpy())
    return np.bincount(np.concatenate(ends), np.concatenate(counts))[:-1].tolist()


def points(found: Sequence[Found]) -> Iterator[tuple[str, str, float, float]]:
    """Line, way, x and throughput as a part of the unloaded one: what the figure shows. For figure 7 these are seconds,
    for figure 8 the second half of a run, in which it is steady."""
    base = {one.how: one for one in found if one.case.line == "unloaded"}
    for one in found:
        unloaded = base[one.how].tuples_per_s
        if one.case.experiment == "reaction":
            yield from ((one.case.line, one.how, at, own / unloaded) for at, own in enumerate(one.per_second))
        elif one.case.line != "unloaded":
            yield one.case.line, one.how, one.case.x, rate_of(one) / unloaded


def rate_of(one: Found) -> float:
    steady = one.per_second[len(one.per_second) // 2 :]
    return float(np.mean(steady)) if one.case.experiment == "degradation" and steady else one.tuples_per_s


def row_of(one: Found, unloaded: float) -> tuple[str, ...]:
    case, rate = one.case, rate_of(one)
    part = f"{rate / unloaded:.2f}"
    return (case.experiment, one.how, case.line, f"{case.x:g}", f"{rate:,.0f}", part, str(one.moves))


def draw(experiment: str, found: Sequence[Found], path: Path) -> None:
    ways = list(dict.fromkeys(one.how for one in found))
    with styled():
        canvas, panels = new_figure(1, len(ways), 3.3, squeeze=False)
        for axes, how in zip(panels[0], ways):
            lines: dict[str, list[tuple[float, float]]] = {}
            for line, way, x, y in points(found):
                if way == how:
                    lines.setdefault(line, []).append((x, y))
            for index, (line, own) in enumerate(lines.items()):
                axes.plot(*zip(*sorted(own)), label=line, **line_style(index, 0) | {"markevery": 1})
            axes.set(title=how, xlabel=X_LABELS[experiment], ylim=(0, None))
            axes.legend()
        panels[0][0].set_ylabel("throughput, of the unloaded")
    save_png(canvas, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=list(X_LABELS), choices=list(X_LABELS))
    parser.add_argument("--real", action="store_true", help="skew also under mpirun")
    parser.add_argument("--tuples", type=int, default=5_000_000, help="of both streams together, simulated")
    parser.add_argument("--real-tuples", type=int, default=1_500_000, help="of both streams together, under mpirun")
    parser.add_argument("--quick", action="store_true", help="few points, and half of the tuples")
    parser.add_argument("--cores", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--figures", help="a folder for the figures as PNG")
    parser.add_argument("-o", "--output", help="where to write what was found as JSON")
    arguments = parser.parse_args()
    tuples, real_tuples = arguments.tuples // (4 if arguments.quick else 2), arguments.real_tuples // 2
    table, everything = [HEAD], []
    for experiment in arguments.only:
        found = []
        for case in cases(experiment, SIMULATED_SLAVES, arguments.quick):
            found.append(simulated(case, tuples))
            print(f"{experiment}, simulated: {case.line} {case.x:g}", file=sys.stderr, flush=True)
        for case in cases(experiment, REAL_SLAVES, arguments.quick) if arguments.real and experiment == "skew" else ():
            found.append(real(case, real_tuples, arguments.cores))
            print(f"{experiment}, real: {case.line} {case.x:g}", file=sys.stderr, flush=True)
        base = {one.how: one.tuples_per_s for one in found if one.case.line == "unloaded"}
        table += [row_of(one, base[one.how]) for one in found]
        everything += found
        if arguments.figures:
            draw(experiment, found, Path(arguments.figures) / f"flux-{experiment}.png")
    print(aligned(table))
    if arguments.output:
        rows = [{**one._asdict(), "case": one.case._asdict()} for one in everything]
        Path(arguments.output).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
