"""`mpijoin profile` says what streams are like and what joining them will give, and leaves a job file that suits
them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Sequence

from mpijoin.errors import EXIT_DONE, InputError, JobError
from mpijoin.pipeline.aside import refuse_to_replace
from mpijoin.pipeline.configuration import add_spark_arguments
from mpijoin.progress import Teller
from mpijoin.refusals import writing

if TYPE_CHECKING:
    from mpijoin.config.job import Job
    from mpijoin.data.schema import JoinSchema
    from mpijoin.pipeline.profile.advice import Advice
    from mpijoin.pipeline.profile.findings import Profile

FOLDER = "profile"
SETTINGS = {"spark.sql.caseSensitive": "true"}
BINS, BINS_MAX, TOP, TOP_MAX = 4096, 1 << 16, 20, 1000

EPILOG = """\
Reads Parquet with Spark, on this machine unless --master names a cluster. Says rates, burstiness, skew of the keys, the
number of results that windows, condition and type of join will give, and the memory for them; advises slaves,
partitions, buffers, lateness, and to spill where the job's memory is less.
The folder gets profile.json, each figure as PNG, its data as CSV, and job.toml, ready to run.
Needs Spark: pip install "mpijoin[spark,report]"

examples:
  mpijoin profile job.toml
  mpijoin profile job.toml -o what-if --set "left.window=5 min"
  mpijoin profile picks_p.parquet picks_s.parquet --time ts --key station --window "20 s"
  mpijoin profile 'p/*.parquet' 's/*.parquet' --time ms --time-unit ms --key station --window "20 s" --sample 0.01"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mpijoin profile`."""
    parser.add_argument(
        "inputs", metavar="JOB.toml | LEFT RIGHT", nargs="+", help="a job file, or the files of both streams"
    )
    parser.add_argument(
        "-o", dest="folder", metavar="FOLDER", default=FOLDER, help=f"where files go (default: {FOLDER})"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace what an earlier profile wrote there")
    parser.add_argument(
        "--set", action="append", default=[], metavar="section.field=value", help="set one field of the job"
    )
    parser.add_argument("--query", metavar="NAME", help="the query to look at, if the job has several")
    streams = parser.add_argument_group("instead of a job file")
    streams.add_argument("--time", metavar="COLUMN", help="of both streams (default: ts)")
    streams.add_argument("--time-unit", metavar="UNIT", help="s, ms, us or ns: of a column of integers")
    streams.add_argument("--key", metavar="COLUMN[,COLUMN]", help="of both streams (default: key)")
    streams.add_argument(
        "--window", metavar="DURATION", help='how long a left tuple waits for right ones, such as "20 s"'
    )
    streams.add_argument("--right-window", metavar="DURATION", help='and a right tuple for left ones (default: "0 s")')
    much = parser.add_argument_group("how much")
    points = f"points of the rate curve, rounded up to a power of two (default: {BINS})"
    much.add_argument("--bins", type=_count(BINS_MAX), default=BINS, metavar="N", help=points)
    much.add_argument(
        "--top", type=_count(TOP_MAX), default=TOP, metavar="N", help=f"hottest keys to list (default: {TOP})"
    )
    sample = "count results exactly, or in so much of the time; auto (default): exactly up to 50 million rows"
    much.add_argument("--sample", type=_sample, default="auto", metavar="auto|exact|SHARE", help=sample)
    add_spark_arguments(much)
    much.add_argument("--no-figures", dest="figures", action="store_false", help="no PNG files")


def _count(most: int) -> Any:
    def parse(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"got {text!r}, wanted a whole number from 1 to {most}")
        return int(text)

    return parse


def _sample(text: str) -> str | float:
    if text in ("auto", "exact"):
        return text
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted auto, exact, or a share such as 0.01")
    return share


def main_profile(options: argparse.Namespace) -> int:
    """Profiles, prints and writes, and returns the exit code. Raises JobError, InputError, LaunchError, OutputError."""
    from mpijoin.config.check import resolve
    from mpijoin.config.queries import only_query
    from mpijoin.launch.sizes import shares_of
    from mpijoin.pipeline.profile.advice import advise, run_command
    from mpijoin.pipeline.profile.report import JOB, text_of

    folder = Path(options.folder)
    job = only_query(job_of(options), options.query)
    check_sources(job)
    schema = resolve(job)
    check_folder(folder, options.overwrite, options.inputs)
    if options.figures:
        check_figures()
    profile = profile_of(job, schema, options)
    advice = advise(profile, job.memory, shares_of(job))
    bins = 1 << (options.bins - 1).bit_length()
    with writing(folder):
        write_files(job, profile, advice, bins, folder, options.figures)
    to_run = run_command(advice, str(folder / JOB))
    text = f"{text_of(profile, advice, bins)}\n\nprofile: {folder}\nto run:  {to_run}"
    Teller("profile", options.quiet).result(text, f"profile: {folder}; to run: {to_run}")
    return EXIT_DONE


def job_of(options: argparse.Namespace) -> Job:
    """The job, from the job file or from the paths and the options beside them. Raises JobError, which names what does
    not fit."""
    from mpijoin.config.load import load_job

    given = {"--time": options.time, "--key": options.key, "--window": options.window, "--time-unit": options.time_unit}
    given["--right-window"] = options.right_window
    named = [name for name, value in given.items() if value is not None]
    if len(options.inputs) == 1:
        if named:
            raise JobError(
                [f"{', '.join(named)}: go with two paths, LEFT and RIGHT; a job file says so itself, or use --set"]
            )
        return load_job(options.inputs[0], options.set)
    if len(options.inputs) != 2:
        raise JobError(
            [f"got {len(options.inputs)} paths, wanted a job file, or two: the left and the right stream's"]
        )
    if options.window is None:
        raise JobError(['--window: missing, wanted how long a left tuple waits for right ones, such as "20 s"'])
    stream = {"time": options.time or "ts", "key": (options.key or "key").split(",")}
    stream |= {"time_unit": options.time_unit} if options.time_unit else {}
    windows = (options.window, options.right_window or "0 s")
    left, right = ({"path": path, "window": window, **stream} for path, window in zip(options.inputs, windows))
    output = {"path": str(Path(options.folder, "run").absolute())}
    return load_job({"left": left, "right": right, "output": output}, options.set)


def check_sources(job: Job) -> None:
    """Raises JobError unless all streams are Parquet files."""
    from mpijoin.config.job import FileSource
    from mpijoin.data.files import PARQUET, expand_files, file_format

    faults = []
    for stream in job.streams:
        if not isinstance(stream.source, FileSource):
            faults.append(
                f"[{stream.section}] kind: got a synthetic stream, wanted files; its rate and bias are in the job"
            )
            continue
        found = file_format(expand_files(stream.source.path)[0])
        if found != PARQUET:
            hint = "`mpijoin prepare` makes it so"
            faults.append(f"[{stream.section}] path: {stream.source.path} is {found}, wanted Parquet; {hint}")
    if faults:
        raise JobError(faults)


def check_folder(folder: Path, overwrite: bool, inputs: Sequence[str]) -> None:
    """Raises JobError where there is something already that is not to be replaced. inputs: that are read, never to be
    replaced."""
    from mpijoin.pipeline.profile.report import FILES, JSON

    if folder.exists() and not folder.is_dir():
        raise JobError([f"-o {folder}: is a file, wanted a folder"])
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise JobError([f"-o {folder}: is not empty: choose another, or replace what is in it with --overwrite"])
    there = [folder / name for name in FILES if (folder / name).exists()]
    if (folder / JSON).exists():  # An earlier profile has made them all, unless it reads one of them.
        there = [path for path in there if any(Path(one).exists() and path.samefile(one) for one in inputs)]
    refuse_to_replace(folder, there)


def check_figures() -> None:
    """Raises InputError before any work is done if figures could not be drawn after it."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise InputError('figures need matplotlib: pip install "mpijoin[report]", or --no-figures')


def profile_of(job: Job, schema: JoinSchema, options: argparse.Namespace) -> Profile:
    """Reads the streams with Spark."""
    from mpijoin.pipeline.session import plain_errors, spark_session

    with (
        spark_session("profile", options.master, SETTINGS, options.conf, options.quiet) as spark,
        plain_errors(),
    ):
        from mpijoin.pipeline.profile.scan_all import scan

        return scan(spark, job, schema, options.top, options.sample)


def write_files(job: Job, profile: Profile, advice: Advice, bins: int, folder: Path, figures: bool) -> None:
    """Writes profile.json, job.toml and each table as CSV, and each as PNG if `figures`."""
    from mpijoin.pipeline.profile.advice import job_text
    from mpijoin.pipeline.profile.report import JOB, JSON, json_text, tables_of, write_table

    folder.mkdir(parents=True, exist_ok=True)
    tables = tables_of(profile, bins)
    for name, table in tables.items():
        write_table(table, folder / f"{name}.csv")
    if figures:
        from mpijoin.pipeline.profile.figures import draw_all

        draw_all(profile, tables, folder)
    (folder / JSON).write_text(json_text(profile, advice, bins), encoding="utf-8")
    (folder / JOB).write_text(job_text(job, advice), encoding="utf-8")
