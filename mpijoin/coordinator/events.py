"""What CoordinatorCore is told beside the notes of producers, and what it answers."""

from __future__ import annotations

from mpijoin.coordinator.reorganization import Loaded
from mpijoin.named import NamedTuple
from mpijoin.partitioning.table import NO_STREAM
from mpijoin.policy.plan import Plan, Spill
from mpijoin.policy.view import ClusterView
from mpijoin.producer.events import Command, Directive, Note
from mpijoin.time_events import Ticked


class Spent(NamedTuple):
    """The answer to Weigh: seconds spent on communication and on joining since the start, per slave. behind: whether
    someone is behind its time by more than epochs allow."""

    seconds: dict[int, tuple[float, float]]
    behind: bool = False


class Stepped(NamedTuple):
    """A slave has done its step of a hand-over, or refuses it."""

    move: int
    slave: int
    step: str
    dealt: int = NO_STREAM  # of a group that is spread


class Chosen(NamedTuple):
    """The supplier of a relocation has chosen these groups."""

    relocation: int
    slave: int
    groups: tuple[int, ...]


class RankFinished(NamedTuple):
    rank: int


class StopAsked(NamedTuple):
    """The run shall end with a checkpoint. reason: why, in words."""

    reason: str


class SaveEnded(NamedTuple):
    """The checkpoint under way is whole, or given up."""




Event = Ticked | Note | Loaded | Spent | Stepped | Chosen | RankFinished | StopAsked | SaveEnded


class Tell(NamedTuple):
    """Tell every producer."""

    directive: Directive


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


class GoesOn(NamedTuple):
    """The run was asked to stop, and ends before it could: its input has ended, and groups are spread."""

    reason: str


class Stopping(NamedTuple):
    """The run will end with a checkpoint, as soon as one can be cut. reason: why, in words."""

    reason: str


class Weigh(NamedTuple):
    """Tell what communication and joining have cost each slave; answer with Spent at once."""


class Complete(NamedTuple):
    """Every rank has finished."""


Action = Tell | Ask | Compute | Spill | Command | Moved | Decided | GoesOn | Stopping | Weigh | Complete
