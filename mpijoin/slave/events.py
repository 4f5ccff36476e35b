"""What happens to a slave, and what it then does: the events and actions of its core."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpijoin.operators.base import Progress, Taken
from mpijoin.time_events import Rest, Ticked


class Arrived(NamedTuple):
    """A message with input. groups int64[m], rows int64[m]: of all streams per group · own: not the master's, who waits
    for no report of it."""

    epoch: int
    octets: int
    groups: np.ndarray
    rows: np.ndarray
    last: bool
    own: bool = False


class Inserted(NamedTuple):
    """What the operator took of the slice's groups. Where it is not all, memory is short."""

    taken: Taken


class Probed(NamedTuple):
    progress: Progress


class Expired(NamedTuple):
    """Unless DONE, what expiring has found must be consumed, and it goes on."""

    progress: Progress


class Ordered(NamedTuple):
    """The next step of a hand-over that this slave supplies; "freeze" takes the group out of all that is not joined
    yet."""

    move: int
    step: str
    group: int


class Staged(NamedTuple):
    """A group has come whole."""

    move: int


class Paused(NamedTuple):
    """Unless DONE, what was found must be consumed, and it goes on."""

    progress: Progress


class Marked(NamedTuple):
    """A checkpoint cuts the input here, and maybe the metrics. anew: nothing written before may be built upon · stops:
    nothing more is to be joined."""

    number: int
    cuts_metrics: bool = True
    anew: bool = False
    stops: bool = False


class SaveDone(NamedTuple):
    """Everything is read out for it."""


class Handed(NamedTuple):
    """A part of a group that changes hands was sent, or has come, at this second of the run."""

    now_s: float


Event = Arrived | Inserted | Probed | Paused | Expired | Ordered | Staged | Marked | SaveDone | Handed | Ticked


class Insert(NamedTuple):
    """Insert the oldest message's rows of its groups low:high, all streams."""

    low: int
    high: int


class Probe(NamedTuple):
    """Join the fresh tuples of groups low:high for about `budget` comparisons."""

    low: int
    high: int
    budget: int


class Pause(NamedTuple):
    """Go on with the probe, for about `budget` comparisons, only until its groups can be saved."""

    budget: int


class Consume(NamedTuple):
    """Hand the results found so far to the consumers."""


class RunOut(NamedTuple):
    """Memory is short, by so many pages or more, and nobody makes room: the run fails."""

    lacking_pages: int


class Expire(NamedTuple):
    """Advance the watermarks of groups low:high to the message's, and let go of what is expired."""

    low: int
    high: int


class EndMessage(NamedTuple):
    """The oldest message is joined: forget it, tell the master (credit) and the collector. own: the master knows
    nothing of it."""

    epoch: int
    octets: int
    own: bool


class Carry(NamedTuple):
    """Carry out an order, now that no group holds fresh tuples. places: for each message whose rows of the group are
    not joined yet (0: the oldest), where in its groups it is; from now on it is not one of them."""

    move: int
    step: str
    group: int
    places: tuple[tuple[int, int], ...]


class Install(NamedTuple):
    """Take over a group that has come whole."""

    move: int


class Save(NamedTuple):
    """Save all groups, results and counts, of what came before the checkpoint's mark and nothing after it. As in
    `Marked`. unjoined: for each message that is not joined, the oldest first, from which of its groups on nothing is
    inserted; their rows are saved as they are."""

    number: int
    cuts_metrics: bool = True
    anew: bool = False
    unjoined: tuple[int, ...] = ()


class Finish(NamedTuple):
    """All input is joined: close the sinks and report."""


Action = Insert | RunOut | Probe | Pause | Consume | Expire | EndMessage | Carry | Install | Save | Finish | Rest
