"""What a job must keep to go on from a checkpoint: everything that the state and the answer depend on, and nothing
else.

Ranks, memory, policy, epochs, theta and speed may change, but not whether groups move by `ptlb`.
"""

from __future__ import annotations

import tomllib
from typing import Any, Mapping, Sequence

from mpijoin.config.dump import dump_job
from mpijoin.config.job import SHORT_STREAMS, Job
from mpijoin.config.moves import PTLB
from mpijoin.config.queries import QUERY
from mpijoin.config.units import show
from mpijoin.errors import JobError

LEFT_AS_IT_WAS = "leave it as it was, or begin anew with --overwrite"
KEPT = {
    "cluster": ("partitions",),
    "tuning": ("block",),
    "run": ("seed", "late"),
    "output": ("results", "columns"),
    "join": ("type", "where", "match", "reduce"),
    "aggregate": ("history", "columns", "emit"),
    "inject": ("hash_bits",),
    "balance": (),  # whether tuples have flags, which `identity_of` tells
}
STATE = ("cluster", "tuning", "inject", "balance")  # sections that the answer does not depend on


def identity_of(job: Job) -> dict[str, Any]:
    """Returns section -> field -> value, as in a job file; "streams" has the sections of all streams, in their
    order, and "query" the tables of all queries."""
    # The tuples that two slaves may join side by side have flags in their blocks.
    return _kept(dump_job(job), KEPT) | {"balance": {"move": PTLB if job.has_tracks else f"no {PTLB}, or no policy"}}


def answer_of(dumped: str) -> dict[str, Any]:
    """Likewise of a run that is done, whose job this is as `dump_job` wrote it: only what its answer depends on. Empty
    if this is no such job."""
    try:
        return _kept(dumped, {section: names for section, names in KEPT.items() if section not in STATE})
    except (ValueError, KeyError):
        return {}


def _kept(dumped: str, fields: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    document = tomllib.loads(dumped)
    streams = document.get("streams") or {name: document[name] for name in SHORT_STREAMS if name in document}
    kept = {section: {name: document[section].get(name) for name in names} for section, names in fields.items()}
    return {"streams": streams, **kept, QUERY: {query["name"]: query for query in document.get(QUERY, [])}}


def check_identity(job: Job, saved: Mapping[str, Any]) -> None:
    """Raises JobError with every field that differs from what it was when the checkpoint was made. An empty `saved`
    means that nothing is known, and is not compared."""
    if not saved:
        return
    own, saved = identity_of(job), dict(saved)
    streams, wanted = own.pop("streams"), saved.pop("streams")
    if list(streams) != list(wanted):
        names = [", ".join(map(show, one)) for one in (streams, wanted)]
        raise JobError(
            [f"streams: got {names[0]}, but the run to go on with has {names[1]}: begin anew with --overwrite"]
        )
    queries, wanted_queries = list(own[QUERY]), list(saved[QUERY])
    own, saved = {**streams, **own}, {**wanted, **saved}
    faults = [
        f"[{section}] {name}: got {show(own[section].get(name))}, but the run to go on with has"
        f" {show(fields.get(name))}: {LEFT_AS_IT_WAS}"
        for section, fields in saved.items()
        for name in sorted({*fields, *own[section]})
        if not _are_same(own[section].get(name), fields.get(name))
    ]
    if queries != wanted_queries and sorted(queries) == sorted(wanted_queries):
        orders = [", ".join(map(show, names)) for names in (queries, wanted_queries)]
        faults.append(f"[[{QUERY}]]: got {orders[0]}, but the run to go on with has {orders[1]}: {LEFT_AS_IT_WAS}")
    if faults:
        raise JobError(faults)


def _are_same(one: Any, other: Any) -> bool:
    """Whether two fields are equal. Columns are in the order of their table, so that counts, too."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(_are_same(one[name], other[name]) for name in one)
    return bool(one == other)
