"""Writes a `Job` as a job file, with every default visible."""

from __future__ import annotations

import os
from typing import Any

from mpijoin.config.fields import SECTIONS, STREAM_FIELDS, SYNTHETIC_FIELDS, Field
from mpijoin.config.job import SHORT_STREAMS, FileSource, Job, StreamJob, SyntheticSource, TableSource
from mpijoin.config.kinds import quote
from mpijoin.config.queries import QUERY, QUERY_FIELDS


def dump_job(job: Job) -> str:
    """Returns the job as TOML, values with their units; `load_job` reads it back to an equal Job.

    A stream that came as a table is only named in a comment, since a file cannot hold it.
    """
    is_short = tuple(stream.name for stream in job.streams) == SHORT_STREAMS
    parts = [_stream_text(stream, stream.name if is_short else f"streams.{stream.name}") for stream in job.streams]
    for name, (_, fields) in SECTIONS.items():
        parts.append(_fields_text([f"[{name}]"], getattr(job, name), fields))
    parts += [_fields_text([f"[[{QUERY}]]"], query, QUERY_FIELDS) for query in job.queries]
    return "\n".join(parts)


def _stream_text(stream: StreamJob, section: str) -> str:
    source = stream.source
    text = _fields_text([f"[{section}]", _source_text(source)], stream, STREAM_FIELDS)
    if isinstance(source, SyntheticSource):
        text += _fields_text([], source, SYNTHETIC_FIELDS)
    return text


def _source_text(source: FileSource | TableSource | SyntheticSource) -> str:
    if isinstance(source, SyntheticSource):
        return 'kind = "synthetic"'
    if isinstance(source, TableSource):
        return '# kind = "table"'
    return f"path = {quote(os.path.abspath(source.path))}"


def _fields_text(head: list[str], values: Any, fields: tuple[Field, ...]) -> str:
    lines = [_field_line(field, getattr(values, field.attribute)) for field in fields]
    return "\n".join(head + lines) + "\n"


def _field_line(field: Field, value: Any) -> str:
    if value == "" or (value is None and not field.kind.none_has_word):
        return f"# {field.name} is not set"
    return f"{field.name} = {field.kind.write(value)}"
