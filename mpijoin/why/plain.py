"""The answer as values that JSON knows."""

from __future__ import annotations

from typing import Any

from pyarrow import types

from mpijoin.verify.inputs import JOINS, KEYLESS, LATE, NULL_KEY, NULL_TIME, Stream
from mpijoin.verify.values import stored_type
from mpijoin.why.answer import Answer
from mpijoin.why.partners import Found, Near, Other
from mpijoin.why.words import place, value_words

FATES = {JOINS: "joined", LATE: "late", NULL_KEY: "null_key", KEYLESS: "null_key", NULL_TIME: "null_time"}


def plain(answer: Answer) -> dict[str, Any]:
    """Spans are in nanoseconds, times in words. Keys are as JSON has them, and those that it does not know in words."""
    own, results = answer.own, answer.results
    rows = [dict(zip((stream.name for stream in answer.job.streams), rows)) for rows in results.first]
    return {
        "stream": own.stream.name,
        **_row(own.stream, own.row, own.values[own.stream.job.time]),
        "key": [_key(own.stream, name, own.values[name]) for name in own.stream.job.key],
        "fate": FATES[own.fate],
        "late": _late(answer),
        "has_read": answer.progress.has_read,
        "state": answer.progress.state or "the run has finished",
        "results": {"count": results.total, "first": rows},
        "streams": {other.stream.name: _other(answer, other) for other in answer.others},
        "notes": list(answer.notes),
    }


def _key(stream: Stream, name: str, value: Any) -> str | int | None:
    kind = stored_type(stream.fields[name])
    if value is None or types.is_integer(kind) or types.is_boolean(kind):
        return value
    is_text = types.is_string(kind) or types.is_large_string(kind)
    return value.decode(errors="replace") if is_text else value_words(stream, name, value)


def _row(stream: Stream, row: int, time: Any) -> dict[str, Any]:
    return {"row": row, "place": place(stream, row), "time": value_words(stream, stream.job.time, time)}


def _late(answer: Answer) -> dict[str, int] | None:
    own = answer.own
    if own.fate != LATE or own.mark is None or own.time is None:
        return None
    lateness = answer.clock.lateness[own.stream.index]
    by, tick_ns = own.mark - own.time, answer.clock.tick_ns
    return {"by_ns": by * tick_ns, "lateness_ns": lateness * tick_ns, "lateness_needed_ns": (by + lateness) * tick_ns}


def _other(answer: Answer, other: Other) -> dict[str, Any]:
    tick_ns = answer.clock.tick_ns

    def near(one: Near) -> dict[str, Any]:
        missed = max(0, one.missed * tick_ns)
        told = _row(other.stream, one.row, one.time)
        return {**told, "distance_ns": one.distance * tick_ns, "missed_by_ns": missed}

    def found(some: Found) -> dict[str, Any]:
        return {"count": some.total, "first": [near(one) for one in some.first]}

    missed = {"before": [near(one) for one in other.before], "after": [near(one) for one in other.after]}
    met = {"partners": found(other.partners), "failed": found(other.failed), "late": found(other.late)}
    return {"rows": other.rows, **met, "missed": missed}
