"""What a master's decisions begin with."""

from __future__ import annotations

from typing import NamedTuple

from mpijoin.checkpoint.schedule import Schedule
from mpijoin.master.events import Watermarks
from mpijoin.master.pacing import Pacing
from mpijoin.master.reorganization import Reorganization
from mpijoin.master.views import never
from mpijoin.partitioning.table import PartitionTable


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
    schedule: Schedule | None = None
    """When a checkpoint is due; None: only when a stop asks for one."""
    now_s: float = 0.0
    """The second of the run."""
    slots: int = 0
    """How many had ended when the run was cut from which this one goes on."""
    complete: Watermarks = never(2)
    """The watermarks then; of a run that begins `never`."""
