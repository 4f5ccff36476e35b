"""A run in virtual time: the real master, slaves and policies, on simulated clocks, links and costs.

What is decided is what a real run would decide, since the runtimes and cores are the same objects; only the transport,
the clock and the operator are others. `engine` is the event heap, `costed` charges a clock for what an operator does,
and `modelled` stands in for the join: it keeps counts of tuples instead of tuples, and says what would have been
compared and found. One seed is one course of events, so a failure can be repeated.
"""
