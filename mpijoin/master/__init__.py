"""The master, rank 0: reads the streams, cuts them into epochs, serves the slaves, and decides which groups move.

The decisions are made in `core`, which is told what happened and what time it is (`events`), and answers with actions.
It knows counts and bytes, but no message, file, clock or random source. `runtime` carries the actions out, so the same
decisions are taken under MPI, among threads and in virtual time, and a test can tell them any story. Along the data:
`intake` reads, `ticks` cuts, `pacing` and `timetable` say when, `core` and `queues` say to whom. Beside it, `moves`
and `saves` know what is under way, and `setup` is what it all begins with.

The master never waits for one slave: what a slave does not take stays in its mini-buffers, which count against a budget
of bytes, and reading pauses when that is used up. Only `reorganization` asks a policy, and it does not ask again before
the groups that the last plan named have moved.
"""
