"""Measures which part of this machine's roofline each stage of the engine reaches.

    python scripts/roofline.py                     workload A (bench_data.py): some three minutes
    python scripts/roofline.py --quick             the same, small and short: is the measuring itself sound?
    python scripts/roofline.py --data DIR          data, shared with bench_engine.py, is kept in DIR

It measures how fast one pinned core can do each kind of the join's work (rooflines/machine.py), and how long the
engine's stages take in real runs (rooflines/engine.py). It counts their work, and compares the least time that the
rates allow for it with the time that it took (rooflines/model.py). It prints a table of the machine and one for each
run, and writes everything as JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path

from benching.bench import FULL_TUPLES, QUICK_TUPLES, Bench, machine
from rooflines.engine import ROWS_ONLY, Case, Work, counted, timed
from rooflines.machine import ENOUGH_S, QUICK_S, Rates, measure
from rooflines.model import WANTED, Whole, bounds, probe_bound, whole

CASES = [
    Case("Results counted, mpirun -n 2 on two cores", 2, 2),
    Case("Results counted, mpirun -n 3 on two cores", 3, 2),
    Case("Results counted, mpirun -n 2 on one core", 2, 1),
    Case("Row numbers written to Parquet, mpirun -n 2 on two cores", 2, 2, ROWS_ONLY),
]


def wholes(bench: Bench, rates: Rates, enough_s: float) -> tuple[Work, list[Whole]]:
    """Returns the engine's work, and its runs beside their bounds."""
    data = bench.data()
    work = counted(bench, data)
    least = bounds(rates, work, probe_bound(rates, work, enough_s))
    return work, [whole(run, least) for run in timed(bench, data, CASES)]


def machine_rows(rates: Rates) -> list[list[str]]:
    rows = [["one core", "M/s", "", "GB/s", "how"]]
    for name, rate in rates.items():
        speed = f"{rate.per_s * rate.octets / 1e9:.2f}" if rate.octets else ""
        rows.append([name, f"{rate.per_s / 1e6:,.0f}", rate.unit, speed, rate.note])
    return rows


def stage_rows(one: Whole, tuples: int) -> list[list[str]]:
    """Returns rows with seconds of a core per million tuples of both streams. Shares are of the time of all cores."""
    rows = [["stage", "ranks", "s/M tuples", "of the time", "M tuples/s", "bound, s/M", "reached"]]
    all_s = one.wall_s * one.case.cores

    def row(name: str, ranks: str, seconds: float, bound_s: float, mark: str = "") -> list[str]:
        rate = f"{tuples / seconds / 1e6:.1f}" if seconds else ""
        figures = [f"{seconds / tuples * 1e6:.4f}", f"{seconds / all_s:.0%}", rate, f"{bound_s / tuples * 1e6:.4f}"]
        return [name, ranks, *figures, f"{bound_s / seconds:.0%}{mark}" if seconds else ""]

    for stage in one.stages:
        mark = "  <- slowest" if stage is one.slowest else ""
        rows.append(row(stage.name, stage.rank, stage.seconds, stage.bound.seconds, mark))
    rows.append(row("loops, waiting", "all", all_s - sum(stage.seconds for stage in one.stages), 0.0))
    return [*rows, row("whole", "all", all_s, one.least_s * one.case.cores)]


def verdict(one: Whole) -> str:
    met = "met   " if one.reached >= WANTED else "MISSED"
    limit = "all ranks on their cores" if one.critical == "all" else f"the {one.critical} alone"
    reached = (
        f"the whole reaches {one.reached:.0%} of the roofline (wanted {WANTED:.0%}), the least that {limit} can take"
    )
    return f"{met}  {one.case.title}: {reached}; slowest: {one.slowest.name}"


def table(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths)).rstrip() for row in rows)


def markdown(rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def report(rates: Rates, work: Work, found: list[Whole], form=table) -> str:
    # The last run has all stages.
    why = [f"{stage.name}: {stage.bound.why}" for stage in found[-1].stages]
    parts = [form(machine_rows(rates))]
    for one in found:
        parts += [one.case.title, form(stage_rows(one, work.tuples))]
    return (
        "\n\n".join([*parts, "Bounds:\n\n" + "\n".join(f"- {line}" for line in why), "\n".join(map(verdict, found))])
        + "\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_TUPLES:,} tuples a stream, one round")
    parser.add_argument("--tuples", type=lambda text: int(float(text)), help=f"per stream (default {FULL_TUPLES:,})")
    parser.add_argument("--rounds", type=int, help="how often the engine runs (default 5); the best counts")
    parser.add_argument("--data", type=Path, help="folder for data that later calls reuse (default: a temporary one)")
    parser.add_argument(
        "--json", type=Path, default=Path("runs/roofline.json"), help="of the figures (default %(default)s)"
    )
    parser.add_argument("--markdown", type=Path, help="where the tables go, too")
    options = parser.parse_args()
    enough_s = QUICK_S if options.quick else ENOUGH_S
    with tempfile.TemporaryDirectory() as temporary:
        home = (options.data or Path(temporary)).resolve()
        home.mkdir(parents=True, exist_ok=True)
        tuples = options.tuples or (QUICK_TUPLES if options.quick else FULL_TUPLES)
        bench = Bench(home, tuples, 1, options.rounds or (1 if options.quick else 5))
        rates = measure(bench.data(), bench.cores, enough_s)
        work, found = wholes(bench, rates, enough_s)
    print(report(rates, work, found))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    facts = {
        "machine": machine(bench),
        "rates": {name: asdict(rate) for name, rate in rates.items()},
        "work": asdict(work),
        "runs": [asdict(one) | {"limits_s": one.limits, "reached": one.reached, "wanted": WANTED} for one in found],
    }
    options.json.write_text(json.dumps(facts, indent=2) + "\n")
    if options.markdown:
        options.markdown.write_text(report(rates, work, found, markdown))
    print(f"written: {options.json}")


if __name__ == "__main__":
    main()
