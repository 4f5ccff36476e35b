"""The command line. It reads the arguments, calls the code that does the work, and turns errors into a message and an
exit code."""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import sys
import traceback
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from typing import Any, Callable, Sequence

from mpijoin import __version__
from mpijoin.errors import EXIT_DONE, EXIT_FAILED, EXIT_SIGINT, EXIT_SIGTERM, JobError, MpijoinError
from mpijoin.limits import named
from mpijoin.signals import Terminated, die_of, terminable
from mpijoin.streams import patient_streams, silent
from mpijoin.transport.guard import launched_rank, launched_size

DESCRIPTION = """\
Join streams over a sliding time window, as an ordinary MPI job: one row of each stream, all of one key, are a result
if the latest of them is no later than each one's time + its stream's window. Of two streams these are all pairs (l, r)
with equal keys and l.time - right.window <= r.time <= l.time + left.window."""

EXIT_CODES = """\
exit codes:
  0    done
  2    bad job or input: the message names the field or file, what was found and what is wanted
  3    the run failed, or verify found a difference; if a rank was killed, mpirun or srun has a code of its own
  75   stopped at a checkpoint: run it again with --resume to go on
  130  stopped by Ctrl-C      143  stopped by SIGTERM"""

JOB_FILES = """\
a small job file (relative paths, the output's too, are taken from the job file's folder):
  [left]
  path = "picks_p.parquet"     # file, folder or glob; Parquet, Arrow IPC or CSV
  time = "ts"
  key = "station"
  window = "20 s"              # how long a left tuple waits for right ones; "unbounded": for ever
  [right]
  path = "picks_s.parquet"
  time = "ts"
  key = "station"
  [output]
  path = "runs/picks"
one to eight streams of other names: [streams.NAME] for each, of which [left] and [right] are the short form"""

MAIN_EPILOG = f"""\
examples:
  mpijoin check job.toml                     every fault of the job at once, before any cluster time is spent
  mpijoin run job.toml                       on this machine alone, without mpirun
  mpirun -n 5 mpijoin run job.toml           one master and four slaves
  srun --mpi=pmi2 -n 5 mpijoin run job.toml  inside a Slurm allocation, with MPICH or Intel MPI; Open MPI: --mpi=pmix
  mpijoin verify runs/picks                  join again with DuckDB and compare
  mpijoin why runs/picks --stream left --row 17   which rows it met and which it just missed, or why it did not join
  mpijoin simulate job.toml --slaves 100     how would a synthetic job do on 100 slaves? no tuple is made
  mpijoin report runs/picks                  figures of a run, and a page that holds them
  mpijoin sweep run sweep.toml               a job with every combination of some values; `submit`: as a Slurm array
  mpijoin slurm-scripts slurm                batch scripts for Slurm, copied into the folder slurm
  mpijoin generate job.toml -o streams       the job's synthetic streams as Parquet files, made by Spark

{JOB_FILES}

{EXIT_CODES}"""

RUN_EPILOG = f"""\
examples:
  mpijoin run job.toml
  mpijoin run job.toml --ranks 3 --overwrite
  mpirun -n 5 mpijoin run job.toml --set cluster.partitions=120 --set "left.window=5 min"
  mpijoin run job.toml --set output.results=count --set 'left.key=["a", "b"]'
  mpirun -n 5 mpijoin run job.toml --set "checkpoint.every=10 min"     Ctrl-C, SIGTERM and SIGUSR1 save, then stop (75)
  mpirun -n 9 mpijoin run job.toml --resume                            go on where it stopped or was killed, on more

{EXIT_CODES}"""

CHECK_EPILOG = f"""\
Reads only the headers of the inputs, so it takes no time on large ones.

examples:
  mpijoin check job.toml
  mpijoin check job.toml --set left.lateness=2s
  mpijoin check --fields                     every field of a job file: type, default, unit and meaning
  mpijoin check --fields checkpoint          those of one section

{JOB_FILES}

{EXIT_CODES}"""

VERIFY_EPILOG = f"""\
Compares count, certificate, rows, columns and the late set; shows the first ten differences of each side.
Needs DuckDB: pip install "mpijoin[verify]"

example:
  mpijoin verify runs/picks

{EXIT_CODES}"""

SIMULATE_EPILOG = f"""\
The master, the slaves and the policies are those of a real run, in virtual time; the join is a model that counts what
it would compare and find. Streams must be synthetic, results are counted. One seed ([run] seed) gives one run. The
output path gets metrics and summary as from a real run.

examples:
  mpijoin simulate job.toml --slaves 5
  mpijoin simulate job.toml --slaves 4 --costs wsj_2005 --set left.rate=4000 --set right.rate=4000
  mpijoin simulate job.toml --slaves 1000 --costs my_machine.toml --delays "20 ms" --stalls "500 ms"

{EXIT_CODES}"""

REPORT_EPILOG = f"""\
One run: figures over time and by slave. Several: what differs between their jobs, one table, and figures that compare
them. The folder gets report.html, which needs no other file, and each figure as PNG and its data as CSV.
Needs matplotlib: pip install "mpijoin[report]"

examples:
  mpijoin report runs/picks
  mpijoin report runs/sweep-* -o sweep

{EXIT_CODES}"""

SLURM_SCRIPTS_EPILOG = f"""\
Slurm runs these: join.sbatch a job, chain.sh a long one as several, sweep.sbatch a sweep, prepare.sbatch a Spark
command.

examples:
  mpijoin slurm-scripts slurm
  sbatch -A account -p partition -n 17 -t 2:00:00 slurm/join.sbatch job.toml

{EXIT_CODES}"""

COMPLETION_EPILOG = f"""\
examples:
  eval "$(mpijoin completion)"                                                          in ~/.bashrc
  autoload -U +X bashcompinit && bashcompinit && eval "$(mpijoin completion)"           in ~/.zshrc

{EXIT_CODES}"""

# The modules of these commands say what their arguments are. A module is imported only if its command is called,
# because some of them need packages that the others do not need.
MODULES = {
    "generate": "make a job's synthetic streams as Parquet files (Spark)",
    "prepare": "make typed, sorted Parquet files of raw CSV, JSON lines or Parquet (Spark)",
    "profile": "tell rate, bursts, key skew and expected results of streams, and which job suits them (Spark)",
    "sweep": "run a job with every combination of some fields' values, here or as a Slurm array",
    "why": "tell what became of one row of a run, and why",
}
PIPELINE = ("generate", "prepare", "profile")

# The exit code of a command that a signal has stopped, less this, is the signal's number.
SIGNALLED = 128
# Longer lines are hard to read.
FIELDS_CELLS_MAX = 110

# The arguments that are paths, by their names in the options, and how a user knows them.
PATHS = dict(
    job="JOB.toml", run="RUN", sweep="SWEEP.toml", raw="RAW", inputs="JOB.toml or LEFT RIGHT", folder="FOLDER",
    output="--output", costs="--costs",
)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # Standard output may be a file on a disk that is full.
_KEEP_LINES = argparse.RawDescriptionHelpFormatter


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. `argv` defaults to the arguments of the process."""
    with patient_streams():
        return _main(sys.argv[1:] if argv is None else argv)


def _main(arguments: Sequence[str]) -> int:
    debug = False
    try:
        # What is wrong with the arguments, or a help, is said by one rank.
        with silent() if launched_rank(os.environ) else nullcontext():
            options = _parser(arguments).parse_args(arguments)
        debug = options.debug
        _refuse_empty_paths(options)
        # A run handles signals itself.
        with nullcontext() if options.command is _run else terminable():
            return options.command(options)
    except Terminated:
        return _stopped("SIGTERM", EXIT_SIGTERM, debug)
    except KeyboardInterrupt:
        return _stopped("Ctrl-C", EXIT_SIGINT, debug)
    except JobError as error:
        return _report(_faults_text(error), error.exit_code, debug)
    except MpijoinError as error:
        return _report(str(error), error.exit_code, debug and bool(error.exit_code))
    except Exception as error:
        # This is the last line of defence. A defect still ends in one message and an exit code.
        known = named(error)
        if isinstance(known, MpijoinError):
            return _report(str(known), known.exit_code, debug)
        if isinstance(error, OSError) and error.filename is None and error.errno in FULL:
            return _report(f"the output cannot be written: {os.strerror(error.errno)}", EXIT_FAILED, debug)
        text = f"internal error: {type(error).__name__}: {error} (--debug shows where)"
        return _report(text, EXIT_FAILED, debug)


def _refuse_empty_paths(options: argparse.Namespace) -> None:
    """An empty path would mean the current folder, which nobody means who writes ''."""
    for name, shown in PATHS.items():
        given = getattr(options, name, None)
        if "" in (given if isinstance(given, list) else [given]):
            raise JobError([f"{shown}: got '', wanted a path"])


def _stopped(by: str, exit_code: int, debug: bool) -> int:
    """Returns the exit code after a signal. Every process of a launcher gets the signal, but only one prints it.

    A rank of several dies of it: others may be waiting for it in MPI, and if it left by itself, they would for ever.
    """
    if not launched_rank(os.environ):
        _report(f"stopped by {by}", exit_code, debug)
    if launched_size(os.environ) > 1:
        die_of(exit_code - SIGNALLED)
    return exit_code


def _report(text: str, exit_code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(f"mpijoin: {text}\n", end="", file=sys.stderr)  # in one write: other ranks write there, too
    return exit_code


def _faults_text(error: JobError) -> str:
    if len(error.faults) == 1:
        return error.faults[0]
    return "\n  ".join([f"{len(error.faults)} faults", *error.faults])


def _check(options: argparse.Namespace) -> int:
    if options.fields is not None:
        return _explain_fields(options)
    if options.job is None:
        raise JobError(["JOB.toml: missing: wanted the job file to check, or --fields"])
    from mpijoin.config.check import load_and_resolve
    from mpijoin.config.describe import describe
    from mpijoin.launch.memory import memory_lines
    from mpijoin.launch.setup import launch_faults
    from mpijoin.launch.sizes import auto_lines

    further = partial(launch_faults, overwrite=options.overwrite, resume=options.resume)
    job, schema = load_and_resolve(options.job, options.set, further)
    print(describe(job, schema, [*memory_lines(job), *auto_lines(job)]))
    return EXIT_DONE


def _explain_fields(options: argparse.Namespace) -> int:
    from mpijoin.config.reference import reference

    if options.job is not None:
        raise JobError(["--fields: explains the job file as such: leave JOB.toml out"])
    is_terminal = sys.stdout.isatty()
    width = min(shutil.get_terminal_size().columns, FIELDS_CELLS_MAX) if is_terminal else FIELDS_CELLS_MAX
    print(reference(options.fields, width, colored=is_terminal and not os.environ.get("NO_COLOR")))
    return EXIT_DONE


def _run(options: argparse.Namespace) -> int:
    from mpijoin.launch.command import Options, main_run

    return main_run(options.job, options.set, Options(**{name: getattr(options, name) for name in Options._fields}))


def _verify(options: argparse.Namespace) -> int:
    from mpijoin import verify

    return verify.main(options.run)


def _report_of(options: argparse.Namespace) -> int:
    from mpijoin import report

    return report.main(options.run, options.folder)


def _simulate(options: argparse.Namespace) -> int:
    from mpijoin.simulate.command import main_simulate

    disturbed = (options.delays, options.stalls)
    return main_simulate(
        options.job, options.set, options.slaves, options.costs, options.overwrite, *disturbed, options.quiet
    )


def _slurm_scripts(options: argparse.Namespace) -> int:
    from mpijoin.site import main_slurm_scripts

    return main_slurm_scripts(options.folder, options.overwrite)


def _completion(options: argparse.Namespace) -> int:
    from mpijoin.completion import completion

    print(completion(_parser(list(MODULES))))
    return EXIT_DONE


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "mpijoin", description=DESCRIPTION, epilog=MAIN_EPILOG, formatter_class=_KEEP_LINES
    )
    parser.add_argument("--version", action="version", version=f"mpijoin {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    run = _command(commands, "run", _run, "run a job", RUN_EPILOG)
    _job_arguments(run)
    slaves = "without mpirun: so many local slaves (default: min(cores, 4))"
    run.add_argument("--ranks", type=_ranks, metavar="N", help=slaves)
    quiet = "print nothing unless it fails; summary.json has it all"
    run.add_argument("--quiet", action="store_true", help=quiet)
    run.add_argument("--oversubscribe", action="store_true", help="allow more than four local slaves per core")
    _place_arguments(run)
    check = _command(commands, "check", _check, "say everything that is wrong with a job", CHECK_EPILOG)
    _job_arguments(check, nargs="?")
    _place_arguments(check)
    fields = "explain every field of a job file, or of one section, instead"
    check.add_argument("--fields", nargs="?", const="", metavar="SECTION", help=fields)
    simulate = _command(commands, "simulate", _simulate, "run a synthetic job on simulated slaves", SIMULATE_EPILOG)
    _job_arguments(simulate)
    simulate.add_argument("--quiet", action="store_true", help=quiet)
    simulate.add_argument("--slaves", type=_ranks, metavar="N", default=4, help="so many slaves (default: 4)")
    costs = "this_machine (default), wsj_2005 (the cluster of the paper), or a file from scripts/calibrate_costs.py"
    simulate.add_argument("--costs", metavar="FILE", default="this_machine", help=costs)
    simulate.add_argument(
        "--overwrite", action="store_true", help="replace what an earlier run wrote to the output path"
    )
    delays = "every message takes longer, by so much in the mean; those of different ranks overtake each other"
    simulate.add_argument("--delays", metavar="DURATION", default="0 s", help=delays)
    stalls = "every rank and link stands still now and then, for so long in the mean"
    simulate.add_argument("--stalls", metavar="DURATION", default="0 s", help=stalls)
    verify = _command(commands, "verify", _verify, "join a finished run's inputs again, and compare", VERIFY_EPILOG)
    verify.add_argument("run", metavar="RUN", help="the folder that a run wrote")
    report = _command(commands, "report", _report_of, "draw what runs did", REPORT_EPILOG)
    report.add_argument("run", metavar="RUN", nargs="+", help="a folder that a run wrote")
    folder = "where the report goes (default: RUN/report; of several runs, report in the current folder)"
    report.add_argument("-o", dest="folder", metavar="FOLDER", help=folder)
    scripts = _command(
        commands, "slurm-scripts", _slurm_scripts, "copy the batch scripts for Slurm", SLURM_SCRIPTS_EPILOG
    )
    scripts.add_argument("folder", metavar="FOLDER", help="where to; made if need be")
    scripts.add_argument("--overwrite", action="store_true", help="replace files of these names that were changed")
    _command(
        commands,
        "completion",
        _completion,
        "print a function that completes commands in bash and zsh",
        COMPLETION_EPILOG,
    )
    for name, summary in MODULES.items():
        _module_command(commands, name, summary, is_wanted=name in argv)
    return parser


def _module_command(commands: Any, name: str, summary: str, is_wanted: bool) -> None:
    command = _command(commands, name, lambda options: EXIT_DONE, summary, "")
    if is_wanted:
        module = import_module(f"mpijoin.{'pipeline.' if name in PIPELINE else ''}{name}.command")
        module.add_arguments(command)
        command.epilog = f"{module.EPILOG}\n\n{EXIT_CODES}"
        command.set_defaults(command=getattr(module, f"main_{name}"))


def _command(commands: Any, name: str, action: Callable, summary: str, epilog: str) -> argparse.ArgumentParser:
    text = summary[0].upper() + summary[1:] + "."
    command = commands.add_parser(
        name, help=summary, description=text, epilog=epilog, formatter_class=_KEEP_LINES
    )
    command.add_argument("--debug", action="store_true", help="show a traceback with an error")
    command.set_defaults(command=action)
    return command


def _job_arguments(command: argparse.ArgumentParser, nargs: str | None = None) -> None:
    command.add_argument("job", metavar="JOB.toml", nargs=nargs, help="the job file")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="section.field=value",
        help='set one field of the job, as often as needed; lists as in TOML: left.key=["a", "b"]',
    )


def _place_arguments(command: argparse.ArgumentParser) -> None:
    what = command.add_mutually_exclusive_group()
    what.add_argument("--overwrite", action="store_true", help="replace what an earlier run wrote to the output path")
    resume = "go on from the newest checkpoint there, on any number of ranks; begin where there is none yet"
    what.add_argument("--resume", action="store_true", help=resume)


def _ranks(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted a whole number of slaves, at least 1")
    return int(text)
