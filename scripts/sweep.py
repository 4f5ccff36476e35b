"""Runs a job with every combination of some fields' values, here one after the other or as a Slurm array.

    python scripts/sweep.py run sweep.toml              # those that are not done; Ctrl-C and the same command go on
    python scripts/sweep.py submit sweep.toml [--throttle 8] [-- -A account -p partition -t 30]
    python scripts/sweep.py table sweep.toml            # table.csv, table.parquet, report/report.html out of what is done
    python scripts/sweep.py point sweep.toml NUMBER     # one; what an array's task does

A sweep file (paths are taken from its folder):

    job = "job.toml"            # any job
    output = "runs/sweep"       # gets points/NAME/ per point, table.csv, table.parquet, report/
    ranks = 5                   # under mpirun, or srun in an array; default: local slaves, without MPI
    repeats = 3                 # of each combination; default 1
    seeds = [1, 2]              # values of run.seed
    timeout = "1 h"             # of one run
    [grid]
    "left.rate" = [1000, 2000]
    "tuning.theta" = ["auto", "off"]
    [capacity]                  # optional: at each point search for the highest sustained rate, by bisection
    rates = ["left.rate", "right.rate"]
    low = 1000
    high = 100_000
    delay = "1 s"               # the 99th percentile must not be above; default: only buffers count
    step = 1.08                 # how exactly
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import sysconfig
from collections import Counter
from pathlib import Path
from typing import Sequence

from mpijoin.errors import EXIT_BAD_JOB, EXIT_DONE, EXIT_FAILED, EXIT_SIGINT, JobError
from sweeping.run import DONE, run_points, state_of
from sweeping.spec import Sweep, load_sweep
from sweeping.table import write_figures, write_table

SCRIPT = Path(__file__).resolve().parents[1] / "slurm" / "sweep.sbatch"
ARRAY_MAX = 1000  # tasks of one array: the usual limit of a site


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    try:
        return options.action(load_sweep(options.sweep), options)
    except JobError as error:
        print("sweep: " + "\n  ".join(error.faults), file=sys.stderr)
        return EXIT_BAD_JOB
    except KeyboardInterrupt:
        print("sweep: stopped; finished points are kept, the same command goes on", file=sys.stderr)
        return EXIT_SIGINT


def run(sweep: Sweep, options: argparse.Namespace) -> int:
    failed = run_points(sweep, sweep.points, launcher_of(sweep, options), options.again)
    table(sweep, options)
    return EXIT_FAILED if failed else EXIT_DONE


def point(sweep: Sweep, options: argparse.Namespace) -> int:
    if not 0 <= options.number < len(sweep.points):
        raise JobError([f"point {options.number}: there are {len(sweep.points)}, from 0"])
    failed = run_points(sweep, sweep.points[options.number :][:1], launcher_of(sweep, options), again=True)
    return EXIT_FAILED if failed else EXIT_DONE


def table(sweep: Sweep, options: argparse.Namespace) -> int:
    states = Counter(write_table(sweep)["state"].to_pylist())
    print(", ".join(f"{count} {state}" for state, count in states.items()) + f": {sweep.folder / 'table.csv'}")
    page = write_figures(sweep)
    if page:
        print(f"report: {page}")
    return EXIT_DONE


def submit(sweep: Sweep, options: argparse.Namespace) -> int:
    """Points that are not done, as one array; at most `throttle` of them at once."""
    wanted = [number for number, one in enumerate(sweep.points) if state_of(sweep.folder_of(one)) != DONE][:ARRAY_MAX]
    if not wanted:
        print("nothing to submit: all points are done")
        return EXIT_DONE
    tasks = ["--ntasks", str(max(1, sweep.ranks))]
    array = f"--array={','.join(map(str, wanted))}%{options.throttle}"
    command = ["sbatch", array, f"--export=ALL,MPIJOIN_SCRIPTS={SCRIPT.parents[1] / 'scripts'}", *tasks]
    command += [*options.sbatch, str(SCRIPT), str(Path(options.sweep).absolute())]
    print(f"$ {shlex.join(command)}", flush=True)
    return subprocess.run(command, check=False).returncode


def launcher_of(sweep: Sweep, options: argparse.Namespace) -> list[str]:
    if options.launcher is not None:
        return shlex.split(options.launcher)
    own = Path(sysconfig.get_path("scripts"), "mpirun")
    return [str(own) if own.exists() else "mpirun", "-n", str(sweep.ranks)] if sweep.ranks else []


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for action, text in ((run, "run what is not done"), (point, "run one point"), (table, "collect"), (submit, "as a Slurm array")):
        command = commands.add_parser(action.__name__, help=text)
        command.add_argument("sweep", metavar="SWEEP.toml")
        command.set_defaults(action=action)
        if action in (run, point):
            command.add_argument("--launcher", help='instead of mpirun, such as "srun --mpi=pmi2 -n 5"')
        if action is run:
            command.add_argument("--again", action="store_true", help="failed points too")
        if action is point:
            command.add_argument("number", type=int, help="from 0, in the order of the grid")
        if action is submit:
            command.add_argument("--throttle", type=int, default=8, help="so many tasks at once (default: %(default)s)")
            command.epilog = "What follows -- goes to sbatch."
    given = sys.argv[1:] if arguments is None else list(arguments)
    end = given.index("--") if "--" in given else len(given)
    options = parser.parse_args(given[:end])
    options.sbatch = given[end + 1 :]
    return options


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join([str(SCRIPT.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    sys.exit(main())
