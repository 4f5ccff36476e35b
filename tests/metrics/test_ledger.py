"""The ledger: what balances passes, and every balance that does not is named with both sides."""

import json

import pyarrow as pa
import pytest

import mpijoin
from mpijoin.coordinator.runtime import Master
from mpijoin.errors import LedgerError
from mpijoin.metrics.ledger import StreamCounts, Written, check_ledger
from mpijoin.records import PER_STREAM, Counts
from mpijoin.slave.runtime import Slave

NAMES = ("left", "right", "third")
TIMES = (1, 2, 3)  # of each stream there is so much more, so that none can stand for another
MASTER = [StreamCounts(name, 12 * times, 2 * times, times, 9 * times, 4 * times) for name, times in zip(NAMES, TIMES)]
FIELDS = Counts._fields[:PER_STREAM]
ONE = dict(zip(FIELDS, (9, 11, 3, 2, 0, 2, 5, 3, 3, 3, 1, 2)))
OTHER = dict(zip(FIELDS, (0, 2, 2, 5, 2, 0, 1, 3, 1, 1, 2, 1)))


def one_more(counts, field, stream=None):
    value = getattr(counts, field)
    more = value + 1 if stream is None else tuple(count + (index == stream) for index, count in enumerate(value))
    return counts._replace(**{field: more})


def slaves():
    """A group has moved from the first to the second, and with it a tuple that was not joined yet. Two of the tuples
    that the first had spilled went along on the disk. Both have got copies and replicas, and discarded some."""
    one, other = (
        {name: tuple(count * times for times in TIMES) for name, count in counts.items()} for counts in (ONE, OTHER)
    )
    return [Counts(**one, results=5), Counts(**other)]


RULE = "slave 1: joined = expired + held + moved out - moved in + spilled - taken back + discarded - replicas in"


@pytest.mark.parametrize("written", [[], [Written("", 5, 5)], [Written("near", 3, 3), Written("far", 2, 2)]])
def test_what_balances_passes(written):
    check_ledger(MASTER, slaves(), written)


@pytest.mark.parametrize(
    "change, named",
    [
        (("master", 1, "read"), "right: read = sent + late + null_key: 25 != 24"),
        (("slave", 0, "received"), "left: sent = received: 9 != 10; left: received + copied = joined: 14 != 13"),
        (("slave", 1, "joined"), f"right: received + copied = joined: 26 != 27; right, {RULE}: 23 != 22"),
        (("slave", 0, "held"), f"left, {RULE}: 11 != 12"),
        (("slave", 2, "moved_out"), f"third: moved in = moved out: 6 != 7; third, {RULE}: 33 != 34"),
        (("slave", 1, "spilled"), f"right: spilled = taken back: 13 != 12; right, {RULE}: 22 != 23"),
        (("slave", 0, "taken_back"), f"left: spilled = taken back: 6 != 7; left, {RULE}: 11 != 10"),
        (("master", 2, "copied"), "third: copies sent = copied: 13 != 12"),
        (("slave", 0, "copied"), "left: copies sent = copied: 4 != 5; left: received + copied = joined: 14 != 13"),
        (("slave", 1, "discarded"), f"right, {RULE}: 22 != 23"),
        (("slave", 0, "replicas_in"), f"left: replicas in = replicas out: 4 != 3; left, {RULE}: 11 != 10"),
        (("slave", 0, "replicas_out"), "left: replicas in = replicas out: 3 != 4"),
        (("slave", None, "results"), "results produced = results written: 6 != 5"),
    ],
)
def test_each_balance_that_does_not_hold_is_named(change, named):
    master, counted = list(MASTER), slaves()
    where, stream, field = change
    if where == "slave":
        counted[0] = one_more(counted[0], field, stream)
    else:
        master[stream] = one_more(master[stream], field)
    with pytest.raises(LedgerError) as error:
        check_ledger(master, counted, [Written("", sum(one.results for one in counted), 5), Written("near", 2, 2)])
    assert str(error.value) == f"the ledger does not balance (a defect of mpijoin): {named}"


@pytest.fixture
def job(tmp_path):
    """Of which all streams have late rows and rows without a key."""
    times = list(range(300))
    times[7] = 0
    table = pa.table({"ts": pa.array(times, pa.int64()), "key": pa.array([None, "a", "b", "c"] * 75)})
    stream = {"table": table, "time": "ts", "time_unit": "s", "key": "key", "window": "5 s"}
    return {"streams": dict.fromkeys(NAMES, stream), "output": {"path": str(tmp_path / "run")}}


def miscounts(monkeypatch, field, stream):
    """A slave reports one more, as if it had lost or made one."""
    counts = Slave._counts
    monkeypatch.setattr(Slave, "_counts", lambda *args: one_more(counts(*args), field, stream))


COUNTED = [(name, stream) for name in FIELDS if name != "moved_out" for stream in (0, 2)]


@pytest.mark.parametrize("field, stream", [("written", None), ("results", None), *COUNTED])
def test_a_run_whose_slaves_do_not_balance_fails_and_commits_nothing(job, tmp_path, monkeypatch, field, stream):
    miscounts(monkeypatch, field, stream)
    with pytest.raises(LedgerError, match="the ledger does not balance") as caught:
        mpijoin.run(job, slaves=2)
    assert caught.value.exit_code == 3
    assert "does not balance" in json.loads((tmp_path / "run/failed.json").read_text())["reason"]
    assert not (tmp_path / "run/summary.json").exists() and not list((tmp_path / "run").glob("results/*.parquet"))


@pytest.mark.parametrize("name", ["read", "late", "null_key"])
def test_a_run_whose_sources_do_not_balance_fails(job, monkeypatch, name):
    close = Master.close

    def one_more(master):
        close(master)
        counts = master.feed.intake.sources[0].counts
        setattr(counts, name, getattr(counts, name) + 1)

    monkeypatch.setattr(Master, "close", one_more)
    with pytest.raises(LedgerError, match=r"left: read = sent \+ late \+ null_key"):
        mpijoin.run(job, slaves=2)


def test_a_run_that_counts_right_ends_well(job):
    summary = mpijoin.run(job, slaves=2).summary
    assert summary["streams"]["left"]["late"] and summary["streams"]["left"]["null_key"] and summary["results"]
