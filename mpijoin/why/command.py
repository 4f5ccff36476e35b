"""This is `mpijoin why`. It asks about one row of a run, and prints the answer."""

from __future__ import annotations

import argparse
import json

from mpijoin.errors import EXIT_DONE, JobError
from mpijoin.why.choose import Asked

EPILOG = """\
Tells what became of one row: whether it was read, was late (by how much, and which lateness would have covered it), has
no key or no time; which rows it was joined with; and which rows of its key it just missed, and by how much. All of this
comes from the inputs, so it is there even if the run only counted its results. Needs DuckDB: pip install
"mpijoin[verify]"

A row is named in one of three ways:
  --row 17                        its number, as the columns left_row, right_row ... of results and late files have it
  --row picks_p.parquet:17        the file and the position in it, from 0; of several files, as much of the path as is
                                  needed to tell them apart
  --key IV.T1202 --time 2016-08-24T00:00:06.850
                                  its key and its time, as the file has them: integers or dates and times. A key of
                                  several columns: --key once for each, in the job's order

examples:
  mpijoin why runs/picks --stream left --row 17
  mpijoin why runs/picks --stream right --key IV.T1202 --time 1471996806850000 --json

what it prints (here: a P pick that has two S picks; a third one came 1.3 s too late):
  left: row 17 (picks_p.parquet:17)
    station  'IV.T1202'
    ts       2016-08-24 00:00:06.850000

  It joined, and is in 2 results.

  right: 2 partners among 41 rows of this key; partners come from 0 s before it to 20 s after it
    row  ts                          from it    file
     22  2016-08-24 00:00:13.890000  +7.04 s    picks_s.parquet:22
     25  2016-08-24 00:00:26.101000  +19.251 s  picks_s.parquet:25
  just missed:
     19  2016-08-24 00:00:06.350000  -500 ms    picks_s.parquet:19  by 500 ms
     31  2016-08-24 00:00:28.150000  +21.3 s    picks_s.parquet:31  by 1.3 s"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the folder that a run wrote")
    parser.add_argument("--stream", metavar="NAME", help="the row's stream; may be left out if the job has only one")
    parser.add_argument("--row", metavar="ROW", help="the row's number, or FILE:POSITION")
    keys = "the row's key, together with --time; once for each key column"
    parser.add_argument("--key", metavar="KEY", action="append", default=[], help=keys)
    parser.add_argument("--time", metavar="TIME", help="the row's time, together with --key")
    parser.add_argument("--query", metavar="NAME", help="which query is meant, if the job has several")
    parser.add_argument("--json", action="store_true", help="print the answer as one JSON object")


def main_why(options: argparse.Namespace) -> int:
    """Prints what became of the row. Raises JobError or InputError if there is no such row, or more than one."""
    by_row, by_key = options.row is not None, bool(options.key) or options.time is not None
    if by_row == by_key or (by_key and not (options.key and options.time is not None)):
        raise JobError(["--row, --key, --time: wanted either --row ROW, or --key KEY and --time TIME"])
    from mpijoin.why.answer import why
    from mpijoin.why.plain import plain
    from mpijoin.why.text import text

    answer = why(options.run, Asked(options.stream, options.row, tuple(options.key), options.time, options.query))
    print(json.dumps(plain(answer), indent=2) if options.json else text(answer))
    return EXIT_DONE
