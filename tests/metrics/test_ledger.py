"""The ledger: what balances passes, and every balance that does not is named with both sides."""

import json
from copy import deepcopy

import pyarrow as pa
import pytest

import mpijoin
from mpijoin.errors import LedgerError
from mpijoin.master.runtime import Master
from mpijoin.metrics.ledger import check_ledger
from mpijoin.slave.runtime import Slave

MASTER = {name: {"read": 10, "sent": 7, "late": 2, "null_key": 1} for name in ("left", "right")}
ONE = {"received": 7, "joined": 6, "expired": 3, "held": 1, "moved_in": 0, "moved_out": 2}
OTHER = {"received": 0, "joined": 1, "expired": 1, "held": 2, "moved_in": 2, "moved_out": 0}


def slaves():
    """A group has moved from the first to the second, and with it a tuple that was not joined yet."""
    both = [
        {f"{name}_{side}": count for side in ("left", "right") for name, count in counts.items()}
        for counts in (ONE, OTHER)
    ]
    return [{**both[0], "results": 5}, {**both[1], "results": 0}]


RULE = "slave 1: joined = expired + held + moved out - moved in"


@pytest.mark.parametrize("written", [None, 5])
def test_what_balances_passes(written):
    check_ledger(MASTER, slaves(), written)


@pytest.mark.parametrize(
    "change, named",
    [
        (("master", "right", "read"), "right: read = sent + late + null_key: 11 != 10"),
        (("slave", "received_left"), "left: sent = received: 7 != 8; left: received = joined: 8 != 7"),
        (("slave", "joined_right"), f"right: received = joined: 7 != 8; right, {RULE}: 7 != 6"),
        (("slave", "held_left"), f"left, {RULE}: 6 != 7"),
        (("slave", "moved_out_left"), f"left: moved in = moved out: 2 != 3; left, {RULE}: 6 != 7"),
        (("slave", "results"), "pairs produced = pairs written: 6 != 5"),
    ],
)
def test_each_balance_that_does_not_hold_is_named(change, named):
    master, counted = deepcopy(MASTER), slaves()
    where, *path = change
    target = counted[0] if where == "slave" else master[path[0]]
    target[path[-1]] += 1
    with pytest.raises(LedgerError) as error:
        check_ledger(master, counted, 5)
    assert str(error.value) == f"the ledger does not balance (a defect of mpijoin): {named}"


@pytest.fixture
def job(tmp_path):
    """Of which both streams have late rows and rows without a key."""
    times = list(range(300))
    times[7] = 0
    table = pa.table({"ts": pa.array(times, pa.int64()), "key": pa.array([None, "a", "b", "c"] * 75)})
    stream = {"table": table, "time": "ts", "time_unit": "s", "key": "key", "window": "5 s"}
    return {"left": stream, "right": stream, "output": {"path": str(tmp_path / "run")}}


def miscounts(monkeypatch, name):
    """A slave reports one more, as if it had lost or made one."""
    counts = Slave._counts
    monkeypatch.setattr(Slave, "_counts", lambda *args: {**(own := counts(*args)), name: own[name] + 1})


COUNTED = [
    "results",
    *(f"{name}_{side}" for name in ("received", "joined", "expired", "held", "moved_in") for side in ("left", "right")),
]


@pytest.mark.parametrize("name", ["written", *COUNTED])
def test_a_run_whose_slaves_do_not_balance_fails_and_commits_nothing(job, tmp_path, monkeypatch, name):
    miscounts(monkeypatch, name)
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
        counts = master.intake.sources[0].counts
        setattr(counts, name, getattr(counts, name) + 1)

    monkeypatch.setattr(Master, "close", one_more)
    with pytest.raises(LedgerError, match=r"left: read = sent \+ late \+ null_key"):
        mpijoin.run(job, slaves=2)


def test_a_run_that_counts_right_ends_well(job):
    summary = mpijoin.run(job, slaves=2).summary
    assert summary["left"]["late"] and summary["left"]["null_key"] and summary["results"]
