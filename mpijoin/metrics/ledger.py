"""The ledger: every rank counts what it did, and at the end the counts must agree."""

from __future__ import annotations

from typing import Mapping, Sequence

from mpijoin.errors import LedgerError

STREAMS = ("left", "right")
COUNTS = ("received", "joined", "expired", "held", "moved_in", "moved_out")  # of a slave, per stream


def check_ledger(
    master: Mapping[str, Mapping[str, int]], slaves: Sequence[Mapping[str, int]], written: int | None
) -> None:
    """Raises LedgerError naming every balance that does not hold.

    master: per stream read, late, null_key and sent · slaves: received_left, joined_left, expired_left, held_left,
    moved_in_left, moved_out_left (and of right), results · written: rows in the output, None where results are only
    counted.
    """
    faults = []
    for stream in STREAMS:
        own = master[stream]
        total = {name: sum(slave[f"{name}_{stream}"] for slave in slaves) for name in COUNTS}
        faults += _unequal(
            f"{stream}: read = sent + late + null_key", own["read"], own["sent"] + own["late"] + own["null_key"]
        )
        faults += _unequal(f"{stream}: sent = received", own["sent"], total["received"])
        faults += _unequal(f"{stream}: received = joined", total["received"], total["joined"])
        faults += _unequal(f"{stream}: moved in = moved out", total["moved_in"], total["moved_out"])
        for number, slave in enumerate(slaves, 1):
            joined, expired, held, moved_in, moved_out = (slave[f"{name}_{stream}"] for name in COUNTS[1:])
            rule = f"{stream}, slave {number}: joined = expired + held + moved out - moved in"
            faults += _unequal(rule, joined, expired + held + moved_out - moved_in)
    if written is not None:
        faults += _unequal("pairs produced = pairs written", sum(slave["results"] for slave in slaves), written)
    if faults:
        raise LedgerError("the ledger does not balance (a defect of mpijoin): " + "; ".join(faults))


def _unequal(rule: str, left: int, right: int) -> list[str]:
    return [] if left == right else [f"{rule}: {left} != {right}"]
