"""The pacing of a run that keeps the pace of its data, for tests that tell a master what happens."""

from mpijoin.producer.pacing import Pacing, Tempo

SECOND_NS = 1_000_000_000


def new_pacing(epoch_ns=SECOND_NS, **tempo):
    """Returns a pacing whose event time is in seconds and passes as the clock does."""
    return Pacing(Tempo(**{"windows": (60, 60), "unit_s": 1.0, "epoch_ns": epoch_ns, **tempo}))
