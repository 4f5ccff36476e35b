"""This is `mpijoin sweep`. It runs the points of a sweep here or as a Slurm array, and collects what they found."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import sysconfig
from collections import Counter
from pathlib import Path
from typing import Any

from mpijoin.config.units import show
from mpijoin.errors import EXIT_DONE, EXIT_FAILED, JobError
from mpijoin.progress import QUIET, Teller
from mpijoin.sweep.spec import Sweep, load_sweep

EPILOG = """\
Runs a job with every combination of some fields' values. Points that are done stay done, and one that fails is recorded
with its reason and does not stop the others. The end is one table and one report.

a sweep file (paths are taken from its folder):
  job = "job.toml"            # any job
  output = "runs/sweep"       # gets points/NAME/ per point, table.csv, table.parquet, report/
  ranks = 5                   # under mpirun, or srun in an array; default: local slaves, without MPI
  repeats = 3                 # of each combination; default 1
  seeds = [1, 2]              # values of run.seed
  timeout = "1 h"             # of one run
  [grid]
  "left.rate" = [1000, 2000]  # or "streams.NAME.rate"
  "tuning.theta" = ["auto", "off"]
  [capacity]                  # optional: at each point search for the highest sustained rate, by bisection
  rates = ["left.rate"]       # default: of all streams
  low = 1000                  # where the search begins
  high = 100_000              # where it ends; if this is sustained, the table says "at least"
  delay = "1 s"               # the 99th percentile must not be above; default: only buffers count
  step = 1.08                 # how exactly

examples:
  mpijoin sweep run sweep.toml                 those that were not run yet; Ctrl-C and the same command go on
  mpijoin sweep submit sweep.toml --throttle 8 -- -A account -p partition -t 30
  mpijoin sweep table sweep.toml               table.csv, table.parquet, report/report.html out of what is done
  mpijoin sweep point sweep.toml NUMBER        one; what an array's task does"""


def main_sweep(options: argparse.Namespace) -> int:
    """Carries out the command and returns the exit code. Raises JobError with everything that is wrong with the sweep
    file."""
    if options.behind and options.action is not submit:
        raise JobError([f"-- {shlex.join(options.behind)}: what follows -- goes to sbatch, which only `submit` calls"])
    try:
        return options.action(load_sweep(options.sweep), options)
    except KeyboardInterrupt:
        print("mpijoin sweep: stopped; finished points are kept, the same command goes on", file=sys.stderr)
        raise


def run(sweep: Sweep, options: argparse.Namespace) -> int:
    from mpijoin.sweep.run import FAILED, run_points, state_of

    run_points(sweep, sweep.points, launcher_of(sweep, options), options.again, options.quiet)
    table(sweep, options)
    failed = any(state_of(sweep.folder_of(point)) == FAILED for point in sweep.points)
    return EXIT_FAILED if failed else EXIT_DONE


def point(sweep: Sweep, options: argparse.Namespace) -> int:
    from mpijoin.sweep.run import run_points

    if not 0 <= options.number < len(sweep.points):
        raise JobError([f"point {options.number}: there are {len(sweep.points)}, from 0"])
    points = sweep.points[options.number :][:1]
    failed = run_points(sweep, points, launcher_of(sweep, options), again=True, is_quiet=options.quiet)
    return EXIT_FAILED if failed else EXIT_DONE


def table(sweep: Sweep, options: argparse.Namespace) -> int:
    from mpijoin.sweep.table import write_figures, write_table

    found = write_table(sweep).to_pydict()
    states = Counter(found["state"])
    lines = [", ".join(f"{count} {state}" for state, count in states.items()) + f": {sweep.folder / 'table.csv'}"]
    if sweep.capacity and any(found.get("capacity_at_least", ())):
        lines.append(
            f"[capacity] high = {sweep.capacity.high:g} is sustained at some points (capacity_at_least): raise it to"
            " find theirs"
        )
    page = write_figures(sweep)
    if page:
        lines.append(f"report: {page}")
    Teller("sweep", options.quiet).result("\n".join(lines), lines[0])
    return EXIT_DONE


def submit(sweep: Sweep, options: argparse.Namespace) -> int:
    from mpijoin.sweep.submit import submit_array

    return submit_array(sweep, Path(options.sweep), options.throttle, options.behind)


def launcher_of(sweep: Sweep, options: argparse.Namespace) -> list[str]:
    """The words that start a point. Raises JobError if they cannot be read or name no program."""
    if options.launcher is not None:
        try:
            words = shlex.split(options.launcher)
        except ValueError as error:
            raise JobError([f"--launcher: got {show(options.launcher)}: {error}"]) from error
        if words and shutil.which(words[0]) is None:
            raise JobError([f"--launcher: {words[0]} is not found, wanted a program that starts ranks"])
        return words
    if not sweep.ranks:
        return []
    own = Path(sysconfig.get_path("scripts"), "mpirun")
    program = str(own) if own.exists() else "mpirun"
    if shutil.which(program) is None:
        raise JobError([f"ranks = {sweep.ranks}: mpirun is not found: pip install \"mpijoin[mpi]\", or --launcher"])
    return [program, "-n", str(sweep.ranks)]


class _WithRest(argparse.ArgumentParser):
    """A parser that keeps the arguments after `--` as `behind`, whatever they look like."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        given = list(args)
        end = given.index("--") if "--" in given else len(given)
        found, unknown = super().parse_known_args(given[:end], namespace)
        found.behind = given[end + 1 :]
        return found, unknown


def _throttle(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted a whole number from 1 on")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(metavar="run|submit|table|point", required=True, parser_class=_WithRest)
    texts = {
        run: "run what was not run yet, here",
        submit: "submit what is not done as a Slurm array",
        table: "collect what is done",
        point: "run one point",
    }
    for action, text in texts.items():
        command = commands.add_parser(action.__name__, help=text, description=f"{text[0].upper()}{text[1:]}.")
        command.add_argument("sweep", metavar="SWEEP.toml", help="the sweep file; `mpijoin sweep --help` shows one")
        command.set_defaults(action=action)
        if action is not submit:
            command.add_argument("--quiet", action="store_true", help=QUIET)
        if action in (run, point):
            command.add_argument("--launcher", help='instead of mpirun, such as "srun --mpi=pmi2 -n 5"')
        if action is run:
            command.add_argument("--again", action="store_true", help="failed points too")
        if action is point:
            command.add_argument("number", type=int, help="from 0, in the order of the grid")
        if action is submit:
            most = "so many tasks at once (default: %(default)s)"
            command.add_argument("--throttle", type=_throttle, default=8, help=most)
            command.epilog = "What follows -- goes to sbatch: mpijoin sweep submit sweep.toml -- -A account -t 30"
