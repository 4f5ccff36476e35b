"""LAD's comparisons: the streams are as the paper describes them, and a row has the figures of a run."""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import oracle

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from lad_experiments import EXPERIMENTS, PARTITIONS, Run, cells, figures, keys_of, write_streams
from mpijoin.config.check import resolve
from mpijoin.config.load import load_job
from mpijoin.partitioning.table import PartitionTable

ROWS = 90_000


def partitions_of(keys):
    return np.array([oracle.partition(key, PARTITIONS) for key in keys.tolist()])


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_in_every_tuple_range_a_key_comes_as_often_as_its_partition_s_join_rate_says(name, tmp_path):
    """LAD, section 3.1: "the join multiplicative factor increases r after processing every k tuples. Here, k is
    referred as tuple range of the input stream." """
    experiment = EXPERIMENTS[name]
    for path in write_streams(experiment, ROWS, 9.0, tmp_path):
        table = pq.read_table(path)
        times, keys = table["ts"].to_numpy(), table["key"].to_numpy()
        assert (np.diff(times) >= 0).all() and times[-1] < 9_000_000 and len(keys) == ROWS
        distinct, counts = np.unique(keys, return_counts=True)
        own = partitions_of(distinct)
        assert set(own) == set(experiment.partitions)
        for kind in experiment.kinds:
            of_kind = np.isin(own, kind.partitions)
            domain = kind.tuple_range // len(experiment.partitions) // kind.join_rate
            wanted = ROWS / len(experiment.partitions) / domain
            assert wanted == pytest.approx(kind.join_rate * ROWS / kind.tuple_range, rel=0.01)
            assert counts[of_kind].sum() / len(kind.partitions) / domain == pytest.approx(wanted, rel=0.05)


def test_the_assignment_is_as_uneven_as_the_paper_s():
    """Section 5.2: "one machine being assigned 2/3 of all partitions, while other two machines share evenly the rest
    1/3 of partitions" """
    table = PartitionTable.even(PARTITIONS, (1, 2, 3))
    owners = Counter(table.owner_of(one) for one in EXPERIMENTS["relocation"].partitions)
    assert owners == {1: 20, 2: 5, 3: 5}
    productive, others = EXPERIMENTS["active"].kinds
    assert {table.owner_of(one) for one in productive.partitions} == {1}
    assert Counter(table.owner_of(one) for one in others.partitions) == {2: 20, 3: 20}


def test_keys_are_those_of_their_partitions():
    found = keys_of((0, 7, 59), 40)
    assert all((partitions_of(keys) == one).all() and len(keys) == 40 for one, keys in found.items())


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_strategy_is_a_job_that_can_be_run(name, tmp_path):
    run = Run(name, 100, 1.0, [0], tmp_path)
    for settings in run.experiment.strategies.values():
        own = ('memory.spill="generations"', 'memory.limit="1 MB"', 'output.path="none"')
        job = load_job(tmp_path / "job.toml", [*settings, *own])
        assert job.memory.cleanup == "end" and job.balance.relocation_pause_ns == 3_000_000_000
        assert len(resolve(job).streams) == 3


def test_a_row_tells_what_was_found_before_the_clean_up():
    memory = {"cleanup_results": 250_000, "cleanup_s": 1.5, "spilled_bytes": 3_000_000, "limit_bytes": 9}
    row = figures("ranking", "push random", {"results": 1_000_000, "memory": memory, "moves": 2, "wall_s": 41.25})
    assert row["runtime_results"] == 750_000
    assert cells(row)[2:] == ["0.75 M", "75%", "1.50 s", "0.25 M", "3.0 MB", "2", "41.2 s"]
