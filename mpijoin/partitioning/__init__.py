"""This package leads from a row to the slave that joins it, by way of key, hash, partition and mini-buffer.

All streams are partitioned by the same hash of the key, so partners always meet at one slave. The hash is one fixed
function (in `hashing`), so partitions, checkpoints and certificates mean the same everywhere. The upper half of the
hash chooses the partition, and its lowest bits choose the bucket inside the partition group. So the two choices never
depend on each other.

There are far more partitions than slaves, because a partition is what moves. The scatter is stable, so the tuples of a
key stay in their order. It makes one pass over a tick, however many partitions there are.
"""
