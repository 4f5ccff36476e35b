"""The master sends the setup of a run to the ranks that are other processes. It travels as plain data, never as code.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mpijoin.config.dump import dump_job
from mpijoin.config.load import load_job
from mpijoin.data.schema import UNIT_NS, Column, JoinSchema, StreamSchema
from mpijoin.errors import JobError, ProtocolError
from mpijoin.launch.roles import Roles, RunSetup
from mpijoin.messages import Begin
from mpijoin.rundir import RunDirectory

FORMAT = 3
ROLES = {"size": int, "collects": bool, "producers": int}


def begin_of(setup: RunSetup) -> Begin:
    """Returns what the other ranks need to know of a setup. The locks and the writers of late rows stay with the
    master."""
    streams = setup.schema.streams
    values = {
        "format": FORMAT,
        "job": dump_job(setup.job),
        "unit": setup.schema.unit,
        "streams": [[one.name, one.scale, one.hashed, one.null_keys, len(one.keys)] for one in streams],
        "size": setup.roles.size,
        "collects": setup.roles.collects,
        "producers": setup.roles.producer_count,
        "directory": str(setup.directory.path) if setup.directory else "",
        "checkpoints": str(setup.checkpoints or ""),
        "resumes": setup.resumes,
    }
    return Begin(values, tuple(map(_columns_of, streams)))


def setup_in(begin: Begin) -> RunSetup:
    """Returns the setup that `begin_of` was given. Raises ProtocolError if the message is damaged, or comes from
    another version of mpijoin."""
    try:
        return _setup(begin.setup, begin.columns)
    except (JobError, LookupError, TypeError, ValueError, pa.ArrowException) as error:
        raise ProtocolError(
            f"the setup of the run that came from the master cannot be used: {type(error).__name__}: {error}; "
            "have all ranks run the same version of mpijoin"
        ) from error


def _columns_of(stream: StreamSchema) -> np.ndarray:
    """Returns the stream's columns as uint8[], an Arrow schema in IPC form: the time, then the keys, then the payload.
    """
    columns = (stream.time, *stream.keys, *stream.payload)
    schema = pa.schema([pa.field(column.name, column.type) for column in columns])
    return np.frombuffer(schema.serialize(), np.uint8)


def _setup(values: dict[str, Any], columns: tuple[np.ndarray, ...]) -> RunSetup:
    if values["format"] != FORMAT:
        raise ValueError(f"got format {values['format']!r}, wanted {FORMAT}")
    job = load_job(tomllib.loads(_typed(values, "job", str)))
    named = _typed(values, "streams", list)
    if [one[0] for one in named] != [stream.name for stream in job.streams] or len(columns) != len(named):
        raise ValueError(f"got columns of {len(columns)} streams, wanted {', '.join(one.name for one in job.streams)}")
    streams = tuple(_stream(one, octets) for one, octets in zip(named, columns))
    if values["unit"] not in UNIT_NS:
        raise ValueError(f"got unit {values['unit']!r}, wanted one of {', '.join(UNIT_NS)}")
    roles = Roles(*(_typed(values, name, kind) for name, kind in ROLES.items()))
    folder, checkpoints = _typed(values, "directory", str), _typed(values, "checkpoints", str)
    directory = RunDirectory(Path(folder)) if folder else None
    schema = JoinSchema(streams, values["unit"])
    return RunSetup(
        job, schema, roles, directory, Path(checkpoints) if checkpoints else None, _typed(values, "resumes", bool)
    )


def _stream(values: list[Any], octets: np.ndarray) -> StreamSchema:
    name, scale, hashed, null_keys, keys = values
    schema = pa.ipc.read_schema(pa.py_buffer(octets))
    time, *columns = (Column(field.name, field.type) for field in schema)
    are_flags = type(hashed) is bool and type(null_keys) is bool
    if type(scale) is not int or scale < 1 or not are_flags or not 1 <= keys <= len(columns):
        told = f"scale {scale!r}, hashed {hashed!r}, null_keys {null_keys!r}, {keys!r} keys"
        raise ValueError(f"got stream {name!r} with {told}")
    return StreamSchema(name, time, scale, tuple(columns[:keys]), hashed, tuple(columns[keys:]), null_keys)


def _typed(values: dict[str, Any], name: str, kind: type) -> Any:
    if type(values[name]) is not kind:
        raise ValueError(f"{name}: got {values[name]!r}, wanted {kind.__name__}")
    return values[name]
