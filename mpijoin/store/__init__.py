"""Where a slave keeps its tuples: one pool of pages for all operators, and for each operator a table of groups over it.

A group has a directory (extendible hashing, WSJ section IV-D) of mini-partition-groups. Each of these has a chain of
blocks per stream. New tuples are appended as fresh. They leave by whole blocks, once these are too old for any tuple
that is still to come, and they move to other slaves as frames.

The store does not know what is joined or why. The kernels of an operator (package `join`) read the arrays of
`state.py`, which documents them. All memory is address space that is reserved once, and a page that one operator gives
back can serve any other.

Read in this order: `state` (the arrays), `pool` (who makes them), `blocks`, `directory`, `insert`, `expire` with `tune`
and `rewrite` (splits and merges), `read`, and `transfer` with `shipment` (how a group moves). What only a group with
rows on disk needs comes last: `kept` (rows that expired, and can still meet some on disk), `rows` (a group's rows as
frames) with `row_reader` (who makes them), `fresh` (which tuples a clean-up joins), and `prepare` (a table that is used
for one group after the other).
"""
