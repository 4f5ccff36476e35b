"""This package starts a run for the command line, a batch job or the Python interface, and it ends the run.

Read the modules in this order. `command` decides whether the ranks are MPI processes or threads. `setup` holds what
every rank must know to begin. `processes` and `embedded` make the ranks. `warmup` prepares their kernels; `sharing`
and `helping` let several processes compile them on a first start. `life` runs each rank's role and leaves together with
the others. `summary` says what happened. Nothing is imported here, so that `mpijoin check` stays quick.
"""
