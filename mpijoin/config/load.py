"""A job file (TOML) or a dict, plus `--set` overrides, made into one frozen `Job`."""

from __future__ import annotations

import difflib
import glob
import os
import tomllib
from typing import Any, Collection, Mapping, Sequence

from mpijoin.config.dump import dump_job
from mpijoin.config.fields import SECTIONS, SOURCE_FIELDS, STREAM_FIELDS, SYNTHETIC_FIELDS, Field
from mpijoin.config.job import FileSource, Job, StreamJob, SyntheticSource, TableSource
from mpijoin.config.kinds import in_utf8
from mpijoin.config.rules import Fault, fault, job_faults, stream_faults
from mpijoin.config.units import show
from mpijoin.errors import JobError

__all__ = ["dump_job", "load_job"]

STREAMS = ("left", "right")
FOLDERS = ("output", "checkpoint")  # sections whose path is a folder
SOURCES = {field.name: field for field in SOURCE_FIELDS}


def load_job(job: str | os.PathLike | Mapping[str, Any], overrides: Sequence[str] = ()) -> Job:
    """The job in a TOML file, or in a dict of the same form, with each "section.field=value" of `overrides` set in it.

    Relative paths, the output's too, are taken from the job file's folder (for a dict: the current one) and made
    absolute. In a dict, `left = {"table": <pyarrow.Table>, ...}` hands over a table instead of a path.
    Raises JobError with every fault of its text and values.
    """
    value, faults = read_job(job, overrides)
    if faults:
        raise JobError([one.text for one in faults])
    return value


def read_job(job: str | os.PathLike | Mapping[str, Any], overrides: Sequence[str]) -> tuple[Job, list[Fault]]:
    """As `load_job`: what could be read, with defaults for the rest, and the faults. JobError: nothing could be
    read."""
    document, folder, faults = _overridden(job, overrides)
    value = _build(document, folder, faults)
    if not isinstance(job, Mapping) and not value.output.path:
        faults.append(fault("output", "path", "missing: wanted the folder that the run writes"))
    unread = [one._replace(unread=True) for one in faults]
    return value, unread + _unknown_yet(unread, job_faults(value))


def load_with_further_streams(path: str | os.PathLike, overrides: Sequence[str] = ()) -> tuple[Job, list[StreamJob]]:
    """The job, and what further synthetic streams its file has: sections of other names with kind = "synthetic".

    The job needs no output path. Raises JobError as `load_job` does.
    """
    document, folder, faults = _overridden(path, overrides)
    sections = (*STREAMS, *SECTIONS)
    further = {
        name: document.pop(name)
        for name, section in list(document.items())
        if name not in sections and isinstance(section, dict) and section.get("kind") == "synthetic"
    }
    value = _build(document, folder, faults)
    streams = [_stream(name, further, folder, faults) for name in further]
    own = [*job_faults(value), *(one for stream in streams for one in stream_faults(stream))]
    faults += _unknown_yet(faults, own)
    if faults:
        raise JobError([one.text for one in faults])
    return value, streams


def _overridden(
    job: str | os.PathLike | Mapping[str, Any], overrides: Sequence[str]
) -> tuple[dict[str, Any], str, list[Fault]]:
    """The raw sections with the overrides in them, the folder that paths are relative to, and the overrides' faults."""
    document, folder = _document(job)
    faults: list[Fault] = []
    for override in overrides:
        _override(document, override, faults)
    return document, folder, faults


def _unknown_yet(known: Sequence[Fault], found: Sequence[Fault]) -> list[Fault]:
    """Without those of fields that are known to be wrong already."""
    fields = {field for one in known for field in one.fields}
    return [one for one in found if fields.isdisjoint(one.fields)]


def _document(job: str | os.PathLike | Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The raw sections and the folder that paths are relative to."""
    if isinstance(job, Mapping):
        copy = {name: dict(section) if isinstance(section, Mapping) else section for name, section in job.items()}
        return copy, os.getcwd()
    try:
        with open(job, "rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise JobError([f"{os.fspath(job)}: cannot be read: {error.strerror}"]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise JobError([f"{os.fspath(job)}: is not TOML: {error}"]) from error
    except ValueError as error:
        raise JobError([f"{show(job)}: cannot be read: {error}"]) from error
    return document, os.path.dirname(os.path.abspath(job))


def _override(document: dict[str, Any], override: str, faults: list[Fault]) -> None:
    """Set one "section.field=value" in the document; deeper names ("inject.slow.2=0.5") reach into tables."""
    path, equals, text = override.partition("=")
    names = path.strip().split(".")
    if not equals or len(names) < 2 or not all(names):
        faults.append(Fault((), f"--set {override}: wanted section.field=value"))
        return
    try:
        value = _override_value(text.strip())
    except tomllib.TOMLDecodeError as error:
        faults.append(Fault((path.strip(),), f"--set {override}: the value is not TOML: {error}"))
        return
    table = document
    for name in names[:-1]:
        if not isinstance(table.setdefault(name, {}), dict):
            faults.append(Fault((), f"--set {override}: {name} is not a table"))
            return
        table[name] = dict(table[name])  # a caller's own dict stays as it is
        table = table[name]
    table[names[-1]] = value


def _override_value(text: str) -> Any:
    """The text as a TOML value; what is none, such as `20 s` or `a.parquet`, as a plain string."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        if text[:1] in ("[", "{", '"', "'"):
            raise
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _build(document: dict[str, Any], folder: str, faults: list[Fault]) -> Job:
    """A Job of all that could be read; what could not is at its default and in `faults`."""
    sections = (*STREAMS, *SECTIONS)
    for name in document:
        if name not in sections:
            hint = _hint(_closest(name, sections))
            faults.append(Fault((), f"[{name}]: no such section{hint}, there are {' '.join(sections)}"))
    streams = tuple(_stream(name, document, folder, faults) for name in STREAMS)
    others = {}
    for name, (make, fields) in SECTIONS.items():
        values = _values(name, _section(document, name, faults), fields, faults)
        if name in FOLDERS and "path" in values:
            values["path"] = _absolute(name, folder, values["path"], faults)
        others[name] = make(**values)
    return Job(streams, **others)


def _section(document: dict[str, Any], name: str, faults: list[Fault]) -> dict[str, Any]:
    section = document.get(name, {})
    if isinstance(section, dict):
        return section
    faults.append(Fault(_fields_of(name), f"[{name}]: got {show(section)}, wanted a table of fields"))
    return {}


def _fields_of(section: str) -> tuple[str, ...]:
    """All fields of a section, as faults name them."""
    fields = SECTIONS[section][1] if section in SECTIONS else STREAM_FIELDS
    names = [field.name for field in fields] + (list(SOURCES) if section not in SECTIONS else [])
    return tuple(f"{section}.{name}" for name in names)


def _values(
    section: str, given: dict[str, Any], fields: tuple[Field, ...], faults: list[Fault], others: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The given fields by attribute name; `others` are fields that the caller reads itself."""
    known = {field.name: field for field in fields}
    values = {}
    for name, value in given.items():
        if name in known:
            try:
                values[known[name].attribute] = known[name].kind.parse(value)
            except ValueError as error:
                faults.append(fault(section, name, str(error)))
        elif name not in others:
            faults.append(_unknown_field(section, name, (*known, *others), given))
    return values


def _unknown_field(section: str, name: str, known: Sequence[str], given: Collection[str]) -> Fault:
    """Involves, beside the name that there is not, the one that it was meant for, where it seems so."""
    if section in STREAMS and name in {field.name for field in SYNTHETIC_FIELDS}:
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


def _stream(name: str, document: dict[str, Any], folder: str, faults: list[Fault]) -> StreamJob:
    if name not in document:
        faults.append(Fault(_fields_of(name), f"[{name}]: missing section, wanted one with at least a path"))
    given = _section(document, name, faults)
    synthetic = given.get("kind") == "synthetic"
    fields = STREAM_FIELDS + (SYNTHETIC_FIELDS if synthetic else ())
    values = _values(name, given, fields, faults, others=tuple(SOURCES))
    own = {field.attribute: values[field.attribute] for field in STREAM_FIELDS if field.attribute in values}
    generated = {key: value for key, value in values.items() if key not in own}
    return StreamJob(name, _source(name, given, generated, folder, faults), **own)


def _source(
    name: str, given: dict[str, Any], generated: dict[str, Any], folder: str, faults: list[Fault]
) -> FileSource | TableSource | SyntheticSource:
    present = [field for field in SOURCES if field in given]
    is_path = "path" in given and "table" not in given and given.get("kind") != "synthetic"
    if len(present) > 1:
        fields = tuple(f"{name}.{field}" for field in present if field != "path" or not is_path)
        faults.append(Fault(fields, f"[{name}] {', '.join(present)}: got {len(present)} of them, wanted one"))
    if given.get("kind", "synthetic") != "synthetic":
        text = f'[{name}] kind: got {show(given["kind"])}, wanted "synthetic", or a path instead'
        faults.append(Fault((f"{name}.kind", *(() if is_path else (f"{name}.path",))), text))
    if given.get("kind") == "synthetic":
        return SyntheticSource(**generated)
    which = "table" if "table" in given else "path"
    try:
        value = SOURCES[which].kind.parse(given[which]) if which in given else ""
    except ValueError as error:
        faults.append(Fault((f"{name}.{which}", f"{name}.path"), f"[{name}] {which}: {error}"))
        value = ""
    if isinstance(value, str):
        return FileSource(_input_path(name, folder, value, faults) if value else "")
    return TableSource(value)


def _input_path(name: str, folder: str, path: str, faults: list[Fault]) -> str:
    """The absolute path; in a glob, the folder's own name is not part of the pattern."""
    return _absolute(name, glob.escape(folder) if glob.has_magic(path) else folder, path, faults)


def _absolute(section: str, folder: str, path: str, faults: list[Fault]) -> str:
    """A path in the job file's folder, "" with a fault added where it could not be written down."""
    try:
        return in_utf8(os.path.abspath(os.path.join(folder, os.path.expanduser(path))))
    except ValueError as error:
        faults.append(fault(section, "path", str(error)))
        return ""
