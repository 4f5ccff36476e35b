"""The sliding-window join: kernels that find the results of fresh tuples, and the operator around them.

`window_join` implements the contract of an operator over a table of the package `store`. What it calls to find results
is a *probe*. It joins the fresh tuples of some groups with everything that their windows hold, and finds each result
once. There are two probes (`probes`):

- The two-way probe (`probe`, `compare`, `confirm`) is the block-nested-loop join of WSJ, section IV-D. The fresh tuples
  of a bucket are compared with each block of the opposite chain. It compares only tags, and collects what is alike as
  masks of candidates. Keys and times are looked at afterwards, when their cache lines have arrived.
- The m-way probe (`mway` and the files named after it) joins any number of streams at once. It takes a batch of fresh
  tuples of one stream, lists their partners in one other stream after the other, drops tuples that have none, and then
  enumerates the combinations of these lists. So no intermediate results are stored. A batch shares the scan of a chain
  among its tuples, and a batch that finds too many partners is halved, so that memory is reserved once and never grows.

The m-way probe can join two streams as well, and gives the same answer, but it takes three times as long. That is why
there are two.

Other types of join are inner joins that mark (`marks`). The two-way probe sets the flag of a tuple with its first
partner, where it confirms the pair. What has no flag when its window is over leaves by itself (`unmatched`), in the
round in which the watermark passes. Flags go along with groups that move, so a tuple leaves once, wherever it is then.

A probe works in bounded pieces. It stops when its budget of comparisons is spent or the results must be consumed, and a
cursor says where it goes on. The cursor does not move with a group. A probe that is *paused* therefore goes on to the
next point at which the marks of fresh tuples alone tell what is left. Then its groups can be read out, and the next
probe, here or at another slave, does the rest.

`results` certifies and filters results by their tuples. `tuning` and `trial` choose the size of mini-partition-groups,
theta, that suits the processor.
"""
