"""Small jobs for the tests of job files."""

import pytest

from mpijoin.config.load import load_job
from mpijoin.errors import JobError

SMALL = """
[left]
path = "p.parquet"
[right]
path = "s/*.parquet"
[output]
path = "out"
"""


def small(**changes):
    """A sound job as a dict, with "section__field" replaced."""
    document = {"left": {"path": "/l.parquet"}, "right": {"path": "/r.parquet"}, "output": {"path": "/out"}}
    for name, value in changes.items():
        section, field = name.split("__")
        document.setdefault(section, {})[field] = value
    return document


def faults(job, overrides=()):
    with pytest.raises(JobError) as caught:
        load_job(job, overrides)
    assert caught.value.exit_code == 2
    return caught.value.faults
