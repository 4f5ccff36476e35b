"""The rules that a job must keep about its operator: the join, or the aggregate."""

from __future__ import annotations

from typing import Iterator

from mpijoin.config.faults import Fault, fault
from mpijoin.config.job import ALL, ANTI, AUTO, FULL, GENERATIONS, INNER, LEFT, MWAY, RIGHT, SEMI, Job
from mpijoin.config.plan import PlanError, parse_plan
from mpijoin.config.queries import INSTEAD, query_faults, section_of_query
from mpijoin.config.units import show

HISTORY_ROWS_MAX = 2**40  # no file has more rows
FUNCTIONS_MAX = 32  # of an aggregate; a word has a bit for each
MARKED = (LEFT, RIGHT, FULL, SEMI, ANTI)  # types of join that mark rows which have partners


def operator_faults(job: Job) -> Iterator[Fault]:
    """Returns the faults of what is to be found."""
    sections = [section_of_query(name) for name in job.names] or ["join"]
    for section, one in zip(sections, job.each):
        yield from _join_faults(one, section)
    yield from _aggregate_faults(job)
    yield from query_faults(job)


def _join_faults(job: Job, section: str) -> Iterator[Fault]:
    """section: the table that says what this join is."""
    if job.join.where and len(job.streams) != 2:
        text = f"a condition is about pairs, and there are {len(job.streams)} streams: wanted two"
        yield Fault((f"{section}.where", "streams"), f"[{section}] where: {text}")
    yield from _match_faults(job, section)
    yield from _plan_faults(job, section)
    if job.join.type not in MARKED:
        return
    got = f"got {show(job.join.type)}"
    if len(job.streams) != 2:
        text = f"{got} and {len(job.streams)} streams, wanted two for this type"
        yield Fault((f"{section}.type", "streams"), f"[{section}] type: {text}")


def _plan_faults(job: Job, section: str) -> Iterator[Fault]:
    if job.join.plan == MWAY:
        return
    if job.join.plan == AUTO and len(job.streams) > 2:
        return
    try:
        parse_plan(job.join.plan, [stream.name for stream in job.streams])
    except PlanError as error:
        others = f"plan = {show(MWAY)}" + (f" or {show(AUTO)}" if len(job.streams) > 2 else "")
        text = f"[{section}] plan: {show(job.join.plan)}: {error}, or {others}"
        yield Fault((f"{section}.plan", "streams"), text)


def _match_faults(job: Job, section: str) -> Iterator[Fault]:
    if not job.join.answers_rows:
        return
    field = "reduce" if job.join.reduce else "match"
    got = "got functions" if job.join.reduce else f"got {show(job.join.match)}"
    if job.join.reduce and job.join.match != ALL:
        text = f"{got} and {show(job.join.match)}, wanted match = {show(ALL)}: functions are of all partners"
        yield Fault((f"{section}.reduce", f"{section}.match"), f"[{section}] reduce, match: {text}")
    if len(job.join.reduce) > FUNCTIONS_MAX:
        yield fault(section, "reduce", f"got {len(job.join.reduce)} columns: wanted {FUNCTIONS_MAX} of them at most")
    if len(job.streams) != 2:
        text = f"{got} and {len(job.streams)} streams, wanted two: it is about the partners of a row of the first"
        yield Fault((f"{section}.{field}", "streams"), f"[{section}] {field}: {text}")
    if job.join.type not in (INNER, LEFT):
        other = "none" if job.join.reduce else f"match = {show(ALL)}"
        text = f"{got} and {show(job.join.type)}, wanted type {show(INNER)} or {show(LEFT)}, or {other}"
        yield Fault((f"{section}.{field}", f"{section}.type"), f"[{section}] {field}, type: {text}")
    if job.memory.spill == GENERATIONS:
        text = f"{got} and {show(GENERATIONS)}: a clean-up finds pairs, and no answers of rows; {INSTEAD}"
        yield Fault((f"{section}.{field}", "memory.spill"), f"[{section}] {field}, [memory] spill: {text}")


def _aggregate_faults(job: Job) -> Iterator[Fault]:
    aggregate = job.aggregate
    if not aggregate.is_on:
        return
    history = aggregate.history
    if history is None:
        yield fault("aggregate", "history", 'missing: wanted what counts for a row, such as "100 rows" or "10 min"')
    elif history.rows is not None and not 1 <= history.rows <= HISTORY_ROWS_MAX:
        yield fault("aggregate", "history", f"got {history.rows} rows, wanted 1 to {HISTORY_ROWS_MAX}")
    if not 1 <= len(aggregate.columns) <= FUNCTIONS_MAX:
        got = f"got {len(aggregate.columns)} columns" if aggregate.columns else "missing"
        yield fault("aggregate", "columns", f"{got}: wanted 1 to {FUNCTIONS_MAX} of them")
    if len(job.streams) != 1:
        text = f"got {len(job.streams)} streams, wanted one: an aggregate is of one stream"
        yield Fault(("streams", "aggregate.history"), f"[aggregate]: {text}")
    for stream in job.streams:
        if stream.window_ns != 0:
            text = "an aggregate has no window, but the history of [aggregate]; leave it out"
            yield fault(stream.section, "window", text)
    if job.memory.spill == GENERATIONS:
        text = f"got {show(GENERATIONS)}: an aggregate cannot spill generations; {INSTEAD}"
        yield Fault(("memory.spill", "aggregate.history"), f"[memory] spill: {text}")
