"""A relocation as the master drives it: how much state changes hands, and how that becomes moves of groups, as a table.

LAD-TR, section 5.1: "The distributed adaptation protocol (moving operator states between the receiver and the sender at
run time) is composed of 4 sets of actions with a total of 8 steps". The sender is the supplier, the receiver is the
consumer, the distribution manager is the master, and the split operators are the master's mini-buffers.

    1  ComputePartitionsToMove   the message ComputePartitions, to the supplier
    2  PartitionsToMove          the message Partitions, from the supplier; the hand-over of each group begins
    3  DeactivatePartitions      PAUSE: the group's input is held back; FREEZE follows all input on its channel, so it
                                 is the "End-Of-Moved-Partitions", too
    4  Deactivated               nothing is said, because the master itself holds the input back
    5  SendPartitions            FREEZE
    6  ReceivePartitions         the rest of the group's state, from supplier to consumer
    7  Received                  INSTALLED
    8  ReactivatePartitions      TO_CONSUMER: what was held back goes to the consumer first

Steps 3 to 8 are those of the table of each group (coordinator.py). Before them, the supplier ships what no longer
changes, and still joins the group. A group that the consumer refuses stays, and the others go on.

    COMPUTING   the supplier shall choose the groups
    MOVING      the chosen groups are on their way
    WITHDRAWN   the source ends, or the run stops, before the supplier has chosen
    RELOCATED   each of the groups has moved, or stays where it was
"""

from __future__ import annotations

from mpijoin.moving.steps import follow
from mpijoin.named import NamedTuple

COMPUTING, MOVING, WITHDRAWN, RELOCATED = "computing", "moving", "withdrawn", "relocated"

# What the supplier says, and the master's own events: the last of the groups has been dealt with; nothing more moves.
PARTITIONS, ENDED, CANCEL = "partitions", "ended", "cancel"

BEGIN, CLOSE = "begin", "close"  # what the master does: begin the hand-over of each group · forget the relocation


class Transition(NamedTuple):
    """The state that follows, and what is to be done, in this order."""

    state: str
    acts: tuple[str, ...] = ()


TRANSITIONS = {
    (COMPUTING, PARTITIONS): Transition(MOVING, (BEGIN,)),
    (COMPUTING, CANCEL): Transition(WITHDRAWN),
    (WITHDRAWN, PARTITIONS): Transition(RELOCATED, (CLOSE,)),
    (MOVING, ENDED): Transition(RELOCATED, (CLOSE,)),
}


def advance(relocation: int, state: str, event: str) -> Transition:
    """What follows. ProtocolError names an event that is illegal in this state."""
    return follow(TRANSITIONS, relocation, state, event, what="relocation")
