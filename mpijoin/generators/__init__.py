"""Synthetic streams are pure functions here. Tuple i of a stream depends on (source, seed, stream, i) alone.

The engine's own source (sources/synthetic.py) and `mpijoin generate` (pipeline/generate) both use this package.
"""
