"""What ProducerCore is told, by its own rank and by the coordinator, and what it answers."""

from __future__ import annotations

import numpy as np

from mpijoin.named import NamedTuple
from mpijoin.partitioning.table import NO_PEER, NO_STREAM, Copy, Waited
from mpijoin.producer.pacing import TIME_MIN, Pace
from mpijoin.time_events import Rest, Ticked

Watermarks = tuple[int, ...]  # of each stream


class Ingested(NamedTuple):
    """A part of a tick is in the mini-buffers. octets: bytes per slave that has groups for itself · held: per group
    that is held back · watermarks: of all streams, if it ends the tick · border, position: where it ends then, and
    below which running maximum no row is to come · shared: a slave and bytes of each item of a shared group, in their
    order."""

    octets: dict[int, int]
    held: dict[int, int]
    watermarks: Watermarks | None
    border: int = TIME_MIN
    position: int = TIME_MIN
    shared: tuple[tuple[int, int], ...] = ()

    @property
    def slaves(self) -> set[int]:
        """Those for which there are new items."""
        return {*self.octets, *(slave for slave, _ in self.shared)}

    @property
    def came(self) -> dict[int, int]:
        """Bytes per slave in all."""
        came = dict(self.octets)
        for slave, octets in self.shared:
            came[slave] = came.get(slave, 0) + octets
        return came


class SourceEnded(NamedTuple):
    """No row is left to read; after those that were prepared everything may expire."""

    watermarks: Watermarks


class SourceWaits(NamedTuple):
    """The sources have nothing before this second of the run."""

    until_s: float


class PartReady(NamedTuple):
    """A part of a tick has been read and scattered before it is due. border: where its tick ends ·
    completes: whether it ends its tick · octets: the memory that it takes, about · read_s: the second of the run at
    which it had been read · took_s: seconds to read and scatter it."""

    border: int
    completes: bool
    octets: int
    read_s: float
    took_s: float
    begins: Watermarks = ()


class HandedOver(NamedTuple):
    """The oldest part that was prepared goes to the mini-buffers now: `Ingested` follows."""


class Consumed(NamedTuple):
    """A slave has joined one message, of so many bytes."""

    slave: int
    octets: int


class Held(NamedTuple):
    """The answer to Hold: bytes of the group that were taken out of each of its slave's waiting items, the next one
    first."""

    group: int
    octets: tuple[int, ...]


class Delivered(NamedTuple):
    """The answer to Deliver: what is in the items that wait now before all others, the next one first."""

    group: int
    waited: tuple[Waited, ...]


class Redealt(NamedTuple):
    """The answer to Redeal: what is in the items that wait now behind all others, in their order."""

    group: int
    waited: tuple[Waited, ...]


class Resumed(NamedTuple):
    """The run goes on from a checkpoint, in which these rows waited. They wait again, in this order."""

    waited: tuple[Waited, ...]


class Pause(NamedTuple):
    """The coordinator has the group's input held back: "it marks that partition as stalled and stops draining tuples
    for that partition from the transient skew buffer" (Flux, section 5.1)."""

    move: int
    group: int
    supplier: int
    consumer: int


class Restart(NamedTuple):
    """The coordinator has the group's input go to this slave from now on, first what was held back."""

    move: int
    group: int
    slave: int


class Duplicate(NamedTuple):
    """The coordinator has the group's input go to two slaves from now on: "an active split operator will add entries to
    the existing partition mapping table, which map each of the to-be-moved partitions to the receiver machine" (DCAPE,
    section 3.2)."""

    move: int
    group: int
    supplier: int
    consumer: int


class EndTrack(NamedTuple):
    """The coordinator has the group's input, which went to two slaves, go to one of them from now on: it is to `keep`
    the group. The other one is told to `leave` it. (DCAPE calls this *DeletePartitions*.)"""

    move: int
    group: int
    keep: int
    leave: int


class Align(NamedTuple):
    """The coordinator has the group's input held back, and each slave of `told` told so behind all that waits for it:
    pairs of a slave and what it is to do (moving/spreading.py). The first one is the supplier, and each is told of the
    other one of the two. dealt: the stream that is dealt, if it is known."""

    move: int
    group: int
    supplier: int
    consumer: int
    told: tuple[tuple[int, str], ...]
    dealt: int


class ToMembers(NamedTuple):
    """The coordinator has the group's input go to these slaves from now on, first what was held back. The rows of
    stream `dealt` are dealt among them, if there are several."""

    move: int
    group: int
    members: tuple[int, ...]
    dealt: int


class CutAsked(NamedTuple):
    """The coordinator wants a checkpoint cut after the tick under way. stops: why the run ends with it, "" if it does
    not · metrics: whether the metrics are cut here, too."""

    stops: str = ""
    metrics: bool = False


class Close(NamedTuple):
    """All producers have come to the end of their input, and no group is on its way: the end goes out."""


class Repace(NamedTuple):
    """What is read from now on has ticks of this pace. epoch_ns: the distribution epochs that they make up."""

    pace: Pace
    epoch_ns: int


class Begin(NamedTuple):
    """The input of all producers begins at this time. In a paced run, event time passes from then on, and from this
    second of the run on."""

    event: int
    second: float


class Floor(NamedTuple):
    """No producer has rows to come whose running maximum is below this."""

    time: int


Directive = Pause | Restart | Duplicate | EndTrack | Align | ToMembers | CutAsked | Close | Repace | Begin | Floor
Event = (
    Ticked
    | Ingested
    | SourceEnded
    | SourceWaits
    | PartReady
    | HandedOver
    | Consumed
    | Held
    | Delivered
    | Redealt
    | Resumed
    | Directive
)


class Serve(NamedTuple):
    """Send a slave its next `items`, with the watermarks that hold for their groups once it has joined them."""

    slave: int
    items: int
    epoch: int
    watermarks: Watermarks
    last: bool


class Hold(NamedTuple):
    """Take the group's rows out of what waits for the slave, and hold them back; answer with Held at once."""

    move: int
    group: int
    slave: int


class Command(NamedTuple):
    """Order a slave to take a step of a hand-over."""

    move: int
    step: str
    slave: int
    group: int
    peer: int


class Deliver(NamedTuple):
    """Put what was held back of the group before all that waits for the slave; answer with Delivered at once."""

    move: int
    group: int
    slave: int


class TellCopy(NamedTuple):
    """Put an item without rows behind all that waits for a slave, which tells it what it is to do about a group. The
    fields are those of `partitioning.table.Copy`, and the group."""

    group: int
    slave: int
    move: int
    step: str
    peer: int = NO_PEER
    dealt: int = NO_STREAM


class Redeal(NamedTuple):
    """Put what was held back of the group behind all that waits for its slaves; answer with Redealt at once."""

    move: int
    group: int


class Cut(NamedTuple):
    """The last tick is whole: cut a checkpoint here, between what was sent and what waits. slots: how many have ended ·
    complete: watermarks of the last tick · stops, metrics: as in `CutAsked`."""

    slots: int
    complete: Watermarks
    stops: str = ""
    metrics: bool = False


class CloseInput(NamedTuple):
    """Put the end into what waits for each slave."""


class Rested(NamedTuple):
    """The input has ended and the others' has not: put items without rows into what waits for the slaves, so that their
    watermarks go out: for each group and copy of `shared`, then for the groups, int64[m], of each slave."""

    shared: tuple[tuple[int, Copy], ...]
    groups: tuple[tuple[int, np.ndarray], ...]


class Flowed(NamedTuple):
    """For the coordinator: bytes per slave that have come to the mini-buffers, and that slaves have joined."""

    came: dict[int, int]
    joined: dict[int, int]


class SlotEnded(NamedTuple):
    """For the coordinator: a slot is over. slots: how many are · due: bytes per slave that are due and lack credit, of
    a paced run · position: no row to come has a running maximum below this."""

    producer: int
    slots: int
    due: dict[int, int]
    position: int


class BeginsAt(NamedTuple):
    """For the coordinator: the input begins with a tick from this time on, and was read at this second of the run."""

    producer: int
    event: int
    read_s: float


class InputEnded(NamedTuple):
    """For the coordinator: all of this producer's input is in its mini-buffers."""

    producer: int


Note = Flowed | SlotEnded | BeginsAt | InputEnded
Action = Serve | Hold | Command | Deliver | TellCopy | Redeal | Cut | CloseInput | Rested | Repace | Note


class Read(NamedTuple):
    """Read the next part of a tick. It goes to the mini-buffers at once. ahead: it is prepared instead, because it may
    not go yet."""

    ahead: bool = False


class HandOver(NamedTuple):
    """The oldest part that was prepared is due, in a paced run since this second of the run."""

    due_s: float


Input = Read | HandOver | Rest
