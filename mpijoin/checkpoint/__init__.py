"""Checkpoints: the state of a run at an epoch boundary, on disk, from which any number of ranks can go on."""
