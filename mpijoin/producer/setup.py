"""What a producer's decisions begin with."""

from __future__ import annotations

from mpijoin.named import NamedTuple
from mpijoin.partitioning.table import PartitionTable
from mpijoin.producer.events import Watermarks
from mpijoin.producer.pacing import Pacing


class ProducerSetup(NamedTuple):
    """The slaves, the bounds of what waits for them, and where a run begins or goes on."""

    table: PartitionTable
    """Who has which group; the core changes it."""
    slaves: tuple[int, ...]
    """All ranks that may join."""
    buffer_bytes: int
    """What a slave may have received of this producer and not joined."""
    waiting_bytes: int
    """What may wait for slaves, and what is prepared."""
    subgroups: int
    """n_g of WSJ, section V-B."""
    pacing: Pacing | None
    """Of a paced run; None: it is as fast as possible."""
    now_s: float
    """The second of the run."""
    slots: int
    """How many had ended when the run was cut from which this one goes on."""
    complete: Watermarks
    """The watermarks then; of a run that begins `never`."""
    number: int = 0
    """This producer's rank."""
    producers: int = 1
    """How many there are."""
    divided: bool = False
    """Whether each slave has an even part of `waiting_bytes`; else they take of it what they need."""
    lead: int = 0
    """The event time by which it may always be ahead of the slowest of many (`Pacing.lead`)."""
