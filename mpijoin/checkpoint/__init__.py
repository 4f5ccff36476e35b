"""Checkpoints: the state of a run at an epoch boundary, on disk, from which any number of ranks can go on.

A checkpoint is cut after a whole tick, while no group is on its way from one slave to another. The cut reaches a slave
in order with its input: the slave saves its groups once it has joined all that came before, and works on. So a
checkpoint holds no messages, only groups, positions in the inputs with what was decoded ahead, and the ledger so far.
It is whole when its manifest is there, which is written last, after everything that it names is on disk; until then the
one before counts. Blocks that no longer change are written once and named by every later checkpoint.

To go on is to begin another run that finds groups where an empty one finds none. So ranks, memory, policy and speed may
be others; what the answer depends on (`identity`) may not.
"""
