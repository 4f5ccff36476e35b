"""Reads the files in which jobs, sweeps and costs are written."""

from __future__ import annotations

import os
import tomllib
from typing import Any, Callable

from mpijoin.config.units import show
from mpijoin.errors import JobError
from mpijoin.refusals import reading


def _fault(text: str) -> JobError:
    return JobError([text])


def read_toml(path: str | os.PathLike, fault: Callable[[str], JobError] = _fault) -> dict[str, Any]:
    """Returns the top level of the file. Raises what `fault` makes of a text that names the file."""
    try:
        with reading(path, fault), open(path, "rb") as file:
            return tomllib.loads(file.read().decode("utf-8-sig"))  # Some editors begin with a mark.
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise fault(f"{os.fspath(path)}: is not TOML: {error}") from error
    except ValueError as error:
        raise fault(f"{show(path)}: cannot be read: {error}") from error
