"""A producer's part of a checkpoint."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Sequence

import numpy as np

from mpijoin.checkpoint.files import StateFile
from mpijoin.checkpoint.manifest import state_name
from mpijoin.errors import CheckpointError
from mpijoin.messages import Saved
from mpijoin.records import InputState


def save_input(folder: Path, rank: int, number: int, frames: Sequence[np.ndarray], state: InputState) -> Saved:
    """Writes a producer's frames, uint8[n] each: where it stands in its input, and what waits at it. Returns what to
    tell the master, which also says why it could not be saved."""
    start_s, file = time.perf_counter(), None
    saved = Saved(rank, number, input=state)
    try:
        file = StateFile(folder, state_name(rank, number))
        position, *waiting = (file.write(frame) for frame in frames)
        file.finish()
    except CheckpointError as error:
        if file:
            file.abandon()
        return saved._replace(fault=str(error))
    seconds = time.perf_counter() - start_s
    return saved._replace(position=position, waiting=tuple(waiting), octets=file.octets, seconds=seconds)
