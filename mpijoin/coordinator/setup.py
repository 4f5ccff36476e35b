"""What a master's decisions begin with."""

from __future__ import annotations

from mpijoin.checkpoint.schedule import Schedule
from mpijoin.coordinator.reorganization import Reorganization
from mpijoin.moving import steps
from mpijoin.named import NamedTuple
from mpijoin.partitioning.table import PartitionTable
from mpijoin.producer.events import Watermarks
from mpijoin.producer.pacing import Pacing
from mpijoin.producer.setup import ProducerSetup
from mpijoin.producer.views import never


class MasterSetup(NamedTuple):
    """The cluster, its bounds, and where a run begins or goes on."""

    table: PartitionTable
    """Who has which group; the core changes it."""
    slaves: tuple[int, ...]
    """All ranks that may join."""
    buffer_bytes: int
    """What a slave may have received and not joined."""
    master_buffer_bytes: int
    """What may wait for slaves, and of a paced run what is prepared."""
    subgroups: int = 1
    """n_g of WSJ, section V-B."""
    finishing: tuple[int, ...] = ()
    """The ranks beside the slaves that report when they have finished: a collector of its own."""
    pacing: Pacing | None = None
    """Of a paced run; None: it is as fast as possible."""
    reorganization: Reorganization | None = None
    """None: nothing ever moves."""
    move_kind: str = steps.USUAL
    """How groups move (moving/coordinator.py)."""
    schedule: Schedule | None = None
    """When a checkpoint is due; None: only when a stop asks for one."""
    now_s: float = 0.0
    """The second of the run."""
    slots: int = 0
    """How many had ended when the run was cut from which this one goes on."""
    complete: Watermarks = never(2)
    """The watermarks then; of a run that begins `never`."""
    producers: int = 1
    """Rank 0 is the first of them."""
    divided: bool = False
    """Whether each slave has a part of the buffer of its own."""
    lead: int = 0
    """The event time by which one of many producers may always be ahead of the slowest."""

    @property
    def producer(self) -> ProducerSetup:
        """What the first producer's decisions begin with."""
        return ProducerSetup(
            self.table,
            self.slaves,
            self.buffer_bytes,
            self.master_buffer_bytes,
            self.subgroups,
            self.pacing,
            self.now_s,
            self.slots,
            self.complete,
            producers=self.producers,
            divided=self.divided,
            lead=self.lead,
        )
