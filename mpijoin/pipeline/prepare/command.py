"""`mpijoin prepare` checks what is asked, lets Spark clean and sort, and says what was found."""

from __future__ import annotations

import argparse
import json
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator

from mpijoin.config.units import plural
from mpijoin.errors import EXIT_DONE, InputError, JobError, MpijoinError
from mpijoin.pipeline.aside import OPEN, refuse_to_replace, strangers, written_aside
from mpijoin.pipeline.configuration import add_spark_arguments
from mpijoin.pipeline.prepare.conf import SETTINGS, conf_set
from mpijoin.pipeline.prepare.files import Source, find_source
from mpijoin.pipeline.prepare.options import (
    CSV,
    DATA,
    FORMATS,
    PART_NAME,
    PRECISIONS,
    REJECTED,
    REPORT,
    UNIT_NS,
    Wanted,
    column_faults,
    wanted_of,
)
from mpijoin.pipeline.prepare.packed import check_archives
from mpijoin.pipeline.prepare.quotes import check_quotes
from mpijoin.pipeline.session import plain_errors, spark_session
from mpijoin.progress import Teller
from mpijoin.refusals import reading

if TYPE_CHECKING:
    from mpijoin.pipeline.prepare.report import Report

EPILOG = """\
Makes of raw files one stream that a job can read: FOLDER/data/*.parquet, sorted by time inside and across files. Rows
that cannot be used go to FOLDER/rejected with file, line, reason and the line itself; FOLDER/report.json and the
terminal say what was found, and which lateness the raw files would have needed. Ends with the part of a job that reads
the result. One stream for each call.

Times: ISO 8601 needs no more than --time; other texts --time-format (letters as in Java: yyyy-MM-dd HH:mm:ss.SSS);
numbers since 1970 --unit. Those without an offset are of --zone, or UTC. Written as timestamps of microseconds
(--precision us, which drops further digits) or int64 nanoseconds (ns); by itself as nanoseconds if a row that --where
leaves needs them, which the report says.
Columns of CSV get a type that all values fit (int, float, bool, else string; leading zeros stay strings) unless
--columns names one of int, float, string, bool, date. The output's columns are those of --columns, or all. --where sees
all columns, the time as a timestamp of whole microseconds. In JSON lines user.id means the id in the object user.
Files must be UTF-8, where every executor sees them; CSV with a header, the same in all files. Blanks around its
names do not count, and the third column, if it has no name, is column3.
Needs Spark: pip install "mpijoin[spark]"

examples:
  mpijoin prepare picks/*.csv.gz -o prepared --time when --key station
  mpijoin prepare calls.csv -o calls --time Start --time-format "dd/MM/yyyy HH:mm" --zone Europe/Rome --key Cell
  mpijoin prepare log.jsonl -o log --time ts --unit ms --key user,host --columns ts,user,host,bytes:int --dedup
  mpijoin prepare raw/ -o clean --time t --key k --where "t >= '2016-10-14' and amp > 0" --master spark://node1:7077"""

REPORTED = {"rows", "disorder", "files"}  # Every report.json of a call has these fields.


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("raw", metavar="RAW", nargs="+", help="files, folders or globs, of one stream and one format")
    add("-o", "--output", metavar="FOLDER", required=True, help="where to; every executor must see it")
    add("--time", metavar="COLUMN", required=True, help="the column to sort by")
    add("--time-format", metavar="FORMAT", help="how times are written, if not as ISO 8601 says")
    add("--unit", choices=tuple(UNIT_NS), help="times are numbers of these since 1970")
    add("--zone", metavar="ZONE", help='of times without an offset, such as "Europe/Rome" (default: UTC)')
    add("--key", metavar="COLUMN[,COLUMN]", help="the columns that will be joined on")
    add("--columns", metavar="NAME[:TYPE],...", help="further columns to keep, and types (default: all)")
    add("--format", choices=FORMATS, help="default: by suffix, behind which .gz or .bz2 may stand")
    add("--delimiter", metavar="C", help="of CSV (default: a tab in files called .tsv, else a comma; \\t: a tab)")
    add("--multiline", action="store_true", help="CSV has line breaks between quotes; a file is then read by one core")
    add("--where", metavar="SQL", help="keep only rows of which this is true")
    add("--dedup", action="store_true", help="of rows equal in all columns that are kept, keep the first")
    add("--dedup-on", metavar="COLUMN[,COLUMN]", help="of rows equal in these, keep the first by file and place")
    add("--trim", action="store_true", help="no blanks around texts; what is empty then is null")
    add("--lower", action="store_true", help="text keys in lower case")
    add(
        "--precision",
        choices=PRECISIONS,
        default="auto",
        help="of the times written (default: us, or ns where one is finer)",
    )
    add(
        "--max-rejected",
        metavar="SHARE",
        type=float,
        default=0.1,
        help="of rows that may be unusable (default: %(default)s)",
    )
    add("--lateness-share", metavar="SHARE", type=float, default=0.999, help="of rows to cover (default: %(default)s)")
    add("--rows-per-file", metavar="N", type=int, default=4_000_000, help="about so many (default: %(default)s)")
    add("--overwrite", action="store_true", help="replace what an earlier call left in FOLDER")
    add_spark_arguments(parser)


def main_prepare(options: argparse.Namespace) -> int:
    """Runs the whole command and returns the exit code. Raises JobError, InputError, OutputError, LaunchError."""
    wanted = wanted_of(options)
    source = find_source(wanted)
    check_places(wanted, source)
    if source.names:
        check_columns(wanted, list(source.names))
    teller = Teller("prepare", options.quiet)
    if wanted.multiline and source.format == CSV:
        teller.say("looking whether all quotes are closed")
        check_quotes(source.paths, source.delimiter)
    teller.say(f"{plural(len(source.paths), 'file')} of {source.format}; starting Spark")
    start_s = time.monotonic()
    session = spark_session("prepare", options.master, SETTINGS, options.conf, options.quiet)
    # Spark ends before what it has written aside is taken away.
    with written_aside(wanted.folder) as folder, session as spark, plain_errors(), conf_set(spark), readable(source):
        report = prepare(spark, source, wanted, folder, teller)
    teller.result(*words_of(report))
    teller.say(f"done in {time.monotonic() - start_s:.1f} s")
    return EXIT_DONE


def check_places(wanted: Wanted, source: Source) -> None:
    """Raises JobError if the output would replace what is read, or what no earlier call has made."""
    own = [wanted.folder / name for name in (DATA, REJECTED, OPEN)]
    inside = [path for path in source.paths if any(Path(path).is_relative_to(place) for place in own)]
    if inside:
        raise JobError(
            [f"-o {wanted.folder}: {inside[0]} is in it and would be replaced while it is read: wanted another folder"]
        )
    refuse_to_replace(wanted.folder, foreign_in(wanted.folder))


def foreign_in(folder: Path) -> list[Path]:
    """What would be replaced in this folder and is not of an earlier call."""
    report = folder / REPORT
    found = [path for name in (DATA, REJECTED) for path in strangers(folder / name, PART_NAME)]
    return found if not report.exists() or _is_report(report) else [*found, report]


def _is_report(path: Path) -> bool:
    try:
        with reading(path):
            found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return isinstance(found, dict) and REPORTED <= found.keys()


def check_columns(wanted: Wanted, names: list[str]) -> None:
    """Raises JobError with all columns that the arguments name and the input does not have."""
    faults = list(column_faults(wanted, names))
    if faults:
        raise JobError(faults)


def prepare(spark: Any, source: Source, wanted: Wanted, folder: Path, teller: Teller) -> Report:
    """Reads, cleans and sorts. The output is written into `folder`, and moved from there to where it belongs."""
    from mpijoin.pipeline.prepare import clean, order, rejected, scan, write
    from mpijoin.pipeline.prepare.kept import KEPT, check_filter
    from mpijoin.pipeline.prepare.pieces import ids_of
    from mpijoin.pipeline.prepare.read import read_raw
    from mpijoin.pipeline.prepare.report import Report, as_json
    from mpijoin.pipeline.prepare.schema import find_columns
    from mpijoin.pipeline.prepare.times import check_pattern

    if wanted.time_format is not None:
        check_pattern(spark, wanted.time_format)
    columns = find_columns(spark, source, wanted)
    check_columns(wanted, columns.names)
    raw = read_raw(spark, source, wanted, columns, source.paths)
    own = clean.cleaned(clean.rules(raw, source, wanted), raw)
    check_filter(own, wanted)
    with cached(own.frame):
        teller.say("reading")
        found, left, marked = scan.scan(own, wanted, ids_of(spark, raw.frame))
        aside = rejected.put_aside(spark, source, wanted, columns, found, left, folder / REJECTED)
        teller.say(f"{plural(found.rows, 'row')}, {aside.rows:,} of them rejected; measuring disorder")
        rows = write.placed(spark, marked.where(KEPT), found, left, wanted)
        lags = order.disorder(rows, wanted.time, left.unit_ns, wanted.share, found.pieces, left.tops)
        if wanted.dedup or wanted.dedup_on:
            rows = write.without_duplicates(rows, wanted)
        teller.say(f"sorting {plural(left.rows, 'row')}")
        parts = write.write_sorted(rows, left.rows, left.in_ns, wanted, folder / DATA)
        types = dict(write.as_written(rows, left.in_ns, wanted).dtypes)
        nulls = write.count_nulls(spark, parts, list(types), folder / DATA)
        report = Report(wanted, source, found, left, aside, lags, types, nulls, tuple(parts))
        (folder / REPORT).write_text(as_json(report), encoding="utf-8")
    write.replace_former(folder, wanted.folder)
    return report


def words_of(report: Report) -> tuple[str, str]:
    """What was found, and a line that says where the rows are."""
    from mpijoin.pipeline.prepare.report import as_text

    files = plural(len(report.parts), "file")
    return as_text(report), f"{plural(report.written, 'row')} in {files}: {report.wanted.folder / DATA}"


@contextmanager
def cached(frame: Any) -> Iterator[None]:
    """Keeps the frame once it is computed, in memory and on disk where it does not fit. Reading costs more than all
    that follows."""
    frame.persist()
    try:
        yield
    finally:
        frame.unpersist()


@contextmanager
def readable(source: Source) -> Iterator[None]:
    """Turns a failure into an InputError that names the damaged file, if a packed file is damaged."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, MpijoinError) as error:
        if not isinstance(error, (JobError, InputError)):
            check_archives(source.paths)
        raise
