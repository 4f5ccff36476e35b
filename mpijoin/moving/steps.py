"""What the parties of a hand-over say to each other, and how their transition tables are followed."""

from __future__ import annotations

from typing import Mapping, TypeVar

import numpy as np

from mpijoin.config.moves import MSLB, PRECOPY
from mpijoin.errors import ProtocolError

After = TypeVar("After")

# What the coordinator orders the supplier to do. A move begins with the order that `FIRST` has for its kind, but one by
# PTLB with a slot.
SHIP, FREEZE, DROP, RESTORE = "ship", "freeze", "drop", "restore"
FIRST = {PRECOPY: SHIP, MSLB: FREEZE}
USUAL = PRECOPY

# What a producer says of a slot whose one group goes to two slaves, by PTLB. To the supplier: its rows also go to the
# consumer. To the consumer: they also go to the supplier. To either, with no rows: they end here; the group is yours
# alone, or none of yours.
DUPLICATE, COPY, KEEP, LEAVE = "duplicate", "copy", "keep", "leave"

# What a producer says of a group that is spread (spreading.py): these rows are a replica, but for those of the dealt
# stream; and behind all that was not held back: send the group to one more member, give your part back, take one back.
REPLICA, SPREAD, GIVE, TAKE = "replica", "spread", "give", "take"
# What the coordinator orders the first member to do then.
DEAL = "deal"

# What the slaves report to the coordinator, and which of them may say it.
SHIPPED, INSTALLED, DROPPED, RESTORED, REFUSED = "shipped", "installed", "dropped", "restored", "refused"
ALL_OLD_PURGED, DISCARDED, DEALT = "all old purged", "discarded", "dealt"
BY_SUPPLIER, BY_CONSUMER = (SHIPPED, DROPPED, RESTORED, ALL_OLD_PURGED, DEALT), (INSTALLED, REFUSED, DISCARDED)


def is_copied(step: str, dealt: int, streams: int) -> np.ndarray:
    """Returns bool[streams]: whether the rows of a slot also go to another slave, which counts them.

    >>> is_copied(REPLICA, 1, 3), is_copied("", 1, 3)
    (array([ True, False,  True]), array([False, False, False]))
    """
    others: np.ndarray = np.arange(streams) != dealt
    return others & (step in (DUPLICATE, REPLICA))


def follow(
    table: Mapping[tuple[str, str], After], number: int, state: str, event: str, party: str = "", what: str = "move"
) -> After:
    """What a table says of an event in a state. ProtocolError: nothing; it names what it is about, with its number, the
    party, the state and the event."""
    if (state, event) not in table:
        wanted = " or ".join(repr(legal) for own, legal in table if own == state) or "nothing more"
        at = f" at its {party}" if party else ""
        raise ProtocolError(f"{what} {number} is {state}{at} and got {event!r}, wanted {wanted}")
    return table[state, event]
