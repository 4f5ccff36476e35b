"""Messages between ranks: one contract (`base`) and three ways to keep it.

`mpi` joins processes, `local` threads of one process, and `simulated` ranks in virtual time; the same tests hold for
all three (tests/contracts). Sending never blocks, however slow the receiver is: what it has not taken is counted, and
whoever sends decides by that count when to pause. So no cycle of ranks can wait for each other.
"""
