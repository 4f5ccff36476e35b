"""The collector: a rank that owns no groups, and writes the results of all slaves as one output.

There is one where one rank shall write everything ([output] results = "collect"): the last rank, or rank 0 beside its
own work if there are only two. Slaves send their results epoch by epoch (`sinks.collector`), and it writes an epoch
when all of them have completed it, so that the output is in order.
"""
