"""Sinks: where the results of a slave go.

A sink takes the results of an epoch, as slot ids into the operator's store, and must have taken all it needs when it
returns: the blocks that the ids name may expire next. `parquet` writes part files of the slave's own, `collector` sends
rows to one rank that merges them. Where results are only counted, the kernels keep none of them.
"""
