"""Which plan joins three streams fastest, and how close does plan = "auto" come to it?

    python scripts/bench_plans.py [--tuples 4000000] [--rounds 3]

There are three inputs, and another plan wins on each. In "alike" all streams have the same keys. In "a b seldom" the
keys of a and b are hardly ever equal, but both have many partners in c, and in "b c seldom" it is those of b and c. All
runs count, on two cores, and take turns: m-way, each tree, and "auto", which begins m-way on both slaves. Numbers of
results and certificates must be equal. The time is the system's own, from the first file opened to the answer.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any, Callable, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import mpijoin

NAMES = "abc"
PLANS = ("mway", "((a b) c)", "((a c) b)", "((b c) a)")
AUTO = "auto"
SPAN_S, WINDOW_S = 1000, 60
# In "seldom", each row of the two has so many partners in the third, and so often in each other.
PARTNERS, MEETING = 32, 0.00002
WANTED = 1.1  # "auto" may take so many times as long as the best plan

Keys = Callable[[np.random.Generator, int], np.ndarray]


class Input(NamedTuple):
    """Three streams. winner: the plan that is expected to win · keys: of each stream."""

    name: str
    winner: str
    keys: tuple[Keys, Keys, Keys]


def inputs(tuples: int) -> list[Input]:
    """tuples: of each stream."""
    own = max(1, tuples * WINDOW_S // SPAN_S // PARTNERS)

    def among(low: int, high: int) -> Keys:
        return lambda random, count: random.integers(low, high, count)

    def seldom(random: np.random.Generator, count: int) -> np.ndarray:
        meets = random.random(count) < MEETING
        return np.where(meets, random.integers(0, own, count), random.integers(own, 2 * own, count))

    one, many, alike = among(0, own), among(0, 2 * own), among(0, own * PARTNERS)
    return [
        Input("alike", "mway", (alike, alike, alike)),
        Input("a b seldom", "((a b) c)", (one, seldom, many)),
        Input("b c seldom", "((b c) a)", (many, one, seldom)),
    ]


def make_streams(home: Path, each: Input, tuples: int) -> dict[str, dict[str, str]]:
    """Writes the streams, unless they are there, and returns their tables of a job."""
    folder = home / f"plans-{tuples}-{each.name.replace(' ', '-')}"
    folder.mkdir(parents=True, exist_ok=True)
    random, streams = np.random.default_rng(7), {}
    for name, keys in zip(NAMES, each.keys):
        path = folder / f"{name}.parquet"
        times = np.sort(random.integers(0, SPAN_S * 10**6, tuples))
        table = pa.table({"ts": times, "key": keys(random, tuples)})
        if not path.exists():
            pq.write_table(table, path)
        own = {"time": "ts", "time_unit": "us", "key": "key"}
        streams[name] = {**own, "window": f"{WINDOW_S} s", "path": str(path)}
    return streams


def run(streams: dict[str, dict[str, str]], plan: str) -> dict[str, Any]:
    job = {"streams": streams, "join": {"plan": plan}, "output": {"results": "count"}}
    return mpijoin.run(job, slaves=2).summary


def measure(home: Path, each: Input, tuples: int, rounds: int) -> dict[str, Any]:
    """Returns the times of each plan, and what "auto" followed."""
    streams = make_streams(home, each, tuples)
    times: dict[str, list[float]] = {plan: [] for plan in (*PLANS, AUTO)}
    answers, followed = set(), []
    for _ in range(rounds):
        for plan, own in times.items():
            summary = run(streams, plan)
            own.append(summary["wall_s"])
            answers.add((summary["results"], summary["certificate"]))
            followed = summary["plans"] if plan == AUTO else followed
    if len(answers) != 1:
        raise SystemExit(f"{each.name}: plans differ in their results: {sorted(answers)}")
    return {"results": answers.pop()[0], "times_s": times, "followed": followed}


def text_of(found: dict[str, dict[str, Any]]) -> str:
    lines = [f"{'':<12}{'results':>13}" + "".join(f"{plan:>12}" for plan in (*PLANS, AUTO)) + "   auto : best"]
    for each in inputs(1):
        one = found[each.name]
        best = {plan: min(times) for plan, times in one["times_s"].items()}
        winner = min(PLANS, key=best.__getitem__)
        ratio = best[AUTO] / best[winner]
        met = "met" if ratio <= WANTED and winner == each.winner else "MISSED"
        lines.append(f"{each.name:<12}{one['results']:>13,}" + "".join(f"{own:>12.3f}" for own in best.values()))
        lines[-1] += f"{ratio:>15.2f}   {met}: wanted {each.winner} best, and <= {WANTED}"
        for slave, plans in one["followed"].items():
            lines.append(f"    slave {slave}: " + ", ".join(f"{own['plan']} from {own['tuples']:,}" for own in plans))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tuples", type=int, default=4_000_000, help="of each stream")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--home", type=Path, default=Path("runs/bench"), help="where the data lies")
    parser.add_argument("--out", type=Path, help="write all times as JSON")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    found = {
        each.name: measure(options.home / "data", each, options.tuples, options.rounds)
        for each in inputs(options.tuples)
    }
    print(text_of(found))
    if options.out:
        options.out.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
