"""Draws figures 5 to 14 of "Parallelizing Windowed Stream Joins in a Shared-Nothing Cluster" from our own runs.

    python scripts/figures.py [-o FOLDER] [--figures 5,6] [--simulated-only | --real-only] [--processes N] [--quick]

The figures are those of section VI-B, and each is measured twice. First it is simulated at the paper's scale, on the
paper's cluster (costs of mpijoin/simulate/costs/wsj_2005.toml). Then it is measured in real runs on two cores of this
machine, scaled to what these can carry: windows a hundredth as long, epochs a tenth, runs a hundredth, a hundred times
the rate, and a quarter of a core for each slave.

FOLDER gets a PNG and a CSV for each figure, and table.md: the paper's sentences, what was found, and whether they hold.
Finished points are kept in FOLDER/points, so that a run that was stopped goes on where it was. On one core the
simulated points take about 6 minutes, the real ones 8.
"""

from __future__ import annotations

import argparse
import sys
from importlib import resources
from pathlib import Path
from typing import Sequence

from wsj_figures import draw, plan, table
from wsj_figures.points import COSTS, QUICK_SCALES, REAL, SCALES, SIDES, SIMULATED
from wsj_figures.sentences import Results
from wsj_figures.sweep import Store, sweep


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    scales = QUICK_SCALES if options.quick else SCALES
    figures = [figure for figure in plan.figures(options.quick) if figure.number in options.figures]
    folder = Path(options.output)
    costs_text = (resources.files("mpijoin.simulate") / f"costs/{COSTS}.toml").read_text(encoding="utf-8")
    store = Store(folder / "points", scales, costs_text)
    points = [point for figure in figures for side in options.sides for point in figure.points(side)]
    try:
        sweep(points, store, scales, options.processes)
    except KeyboardInterrupt:
        print(
            f"stopped; finished points are in {folder / 'points'}, the same command goes on from there", file=sys.stderr
        )
        return 130
    for figure in figures:
        draw.write_csv(folder / f"figure-{figure.number}.csv", draw.rows_of(figure, store.figures, options.sides))
        draw.draw(figure, store.figures, options.sides, folder / f"figure-{figure.number}.png")
    if not options.quick:
        sides = [Results(side, store.figures, scales[side].epoch) for side in options.sides]
        table.write(folder, table.rows_of(sides, options.figures))
    print(f"{len(figures)} figures: {folder}")
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", default="runs/figures", help="folder (default: %(default)s)")
    parser.add_argument(
        "--figures", type=numbers, default=list(range(5, 15)), help="some of 5 to 14, as 5,6 (default: all)"
    )
    parser.add_argument("--processes", type=int, default=1, help="simulated points at once (default: 1)")
    parser.add_argument(
        "--quick", action="store_true", help="few points and short runs: is the script sound? (no table)"
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--simulated-only", dest="sides", action="store_const", const=[SIMULATED])
    only.add_argument("--real-only", dest="sides", action="store_const", const=[REAL])
    parser.set_defaults(sides=list(SIDES))
    return parser.parse_args(arguments)


def numbers(text: str) -> list[int]:
    """Returns the numbers of figures in a text of the command line.

    >>> numbers("5,14")
    [5, 14]
    """
    found = [int(part) for part in text.split(",") if part.isdecimal()]
    if not found or len(found) != len(text.split(",")) or not all(5 <= number <= 14 for number in found):
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted some of 5 to 14 with commas between")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
