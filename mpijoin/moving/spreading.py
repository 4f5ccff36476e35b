"""A group that one slave cannot join alone: how a further slave gets a part of it, and how one gives its part back.

The group has members, the first of which had it alone. Producers deal the rows of one stream among them, and give all
rows of the others to each. So every result has exactly one dealt tuple, and is found where that tuple is: "one relation
is fragmented, and the other is replicated" (Epstein, Stonebraker and Wong, 1978). Members come and go one at a time.

Meanwhile, each producer holds the group's input back. Behind what waits for the slaves that it concerns, it puts a slot
without rows. A slave that has joined those of all producers is *aligned*: it has joined all that was not held back.

To SPREAD the group, the first member (here the supplier) sends all of it to the consumer, once it is aligned. Each of
the two keeps a part of the dealt stream's tuples. To GATHER it, the member that leaves (here the supplier) sends its
dealt tuples to the first member (here the consumer), which takes them over once both are aligned.

The coordinator's states are these:

    BEGUN     it was decided
    ALIGNING  the supplier joins what was not held back, and sends a replica, which the consumer installs
    DEALING   the consumer has its part; the supplier shall keep only its own
    RESTORING the consumer has no room; the supplier shall keep everything
    GATHERING both join what was not held back, and the supplier sends its part
    TAKING    the supplier has forgotten the group; the consumer does not have the part yet
    DROPPING  the consumer has the part, and the supplier was not heard yet

A gather is never refused: rows for which there is no room end the run, as they would if they had come from a producer.
"""

from __future__ import annotations

from mpijoin.config.moves import GATHER, SPREAD  # the kinds, and the events with which they begin
from mpijoin.moving.coordinator import BEGUN, CLOSE, DROPPING, MOVED, RESTORING, Transition
from mpijoin.moving.steps import (
    DEAL,
    DEALT,
    DROPPED,
    GIVE,
    INSTALLED,
    REFUSED,
    RESTORE,
    RESTORED,
    TAKE,
    follow,
)
from mpijoin.moving.steps import SPREAD as SPREAD_STEP

ALIGNING, DEALING, GATHERING, TAKING = "aligning", "dealing", "gathering", "taking"

# What the producers are told, beside the orders to the supplier: to hold the group's input back and to align the
# supplier, or both slaves; to give what was held back, and all that follows, to the members.
ALIGN, ALIGN_BOTH, TO_MEMBERS = "align", "align both", "deliver to members"

TRANSITIONS = {
    (BEGUN, SPREAD): Transition(ALIGNING, (ALIGN,)),
    (ALIGNING, INSTALLED): Transition(DEALING, (DEAL,)),
    (ALIGNING, REFUSED): Transition(RESTORING, (RESTORE,)),
    (DEALING, DEALT): Transition(MOVED, (TO_MEMBERS, CLOSE)),
    (RESTORING, RESTORED): Transition(REFUSED, (TO_MEMBERS, CLOSE)),
    (BEGUN, GATHER): Transition(GATHERING, (ALIGN_BOTH,)),
    (GATHERING, DROPPED): Transition(TAKING),
    (GATHERING, INSTALLED): Transition(DROPPING),
    (TAKING, INSTALLED): Transition(MOVED, (TO_MEMBERS, CLOSE)),
    (DROPPING, DROPPED): Transition(MOVED, (TO_MEMBERS, CLOSE)),
}

# The slots that say what a producer's ALIGN and ALIGN_BOTH are to the supplier and to the consumer.
SAID = {ALIGN: (SPREAD_STEP, ""), ALIGN_BOTH: (GIVE, TAKE)}

# A slave's states. Once it has joined what was not held back, it is SENDING the group in portions or has SENT it, or is
# READY for rows, which may have come before (CAME). It has WHOLE what it waits for, and its part is DONE.
UNKNOWN, SENDING, SENT, READY, CAME, WHOLE, DONE = "unknown", "sending", "sent", "ready", "came", "whole", "done"
# Its own events: the slots of all producers are joined; the last portion is sent; all rows have come, and are taken.
ALIGNED, WHOLE_SENT, ARRIVED, TAKEN = "aligned", "whole sent", "arrived", "taken"

# By the slot with which it is told.
SLAVE = {
    SPREAD_STEP: {
        (UNKNOWN, ALIGNED): SENDING,
        (SENDING, WHOLE_SENT): SENT,
        (SENDING, RESTORE): DONE,
        (SENT, DEAL): DONE,
        (SENT, RESTORE): DONE,
    },
    GIVE: {(UNKNOWN, ALIGNED): DONE},
    TAKE: {
        (UNKNOWN, ALIGNED): READY,
        (UNKNOWN, ARRIVED): CAME,
        (READY, ARRIVED): WHOLE,
        (CAME, ALIGNED): WHOLE,
        (WHOLE, TAKEN): DONE,
    },
}


def advance(move: int, state: str, event: str) -> Transition:
    """What follows. ProtocolError names an event that is illegal in this state."""
    return follow(TRANSITIONS, move, state, event)


def advance_slave(step: str, move: int, state: str, event: str) -> str:
    """The next state of the slave that a slot tells to take this step. ProtocolError as above."""
    return follow(SLAVE[step], move, state, event, f"slave of {step!r}")
