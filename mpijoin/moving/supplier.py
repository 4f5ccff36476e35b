"""A hand-over as its supplier sees it: which orders are legal when, as a transition table.

    UNKNOWN   nothing was ordered yet
    SHIPPING  it joins the group, and ships what no longer changes, portion by portion
    SHIPPED   what is left fits one portion, and the master knows; it still joins the group
    SENDING   nobody joins the group any more, and it sends all of it, portion by portion
    FROZEN    it has sent the rest with the input that is not joined, and keeps its copy without joining it
    GONE      it has dropped its copy
    KEPT      it joins the group again, or still

By PTLB, producers tell it in the group's slots (steps DUPLICATE, KEEP and LEAVE):

    DOUBLED   what comes is new, and goes to the consumer, too; it finds all results with an old tuple
    PURGED    it holds no old tuple that anything could meet, and the master knows
"""

from __future__ import annotations

from mpijoin.moving.steps import DROP, DUPLICATE, FREEZE, KEEP, LEAVE, RESTORE, SHIP, follow

UNKNOWN, SHIPPING, SHIPPED, SENDING = "unknown", "shipping", "shipped", "sending"
FROZEN, GONE, KEPT = "frozen", "gone", "kept"
DOUBLED, PURGED = "doubled", "purged"
# The supplier's own events: what is left fits one portion; no old tuple is left.
READY, PURGE = "ready", "purge"

TRANSITIONS = {
    (UNKNOWN, SHIP): SHIPPING,
    (UNKNOWN, FREEZE): SENDING,
    (SHIPPING, READY): SHIPPED,
    (SHIPPED, FREEZE): FROZEN,
    (SENDING, READY): FROZEN,
    (FROZEN, DROP): GONE,
    (SHIPPING, RESTORE): KEPT,
    (SHIPPED, RESTORE): KEPT,
    (SENDING, RESTORE): KEPT,
    (FROZEN, RESTORE): KEPT,
    (UNKNOWN, DUPLICATE): DOUBLED,
    (DOUBLED, PURGE): PURGED,
    (DOUBLED, KEEP): KEPT,
    (PURGED, KEEP): KEPT,
    (PURGED, LEAVE): GONE,
}


def advance(move: int, state: str, event: str) -> str:
    """The supplier's next state. ProtocolError names an order that is illegal in this one."""
    return follow(TRANSITIONS, move, state, event, "supplier")
