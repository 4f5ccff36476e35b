"""The hand-over of a group from supplier to consumer, as the master drives it: a transition table.

    SHIPPING   the supplier joins the group and ships what no longer changes; the consumer stages it
    FROZEN     neither joins it; its input is held back; the consumer gets the rest and installs
    DROPPING   the consumer joins it; the supplier still has its copy
    RESTORING  the supplier shall take it back: the consumer had no room, or the move was cancelled

Exactly one side joins the group at any time (DESIGN, section 4; WSJ, section IV-C).
"""

from __future__ import annotations

from typing import NamedTuple

from mpijoin.errors import ProtocolError

SHIPPING, FROZEN, DROPPING, RESTORING, MOVED, RETURNED = "shipping", "frozen", "dropping", "restoring", "moved", "returned"
CLOSED = (MOVED, RETURNED)

# What the slaves report, and by whom; "cancel" is the master's own.
SHIPPED, INSTALLED, REFUSED, DROPPED, RESTORED, CANCEL = "shipped", "installed", "refused", "dropped", "restored", "cancel"
BY_CONSUMER = (INSTALLED, REFUSED)

# What the master orders the supplier to do, and what it does itself.
SHIP, FREEZE, DROP, RESTORE = "ship", "freeze", "drop", "restore"
HOLD, DELIVER = "hold", "deliver"


class Transition(NamedTuple):
    state: str
    acts: tuple[str, ...] = ()


TRANSITIONS = {
    (SHIPPING, SHIPPED): Transition(FROZEN, (HOLD, FREEZE)),
    (SHIPPING, REFUSED): Transition(RESTORING, (RESTORE,)),
    (SHIPPING, CANCEL): Transition(RESTORING, (RESTORE,)),
    (FROZEN, INSTALLED): Transition(DROPPING, (DELIVER, DROP)),
    (FROZEN, REFUSED): Transition(RESTORING, (RESTORE,)),
    (DROPPING, DROPPED): Transition(MOVED),
    (RESTORING, SHIPPED): Transition(RESTORING),  # was said before the order to restore arrived
    (RESTORING, REFUSED): Transition(RESTORING),  # was said before a cancel was heard of
    (RESTORING, RESTORED): Transition(RETURNED, (DELIVER,)),
}


def advance(move: int, state: str, event: str) -> Transition:
    """What follows. ProtocolError names an event that is illegal in this state."""
    if (state, event) not in TRANSITIONS:
        raise ProtocolError(f"move {move} is {state} and got {event!r}, wanted {_wanted(state)}")
    return TRANSITIONS[state, event]


def _wanted(state: str) -> str:
    wanted = [event for own, event in TRANSITIONS if own == state]
    return " or ".join(map(repr, wanted)) or "nothing more"
