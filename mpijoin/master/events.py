"""What MasterCore is told, and what it answers."""

from __future__ import annotations

from typing import NamedTuple

from mpijoin.master.reorganization import Loaded
from mpijoin.policy.plan import Plan
from mpijoin.policy.view import ClusterView

Watermarks = tuple[int, ...]  # of each stream


class Ingested(NamedTuple):
    """A part of a tick is in the mini-buffers. octets: bytes per slave that has groups · held: per group that is held
    back · watermarks: of all streams, if it ends the tick."""

    octets: dict[int, int]
    held: dict[int, int]
    watermarks: Watermarks | None


class SourceEnded(NamedTuple):
    """No row is left; everything may expire."""

    watermarks: Watermarks


class Consumed(NamedTuple):
    """A slave has joined one message, of so many bytes."""

    slave: int
    octets: int


class Held(NamedTuple):
    """The answer to Hold: bytes of the group that were taken out of each of its slave's waiting items, the next one
    first."""

    group: int
    octets: tuple[int, ...]


class Stepped(NamedTuple):
    """A slave has done its step of a hand-over, or refuses it."""

    move: int
    slave: int
    step: str


class RankFinished(NamedTuple):
    rank: int


class Restored(NamedTuple):
    """The run goes on from a checkpoint, in which rows of these groups waited: bytes per group."""

    pending: dict[int, int]


class SaveWanted(NamedTuple):
    """A checkpoint is due. stops: the run ends with it."""

    stops: bool


class SaveEnded(NamedTuple):
    """The checkpoint under way is whole, or given up."""


Event = Ingested | SourceEnded | Consumed | Held | Loaded | Stepped | RankFinished | Restored | SaveWanted | SaveEnded


class Serve(NamedTuple):
    """Send a slave its next `items`, with the watermarks that hold for their groups once it has joined them."""

    slave: int
    items: int
    epoch: int
    watermarks: Watermarks
    last: bool


class Ask(NamedTuple):
    """Ask a slave how loaded it is."""

    slave: int
    period: int


class Command(NamedTuple):
    """Order a slave to take a step of a hand-over."""

    move: int
    step: str
    slave: int
    group: int
    peer: int


class Hold(NamedTuple):
    """Take the group's rows out of what waits for the slave, and hold them back; answer with Held at once."""

    move: int
    group: int
    slave: int


class Deliver(NamedTuple):
    """What was held back of the group is the slave's next item. move: None where the run goes on from a checkpoint."""

    move: int | None
    group: int
    slave: int


class Moved(NamedTuple):
    """A move is closed. outcome: "moved", "refused" or "cancelled"."""

    move: int
    group: int
    supplier: int
    consumer: int
    outcome: str
    gain: float


class Decided(NamedTuple):
    """The policy was asked."""

    view: ClusterView
    plan: Plan


class Cut(NamedTuple):
    """The last tick is whole and no group is on its way: cut a checkpoint here, between what was sent and what waits.
    slots: how many have ended · complete: watermarks of the last tick."""

    slots: int
    complete: Watermarks


class CloseInput(NamedTuple):
    """Put the end into what waits for each slave."""


class Complete(NamedTuple):
    """Every rank has finished."""


Action = Serve | Ask | Command | Hold | Deliver | Moved | Decided | Cut | CloseInput | Complete
