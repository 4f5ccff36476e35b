"""Sweeps: one job run with every combination of some fields' values, here or as a Slurm array."""
