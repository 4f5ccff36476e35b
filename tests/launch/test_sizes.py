"""What "auto" becomes for producers and sub-groups, and that it is told with its reason."""

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

import mpijoin
from mpijoin.cli import main
from mpijoin.config.load import load_job
from mpijoin.launch.sizes import shares_of, size_for, sized
from mpijoin.policy.sizes import PRODUCER_NS, SLAVE_NS, producers_of, ranks_with, subgroups_of


def test_no_other_number_of_producers_leaves_the_busiest_rank_less_to_do():
    for ranks in range(2, 40):
        chosen = producers_of(ranks, 10**6).value
        others = {count: max(PRODUCER_NS / count, SLAVE_NS / (ranks - count)) for count in range(1, ranks)}
        assert others[chosen] == min(others.values()) and 1 <= chosen < ranks


def test_there_are_no_more_producers_than_parts_of_the_input():
    assert producers_of(16, 3).value == 3 and "only 3 parts" in producers_of(16, 3).why
    assert producers_of(16, 1).value == 1 and "one part" in producers_of(16, 1).why
    assert "38 ns" in producers_of(4, 100).why


@pytest.mark.parametrize("shares", [1, 2, 1000])
def test_a_local_run_has_the_slaves_that_it_was_asked_for(shares):
    for slaves in range(1, 30):
        ranks = ranks_with(slaves, shares)
        assert ranks - producers_of(ranks, shares).value == slaves


def test_sub_groups_are_as_few_as_let_an_epoch_fit():
    """WSJ, section V-B: the peak buffer is (r t_d / 2)(1 + 1/n_g)."""
    for epoch_bytes in (101.0, 120.0, 150.0, 180.0):
        count = subgroups_of(64, epoch_bytes, 100).value
        assert epoch_bytes / 2 * (1 + 1 / count) <= 100 + 1e-6 < epoch_bytes / 2 * (1 + 1 / (count - 1))
    assert subgroups_of(64, 99.0, 100).value == 1 == subgroups_of(64, 201.0, 100).value


def job_of(left, right, **cluster):
    stream = {"time": "ts", "time_unit": "s", "key": "key", "window": "5 s"}
    cluster = {"producers": "auto", "subgroups": "auto", **cluster}
    return load_job({"left": {**left, **stream}, "right": {**right, **stream}, "cluster": cluster})


def table(rows):
    return pa.table({"ts": np.arange(rows), "key": np.arange(rows) % 7})


def test_the_parts_of_an_input_are_those_that_can_be_shared_out(tmp_path):
    pq.write_table(table(1000), tmp_path / "four.parquet", row_group_size=250)
    (tmp_path / "one.csv").write_text("ts,key\n1,2\n")
    with pa.ipc.new_file(tmp_path / "two.arrow", table(1).schema) as writer:
        writer.write_table(table(100), max_chunksize=50)
    four, one, two = ({"path": str(tmp_path / name)} for name in ("four.parquet", "one.csv", "two.arrow"))
    assert shares_of(job_of(four, one)) == 5 and shares_of(job_of(two, one)) == 3
    assert shares_of(job_of({"table": table(200_000)}, {"table": table(3)})) == 4 + 1
    assert shares_of(job_of({"path": str(tmp_path / "missing.parquet")}, one)) == 1


def test_a_launch_chooses_and_says_why():
    job = job_of({"table": table(200_000)}, {"table": table(200_000)})
    chosen, told = sized(job, 8)
    assert (chosen.cluster.producers, chosen.cluster.subgroups) == (4, 1)
    assert [line.split(",")[0] for line in told] == ["[cluster] producers = auto: 4", "[cluster] subgroups = auto: 1"]
    assert sized(chosen, 16) == (chosen, ()), "what the job says is left as it is"
    assert size_for(job, 3) == 5 and size_for(chosen, 3) == 7


def test_a_run_with_auto_gives_the_same_answer_and_logs_its_choice(tmp_path):
    parts = {"left": {"table": table(3000)}, "right": {"table": table(3000)}}
    stream = {"time": "ts", "time_unit": "s", "key": "key", "window": "5 s"}
    job = {name: {**own, **stream} for name, own in parts.items()}
    output = {"path": str(tmp_path / "run"), "results": "count"}
    run = mpijoin.run({**job, "cluster": {"producers": "auto", "subgroups": "auto"}, "output": output}, slaves=2)
    assert run.summary["certificate"] == mpijoin.run({**job, "output": {"results": "count"}}).summary["certificate"]
    log = (tmp_path / "run" / "logs" / "rank-0.log").read_text()
    assert "[cluster] producers = auto: 1, because" in log and "[cluster] subgroups = auto: 1, because" in log


def test_check_tells_what_auto_would_be(tmp_path, capsys):
    pq.write_table(table(1000), tmp_path / "a.parquet", row_group_size=250)
    stream = 'path = "a.parquet"\ntime = "ts"\ntime_unit = "s"\nkey = "key"\n'
    cluster = '[cluster]\nproducers = "auto"\nsubgroups = "auto"\n[output]\npath = "run"\n'
    (tmp_path / "job.toml").write_text(f"[left]\n{stream}[right]\n{stream}{cluster}")
    assert main(["check", str(tmp_path / "job.toml")]) == 0
    told = capsys.readouterr().out
    assert "producers auto: 1 of 3, 2 of 4, 4 of 8, 8 of 16 ranks" in told and "subgroups auto: 1 with 16" in told
    assert "epochs  auto: about 524,288 rows" in told
