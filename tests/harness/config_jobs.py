"""Small jobs for the tests of job files."""

import pyarrow as pa
import pyarrow.parquet as pq
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


ONE_ROW = """
[left]
path = "left.parquet"
window = "20 s"
[right]
path = "left.parquet"
[output]
path = "out"
"""


def write_one_row_job(folder):
    """Writes the job and its input. Returns the path of the job file."""
    pq.write_table(pa.table({"ts": pa.array([1], pa.timestamp("us")), "key": [1]}), folder / "left.parquet")
    path = folder / "job.toml"
    path.write_text(ONE_ROW)
    return str(path)


def small(**changes):
    """Returns a sound job as a dict. changes: values of fields to replace, named "section__field"."""
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
