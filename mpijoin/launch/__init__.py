"""This package starts a run for the command line, a batch job or the Python interface, and it ends the run.

Read the modules in this order. `command` decides whether the ranks are MPI processes or threads. `roles` holds what
every rank must know to begin, and `setup` makes it. `processes` and `embedded` make the ranks. `ready` prepares each of
them, `warmup` its kernels; `sharing` and `helping` let several processes compile them on a first start. `master` and
`others` run each rank's role and leave together. `summary` says what happened. Nothing is imported here, so that
`mpijoin check` stays quick, and each role imports only what it is made of.
"""
