"""Makes frames of the rows of groups: what is spilled.

A group of a slave with little memory is small when it is spilled, and then the calls for it take longer than to copy
its rows. So many groups are listed, counted and copied at once, into one piece of memory that has a frame of each.
"""

from __future__ import annotations

from functools import partial
from typing import Callable, Iterator, NamedTuple

import numpy as np

from mpijoin.data.batch import read_only
from mpijoin.data.codec import ALIGNMENT, aligned_empty, begin, lay_out, seal
from mpijoin.data.room import Room
from mpijoin.store.blocks import generation_of
from mpijoin.store.kept import list_kept
from mpijoin.store.row_kernels import BLOB_OCTETS, HEAD_COLUMNS, ROWS, copy_rows, count_rows, list_rows
from mpijoin.store.rows import ROWS_KIND, RowsBatch, RowsFrame
from mpijoin.store.state import (
    BLOCKS,
    FLAGS_AT,
    GENERATION,
    MATCHED,
    MATCHED_ROW,
    OWNER,
    ROW,
    TUPLE_WORDS,
    StoreState,
)
from mpijoin.store.transfer import FRAME_BYTES, INT64, OCTET, Memory, octets_of
from mpijoin.store.transfer_kernels import BLOCK_COLUMNS, PAGE, STREAM, TUPLES, copy_flags


class Listed(NamedTuple):
    """Blocks of groups. names: int64[n, 2], the group and the generation of each · blocks: as `list_blocks` lists them.
    Those of a group and generation lie side by side, one stream after the other."""

    names: np.ndarray
    blocks: np.ndarray

    def chosen(self, which: np.ndarray | slice) -> Listed:
        return Listed(self.names[which], self.blocks[which])


class RowReader:
    """Makes frames of the rows of a table."""

    def __init__(self, s: StoreState):
        self._s, self._streams = s, len(s.layout)
        self._widths = read_only(s.layout[:, TUPLE_WORDS].copy())
        self._marked = np.flatnonzero(s.layout[:, FLAGS_AT]).tolist()  # streams whose tuples have flags
        self._memory = Room().take_one
        self._list, self._list_kept = list_rows.bound(s), list_kept.bound(s)
        self._count, self._copy, self._copy_flags = count_rows.bound(s), copy_rows.bound(s), copy_flags.bound(s)

    def of_groups(self, groups: np.ndarray) -> Iterator[RowsBatch]:
        """Yields the rows of started groups, without fresh tuples. Each batch is valid until the next. The groups must
        not change meanwhile."""
        listed, names = self._listed(groups, self._list)
        return self._batches(Listed(np.column_stack((names, self._s.groups[names, GENERATION])), listed), self._memory)

    def of_group(self, group: int, generation: int | None = None, stream: int | None = None) -> Iterator[RowsFrame]:
        """Yields the rows of a started group, without its fresh tuples. The group must not change meanwhile.

        generation: what the frames say, None: the group's own · stream: the only one that is wanted.
        """
        blocks, _ = self._listed(np.array([group]), self._list)
        if stream is not None:
            blocks = blocks[blocks[:, STREAM] == stream]
        number = int(self._s.groups[group, GENERATION]) if generation is None else generation
        listed = Listed(np.broadcast_to([group, number], (len(blocks), 2)), blocks)
        return (frame for batch in self._batches(listed, aligned_empty) for frame in batch.frames)

    def of_kept(self, groups: np.ndarray) -> Iterator[RowsBatch]:
        """Yields the rows of started groups' kept blocks, one generation after the other. Each batch is valid until the
        next."""
        listed, names = self._listed(groups, self._list_kept)
        generations = generation_of(self._s.heads[listed[:, PAGE], OWNER])
        # The last of a group's list was kept first.
        order = np.lexsort((-np.arange(len(listed)), listed[:, STREAM], generations, names))
        return self._batches(Listed(np.column_stack((names, generations)), listed).chosen(order), self._memory)

    def _listed(self, groups: np.ndarray, list_blocks: Callable) -> tuple[np.ndarray, np.ndarray]:
        """Returns the blocks of groups, and int64[n]: the group of each."""
        listed = np.empty((self._s.groups[groups, BLOCKS].sum(), BLOCK_COLUMNS), np.int64)
        ends = np.empty(len(groups), np.int64)
        list_blocks(read_only(groups), listed, ends)
        return listed[: ends[-1]], np.repeat(groups, np.diff(ends, prepend=0))

    def _batches(self, listed: Listed, memory: Memory) -> Iterator[RowsBatch]:
        """Yields frames of about FRAME_BYTES at most, each of one group and generation, and in batches of about as many
        bytes."""
        if not len(listed.blocks):
            return
        octets = np.cumsum(octets_of(self._s, listed.blocks))
        is_new = (listed.names[1:] != listed.names[:-1]).any(axis=1)
        before = np.maximum.accumulate(np.concatenate(([0], np.where(is_new, octets[:-1], 0))))
        is_cut = np.diff((octets - before) // FRAME_BYTES) != 0
        ends = np.append(np.flatnonzero(is_new | is_cut) + 1, len(octets))
        low = 0
        while low < len(ends):
            start = ends[low - 1] if low else 0
            most = (octets[start - 1] if start else 0) + FRAME_BYTES
            high = max(low + 1, int(np.searchsorted(octets[ends - 1], most, side="right")))
            own = listed.chosen(slice(start, ends[high - 1]))
            yield self._batch(own, read_only(ends[low:high] - start), memory)
            low = high

    def _batch(self, listed: Listed, ends: np.ndarray, memory: Memory) -> RowsBatch:
        """ends: where in `listed` each frame ends."""
        names, blocks = listed.names[ends - 1], read_only(listed.blocks)
        heads = np.empty((len(ends), self._streams, HEAD_COLUMNS), np.int64)
        self._count(blocks, ends, heads)
        sizes = zip((heads[:, :, ROWS] @ self._widths).tolist(), heads[:, :, BLOB_OCTETS].sum(axis=1).tolist())
        first = INT64, (1 + self._streams, HEAD_COLUMNS)
        layouts = [lay_out(ROWS_KIND, {}, [first, (INT64, (words,)), (OCTET, (octets,))]) for words, octets in sizes]
        starts = np.cumsum([0, *(-(-layout.octets // ALIGNMENT) * ALIGNMENT for layout in layouts)])
        data = memory(int(starts[-1]))
        places = starts[:-1, np.newaxis] + [[own.places[1].offset, own.places[2].offset] for own in layouts]
        places[:, 0] //= INT64.itemsize
        self._copy(blocks, ends, read_only(places), data.view(np.int64), data)
        frames = []
        for at, (layout, start, (group, generation)) in enumerate(zip(layouts, starts.tolist(), names.tolist())):
            own, (head, words, blob) = begin(layout, partial(_part_of, data, start))
            head[0] = group, generation, 0, 0
            head[1:] = heads[at]
            frame = RowsFrame(own, group, generation, head[1:], words, blob, self._widths)
            for stream in self._marked:
                of_frame = blocks[ends[at - 1] if at else 0 : ends[at]]
                self._mark(frame.fresh[stream].tuples, of_frame[of_frame[:, STREAM] == stream])
            seal(own)
            frames.append(frame)
        words_at = places[:, 0].copy()
        return RowsBatch(data, starts[:-1], frames, data.view(np.int64), words_at, heads, names, self._widths)

    def _mark(self, tuples: np.ndarray, listed: np.ndarray) -> None:
        """Marks copies of the tuples of listed blocks that were matched."""
        flags = np.empty(listed[:, TUPLES].sum(), np.uint8)
        self._copy_flags(listed, flags)
        tuples[:, ROW] |= np.where(flags & MATCHED, MATCHED_ROW, 0)


def _part_of(data: np.ndarray, start: int, octets: int) -> np.ndarray:
    return data[start : start + octets]
