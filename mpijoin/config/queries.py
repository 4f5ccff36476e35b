"""The tables [[query]] of a job file: several queries over the same two streams."""

from __future__ import annotations

import re
from typing import Any, Iterator, Mapping

from mpijoin.config.faults import Fault, fault
from mpijoin.config.fields import JOIN_FIELDS, OUTPUT_FIELDS, Field
from mpijoin.config.job import AS_OUTPUT, COUNT, GENERATIONS, ROTATE, Job, Join, Query
from mpijoin.config.kinds import TEXT, WINDOW, Kind, in_utf8, quote, read_table
from mpijoin.config.units import format_duration, show
from mpijoin.errors import JobError

QUERY = "query"  # the name of the tables
QUERIES_MAX = 6  # a flag of a tuple has a bit for each
INSTEAD = f"set spill = {show(ROTATE)}, or give each slave more memory"  # of generations
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
NAME_WANTED = "wanted letters, digits, _ and -, 64 of them at most, and no - at the beginning"
WINDOWS_WANTED = 'wanted a table of stream = window, such as {left = "5 s"}'


def _parse_windows(value: Any) -> dict[str, int | None]:
    return read_table(value, WINDOWS_WANTED, _parse_window)


def _parse_window(entry: tuple[Any, Any]) -> tuple[str, int | None]:
    name, window = entry
    if not isinstance(name, str) or not name:
        raise ValueError(f"got {show(name)} = {show(window)}, {WINDOWS_WANTED}")
    return in_utf8(name), WINDOW.parse(window)


def _write_windows(windows: Mapping[str, int | None]) -> str:
    return "{" + ", ".join(f"{quote(name)} = {WINDOW.write(window)}" for name, window in windows.items()) + "}"


WINDOWS = Kind(_parse_windows, _write_windows, "table of stream = duration")
_COLUMNS = next(field for field in OUTPUT_FIELDS if field.name == "columns")
QUERY_FIELDS = (
    Field("name", "name", TEXT, meaning=(
        "What it is called: its results lie in results/NAME, and the summary has its figures under this name.")),
    Field("windows", "windows", WINDOWS, meaning=(
        'Its own windows, where they are shorter than those of the streams, such as {left = "5 s"}. Streams that are '
        "not named have the windows of their tables.")),
    *(field for field in JOIN_FIELDS if field.name != "plan"),
    Field("results", "results", TEXT, choices=(AS_OUTPUT, COUNT), meaning=(
        '"as output": as results of [output] says. "count": nothing of this query is written, results are counted.')),
    Field("columns", "columns", _COLUMNS.kind, meaning="Its result columns, as columns of [output]."),
)  # fmt: skip


def section_of_query(name: str) -> str:
    """What messages call the table of a query, and --set, too."""
    return f"{QUERY}.{name}"


def take_queries(tables: dict[str, Any], faults: list[Fault]) -> dict[str, Any]:
    """Takes the queries out of the tables of a job, and returns name -> table. In Python they may also be a dictionary
    of that form."""
    given = tables.pop(QUERY, [])
    if isinstance(given, Mapping):
        given = [{"name": name, **table} if isinstance(table, Mapping) else table for name, table in given.items()]
    if not isinstance(given, (list, tuple)) or not all(isinstance(one, Mapping) for one in given):
        faults.append(Fault((QUERY,), f"[[{QUERY}]]: got {show(given)}, wanted a table [[{QUERY}]] of each query"))
        return {}
    queries: dict[str, Any] = {}
    for number, table in enumerate(given, 1):
        name = table.get("name")
        where = f"[[{QUERY}]] name: query {number}:"
        if name is None:
            faults.append(Fault((), f'{where} missing, wanted what its results are called, such as "near"'))
        elif not isinstance(name, str) or not NAME.fullmatch(name):
            faults.append(Fault((), f"{where} got {show(name)}, {NAME_WANTED}"))
        elif name.lower() in {other.lower() for other in queries}:
            faults.append(Fault((), f"{where} got {show(name)} twice, wanted names that differ in more than case"))
        else:
            queries[name] = dict(table)
    return queries


def only_query(job: Job, name: str | None) -> Job:
    """Returns the job that asks the query of this name alone, as `--query` has it; without queries, the job itself.

    Raises JobError if it has no such query, or several and none is named.
    """
    if name is None and job.queries:
        raise JobError([f"--query: there are several queries, wanted one of {' '.join(job.names)}"])
    if name is not None and name not in job.names:
        wanted = f"one of {' '.join(job.names)}" if job.names else "none: the job has no queries"
        raise JobError([f"--query: got {show(name)}, wanted {wanted}"])
    return job.each[job.names.index(name) if name else 0]


def query_faults(job: Job) -> Iterator[Fault]:
    """What is wrong with the queries beside what would be wrong with each alone."""
    if not job.queries:
        return
    fields = tuple(f"{section_of_query(query.name)}.windows" for query in job.queries)
    if len(job.queries) > QUERIES_MAX:
        yield Fault((), f"[[{QUERY}]]: got {len(job.queries)} queries, wanted {QUERIES_MAX} of them at most")
    if len(job.streams) != 2:
        yield Fault((*fields, "streams"), f"[[{QUERY}]]: got {len(job.streams)} streams, wanted two")
    if job.join != Join():
        yield Fault(
            tuple(f"join.{field.name}" for field in JOIN_FIELDS),
            f"[join]: got this table and [[{QUERY}]], wanted one: make it a [[{QUERY}]] of its own",
        )
    if job.aggregate.is_on:
        yield Fault(("aggregate.history",), f"[aggregate]: got this table and [[{QUERY}]], wanted one")
    if job.output.columns is not None:
        yield fault("output", "columns", f"got a list, wanted none: each [[{QUERY}]] has columns of its own")
    if job.memory.spill == GENERATIONS:
        yield fault("memory", "spill", f"got {show(GENERATIONS)}: several queries cannot spill generations; {INSTEAD}")
    for query in job.queries:
        yield from _window_faults(job, query)


def _window_faults(job: Job, query: Query) -> Iterator[Fault]:
    section, own = section_of_query(query.name), {stream.name: stream for stream in job.streams}
    for name, window in query.windows.items():
        if name not in own:
            yield fault(section, "windows", f"no stream {show(name)}, there are {' '.join(own)}")
            continue
        longest = own[name].window_ns
        if window is not None and window < 0:
            yield fault(section, "windows", f"{name}: got {show(format_duration(window))}, wanted 0 or more")
        elif longest is not None and (window is None or window > longest):
            got, most = WINDOW.write(window), show(format_duration(longest))
            text = f"{name}: got {got}, wanted at most the window of the stream, which is {most}"
            yield Fault((f"{section}.windows", f"{own[name].section}.window"), f"[{section}] windows: {text}")
