"""What a job file says, before anybody asks what it means: its tables, all streams in one place, and `--set` in
them."""

from __future__ import annotations

import os
import tomllib
from typing import Any, Iterator, Mapping, Sequence

from mpijoin.config.faults import Fault
from mpijoin.config.job import SHORT_STREAMS, section_of
from mpijoin.config.queries import QUERY, take_queries
from mpijoin.config.toml import read_toml
from mpijoin.config.units import show
from mpijoin.named import NamedTuple

STREAMS = "streams"  # the table of the streams' tables


class Document(NamedTuple):
    """streams: name -> what its table holds, in the order of the file · is_short: [left] and [right] stand for
    [streams.left] and [streams.right], and one of them may be missing · sections: all other tables by name · folder:
    where relative paths start · queries: name -> what its table holds."""

    streams: dict[str, Any]
    is_short: bool
    sections: dict[str, Any]
    folder: str
    queries: dict[str, Any]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the streams that the job has. In the short form there are two, in this order."""
        return SHORT_STREAMS if self.is_short else tuple(self.streams)


def read_document(
    job: str | os.PathLike | Mapping[str, Any], overrides: Sequence[str], faults: list[Fault]
) -> Document:
    """Reads a job file, or a dict of the same form, and sets each "section.field=value" of `overrides` in it.

    Adds to `faults` what is wrong with overrides and with the tables of the streams. Raises JobError if there is
    nothing to read.
    """
    tables, folder = _tables(job)
    is_short = STREAMS not in tables
    faults += _form_faults(tables)
    document = Document(_taken_streams(tables), is_short, tables, folder, take_queries(tables, faults))
    for override in overrides:
        if isinstance(override, str):
            _override(document, override, faults)
        else:
            faults.append(Fault((), f"overrides: got {show(override)}, wanted texts as section.field=value"))
    return document


def _tables(job: str | os.PathLike | Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The top level of the document, which is never the caller's own dict, and the folder where relative paths
    start."""
    if isinstance(job, Mapping):
        return {name: _copied(table) for name, table in job.items()}, os.getcwd()
    return read_toml(job), os.path.dirname(os.path.abspath(job))


def _copied(table: Any) -> Any:
    return dict(table) if isinstance(table, Mapping) else table


def _form_faults(tables: Mapping[str, Any]) -> Iterator[Fault]:
    """Faults of streams that are written in no form, or in both."""
    long, short = tables.get(STREAMS, {}), [name for name in SHORT_STREAMS if name in tables]
    if not isinstance(long, Mapping):
        yield Fault(
            (STREAMS,), f"[{STREAMS}]: got {show(long)}, wanted a table of each stream, such as [{STREAMS}.picks]"
        )
        return
    if STREAMS in tables and short:
        got = ", ".join([*(f"[{name}]" for name in short), *(f"[{STREAMS}.{name}]" for name in long)])
        advice = " and ".join(f"[{name}] as [{STREAMS}.{name}]" for name in short if name not in long)
        again = " and ".join(f"[{name}]" for name in short if name in long)
        what = [f"write {advice}"] if advice else []
        what += [f"leave {again} out"] if again else []
        yield Fault((), f"{got}: got both forms of a stream's table, wanted one: {', '.join(what)}")


def _taken_streams(tables: dict[str, Any]) -> dict[str, Any]:
    """Takes the streams out of `tables`. If both forms are there, which is a fault, it takes all of them, so that their
    other faults are found, too."""
    streams: dict[str, Any] = {}
    for name in [name for name in tables if name in (STREAMS, *SHORT_STREAMS)]:
        table = tables.pop(name)
        if name != STREAMS:
            streams.setdefault(name, table)
        elif isinstance(table, Mapping):
            streams |= {each: _copied(own) for each, own in table.items()}
    return streams


def _override(document: Document, override: str, faults: list[Fault]) -> None:
    """Sets one "section.field=value" in the document; deeper names ("inject.slow.2=0.5") reach into tables."""
    path, equals, text = override.partition("=")
    names = path.strip().split(".")
    table = document.sections
    if names[0] in SHORT_STREAMS or (names[0] == STREAMS and len(names) > 1):
        names, table = names[names[0] == STREAMS :], document.streams
    if names[0] == QUERY and len(names) > 2:
        names, table = names[1:], document.queries
    if not equals or len(names) < 2 or not all(names):
        faults.append(Fault((), f"--set {override}: wanted section.field=value"))
        return
    if table is document.streams and names[0] not in document.names:
        faults.append(Fault((), f"--set {override}: no such stream, there are {' '.join(document.names) or 'none'}"))
        return
    if table is document.queries and names[0] not in table:
        faults.append(Fault((), f"--set {override}: no such query, there are {' '.join(table) or 'none'}"))
        return
    try:
        value = _override_value(text.strip())
    except tomllib.TOMLDecodeError as error:
        section = section_of(names[0]) if table is document.streams else names[0]
        faults.append(Fault((".".join([section, *names[1:]]),), f"--set {override}: the value is not TOML: {error}"))
        return
    for name in names[:-1]:
        if not isinstance(table.setdefault(name, {}), dict):
            faults.append(Fault((), f"--set {override}: {name} is not a table"))
            return
        table[name] = dict(table[name])  # a caller's own dict stays as it is
        table = table[name]
    table[names[-1]] = value


def _override_value(text: str) -> Any:
    """Reads the text as a TOML value. What is no TOML, such as `20 s` or `a.parquet`, is a plain string."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        if text[:1] in ("[", "{", '"', "'"):
            raise
        return text
    return parsed["value"] if len(parsed) == 1 else text
