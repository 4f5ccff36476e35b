"""A run whose state does not fit: its summary, its metrics, its ledger and its report tell the same story."""

import numpy as np
import pyarrow.parquet as pq
import pytest

import mpijoin
from mpijoin.errors import LedgerError
from mpijoin.launch.summary import RunOutcome, summary_text
from mpijoin.report import write_report
from mpijoin.slave.runtime import Slave

SUMS = {
    "results": 1, "cleanup_results": 1, "spills": 1, "spilled_bytes": 1, "read_back_bytes": 1, "spill_s": 1e-6,
    "write_s": 1e-6, "cleanup_s": 1e-6,
}  # fmt: skip


def job_of(path, spill="generations", limit="600 KB"):
    stream = {"kind": "synthetic", "tuples": 60_000, "rate": 10_000, "domain": 20_000, "window": "6 s"}
    return {
        "left": stream, "right": {**stream, "seed": 2}, "output": {"path": str(path), "results": "count"},
        "memory": {"limit": limit, "spill": spill, "cleanup": "end"},
    }  # fmt: skip


@pytest.fixture(scope="module")
def spilled(tmp_path_factory):
    """The run directory and the summary of a run that spills."""
    path = tmp_path_factory.mktemp("spilled") / "run"
    return path, mpijoin.run(job_of(path), slaves=2).summary


def test_it_finds_what_a_run_in_memory_finds(spilled, tmp_path):
    summary = mpijoin.run(job_of(tmp_path / "run", "off", "64 MB"), slaves=2).summary
    assert (summary["certificate"], summary["results"]) == (spilled[1]["certificate"], spilled[1]["results"])
    assert 0 < spilled[1]["memory"]["cleanup_results"] < summary["results"]


def test_the_records_of_a_slave_add_up_to_its_figures(spilled):
    path, summary = spilled
    for slave, figures in summary["per_slave"].items():
        columns = pq.read_table(path / f"metrics/rank-{slave}.parquet").to_pydict()
        for name, unit in SUMS.items():
            column = columns[name if unit == 1 else name.replace("_s", "_us")]
            assert sum(column) * unit == pytest.approx(figures[name], abs=1e-5), name
        assert max(columns["disk_bytes"]) <= figures["disk_bytes_max"] and columns["disk_bytes"][-1] == 0
        for owed in ("owed_groups", "owed_generations", "owed_bytes", "owed_results"):
            assert columns[owed][-1] == 0 < max(columns[owed]), owed
        assert max(columns["owed_generations"]) > max(columns["owed_groups"])
        assert max(columns["owed_results"]) <= figures["cleanup_results"]
        assert max(columns["memory_bytes"]) <= figures["memory_bytes_max"] <= figures["memory_limit_bytes"]
        assert np.diff(columns["end_us"]).tolist() == columns["wall_us"][1:]


def test_the_summary_tells_of_memory_and_of_the_clean_up(spilled):
    summary = spilled[1]
    memory, slaves = summary["memory"], summary["per_slave"].values()
    assert memory["spills"] == sum(one["spills"] for one in slaves) > 2
    assert 0 < memory["write_s"] == pytest.approx(max(one["write_s"] for one in slaves), abs=1e-3)
    assert memory["cleanup_s"] == pytest.approx(max(one["cleanup_s"] for one in slaves), abs=1e-3)
    assert memory["spilled_bytes"] <= memory["read_back_bytes"]
    assert 0 < summary["last_runtime_result_s"] <= summary["wall_s"] - memory["cleanup_s"] / 2
    text = summary_text(RunOutcome(0, summary))
    assert f" in {memory['spills']} pushes, which took " in text
    assert f" for {memory['cleanup_results']:,} results\nthe last result before clean-up came after " in text


def test_its_report_has_the_figures(spilled, tmp_path):
    page = write_report([spilled[0]], tmp_path / "report").read_text()
    assert all(f'<figure id="{name}">' in page for name in ("memory", "results", "disk"))


@pytest.mark.parametrize("field", ["spilled", "taken_back"])
def test_a_spilled_row_that_is_lost_or_met_twice_fails_the_run_by_name(tmp_path, monkeypatch, field):
    counts = Slave._counts

    def one_more(*args):
        found = counts(*args)
        return found._replace(**{field: (getattr(found, field)[0] + 1, *getattr(found, field)[1:])})

    monkeypatch.setattr(Slave, "_counts", one_more)
    with pytest.raises(LedgerError, match="left: spilled = taken back: "):
        mpijoin.run(job_of(tmp_path / "run"), slaves=2)
