"""What a job must keep to go on from a checkpoint: all that the state and the answer depend on, and nothing else.

Ranks, memory, policy, epochs, theta and speed may be others.
"""

from __future__ import annotations

import tomllib
from typing import Any, Mapping

from mpijoin.config.dump import dump_job
from mpijoin.config.job import Job
from mpijoin.config.units import show
from mpijoin.errors import JobError

KEPT = {
    "cluster": ("partitions",),
    "tuning": ("block",),
    "run": ("seed", "late"),
    "output": ("results", "columns"),
    "inject": ("hash_bits",),
}


def identity_of(job: Job) -> dict[str, Any]:
    """Section -> field -> value, as in a job file."""
    document = tomllib.loads(dump_job(job))
    kept = {section: {name: document[section].get(name) for name in names} for section, names in KEPT.items()}
    return {"left": document["left"], "right": document["right"], **kept}


def check_identity(job: Job, saved: Mapping[str, Any]) -> None:
    """Raises JobError with every field that is another than when the checkpoint was made. saved: empty, unknown."""
    own = identity_of(job)
    faults = [
        f"[{section}] {name}: got {show(own[section].get(name))}, but the run to go on with has"
        f" {show(fields.get(name))}: leave it as it was, or begin anew with --overwrite"
        for section, fields in saved.items()
        for name in sorted({*fields, *own[section]})
        if own[section].get(name) != fields.get(name)
    ]
    if faults:
        raise JobError(faults)
