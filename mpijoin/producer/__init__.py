"""A producer reads its share of the streams, cuts it into epochs, and serves the slaves.

Along the data: `intake` reads, `ticks` cuts, `pacing` and `timetable` say when, `core` and `queues` say to whom,
`exchange` says in which order. `feed` has the hands for all of that. It belongs to the master as well as to `runtime`,
the loop of a rank that only produces. `lead` bounds how far a producer runs ahead of the others.

A producer never waits for one slave: what a slave does not take stays in its mini-buffers, which count against a budget
of bytes, and reading pauses when that is used up. The mini-buffers are Flux's transient-skew buffer (section 4), keyed
by partition. Each producer has slots, credits and watermarks of its own. A row of a slave expires by the smallest
watermark of all producers.
"""
