"""What tuples look like: in files, in memory, on the wire and on disk.

A tuple is (key, time, row, record, blob), all columns of 64-bit words but the blob (`schema`). Whatever type a column
has, the engine moves words: kernels are compiled once, for every job. `record` lays a stream's columns out in words,
`arrow` turns Arrow's arrays into numpy's and back, and `codec` is the one encoding for messages, moved groups and
checkpoints. Nothing that comes from a wire or a disk is unpickled; what does not decode exactly is damage, and is
named.
"""
