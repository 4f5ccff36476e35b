"""The hand-over of a partition group from one slave, the supplier, to another, the consumer.

Each party's side is a transition table: `handover` the master's, `parties` those of supplier and consumer. An event
that a state does not allow raises, naming role, state and event, and changes nothing. At any time exactly one slave
joins the group; its input is held back only for the last portion of the state, however large the rest was.
"""
