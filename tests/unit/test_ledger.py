"""The ledger: what balances passes, and every balance that does not is named with both sides."""

from copy import deepcopy

import pytest

from mpijoin.errors import LedgerError
from mpijoin.metrics.ledger import check_ledger

MASTER = {name: {"read": 10, "sent": 7, "late": 2, "null_key": 1} for name in ("left", "right")}
ONE = {"received": 7, "joined": 6, "expired": 3, "held": 1, "moved_in": 0, "moved_out": 2}
OTHER = {"received": 0, "joined": 1, "expired": 1, "held": 2, "moved_in": 2, "moved_out": 0}


def slaves():
    """A group has moved from the first to the second, and with it a tuple that was not joined yet."""
    both = [{f"{name}_{side}": count for side in ("left", "right") for name, count in counts.items()} for counts in (ONE, OTHER)]
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
