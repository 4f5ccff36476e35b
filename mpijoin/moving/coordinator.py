"""A hand-over as the master drives it: which reports are legal when, and what follows, as a transition table.

    BEGUN      the move was decided
    SHIPPING   the supplier joins the group and ships what no longer changes; the consumer stages it
    FROZEN     neither joins it; its input is held back; the consumer gets the rest and installs it
    DROPPING   the consumer joins it; the supplier still has its copy
    RESTORING  the consumer refused what was frozen: the supplier shall take it back
    REFUSING   the consumer refused before anything was frozen: the supplier shall stop shipping
    CANCELLING the source has ended before anything was frozen: the supplier shall stop shipping

    DOUBLED    both slaves get the group's input; the supplier finds all results with an old tuple, the consumer others
    DELETING   all old tuples are purged: the input goes to the consumer alone, and the supplier shall forget the group
    KEEPING    the supplier has forgotten it; the consumer does not know yet that it is the only one
    UNDOING    the move is given up: the input goes to the supplier alone, and the consumer shall forget the group
    DISCARDING the supplier is the only one, and knows it; the consumer has not forgotten the group yet

There are three kinds of moves. One that copies ahead (PRECOPY) holds the input back only while the last portion of the
state travels. MSLB is the plan-aware strategy of DCAPE, section 4: it deactivates the group at once, so that the
supplier is rid of its work, and its states travel with it. After the first step both go the same way. At most one side
joins the group at any time (WSJ, section IV-C). These are steps 3 to 8 of LAD-TR, and of DCAPE, section 4.2, which has
the same names for them; `relocation` says which is which.

PTLB is the plan-agnostic strategy of DCAPE, section 3 (steps 3 to 5 of its protocol): no state travels, and the group
is joined by both sides until the supplier's old tuples are purged. A move that its consumer refuses counts as
cancelled. The pairs of new tuples are the consumer's business until the very end of such a move: it has joined all that
were marked as new for the supplier before it forgets the group.

The two slaves are heard in any order:
a report may cross an order on its way, or arrive after a later report of the other slave. The table takes such reports
where that is possible, and refuses all others by name.
"""

from __future__ import annotations

from mpijoin.config.moves import MSLB, PRECOPY, PTLB
from mpijoin.moving.steps import (
    ALL_OLD_PURGED,
    DISCARDED,
    DROP,
    DROPPED,
    INSTALLED,
    REFUSED,
    RESTORE,
    RESTORED,
    SHIP,
    SHIPPED,
    follow,
)
from mpijoin.named import NamedTuple

BEGUN, SHIPPING, FROZEN, DROPPING = "begun", "shipping", "frozen", "dropping"
RESTORING, REFUSING, CANCELLING = "restoring", "refusing", "cancelling"
DOUBLED, DELETING, KEEPING = "doubled", "deleting", "keeping"
UNDOING, DISCARDING = "undoing", "discarding"
# "refused" is what the consumer reports, and then the state of the move.
MOVED, CANCELLED = "moved", "cancelled"
CLOSED = (MOVED, REFUSED, CANCELLED)

CANCEL = "cancel"  # the master's own event; a move begins with its kind as the event

# What the producers are told, beside the orders to the supplier: to hold the group's input back, upon which each of
# them says FREEZE to the supplier, or to send it to a slave from now on. By PTLB: to send it to both, or from then on
# to one of them.
PAUSE, TO_CONSUMER, TO_SUPPLIER, CLOSE = "pause", "deliver to consumer", "deliver to supplier", "close"
TO_BOTH, CONSUMER_KEEPS, SUPPLIER_KEEPS = "duplicate", "consumer keeps", "supplier keeps"


class Transition(NamedTuple):
    """The state that follows, and what is to be done, in this order."""

    state: str
    acts: tuple[str, ...] = ()


TRANSITIONS = {
    (BEGUN, PRECOPY): Transition(SHIPPING, (SHIP,)),
    (BEGUN, MSLB): Transition(FROZEN, (PAUSE,)),
    (SHIPPING, SHIPPED): Transition(FROZEN, (PAUSE,)),
    (SHIPPING, REFUSED): Transition(REFUSING, (RESTORE,)),
    (SHIPPING, CANCEL): Transition(CANCELLING, (RESTORE,)),
    (FROZEN, INSTALLED): Transition(DROPPING, (TO_CONSUMER, DROP)),
    (FROZEN, REFUSED): Transition(RESTORING, (RESTORE,)),
    (DROPPING, DROPPED): Transition(MOVED, (CLOSE,)),
    (RESTORING, RESTORED): Transition(REFUSED, (TO_SUPPLIER, CLOSE)),
    (REFUSING, SHIPPED): Transition(REFUSING),  # it was said before the order to restore arrived
    (REFUSING, RESTORED): Transition(REFUSED, (CLOSE,)),
    (CANCELLING, SHIPPED): Transition(CANCELLING),  # likewise
    (CANCELLING, REFUSED): Transition(CANCELLING),  # it was said before the consumer heard that nothing more will come
    (CANCELLING, RESTORED): Transition(CANCELLED, (CLOSE,)),
    (CANCELLED, REFUSED): Transition(CANCELLED),  # ... and heard after what the supplier said
    (BEGUN, PTLB): Transition(DOUBLED, (TO_BOTH,)),
    (DOUBLED, ALL_OLD_PURGED): Transition(DELETING, (CONSUMER_KEEPS,)),
    (DOUBLED, REFUSED): Transition(UNDOING, (SUPPLIER_KEEPS,)),
    (DOUBLED, CANCEL): Transition(UNDOING, (SUPPLIER_KEEPS,)),
    (DELETING, REFUSED): Transition(DELETING),  # it was said too late: the supplier has nothing that is old
    (DELETING, INSTALLED): Transition(DROPPING),
    (DELETING, DROPPED): Transition(KEEPING),
    (KEEPING, REFUSED): Transition(KEEPING),
    (KEEPING, INSTALLED): Transition(MOVED, (CLOSE,)),
    (UNDOING, ALL_OLD_PURGED): Transition(UNDOING),  # it was said before the supplier heard that it keeps the group
    (UNDOING, REFUSED): Transition(UNDOING),
    (UNDOING, DISCARDED): Transition(CANCELLING),
    (UNDOING, RESTORED): Transition(DISCARDING),
    (CANCELLING, ALL_OLD_PURGED): Transition(CANCELLING),
    (DISCARDING, REFUSED): Transition(DISCARDING),
    (DISCARDING, DISCARDED): Transition(CANCELLED, (CLOSE,)),
}


def advance(move: int, state: str, event: str) -> Transition:
    """What follows. ProtocolError names an event that is illegal in this state."""
    return follow(TRANSITIONS, move, state, event)
