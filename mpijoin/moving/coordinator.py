"""A hand-over as the master drives it: which reports are legal when, and what follows, as a transition table.

    SHIPPING   the supplier joins the group and ships what no longer changes; the consumer stages it
    FROZEN     neither joins it; its input is held back; the consumer gets the rest and installs it
    DROPPING   the consumer joins it; the supplier still has its copy
    RESTORING  the consumer refused what was frozen: the supplier shall take it back
    REFUSING   the consumer refused before anything was frozen: the supplier shall stop shipping
    CANCELLING the source has ended before anything was frozen: the supplier shall stop shipping

Exactly one side joins the group at any time (WSJ, section IV-C). These are steps 3 to 8 of LAD-TR; `relocation` says
which is which. The two slaves are heard in any order: a report may
cross an order on its way, or arrive after a later report of the other slave. The table takes such reports where that is
possible, and refuses all others by name.
"""

from __future__ import annotations

from typing import NamedTuple

from mpijoin.moving.steps import DROP, DROPPED, INSTALLED, REFUSED, RESTORE, RESTORED, SHIPPED, follow

SHIPPING, FROZEN, DROPPING = "shipping", "frozen", "dropping"
RESTORING, REFUSING, CANCELLING = "restoring", "refusing", "cancelling"
# "refused" is what the consumer reports, and then the state of the move.
MOVED, CANCELLED = "moved", "cancelled"
CLOSED = (MOVED, REFUSED, CANCELLED)

CANCEL = "cancel"  # the master's own event

# What the producers are told, beside the orders to the supplier: to hold the group's input back, upon which each of
# them says FREEZE to the supplier, or to send it to a slave from now on.
PAUSE, TO_CONSUMER, TO_SUPPLIER, CLOSE = "pause", "deliver to consumer", "deliver to supplier", "close"


class Transition(NamedTuple):
    """The state that follows, and what is to be done, in this order."""

    state: str
    acts: tuple[str, ...] = ()


TRANSITIONS = {
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
}


def advance(move: int, state: str, event: str) -> Transition:
    """What follows. ProtocolError names an event that is illegal in this state."""
    return follow(TRANSITIONS, move, state, event)
