"""State that does not fit into memory: where it lies on disk, and how what is owed is found later.

Read in this order: `scratch` (a folder of this rank's own on a disk of its node, and what becomes of it when the rank
is killed) and `runs` (frames one after the other in files of that folder, read from front to back). `ranking` says
which groups go first.

The split is between whether, where and how. A policy or the slave's core says whether something is spilled. Scratch and
runs only keep bytes, and know neither groups nor tuples. Who appended a run holds it, and reads it back once.
"""
