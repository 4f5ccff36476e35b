"""The hand-over of a partition group from one slave, the supplier, to another, the consumer.

Each party's side is a transition table in a file of its own: `coordinator` (the master's), `supplier` and `consumer`.
Where the supplier chooses the groups, `relocation` comes before. `spreading` has the tables by which a slave gets a
part of a group and gives it back. `steps` has the words that they say to each other. An event that a state does not
allow raises an error that names the party, its state and the event, and changes nothing. At
any time at most one slave joins the group. Its input is held back only while the last portion of the state travels,
however large the rest was; or, as DCAPE's section 4 has it (MSLB), while all of it does.
"""
