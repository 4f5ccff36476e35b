"""Conditions on strings and timestamps under a real mpirun: the same answer on any number of ranks, and DuckDB's."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from launching import Run
from mpijoin.verify import verify

LONG = "the name of a station that is long, "
NAMES = (None, "", "a", "b", "é", LONG * 8, LONG * 9)
JOB = """
[left]
path = "{folder}/left.parquet"
time = "ts"
key = "key"
window = "3 s"
[right]
path = "{folder}/right.parquet"
time = "ts"
key = "key"
window = "2 s"
[join]
type = "left"
where = "left.name >= right.name and (right.at < left.ends or right.id > left.id)"
[cluster]
partitions = 12
distribution_epoch = "500 ms"
[tuning]
block = "256 B"
theta = "4 KB"
[output]
path = "out"
columns = ["left_row", "right_row"]
"""

pytestmark = [pytest.mark.mpi, pytest.mark.slow]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Times of the streams are microseconds; what the condition compares has other units, and nulls."""
    folder, random = tmp_path_factory.mktemp("named"), np.random.default_rng(3)
    for name in ("left", "right"):
        rows = 4000
        times = pa.array(np.sort(random.integers(-(10**7), 10**7, rows)))
        table = pa.table({
            "ts": times.view(pa.timestamp("us")),
            "key": pa.array(random.integers(0, 200, rows)).cast(pa.string()),
            "name": pa.array([NAMES[at] for at in random.integers(0, len(NAMES), rows).tolist()]),
            "at": pa.array(random.integers(-10, 10, rows)).view(pa.timestamp("s")),
            "ends": pa.array(random.integers(-(10**10), 10**10, rows), mask=random.random(rows) < 0.1).view(
                pa.timestamp("ns")
            ),
            "id": pa.array([2**63 + at for at in random.integers(-3, 3, rows).tolist()], pa.uint64()),
        })  # fmt: skip
        pq.write_table(table, folder / f"{name}.parquet")
    return JOB.format(folder=folder)


def test_the_answer_is_duckdbs_on_any_number_of_ranks(job, tmp_path):
    seen = set()
    for ranks in (1, 2, 4):
        (tmp_path / str(ranks)).mkdir()
        with Run(tmp_path / str(ranks), job, ranks, ["--set", f'output.results="{"parquet" if ranks > 1 else "count"}"',
                                                     "--set", 'balance.policy="balance"']) as run:  # fmt: skip
            assert run.finish(120).code == 0, run.err
        report = verify(run.out)
        assert report.ok, report.text()
        summary = json.loads((run.out / "summary.json").read_text())
        seen.add((summary["results"], summary["certificate"]))
    ((results, _),) = seen
    assert 4000 < results < 10**6
