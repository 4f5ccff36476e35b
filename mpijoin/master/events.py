"""What MasterCore is told, and what it answers."""

from __future__ import annotations

from typing import NamedTuple

from mpijoin.master.pacing import Pace
from mpijoin.master.reorganization import Loaded
from mpijoin.policy.plan import Plan, Spill
from mpijoin.policy.view import ClusterView
from mpijoin.time_events import Rest, Ticked

Watermarks = tuple[int, ...]  # of each stream


class Ingested(NamedTuple):
    """A part of a tick is in the mini-buffers. octets: bytes per slave that has groups · held: per group that is held
    back · watermarks: of all streams, if it ends the tick."""

    octets: dict[int, int]
    held: dict[int, int]
    watermarks: Watermarks | None


class SourceEnded(NamedTuple):
    """No row is left to read; after those that were prepared everything may expire."""

    watermarks: Watermarks


class SourceWaits(NamedTuple):
    """The sources have nothing before this second of the run."""

    until_s: float


class PartReady(NamedTuple):
    """A part of a tick of a paced run has been read and scattered before it is due. border: where its tick ends ·
    completes: whether it ends its tick · octets: the memory that it takes, about · read_s: the second of the run at
    which it had been read · took_s: seconds to read and scatter it."""

    border: int
    completes: bool
    octets: int
    read_s: float
    took_s: float


class HandedOver(NamedTuple):
    """The oldest part that was prepared goes to the mini-buffers now: `Ingested` follows."""


class Spent(NamedTuple):
    """The answer to Weigh: seconds spent on communication and on joining since the start, per slave."""

    seconds: dict[int, tuple[float, float]]


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


class Chosen(NamedTuple):
    """The supplier of a relocation has chosen these groups."""

    relocation: int
    slave: int
    groups: tuple[int, ...]


class RankFinished(NamedTuple):
    rank: int


class Resumed(NamedTuple):
    """The run goes on from a checkpoint, in which rows of these groups waited: bytes per group."""

    pending: dict[int, int]


class StopAsked(NamedTuple):
    """The run shall end with a checkpoint. reason: why, in words."""

    reason: str


class SaveEnded(NamedTuple):
    """The checkpoint under way is whole, or given up."""


Event = (
    Ticked
    | Ingested
    | SourceEnded
    | SourceWaits
    | PartReady
    | HandedOver
    | Consumed
    | Held
    | Loaded
    | Spent
    | Stepped
    | Chosen
    | RankFinished
    | Resumed
    | StopAsked
    | SaveEnded
)


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


class Compute(NamedTuple):
    """Ask the supplier of a relocation for the groups that shall go: so many bytes at most, the first ones by this
    ranking."""

    relocation: int
    slave: int
    octets: int
    ranking: str


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
    slots: how many have ended · complete: watermarks of the last tick · stops: why the run ends with it, "" if it does
    not · metrics: whether the metrics are cut here, too."""

    slots: int
    complete: Watermarks
    stops: str = ""
    metrics: bool = False


class Stopping(NamedTuple):
    """The run will end with a checkpoint, as soon as one can be cut. reason: why, in words."""

    reason: str


class Weigh(NamedTuple):
    """Tell what communication and joining have cost each slave; answer with Spent at once."""


class Repace(NamedTuple):
    """What is read from now on has ticks of this pace. epoch_ns: the distribution epochs that they make up."""

    pace: Pace
    epoch_ns: int


class CloseInput(NamedTuple):
    """Put the end into what waits for each slave."""


class Complete(NamedTuple):
    """Every rank has finished."""


Action = (
    Serve
    | Ask
    | Compute
    | Spill
    | Command
    | Hold
    | Deliver
    | Moved
    | Decided
    | Stopping
    | Cut
    | Weigh
    | Repace
    | CloseInput
    | Complete
)


class Read(NamedTuple):
    """Read the next part of a tick. As fast as possible it goes to the mini-buffers at once, in a paced run it is
    prepared."""


class HandOver(NamedTuple):
    """The oldest part that was prepared is due, and was so at this second of the run."""

    due_s: float


Input = Read | HandOver | Rest
