"""Which plan joins three streams fastest, and how close does plan = "auto" come to it?

    python scripts/bench_plans.py [--tuples 4000000] [--rounds 3]

There are three inputs, and another plan wins on each. In "alike" all streams have the same keys. In "a b seldom" the
keys of a and b are hardly ever equal, but both have many partners in c, and in "b c seldom" it is those of b and c. All
runs count, on two cores, and take turns: m-way, each tree, and "auto", which begins m-way on both slaves. Numbers of
results and certificates must be equal. The time is the system's own, from the first file opened to the answer. The
rest of a run is what it takes for the tuples that come after the first change of "auto", and is compared with the same
tuples' time by the best plan.
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
WANTED = 1.1  # after its first change, "auto" may take so many times as long as the best plan

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


class Course(NamedTuple):
    """How a slave got on. came: after each epoch, how many tuples it had joined · end_s: when that was."""

    came: np.ndarray
    end_s: np.ndarray

    def at(self, tuples: int) -> float:
        """When it had joined so many tuples."""
        return float(np.interp(tuples, self.came, self.end_s))


def run(streams: dict[str, dict[str, str]], plan: str, out: Path) -> tuple[dict[str, Any], dict[str, Course]]:
    output = {"results": "count", "path": str(out)}
    job = {"streams": streams, "join": {"plan": plan}, "output": output}
    summary = mpijoin.run(job, slaves=2, overwrite=True).summary
    return summary, {slave: course_of(out, slave) for slave in summary["per_slave"]}


def course_of(out: Path, slave: str) -> Course:
    rows = pq.read_table(out / "metrics" / f"rank-{slave}.parquet").sort_by("end_us")
    came = sum(rows[f"tuples_{name}"].to_numpy() for name in NAMES)
    return Course(np.append(0, np.cumsum(came)), np.append(0, rows["end_us"].to_numpy()) / 1e6)


def rest_s(courses: dict[str, Course], changed: dict[str, int]) -> float:
    """The time from where all slaves have had so many tuples, to the end."""
    begun = max(courses[slave].at(tuples) for slave, tuples in changed.items())
    return max(course.end_s[-1] for course in courses.values()) - begun


def measure(home: Path, each: Input, tuples: int, rounds: int) -> dict[str, Any]:
    """Returns the times of each plan, in all and after the first change of "auto", and what that followed."""
    streams = make_streams(home, each, tuples)
    times: dict[str, list[float]] = {plan: [] for plan in (*PLANS, AUTO)}
    rests: dict[str, list[float]] = {plan: [] for plan in (*PLANS, AUTO)}
    answers, followed = set(), {}
    for _ in range(rounds):
        # What "auto" does says where its first change is.
        summary, own = run(streams, AUTO, home / "plans-run")
        followed = summary["plans"]
        changed = {slave: plans[1]["tuples"] for slave, plans in followed.items() if len(plans) > 1}
        found = {AUTO: (summary, own)} | {plan: run(streams, plan, home / "plans-run") for plan in PLANS}
        for plan, (summary, courses) in found.items():
            times[plan].append(summary["wall_s"])
            if changed:
                rests[plan].append(rest_s(courses, changed))
            answers.add((summary["results"], summary["certificate"]))
    if len(answers) != 1:
        raise SystemExit(f"{each.name}: plans differ in their results: {sorted(answers)}")
    return {"results": answers.pop()[0], "times_s": times, "rests_s": rests, "followed": followed}


def text_of(found: dict[str, dict[str, Any]]) -> str:
    titles = "".join(f"{plan:>12}" for plan in (*PLANS, AUTO))
    lines = [f"{'':<12}{'results':>13}{titles}   auto : best   the rest"]
    for each in inputs(1):
        one = found[each.name]
        best = {plan: min(times) for plan, times in one["times_s"].items()}
        winner = min(PLANS, key=best.__getitem__)
        ratio = rest = best[AUTO] / best[winner]
        if one["rests_s"][AUTO]:
            rest = min(one["rests_s"][AUTO]) / min(one["rests_s"][winner])
        met = "met" if rest <= WANTED and winner == each.winner else "MISSED"
        lines.append(f"{each.name:<12}{one['results']:>13,}" + "".join(f"{own:>12.3f}" for own in best.values()))
        lines[-1] += f"{ratio:>15.2f}{rest:>11.2f}   {met}: wanted {each.winner} best, and the rest <= {WANTED}"
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
