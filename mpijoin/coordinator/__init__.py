"""Rank 0, the master: it coordinates the others, and is the first of the producers.

The decisions are made in `core`, which is told what happened and what time it is (`events`), and answers with actions.
It knows counts and bytes, but no message, file, clock or random source. `master` joins it to the core of the own
producer, and `runtime` carries the actions of both out, so the same decisions are taken under MPI, among threads and in
virtual time, and a test can tell them any story. `reorganization` asks a policy, and does not ask again before the
groups that the last plan named have moved. `moves` and `saves` know what is under way, `producers` how far each
producer has come, `others` how they are spoken to, and `sharing` what each of them reads.

A group moves as in Flux (section 5.1). Every producer holds the group's input back and says FREEZE to its supplier,
behind all that it has sent there. When all have said so, nothing of the group is on its way, and its state goes to the
consumer. Then every producer sends what it held back there. Everybody else's input flows on.

A checkpoint is cut by each producer after a whole tick, by a mark behind all that it has sent. A slave that has the
mark of one producer puts aside what follows it, until it has the marks of all.
"""
