"""A transport carries messages between ranks. There is one contract (`base`), and there are three ways to keep it.

`mpi` connects processes, `local` connects threads of one process, and `simulated` connects ranks in virtual time. All
three pass the same tests (tests/contracts). Sending never blocks, however slow the receiver is. The transport counts
the bytes that the receiver has not taken, and the sender decides by this count when to pause. So ranks can never wait
for each other in a cycle.
"""
