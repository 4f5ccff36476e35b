"""Sweeps: one job run with every combination of some fields' values, here or as a Slurm array.

A point is a run like any other, in a folder of its own, begun by the same command that a user would type. So a sweep
needs no state beside those folders: what is done is found again, and what failed says there why.
"""
