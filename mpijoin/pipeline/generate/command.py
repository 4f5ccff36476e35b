"""`mpijoin generate` plans the streams, lets Spark write them, and leaves a manifest and a job that reads them."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import time
from pathlib import Path
from typing import Any, Sequence

from mpijoin.config.dump import dump_job
from mpijoin.config.job import FileSource, Job, SyntheticSource
from mpijoin.config.load import load_streams
from mpijoin.config.units import plural
from mpijoin.errors import EXIT_DONE, JobError
from mpijoin.pipeline.aside import is_empty, refuse_to_replace, strangers, written_aside
from mpijoin.pipeline.configuration import add_spark_arguments
from mpijoin.pipeline.generate.pieces import fitted, pieces_of
from mpijoin.pipeline.generate.plan import StreamPlan, file_plans, rows_per_file
from mpijoin.pipeline.generate.write import Written, write_files
from mpijoin.pipeline.session import plain_errors, spark_session
from mpijoin.progress import Teller

MANIFEST, JOB = "manifest.json", "job.toml"
EPILOG = """\
Makes the streams of a job that have kind = "synthetic": the same rows as `mpijoin run` would make of the same job,
whatever the number of executors. FOLDER gets a folder of Parquet files per stream, manifest.json (schema, seed, and per
file rows, time span and checksum) and job.toml, the same job reading these files.

examples:
  mpijoin generate job.toml -o streams
  mpijoin generate job.toml -o streams --set left.tuples=100_000_000 --set left.arrivals=b-model
  mpijoin generate job.toml -o /scratch/streams --master spark://node1:7077
  mpijoin run streams/job.toml"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB.toml", help="the job whose synthetic streams are made")
    parser.add_argument("-o", "--output", metavar="FOLDER", required=True, help="where to; every executor must see it")
    parser.add_argument(
        "--set", metavar="SECTION.FIELD=VALUE", action="append", default=[], help="change one field of the job"
    )
    parser.add_argument("--rows-per-file", metavar="N", type=int, help="default: about 128 MiB of tuples")
    add_spark_arguments(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace what an earlier call left in FOLDER")


def main_generate(options: argparse.Namespace) -> int:
    """Runs the whole command and returns the exit code. Raises JobError, OutputError, LaunchError."""
    if options.rows_per_file is not None and options.rows_per_file < 1:
        raise JobError([f"--rows-per-file: got {options.rows_per_file}, wanted at least 1"])
    job = load_streams(options.job, options.set)
    plans = [fitted(plan) for plan in stream_plans(job, options.rows_per_file)]
    if not plans:
        raise JobError([f'{options.job}: no stream has kind = "synthetic", so there is nothing to make'])
    folder = Path(options.output).absolute()
    if not is_empty(folder) and not options.overwrite:
        raise JobError([f"-o {folder}: is not empty: choose another, or replace what is in it with --overwrite"])
    refuse_to_replace(folder, foreign_in(folder, Path(options.job), plans))
    start_s = time.monotonic()
    teller = Teller("generate", options.quiet)
    session = spark_session("generate", options.master, conf=options.conf, is_quiet=options.quiet)
    teller.say("starting Spark")
    # Spark ends before what it has written aside is taken away.
    with written_aside(folder) as aside, session as spark, plain_errors():
        made = {plan.name: _make(spark, plan, aside, teller) for plan in plans}
        replace_former(aside, folder, plans)
    (folder / JOB).write_text(dump_job(reading_job(job, made, folder)), encoding="utf-8")
    write_manifest(folder / MANIFEST, plans, made)
    rows = sum(file.rows for files in made.values() for file in files)
    to_run = f"mpijoin run {shlex.quote(str(folder / JOB))}"
    line = f"{plural(rows, 'row')} in {time.monotonic() - start_s:.1f} s; join them: {to_run}"
    teller.result(line, line)
    return EXIT_DONE


def stream_plans(job: Job, rows: int | None) -> list[StreamPlan]:
    """The streams that are to be made. Those that are read from files are left as they are."""
    found = []
    for index, stream in enumerate(job.streams):
        source = stream.source
        if isinstance(source, SyntheticSource):
            seed = job.run.seed if source.seed is None else source.seed
            found.append(StreamPlan(stream.name, source, seed, index, rows or rows_per_file(source)))
    return found


def foreign_in(folder: Path, job: Path, plans: Sequence[StreamPlan]) -> list[Path]:
    """What stands in the way of a call in this folder and is not of an earlier one. job: the file that is given."""
    found = [folder / JOB] if (folder / JOB).exists() and (folder / JOB).samefile(job) else []
    if (folder / JOB).exists() and not found and not (folder / MANIFEST).exists():
        found = [folder / JOB]
    for plan in plans:
        found += strangers(folder / plan.name, rf"{re.escape(plan.name)}-\d+\.parquet")
    return found


def replace_former(new: Path, folder: Path, plans: Sequence[StreamPlan]) -> None:
    """The streams in `new` take the place of what an earlier call left in `folder`, and of nothing else there."""
    (folder / MANIFEST).unlink(missing_ok=True)
    for plan in plans:
        shutil.rmtree(folder / plan.name, ignore_errors=True)
        os.rename(new / plan.name, folder / plan.name)


def _make(spark: Any, plan: StreamPlan, folder: Path, teller: Teller) -> list[Written]:
    teller.say(f"{plan.name}: planning")
    files = file_plans(plan, pieces_of(spark, plan))
    teller.say(f"{plan.name}: writing {plural(len(files), 'file')}")
    (folder / plan.name).mkdir()
    made = write_files(spark, plan, files, folder / plan.name)
    span_ns = max((file.last_ns for file in made if file.last_ns is not None), default=0)
    teller.say(f"{plan.name}: {plural(sum(file.rows for file in made), 'row')} over {span_ns / 1e9:,.1f} s")
    return made


def reading_job(job: Job, made: dict[str, list[Written]], folder: Path) -> Job:
    """The job as it reads what was made: with files in place of synthetic streams, a lateness that covers their
    disorder, and a folder for the output."""
    streams = []
    for stream in job.streams:
        if isinstance(stream.source, SyntheticSource) and stream.name in made:
            lateness_ns = max(stream.lateness_ns, stream.source.disorder_ns)
            source = FileSource(str(folder / stream.name))
            streams.append(stream._replace(source=source, lateness_ns=lateness_ns))
        else:
            streams.append(stream)
    output = job.output if job.output.path else job.output._replace(path=str(folder / "run"))
    return job._replace(output=output, streams=tuple(streams))


def write_manifest(path: Path, plans: Sequence[StreamPlan], made: dict[str, list[Written]]) -> None:
    """Writes the manifest last of all, by a rename. Where it is, everything else is there, too."""
    text = json.dumps({"streams": {plan.name: _described(plan, made[plan.name]) for plan in plans}}, indent=1)
    aside = path.with_suffix(".open")
    aside.write_text(text + "\n", encoding="utf-8")
    os.replace(aside, path)


def _described(plan: StreamPlan, files: list[Written]) -> dict[str, Any]:
    return {
        "schema": {"ts": "timestamp[ns]", "key": "int64"}
        | ({"payload": "binary"} if plan.source.payload_bytes else {}),
        "seed": plan.seed,
        "stream": plan.index,
        "rows": sum(file.rows for file in files),
        "first_ns": min((file.first_ns for file in files if file.first_ns is not None), default=None),
        "last_ns": max((file.last_ns for file in files if file.last_ns is not None), default=None),
        "lag_ns": max((file.lag_ns for file in files if file.rows), default=0),
        "checksum": f"{sum(int(file.checksum, 16) for file in files) % 2**64:016x}",
        "files": [{"file": f"{plan.name}/{file.file}", **_numbers(file)} for file in files],
    }


def _numbers(file: Written) -> dict[str, Any]:
    return {name: value for name, value in file._asdict().items() if name not in ("number", "file")}
