"""A hand-over as its consumer sees it: what may come when, and what then becomes of the group, as a transition table.

    UNKNOWN    nothing has come yet
    STAGING    portions of the state lie aside; the supplier still joins the group
    WHOLE      all of the state has come, with the input that the supplier had not joined
    INSTALLED  it joins the group, first the input that came with it; the master knows
    REFUSED    it has no room, and the master knows; what still comes is ignored
    CANCELLED  the supplier keeps the group, and will send nothing more

By PTLB, producers tell it in the group's slots (steps COPY, KEEP and LEAVE). There REFUSED means that it goes on
joining until all of them have told it to LEAVE, since nobody else finds the results among what it has got:

    DOUBLED    it joins what comes, which goes to the supplier, too
"""

from __future__ import annotations

from mpijoin.moving.steps import COPY, KEEP, LEAVE, follow

UNKNOWN, STAGING, WHOLE = "unknown", "staging", "whole"
INSTALLED, REFUSED, CANCELLED = "installed", "refused", "cancelled"
DOUBLED = "doubled"

# What the supplier sends: some of the state; the rest of it, with the input; that nothing more will come.
PORTION, REST, CANCEL = "portion", "rest", "cancel"
# The consumer's own events: it has taken the group over, or has no room for it.
INSTALL, NO_ROOM = "install", "no room"

TRANSITIONS = {
    (UNKNOWN, PORTION): STAGING,
    (UNKNOWN, REST): WHOLE,
    (UNKNOWN, CANCEL): CANCELLED,
    (STAGING, PORTION): STAGING,
    (STAGING, REST): WHOLE,
    (STAGING, NO_ROOM): REFUSED,
    (STAGING, CANCEL): CANCELLED,
    (WHOLE, INSTALL): INSTALLED,
    (WHOLE, NO_ROOM): REFUSED,
    (REFUSED, PORTION): REFUSED,  # it was sent before the supplier heard of the refusal
    (REFUSED, REST): REFUSED,  # likewise
    (REFUSED, CANCEL): CANCELLED,
    (UNKNOWN, COPY): DOUBLED,
    (DOUBLED, NO_ROOM): REFUSED,
    (DOUBLED, KEEP): INSTALLED,
    (DOUBLED, LEAVE): CANCELLED,
    (REFUSED, KEEP): INSTALLED,  # the supplier had nothing that is old before the master heard of the refusal
    (REFUSED, LEAVE): CANCELLED,
}


def advance(move: int, state: str, event: str) -> str:
    """The consumer's next state. ProtocolError names an event that is illegal in this one."""
    return follow(TRANSITIONS, move, state, event, "consumer")
