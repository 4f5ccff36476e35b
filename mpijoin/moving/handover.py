"""The hand-over of a group from supplier to consumer, as the master drives it: a transition table.

    SHIPPING   the supplier joins the group and ships what no longer changes; the consumer stages it
    FROZEN     neither joins it; its input is held back; the consumer gets the rest and installs
    DROPPING   the consumer joins it; the supplier still has its copy
    RESTORING  the consumer refused what was frozen: the supplier shall take it back
    REFUSING   the consumer refused before: the supplier shall stop shipping
    CANCELLING the source has ended, and nothing was frozen yet: likewise

Exactly one side joins the group at any time (WSJ, section IV-C). Slaves are heard in any order: what
one said may cross an order, or arrive after what another said later. It is taken where that can be, and refused by name
elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

from mpijoin.errors import ProtocolError

SHIPPING, FROZEN, DROPPING = "shipping", "frozen", "dropping"
RESTORING, REFUSING, CANCELLING = "restoring", "refusing", "cancelling"
MOVED, REFUSED, CANCELLED = CLOSED = ("moved", "refused", "cancelled")

# What the slaves report, and by whom; "cancel" is the master's own. "refused" is a report and then the state of the
# move.
SHIPPED, INSTALLED, DROPPED, RESTORED, CANCEL = "shipped", "installed", "dropped", "restored", "cancel"
BY_SUPPLIER, BY_CONSUMER = (SHIPPED, DROPPED, RESTORED), (INSTALLED, REFUSED)

# What the master orders the supplier to do, and what it does itself.
SHIP, FREEZE, DROP, RESTORE = "ship", "freeze", "drop", "restore"
HOLD, TO_CONSUMER, TO_SUPPLIER, CLOSE = "hold", "deliver to consumer", "deliver to supplier", "close"


class Transition(NamedTuple):
    state: str
    acts: tuple[str, ...] = ()


TRANSITIONS = {
    (SHIPPING, SHIPPED): Transition(FROZEN, (HOLD, FREEZE)),
    (SHIPPING, REFUSED): Transition(REFUSING, (RESTORE,)),
    (SHIPPING, CANCEL): Transition(CANCELLING, (RESTORE,)),
    (FROZEN, INSTALLED): Transition(DROPPING, (TO_CONSUMER, DROP)),
    (FROZEN, REFUSED): Transition(RESTORING, (RESTORE,)),
    (DROPPING, DROPPED): Transition(MOVED, (CLOSE,)),
    (RESTORING, RESTORED): Transition(REFUSED, (TO_SUPPLIER, CLOSE)),
    (REFUSING, SHIPPED): Transition(REFUSING),  # was said before the order to restore arrived
    (REFUSING, RESTORED): Transition(REFUSED, (CLOSE,)),
    (CANCELLING, SHIPPED): Transition(CANCELLING),  # likewise
    (CANCELLING, REFUSED): Transition(CANCELLING),  # was said before the consumer heard that nothing more will come
    (CANCELLING, RESTORED): Transition(CANCELLED, (CLOSE,)),
    (CANCELLED, REFUSED): Transition(CANCELLED),  # ... and heard after what the supplier said
}


def advance(move: int, state: str, event: str) -> Transition:
    """What follows. ProtocolError names an event that is illegal in this state."""
    if (state, event) not in TRANSITIONS:
        raise ProtocolError(f"move {move} is {state} and got {event!r}, wanted {_wanted(state)}")
    return TRANSITIONS[state, event]


def _wanted(state: str) -> str:
    wanted = [event for own, event in TRANSITIONS if own == state]
    return " or ".join(map(repr, wanted)) or "nothing more"
