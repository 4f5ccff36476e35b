"""Synthetic streams as pure functions: tuple i of a stream depends on (source, seed, stream, i) alone.

One implementation for the engine's own source (sources/synthetic.py) and for `mpijoin generate` (pipeline/generate).
"""
