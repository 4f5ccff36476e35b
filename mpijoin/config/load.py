"""Makes one frozen `Job` of a job file (TOML) or a dict, plus `--set` overrides."""

from __future__ import annotations

import difflib
import glob
import os
from typing import Any, Collection, Mapping, Sequence

from mpijoin.config.document import STREAMS, Document, read_document
from mpijoin.config.dump import dump_job
from mpijoin.config.faults import Fault, fault
from mpijoin.config.fields import SECTIONS, SOURCE_FIELDS, STREAM_FIELDS, SYNTHETIC_FIELDS, Field
from mpijoin.config.job import (
    SHORT_STREAMS,
    FileSource,
    Job,
    Query,
    StreamJob,
    SyntheticSource,
    TableSource,
    section_of,
)
from mpijoin.config.kinds import BadEntries, in_utf8
from mpijoin.config.queries import QUERY, QUERY_FIELDS, section_of_query
from mpijoin.config.rules import job_faults
from mpijoin.config.units import show
from mpijoin.errors import JobError

__all__ = ["dump_job", "load_job", "load_streams"]

TABLES = (*SHORT_STREAMS, f"{STREAMS}.NAME", *SECTIONS, QUERY)  # at the top of a job file
FOLDERS = ("output", "checkpoint", "memory")  # sections whose path is a folder
SOURCES = {field.name: field for field in SOURCE_FIELDS}


def load_job(job: str | os.PathLike | Mapping[str, Any], overrides: Sequence[str] = ()) -> Job:
    """Returns the job in a TOML file, or in a dict of the same form, after each "section.field=value" of `overrides`
    was set.

    Relative paths, the output's too, are taken from the job file's folder (for a dict: the current one) and made
    absolute. In a dict, `{"table": <pyarrow.Table>, ...}` as a stream hands over a table instead of a path. Raises
    JobError with every fault of its text and values.
    """
    return _sound(*read_job(job, overrides))


def read_job(job: str | os.PathLike | Mapping[str, Any], overrides: Sequence[str]) -> tuple[Job, list[Fault]]:
    """Reads as `load_job`, but returns what could be read, with defaults for the rest, and the faults. Raises JobError
    if nothing could be read."""
    faults: list[Fault] = []
    return _read(read_document(job, overrides, faults), faults, needs_output=not isinstance(job, Mapping))


def load_streams(path: str | os.PathLike, overrides: Sequence[str] = ()) -> Job:
    """Reads as `load_job`, for callers who only look at the streams: the job needs no output path."""
    faults: list[Fault] = []
    return _sound(*_read(read_document(path, overrides, faults), faults, needs_output=False))


def _sound(job: Job, faults: Sequence[Fault]) -> Job:
    if faults:
        raise JobError([one.text for one in faults])
    return job


def _read(document: Document, faults: list[Fault], needs_output: bool) -> tuple[Job, list[Fault]]:
    """faults: those that the document has had so far."""
    job = _build(document, faults)
    output = document.sections.get("output", {})
    if needs_output and isinstance(output, dict) and "path" not in output:
        faults.append(fault("output", "path", "missing: wanted the folder that the run writes"))
    unread = [one._replace(unread=True) for one in faults]
    fields = {field for one in unread for field in one.fields}
    return job, unread + [one for one in job_faults(job, fields) if fields.isdisjoint(one.fields)]


def _build(document: Document, faults: list[Fault]) -> Job:
    """Makes a Job of all that could be read; what could not is at its default, and in `faults`."""
    for name, table in document.sections.items():
        if name not in SECTIONS:
            faults.append(
                Fault((), f"[{name}]: no such section{_section_hint(name, table)}, there are {' '.join(TABLES)}")
            )
    streams = tuple(_stream(name, document, faults) for name in document.names)
    others = {}
    for name, (make, fields) in SECTIONS.items():
        values = _values(name, _table(document.sections, name, name, faults), fields, faults)
        if name in FOLDERS and values.get("path"):
            values["path"] = _absolute(name, document.folder, values["path"], faults)
        others[name] = make(**values)
    queries = tuple(_query(name, table, faults) for name, table in document.queries.items())
    return Job(streams, **others, queries=queries)


def _query(name: str, table: dict[str, Any], faults: list[Fault]) -> Query:
    values = _values(section_of_query(name), {key: table[key] for key in table if key != "name"}, QUERY_FIELDS, faults)
    return Query(name, **values)


def _section_hint(name: str, table: Any) -> str:
    if isinstance(table, dict) and not SOURCES.keys().isdisjoint(table):
        return f", did you mean [{STREAMS}.{name}]?"
    return _hint(_closest(name, TABLES))


def _table(tables: Mapping[str, Any], name: str, section: str, faults: list[Fault]) -> dict[str, Any]:
    """Reads the fields in the table `name`, which messages call `section`."""
    table = tables.get(name, {})
    if isinstance(table, dict):
        return table
    faults.append(Fault(_fields_of(section), f"[{section}]: got {show(table)}, wanted a table of fields"))
    return {}


def _fields_of(section: str) -> tuple[str, ...]:
    """All fields of a section, as faults name them."""
    fields = SECTIONS[section][1] if section in SECTIONS else STREAM_FIELDS
    names = [field.name for field in fields] + (list(SOURCES) if section not in SECTIONS else [])
    return tuple(f"{section}.{name}" for name in names)


def _values(
    section: str, given: dict[str, Any], fields: tuple[Field, ...], faults: list[Fault], others: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Returns the given fields by attribute name; `others` are fields that the caller reads itself."""
    known = {field.name: field for field in fields}
    values = {}
    for name, value in given.items():
        if name in known:
            try:
                values[known[name].attribute] = known[name].kind.parse(value)
            except BadEntries as error:
                every = [fault(section, name, problem) for problem in error.problems]
                if error.sound is not None:  # so the field is not unread, and its rules are for the other entries
                    values[known[name].attribute] = error.sound
                    every = [one._replace(fields=()) for one in every]
                faults += every
            except ValueError as error:
                faults.append(fault(section, name, str(error)))
        elif name not in others:
            faults.append(_unknown_field(section, name, (*known, *others), given))
    return values


def _unknown_field(section: str, name: str, known: Sequence[str], given: Collection[str]) -> Fault:
    """The fault names, beside the unknown field, the field or section that was probably meant."""
    if name in SECTIONS:
        return fault(section, name, f"no such field, did you mean the section [{name}]?")
    is_stream = section not in SECTIONS and not section.startswith(f"{QUERY}.")
    if is_stream and name in {field.name for field in SYNTHETIC_FIELDS}:
        return fault(section, name, 'is for kind = "synthetic" only')
    homes = [other for other, (_, fields) in SECTIONS.items() if name in {field.name for field in fields}]
    if homes:
        return fault(section, name, f"no such field, did you mean [{homes[0]}] {name}?")
    closest = _closest(name, [field for field in known if field not in given]) or _closest(name, known)
    meant = (f"{section}.{closest}",) if closest and closest not in given else ()
    return Fault((f"{section}.{name}", *meant), f"[{section}] {name}: no such field{_hint(closest)}")


def _closest(name: str, known: Sequence[str]) -> str:
    """The known name that looks most like this one; "" if none does."""
    return next(iter(difflib.get_close_matches(str(name), known, n=1)), "")


def _hint(closest: str) -> str:
    return f", did you mean {closest}?" if closest else ""


def _stream(name: str, document: Document, faults: list[Fault]) -> StreamJob:
    section = section_of(name)
    if name not in document.streams:
        faults.append(Fault(_fields_of(section), f"[{section}]: missing section, wanted one with at least a path"))
    given = _table(document.streams, name, section, faults)
    synthetic = given.get("kind") == "synthetic"
    fields = STREAM_FIELDS + (SYNTHETIC_FIELDS if synthetic else ())
    # Where only a kind says what the stream is, and there is no such, the fields of the one that there is are let pass.
    is_made_up = "kind" in given and given.keys().isdisjoint(("path", "table"))
    others = (*SOURCES, *(field.name for field in SYNTHETIC_FIELDS if is_made_up))
    values = _values(section, given, fields, faults, others)
    own = {field.attribute: values[field.attribute] for field in STREAM_FIELDS if field.attribute in values}
    generated = {key: value for key, value in values.items() if key not in own}
    return StreamJob(name, _source(section, given, generated, document.folder, faults), **own)


def _source(
    section: str, given: dict[str, Any], generated: dict[str, Any], folder: str, faults: list[Fault]
) -> FileSource | TableSource | SyntheticSource:
    present = [field for field in SOURCES if field in given]
    is_path = "path" in given and "table" not in given and given.get("kind") != "synthetic"
    if len(present) > 1:
        fields = tuple(f"{section}.{field}" for field in present if field != "path" or not is_path)
        faults.append(Fault(fields, f"[{section}] {', '.join(present)}: got {len(present)} of them, wanted one"))
    if given.get("kind", "synthetic") != "synthetic":
        text = f'[{section}] kind: got {show(given["kind"])}, wanted "synthetic", or a path instead'
        faults.append(Fault((f"{section}.kind", *(() if is_path else (f"{section}.path",))), text))
    if given.get("kind") == "synthetic":
        return SyntheticSource(**generated)
    which = "table" if "table" in given else "path"
    try:
        value = SOURCES[which].kind.parse(given[which]) if which in given else ""
    except ValueError as error:
        faults.append(Fault((f"{section}.{which}", f"{section}.path"), f"[{section}] {which}: {error}"))
        value = ""
    if isinstance(value, str):
        return FileSource(_input_path(section, folder, value, faults) if value else "")
    return TableSource(value)


def _input_path(section: str, folder: str, path: str, faults: list[Fault]) -> str:
    """The absolute path; in a glob, the folder's own name is not part of the pattern."""
    return _absolute(section, glob.escape(folder) if glob.has_magic(path) else folder, path, faults)


def _absolute(section: str, folder: str, path: str, faults: list[Fault]) -> str:
    """Makes a path absolute in the job file's folder; "" with a fault added if it could not be written down."""
    try:
        return in_utf8(os.path.abspath(os.path.join(folder, os.path.expanduser(path))))
    except ValueError as error:
        faults.append(fault(section, "path", str(error)))
        return ""
