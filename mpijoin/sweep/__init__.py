"""A sweep runs one job with every combination of some fields' values, on this machine or as a Slurm array.

A point is a run like any other. It has its own folder, and is started by the same command that a user would type. So a
sweep needs no state beside these folders. There it finds which points are done, and why others failed.
"""
