"""What happens to a slave, and what it then does: the events and actions of its core."""

from __future__ import annotations

import numpy as np

from mpijoin.named import NamedTuple
from mpijoin.operators.base import Memory, Progress, Taken
from mpijoin.time_events import Rest, Ticked


class Arrived(NamedTuple):
    """A message with input has come. groups: int64[m] · rows: int64[m], how many of all streams each group has · own:
    it is not from the master, which therefore waits for no report of it · joint: it may be joined together with others
    of the same groups · producer: whose it is · rests: which has no more input."""

    epoch: int
    octets: int
    groups: np.ndarray
    rows: np.ndarray
    last: bool
    own: bool = False
    joint: bool = False
    producer: int = 0
    rests: bool = False


class Resumed(NamedTuple):
    """The run goes on from a checkpoint that was saved while these groups, int64[m], held fresh tuples."""

    groups: np.ndarray


class Inserted(NamedTuple):
    """The operator has taken so much of the slice. Memory is short where that is not all of its groups. progressed:
    whether it has taken any row · is_moving: a group changes hands here."""

    taken: Taken
    progressed: bool = True
    memory: Memory = Memory(0, 0, 0)
    is_moving: bool = False


class Probed(NamedTuple):
    """Unless DONE, the probe of this slice goes on."""

    progress: Progress


class Expired(NamedTuple):
    """Unless DONE, what expiring has found must be consumed before it goes on. is_moving: a group changes hands
    here."""

    progress: Progress
    memory: Memory = Memory(0, 0, 0)
    is_moving: bool = False


class Spilled(NamedTuple):
    """A part of what is to be spilled is on disk. more: the rest has to follow · open_groups: how many groups have
    something on disk."""

    more: bool
    open_groups: int = 0


class Cleaned(NamedTuple):
    """A part of the clean-up is done. more: the rest has to follow · is_between: it is between two groups, so that the
    state could be saved now · open_groups: how many groups have something on disk · now_s: of the run."""

    more: bool
    is_between: bool
    open_groups: int
    now_s: float


class Rotated(NamedTuple):
    """A part of an activation is done. more: the rest has to follow · groups, rows: as in `Arrived`, of pending input
    that is to be joined before that, or none · is_blocked: the group stays on disk for now, because others change hands
    · open_groups: for how many groups on disk input is pending."""

    more: bool
    open_groups: int = 0
    groups: np.ndarray = np.zeros(0, np.int64)
    rows: np.ndarray = np.zeros(0, np.int64)
    is_blocked: bool = False


class Diverted(NamedTuple):
    """These places of the oldest message had groups on disk. It has them no more."""

    places: tuple[int, ...] = ()
    open_groups: int = 0


class SpillOrdered(NamedTuple):
    """The master wants about so many bytes on disk, of the groups that come first by this ranking. is_moving: a group
    changes hands here."""

    octets: int
    ranking: str
    is_moving: bool = False


class Ordered(NamedTuple):
    """The next step of a hand-over in which this slave is the supplier. "freeze" takes the group out of all input that
    is not joined yet."""

    move: int
    step: str
    group: int


class Staged(NamedTuple):
    """A group that this slave is to take over has come whole."""

    move: int


class Paused(NamedTuple):
    """Unless DONE, what was found must be consumed before pausing goes on."""

    progress: Progress


class Marked(NamedTuple):
    """A checkpoint cuts the input here, and perhaps the metrics too. anew: it may not build upon what was written
    before · stops: the run ends with it, so nothing more is to be joined."""

    number: int
    cuts_metrics: bool = True
    anew: bool = False
    stops: bool = False


class SaveDone(NamedTuple):
    """Everything that the checkpoint needs is read out."""


class Handed(NamedTuple):
    """A part of a group that changes hands was sent, or has come, at this second of the run."""

    now_s: float


Event = (
    Arrived | Inserted | Probed | Paused | Expired | Spilled | Cleaned | Rotated | Diverted | SpillOrdered | Ordered
    | Staged | Marked | SaveDone | Handed | Ticked | Resumed
)  # fmt: skip


class Insert(NamedTuple):
    """Insert the rows that the oldest message has of its groups low:high, of all streams. Go on where the last one
    stopped, if it was not done. in_parts: if a group does not fit, insert as many of its rows as do · messages: so many
    of the oldest are joined together."""

    low: int
    high: int
    in_parts: bool = False
    messages: int = 1


class Spill(NamedTuple):
    """Write groups to disk until about so many bytes are free, the first ones by this ranking. Begin with the first
    group, or else go on."""

    octets: int
    ranking: str
    begins: bool = True


class CleanUp(NamedTuple):
    """Find a part of what is owed for rows on disk. ends: the input has ended, and this is the first part."""

    ends: bool = False


class Rotate(NamedTuple):
    """Do a part of an activation. Unless it `begins`, go on with the one that is under way. group: activate this one if
    it is on disk; None: that whose turn it is, if it is time or must be `at_once`."""

    group: int | None = None
    at_once: bool = False
    begins: bool = True


class Divert(NamedTuple):
    """Take the rows of groups on disk out of the oldest message, from the group at place `low` on."""

    low: int


class EndInput(NamedTuple):
    """The oldest message is joined. It was no input from the master, but had been pending. Forget it."""


class Probe(NamedTuple):
    """Join the fresh tuples of groups low:high for about `budget` comparisons."""

    low: int
    high: int
    budget: int


class Pause(NamedTuple):
    """Go on with the probe for about `budget` comparisons, but only until its groups can be saved."""

    budget: int


class Consume(NamedTuple):
    """Hand the results found so far to the consumers."""


class RunOut(NamedTuple):
    """Memory is short by so many pages or more, and nobody makes room. The run fails."""

    lacking_pages: int


class Expire(NamedTuple):
    """Advance the watermarks of groups low:high to those of the oldest messages, of which so many are joined together,
    and let go of what has expired."""

    low: int
    high: int
    messages: int = 1


class EndMessage(NamedTuple):
    """The oldest message is joined. Forget it, and tell the master, which counts it as credit, and the collector. own:
    the master knows nothing of the message · goes_on: the next one, which was joined together with it, is of the same
    epoch."""

    epoch: int
    octets: int
    own: bool
    goes_on: bool = False


class Carry(NamedTuple):
    """Carry out an order, now that no group holds fresh tuples. places: for each message (0 is the oldest) whose rows
    of the group are not joined yet, where among its groups this one was. It is not among them any more."""

    move: int
    step: str
    group: int
    places: tuple[tuple[int, int], ...]


class Install(NamedTuple):
    """Take over the group of this move, which has come whole."""

    move: int


class Save(NamedTuple):
    """Save all groups, results and counts as they are at the checkpoint's mark. Fields are as in `Marked`. unjoined:
    for each message that is not joined, the oldest first, the group from which on nothing is inserted. The rows of
    these groups are saved as they are."""

    number: int
    cuts_metrics: bool = True
    anew: bool = False
    unjoined: tuple[int, ...] = ()


class Finish(NamedTuple):
    """All input is joined. Close the sinks and report."""


Action = (
    Insert | RunOut | Probe | Pause | Consume | Expire | Spill | CleanUp | Rotate | Divert | EndInput | EndMessage
    | Carry | Install | Save | Finish | Rest
)  # fmt: skip
