"""The ledger: what balances passes, and every balance that does not is named with both sides."""

from copy import deepcopy

import pytest

from mpijoin.errors import LedgerError
from mpijoin.metrics.ledger import check_ledger

MASTER = {name: {"read": 10, "sent": 7, "late": 2, "null_key": 1} for name in ("left", "right")}
SIDE = {"received": 7, "joined": 7, "expired": 4, "held": 3}


def slaves():
    one = {f"{name}_{side}": count for side in ("left", "right") for name, count in SIDE.items()}
    none = dict.fromkeys(one, 0)
    return [{**one, "results": 5}, {**none, "results": 0}]


@pytest.mark.parametrize("written", [None, 5])
def test_what_balances_passes(written):
    check_ledger(MASTER, slaves(), written)


@pytest.mark.parametrize(
    "change, named",
    [
        (("master", "right", "read"), "right: read = sent + late + null_key: 11 != 10"),
        (("slave", "received_left"), "left: sent = received: 7 != 8; left: received = joined: 8 != 7"),
        (("slave", "joined_right"), "right: received = joined: 7 != 8; right: joined = expired + held: 8 != 7"),
        (("slave", "held_left"), "left: joined = expired + held: 7 != 8"),
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
