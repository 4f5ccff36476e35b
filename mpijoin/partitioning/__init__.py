"""From a row to the slave that joins it: key, hash, partition, mini-buffer.

All streams are partitioned by the same hash of the key, so partners always meet at one slave. The hash is fixed (one
named function, in `hashing`), so that partitions, checkpoints and certificates mean the same everywhere. Its upper half
chooses the partition, its lowest bits the bucket inside of the partition group: the two never depend on each other.

There are far more partitions than slaves, since a partition is what moves. The scatter is stable, so tuples of a key
stay in their order, and costs one pass over a tick however many partitions there are.
"""
