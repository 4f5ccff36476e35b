"""Three streams of their own names and formats, from the command line: check, run, report and verify."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import mpijoin
import oracle
from mpijoin.cli import main

WINDOWS = {"picks": 3000, "S_2": None, "trigger": 0}  # in ms
JOB = """
[streams.picks]
path = "picks.csv"
time_unit = "ms"
window = "3 s"
lateness = "10 ms"
types = {note = "string"}

[streams.S_2]
path = "s/*.parquet"
window = "unbounded"

[streams.trigger]
path = "trigger.arrow"
window = "0 s"
columns = []

[output]
path = "run"
"""


def rows_of(seed, count=300):
    generator = np.random.default_rng(seed)
    return np.sort(generator.integers(0, 20_000, count)), generator.integers(0, 8, count)


@pytest.fixture
def job(tmp_path):
    """The job file, and the rows of each stream for the oracle, late ones left out: (time, key, row)."""
    times, keys = zip(*(rows_of(seed) for seed in range(3)))
    times[0][200] -= 500  # one row is late
    notes = [f"note {row}" for row in range(300)]
    pyarrow.csv.write_csv(pa.table({"ts": times[0], "key": keys[0], "note": notes}), tmp_path / "picks.csv")
    (tmp_path / "s").mkdir()
    stamps = pa.array(times[1], pa.timestamp("ms"))
    for number, own in enumerate((slice(0, 150), slice(150, 300))):
        pq.write_table(pa.table({"ts": stamps[own], "key": keys[1][own]}), tmp_path / "s" / f"{number}.parquet")
    table = pa.table({"ts": pa.array(times[2] * 1000, pa.timestamp("us")), "key": keys[2], "unused": notes})
    with pa.ipc.new_file(tmp_path / "trigger.arrow", table.schema) as file:
        file.write_table(table)
    (tmp_path / "job.toml").write_text(JOB)
    number = [np.arange(300), np.concatenate([np.arange(150), (1 << 40) + np.arange(150)]), np.arange(300)]
    streams = [list(zip(*(column.tolist() for column in columns))) for columns in zip(times, keys, number)]
    del streams[0][200]
    return tmp_path / "job.toml", streams


def test_three_streams_from_the_command_line(job, capsys):
    path, streams = job
    found = oracle.join(streams, list(WINDOWS.values()))
    assert len(found) > 1000
    assert main(["check", str(path)]) == 0
    assert (
        "key, picks_time, S_2_time, trigger_time, picks_row, S_2_row, trigger_row, picks_note"
        in capsys.readouterr().out
    )
    assert main(["run", str(path), "--ranks", "2"]) == 0
    run = path.parent / "run"
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["results"], summary["certificate"]) == (len(found), oracle.certificate(found))
    assert list(summary["streams"]) == list(WINDOWS)
    assert {name: one["late"] for name, one in summary["streams"].items()} == {"picks": 1, "S_2": 0, "trigger": 0}
    table = pq.read_table(run / "results")
    rows = zip(*(table[f"{name}_row"].to_pylist() for name in WINDOWS))
    assert sorted(rows) == sorted(found)
    assert set(table["picks_note"].to_pylist()) <= {f"note {row}" for row in range(300)}
    assert pq.read_table(run / "late" / "picks.parquet")["row"].to_pylist() == [200]
    assert sorted(file.name for file in (run / "late").glob("*.parquet")) == [
        f"{name}.parquet" for name in sorted(WINDOWS)
    ]
    assert main(["verify", str(run)]) == 0
    assert main(["report", str(run)]) == 0
    header = (run / "report" / "throughput.csv").read_text().splitlines()[0]
    assert [f"{name}_tuples_per_s" in header for name in WINDOWS] == [True] * 3
    assert main(["run", str(path), "--overwrite", "--set", "streams.S_2.window=1 s", "--quiet"]) == 0
    shorter = oracle.join(streams, [3000, 1000, 0])
    assert json.loads((run / "summary.json").read_text())["certificate"] == oracle.certificate(shorter)


@pytest.mark.parametrize("names", [["only"], ["a", "b", "c", "d", "e"]])
def test_any_number_of_tables_in_python(names):
    times, keys = zip(*(rows_of(seed, 60) for seed in range(len(names))))
    tables = [pa.table({"ts": time, "key": key}) for time, key in zip(times, keys)]
    stream = {"time_unit": "ms", "window": "4 s"}
    done = mpijoin.run({"streams": {name: {"table": one, **stream} for name, one in zip(names, tables)}}, slaves=2)
    rows = [list(zip(time.tolist(), key.tolist(), range(60))) for time, key in zip(times, keys)]
    found = oracle.join(rows, [4000] * len(names))
    assert (done.results, done.summary["certificate"]) == (len(found), oracle.certificate(found)) and found
    assert done.table().num_rows == len(found) and done.late(names[-1]).num_rows == 0
