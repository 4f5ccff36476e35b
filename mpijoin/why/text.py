"""The answer as a terminal shows it."""

from __future__ import annotations

from typing import Iterator, Sequence

from mpijoin.config.job import ANTI, SEMI
from mpijoin.config.units import plural
from mpijoin.verify.inputs import JOINS, KEYLESS, LATE, NULL_KEY
from mpijoin.why.answer import Answer
from mpijoin.why.partners import Found, Near, Other
from mpijoin.why.words import distance_words, place, span_words, value_words


def text(answer: Answer) -> str:
    """All of it, in paragraphs."""
    paragraphs = [_own(answer), _verdict(answer), *(_other(answer, one) for one in answer.others)]
    if len(answer.others) > 1:
        paragraphs.append(_results(answer))
    paragraphs.append([f"note: {note}" for note in answer.notes])
    return "\n\n".join("\n".join(lines) for lines in paragraphs if lines)


def _own(answer: Answer) -> list[str]:
    own = answer.own
    where = place(own.stream, own.row)
    names = list(dict.fromkeys((*own.stream.job.key, own.stream.job.time)))
    width = max(map(len, names))
    values = [f"  {name:<{width}}  {value_words(own.stream, name, own.values[name])}" for name in names]
    return [f"{own.stream.name}: row {own.row}" + (f" ({where})" if where else ""), *values]


def _verdict(answer: Answer) -> list[str]:
    lines = [f"  {sentence}" for sentence in _sentences(answer)]
    if answer.progress.state:
        lines.append(f"  The run has no end: {answer.progress.state}.")
    return lines


def _sentences(answer: Answer) -> Iterator[str]:
    own, has_read = answer.own, answer.progress.has_read
    if has_read is False:
        yield "It has not been read yet. This is what becomes of it once the run goes on:"
    if own.fate == JOINS:
        yield from _joined(answer)
    elif own.fate == LATE:
        yield from _late(answer)
    elif own.fate == KEYLESS:
        yield "Its key is null, and a null key matches nothing: it is a result without a partner."
    elif own.fate == NULL_KEY:
        yield "It did not join: its key is null, and a null key matches nothing."
    else:
        yield f"It did not join: its time is null. It is in late/{own.stream.name}.parquet."


def _joined(answer: Answer) -> Iterator[str]:
    count = answer.results.total
    if answer.job.aggregate.is_on:
        yield "It joined: it counts in the aggregate of its key."
    elif answer.job.join.type in (SEMI, ANTI):
        yield _of_one_stream(answer)
    elif count and answer.job.join.answers_rows:
        yield _of_each_row(answer)
    elif not count and answer.own.stream.index in answer.job.join.alone:
        yield "It joined, found no partner, and is a result of its own."
    elif count:
        yield f"It joined, and is in {plural(count, 'result')}."
    elif any(other.rows == 0 for other in answer.others):
        none = [other.stream.name for other in answer.others if other.rows == 0]
        have = "has" if len(none) == 1 else "have"
        yield f"It joined, but is in no result: {' and '.join(none)} {have} no row of its key."
    elif any(other.failed.total and not other.partners.total for other in answer.others):
        where = answer.job.join.where
        yield f"It joined, but is in no result: {where} is true with no row of its key that was in time."
    elif any(not other.partners.total for other in answer.others):
        none = [other.stream.name for other in answer.others if not other.partners.total]
        yield f"It joined, but is in no result: no row of its key in {' and '.join(none)} was there in time."
    else:
        yield "It joined, but is in no result: its partners do not wait long enough for each other."


def _of_one_stream(answer: Answer) -> str:
    """Of a join whose results are rows of the first stream alone."""
    count, is_semi = answer.results.total, answer.job.join.type == SEMI
    first, second = (stream.name for stream in answer.job.streams)
    if answer.own.stream.index == 1:
        of_one, of_many = (
            ("which is a result", "each of which is a result")
            if is_semi
            else ("which is therefore no result", "which are therefore no results")
        )
        rest = f", {of_one if count == 1 else of_many}." if count else "."
        return f"It joined: it has {plural(count, 'partner')} in {first}{rest}"
    if count:
        told = "is a result" if is_semi else "is no result"
        return f"It joined, has {plural(count, 'partner')} in {second}, and {told}."
    return f"It joined, has no partner in {second}, and " + ("is no result." if is_semi else "is a result.")


def _of_each_row(answer: Answer) -> str:
    """Of a join in which each row of the first stream that has partners is one result, and this row has some."""
    join, count, first = answer.job.join, answer.results.total, answer.job.streams[0].name
    if answer.own.stream.index == 0:
        told = f"worked out of {plural(count, 'partner')}" if join.reduce else f"with the {join.match} of its partners"
        return f"It joined, and is one result, {told}."
    rest = f"each is one result, with its {join.match} partner"
    if join.reduce:
        rest = "what is worked out of these counts it"
    return f"It joined: it is a partner of {plural(count, 'row')} of {first}; {rest}."


def _late(answer: Answer) -> Iterator[str]:
    own, ticks = answer.own, answer.clock.tick_ns
    assert own.time is not None and own.mark is not None
    late, lateness = own.mark - own.time, answer.clock.lateness[own.stream.index]
    section, allowed = own.stream.job.section, span_words(lateness * ticks)
    yield f"It was late, by {span_words(late * ticks)}, and did not join. It is in late/{own.stream.name}.parquet."
    yield (
        f"A row before it in its file is {span_words((late + lateness) * ticks)} later than it; [{section}] lateness is"
        f" {allowed}."
    )
    yield f'lateness = "{span_words((late + lateness) * ticks)}" would have covered it.'
    if answer.results.total:
        yield f"It would have been in {plural(answer.results.total, 'result')}:"


def _other(answer: Answer, other: Other) -> list[str]:
    partners = plural(other.partners.total, "partner") if other.partners.total else "no partner"
    head = f"{other.stream.name}: {partners} among {plural(other.rows, 'row')} of this key; {_span(answer, other)}"
    table = _Table(answer, other)
    table.add("", other.partners.first)
    table.add_rest(other.partners)
    table.add("the condition is not true with:", other.failed.first)
    table.add_rest(other.failed)
    table.add("would be partners, but were late:", other.late.first)
    table.add_rest(other.late)
    table.add("just missed:", (*other.before, *other.after), are_missed=True)
    return [head, *table.lines()]


def _span(answer: Answer, other: Other) -> str:
    """In which span partners lie."""
    windows = answer.clock.window[other.stream.index], answer.clock.window[answer.own.stream.index]
    before, after = (
        "any time" if window is None else span_words(window * answer.clock.tick_ns) for window in windows
    )
    return f"partners come from {before} before it to {after} after it"


class _Table:
    """Rows of another stream, below each other."""

    def __init__(self, answer: Answer, other: Other):
        self._tick_ns, self._stream = answer.clock.tick_ns, other.stream
        self._lines: list[str | tuple[str, ...]] = []

    def add(self, title: str, rows: Sequence[Near], are_missed: bool = False) -> None:
        if not rows:
            return
        if title:
            self._lines.append(title)
        for near in rows:
            time = value_words(self._stream, self._stream.job.time, near.time)
            missed = f"by {span_words(near.missed * self._tick_ns)}" if are_missed else ""
            distance = distance_words(near.distance * self._tick_ns)
            self._lines.append((str(near.row), time, distance, place(self._stream, near.row), missed))

    def add_rest(self, found: Found) -> None:
        rest = found.total - len(found.first)
        if rest:
            self._lines.append(f"and {rest:,} more")

    def lines(self) -> Iterator[str]:
        rows = [line for line in self._lines if isinstance(line, tuple)]
        if not rows:
            return
        head = ("row", self._stream.job.time, "from it", "file" if self._stream.files else "", "")
        widths = [max(map(len, column)) for column in zip(head, *rows)]
        for line in (head, *self._lines):
            if isinstance(line, str):
                yield f"  {line}"
            else:
                cells = [line[0].rjust(widths[0]), *(cell.ljust(width) for cell, width in zip(line[1:], widths[1:]))]
                yield ("    " + "  ".join(cell for cell, width in zip(cells, widths) if width)).rstrip()


def _results(answer: Answer) -> list[str]:
    """The results of three streams or more, whose partners must also meet each other."""
    results = answer.results
    if not results.total:
        return []
    names = [f"{stream.name}_row" for stream in answer.job.streams]
    rows = [names, *([str(row) for row in rows] for rows in results.first)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows]
    rest = results.total - len(results.first)
    return [f"results: {results.total:,}", *lines, *([f"  and {rest:,} more"] if rest else [])]
