"""How a run comes to life: what the command line, a batch job or the Python interface starts, and how it ends.

Read in this order: `command` decides whether the ranks are MPI processes or threads; `setup` is what every rank must
know to begin; `processes` and `embedded` make the ranks; `warmup` readies their kernels; `life` runs each rank's role
and leaves with the others; `summary` says what happened. Nothing is imported here, so that `mpijoin check` stays quick.
"""
