"""The ledger: every rank counts what it did, and at the end of the run the counts must agree."""

from __future__ import annotations

from typing import Sequence

from mpijoin.errors import LedgerError
from mpijoin.named import NamedTuple
from mpijoin.records import Counts


class Written(NamedTuple):
    """The results that were found of a query, or of all that are counted together, and the rows that were written of
    them. A job without queries has one that is named ""."""

    query: str
    found: int
    rows: int


class StreamCounts(NamedTuple):
    """What producers counted of a stream: the rows read, and how many of them were late, had no key or were sent, and
    how many were sent to a second slave, too."""

    name: str
    read: int
    late: int
    null_key: int
    sent: int
    copied: int = 0


def check_ledger(streams: Sequence[StreamCounts], slaves: Sequence[Counts], written: Sequence[Written]) -> None:
    """Raises LedgerError, which names every balance that does not hold.

    streams: in the job's order, like the counts of the slaves · written: what is more than only counted.
    """
    faults = [fault for index, stream in enumerate(streams) for fault in _of_stream(index, stream, slaves)]
    for one in written:
        where = f"{one.query}: " if one.query else ""
        faults += _unequal(f"{where}results produced = results written", one.found, one.rows)
    if faults:
        raise LedgerError("the ledger does not balance (a defect of mpijoin): " + "; ".join(faults))


def _of_stream(index: int, stream: StreamCounts, slaves: Sequence[Counts]) -> list[str]:
    def total(field: str) -> int:
        return sum(getattr(slave, field)[index] for slave in slaves)

    name = stream.name
    faults = _unequal(
        f"{name}: read = sent + late + null_key", stream.read, stream.sent + stream.late + stream.null_key
    )
    faults += _unequal(f"{name}: sent = received", stream.sent, total("received"))
    faults += _unequal(f"{name}: copies sent = copied", stream.copied, total("copied"))
    faults += _unequal(f"{name}: received + copied = joined", total("received") + total("copied"), total("joined"))
    faults += _unequal(f"{name}: moved in = moved out", total("moved_in"), total("moved_out"))
    faults += _unequal(f"{name}: replicas in = replicas out", total("replicas_in"), total("replicas_out"))
    faults += _unequal(f"{name}: spilled = taken back", total("spilled"), total("taken_back"))
    for number, slave in enumerate(slaves, 1):
        rule = f"{name}, slave {number}: joined = expired + held + moved out - moved in + spilled - taken back"
        rule += " + discarded - replicas in"
        balance = slave.expired[index] + slave.held[index] + slave.moved_out[index] - slave.moved_in[index]
        balance += slave.spilled[index] - slave.taken_back[index] + slave.discarded[index]
        balance -= slave.replicas_in[index]
        faults += _unequal(rule, slave.joined[index], balance)
    return faults


def _unequal(rule: str, found: int, wanted: int) -> list[str]:
    return [] if found == wanted else [f"{rule}: {found} != {wanted}"]
