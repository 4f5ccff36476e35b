"""The windowed aggregate under mpirun: with several producers, groups that move, kills, and fewer ranks afterwards.

Its values must be those of DuckDB's window functions, which `mpijoin verify` asks.
"""

import json
import random
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from launching import ROOT, Run, mpirun_path

RANDOM_MOVES = [sys.executable, "-X", "mpijoin", "-m", "mpi4py", str(ROOT / "tests/harness/run_with_random_moves.py")]
ROWS = 60_000
JOB = """
[streams.calls]
path = "calls.parquet"
time = "ts"
time_unit = "ms"
key = ["user", "line"]
lateness = "200 ms"
[aggregate]
history = "{history}"
columns = {{n = "count()", seen = "count(bytes)", total = "sum(bytes)", least = "min(price)", mean = "mean(price)"}}
emit = "{emit}"
[cluster]
partitions = 13
distribution_epoch = "100 ms"
reorganization_epoch = "100 ms"
[run]
speed = 8
[balance]
policy = "balance"
[checkpoint]
every = "350 ms"
[output]
path = "out"
"""
END_S = 150.0

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.slow,
    pytest.mark.skipif(not mpirun_path(), reason="there is no mpirun"),
]


@pytest.fixture(scope="module")
def calls():
    random_ = np.random.default_rng(7)
    time = np.arange(ROWS) // 3 - np.where(random_.random(ROWS) < 0.1, random_.integers(0, 300, ROWS), 0)
    some = random_.random(ROWS) < 0.05
    return pa.table(
        {
            "ts": time,
            "user": pa.array(random_.integers(0, 300, ROWS), mask=random_.random(ROWS) < 0.01),
            "line": pa.array([f"line {number}" for number in random_.integers(0, 3, ROWS)]),
            "bytes": pa.array(random_.integers(-1000, 1_000_000, ROWS), mask=some),
            "price": pa.array(random_.random(ROWS) * 10.0 ** random_.integers(-9, 9, ROWS), mask=some),
        }
    )


def verified(folder):
    command = [sys.executable, "-m", "mpijoin", "verify", str(folder / "out")]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("history, emit", [("7 rows", "row"), ("2 s", "1 s")])
def test_moves_and_kills_change_no_value(calls, tmp_path, history, emit):
    pq.write_table(calls, tmp_path / "calls.parquet", row_group_size=4000)
    text = JOB.format(history=history, emit=emit)
    program = [*RANDOM_MOVES, str(random.Random(history).randrange(100))]
    first = ["--set", "cluster.producers=2", "--set", "inject.kill={3=13}"]
    with Run(tmp_path, text, 5, first, program=program) as run:
        assert run.finish(END_S).code not in (0, 75)
    assert any(run.out.glob("checkpoint/0*.json")), "killed before the first checkpoint: the test proves little"
    with Run(tmp_path, text, 4, ["--resume", "--set", "cluster.producers=1"], program=program) as run:
        assert run.finish(END_S).code == 0, run.err
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["moves"] > 0 and summary["streams"]["calls"]["late"] > 0 and summary["checkpoints"]["restarts"] == 1
    told = verified(tmp_path)
    assert told.returncode == 0, told.stdout + told.stderr


def test_verify_finds_one_wrong_value(calls, tmp_path):
    pq.write_table(calls.slice(0, 3000), tmp_path / "calls.parquet")
    with Run(tmp_path, JOB.format(history="7 rows", emit="row"), 3) as run:
        assert run.finish(END_S).code == 0, run.err
    assert verified(tmp_path).returncode == 0
    part = max((tmp_path / "out/results").glob("*.parquet"), key=lambda path: pq.read_metadata(path).num_rows)
    table = pq.read_table(part)
    values = table["total"].to_pylist()
    at = next(index for index, value in enumerate(values) if value is not None)
    values[at] += 1
    pq.write_table(table.set_column(table.column_names.index("total"), "total", pa.array(values, pa.int64())), part)
    assert verified(tmp_path).returncode != 0
