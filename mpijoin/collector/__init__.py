"""The collector: a rank that owns no groups and writes the results of all slaves as one output.

A run has a collector if one rank is to write everything ([output] results = "collect"). It is the last rank, or rank 0
beside its own work if there are only two ranks. The slaves send their results epoch by epoch (`sinks.collector`). The
collector writes an epoch when all slaves have completed it, so that the output is in order.
"""
