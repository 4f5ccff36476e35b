"""How a modelled group leaves one join and enters another: in hollow frames that are as large as the real ones."""

from __future__ import annotations

import numpy as np

from mpijoin.named import NamedTuple
from mpijoin.simulate.directory import Directory
from mpijoin.simulate.groups import Groups
from mpijoin.simulate.hollow import hollow_frame
from mpijoin.simulate.windows import KeptTicks

FRAME_BYTES = 1 << 20
BUCKET_BYTES, HEAD_BYTES = 24, 64  # The tail of a group has so many bytes for each bucket, and a head.
TRAVELS = ("marks", "old_end", "inserted", "gone", "compared", "results", "carry")


class Snapshot(NamedTuple):
    """A group as it travels. columns: its values of the columns in TRAVELS."""

    group: int
    kept: KeptTicks
    directory: Directory
    columns: tuple


def read_out(
    groups: Groups, group: int, since: int, octets_max: int | None, block_tuples: int, tuple_bytes: float
) -> list[np.ndarray]:
    """Reads out a group as `Operator.get` does.

    The id of a block is the number of tuples that the group had taken in when the block was sealed. block_tuples: the
    tuples in one block of each stream, added up · tuple_bytes: the mean of all streams.
    """
    row = groups.row(group)
    directory = groups.directories[row]
    upto, live = int(groups.inserted[:, row].sum()), int(groups.windows.live[:, row].sum())
    unsealed = min(live, len(directory.buckets) * block_tuples // 2)
    oldest = max(since, upto - live)
    sealed = max(0, upto - unsealed - oldest)
    taken = sealed if octets_max is None else min(sealed, max(1, int(octets_max / tuple_bytes)))
    frames = _frames(int(taken * tuple_bytes), oldest + taken)
    if taken < sealed:
        return frames
    tail_bytes = int(unsealed * tuple_bytes) + BUCKET_BYTES * len(directory.buckets) + HEAD_BYTES
    columns = tuple(getattr(groups, name)[..., row].copy() for name in TRAVELS)
    snapshot = Snapshot(group, groups.windows.take(row), directory.copy(), columns)
    return [*frames, hollow_frame(tail_bytes, (max(since, upto - unsealed), snapshot))]


def take_in(groups: Groups, snapshot: Snapshot) -> int:
    """Gives the group a row here, and returns the row."""
    groups.forget(snapshot.group)
    row = groups.start(snapshot.group, snapshot.directory.copy())
    groups.windows.put(row, snapshot.kept)
    for name, value in zip(TRAVELS, snapshot.columns):
        getattr(groups, name)[..., row] = value
    return row


def deal_out(groups: Groups, row: int, stream: int, part: int) -> int:
    """Keeps one of two halves of each tick of a stream. part: 0 for the larger one. Returns how many tuples go."""
    kept, before = groups.windows.take(row), int(groups.windows.live[stream, row])
    kept.counts[stream] = (kept.counts[stream] + 1 - part) // 2
    groups.windows.clear(row)
    groups.windows.put(row, kept)
    return before - int(groups.windows.live[stream, row])


def give_out(groups: Groups, row: int, stream: int, tuple_bytes: int) -> list[np.ndarray]:
    """Reads out one stream, as `Operator.give_dealt` does."""
    ends, counts = groups.windows.take(row)
    own = KeptTicks(ends, counts[stream : stream + 1].T)
    return [hollow_frame(int(own.counts.sum()) * tuple_bytes, own)] if own.counts.any() else []


def _frames(octets: int, upto: int) -> list[np.ndarray]:
    """Returns frames of blocks. Each frame tells the id up to which all of them together reach."""
    sizes = [FRAME_BYTES] * (octets // FRAME_BYTES) + [octets % FRAME_BYTES] * (octets % FRAME_BYTES > 0)
    return [hollow_frame(size, (upto, None)) for size in sizes]
