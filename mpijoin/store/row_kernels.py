"""Kernels that list the blocks of groups for frames of rows, copy what is in them, and take a sample of that."""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import kernel, part
from mpijoin.partitioning.hashing import hash64
from mpijoin.store.blocks import copy_blob, slot_id
from mpijoin.store.directory import prefix_of
from mpijoin.store.state import (
    ADDRESS,
    COUNT,
    DEPTH,
    DIRECTORY,
    FIRST,
    FRESH_PAGE,
    FRESH_SLOT,
    HAS_BLOB,
    KEY,
    NEXT,
    NONE,
    SIZE,
    STREAM_WORDS,
    TIME,
    TIME_MAX,
    TIME_MAX_VALUE,
    TIME_MIN,
    TIME_MIN_VALUE,
    TUPLE_WORDS,
)
from mpijoin.store.transfer_kernels import OCTETS, PAGE, STREAM, TUPLES, list_block

# The columns of what a frame says of each stream.
ROWS, EARLIEST, LATEST, BLOB_OCTETS, HEAD_COLUMNS = range(5)
# The columns of a sample of rows.
GROUP, SAMPLED_GENERATION, SAMPLED_STREAM, SAMPLED_KEY, SAMPLED_TIME, LOT, SAMPLE_COLUMNS = range(7)
LOTS = 1 << 16


@kernel
def list_rows(s, groups, listed, ends):
    """Lists the blocks of groups as `list_blocks` does, but one stream after the other, and without fresh tuples.

    ends: int64[m], where in `listed` the blocks of each group end.
    """
    found = 0
    for index in range(len(groups)):
        found = ends[index] = list_rows_of_group(s, groups[index], listed, found)


@part
def list_rows_of_group(s, group, listed, found):
    """Lists the blocks of a group from row `found` on, and returns the row after them."""
    region = s.groups[group, DIRECTORY]
    for stream in range(len(s.layout)):
        for entry in range(1 << s.groups[group, DEPTH]):
            bucket = s.directory[region + entry]
            if prefix_of(s, bucket) == entry:
                page = s.buckets[bucket, stream * STREAM_WORDS + FIRST]
                fresh, old = s.buckets[bucket, stream * STREAM_WORDS + FRESH_PAGE], 0
                while page != NONE and page != fresh:
                    list_block(s, stream, page, listed[found])
                    found += 1
                    page = s.heads[page, NEXT]
                if page != NONE:
                    old = s.buckets[bucket, stream * STREAM_WORDS + FRESH_SLOT]
                if old > 0:
                    list_block(s, stream, page, listed[found])
                    listed[found, TUPLES] = old
                    listed[found, OCTETS] = octets_of_first(s, stream, page, old)
                    found += 1
    return found


@part
def octets_of_first(s, stream, page, count):
    """Returns the bytes of the blobs of the first tuples of a block."""
    octets = np.int64(0)
    if s.layout[stream, HAS_BLOB]:
        for slot in range(count):
            octets += s.words[slot_id(s, stream, page, slot) + SIZE]
    return octets


@part
def times_of_first(s, stream, page, count):
    """Returns the smallest and the largest of the times of the first tuples of a block."""
    if count == s.heads[page, COUNT]:
        return s.heads[page, TIME_MIN], s.heads[page, TIME_MAX]
    earliest, latest = np.int64(TIME_MAX_VALUE), np.int64(TIME_MIN_VALUE)
    for slot in range(count):
        time = s.words[slot_id(s, stream, page, slot) + TIME]
        earliest, latest = min(earliest, time), max(latest, time)
    return earliest, latest


@kernel
def count_rows(s, listed, ends, heads):
    """Fills heads int64[frames, streams, 4]: how many rows of each stream the listed blocks of each frame have, the
    smallest and the largest of their times, and the bytes of their blobs. ends: where in `listed` each frame ends."""
    first = 0
    for frame in range(len(ends)):
        for stream in range(len(s.layout)):
            heads[frame, stream, ROWS] = heads[frame, stream, BLOB_OCTETS] = 0
            heads[frame, stream, EARLIEST] = TIME_MAX_VALUE
            heads[frame, stream, LATEST] = TIME_MIN_VALUE
        for i in range(first, ends[frame]):
            of = heads[frame, listed[i, STREAM]]
            earliest, latest = times_of_first(s, listed[i, STREAM], listed[i, PAGE], listed[i, TUPLES])
            of[BLOB_OCTETS] += listed[i, OCTETS]
            of[ROWS] += listed[i, TUPLES]
            of[EARLIEST] = min(of[EARLIEST], earliest)
            of[LATEST] = max(of[LATEST], latest)
        first = ends[frame]


@kernel
def copy_rows(s, listed, ends, places, words, blob):
    """Copies the tuples and blobs of listed blocks into frames. ends: where in `listed` each frame ends · places:
    int64[frames, 2], where in `words` its tuples begin, and where in `blob` its blobs · words, blob: the same memory.
    """
    first = 0
    for frame in range(len(ends)):
        copy_rows_of_frame(s, listed[first : ends[frame]], places[frame, 0], places[frame, 1], words, blob)
        first = ends[frame]


@part
def copy_rows_of_frame(s, listed, place, end, words, blob):
    """Copies listed blocks, which lie one stream after the other. The copies of tuples point to the copied blobs,
    counted from the first one of their stream."""
    first, before = np.int64(0), np.int64(NONE)
    for i in range(len(listed)):
        stream = listed[i, STREAM]
        if stream != before:
            before, first = stream, end
        width, source = s.layout[stream, TUPLE_WORDS], slot_id(s, stream, listed[i, PAGE], 0)
        count = listed[i, TUPLES] * width
        for word in range(count):
            words[place + word] = s.words[source + word]
        if s.layout[stream, HAS_BLOB]:
            for row in range(listed[i, TUPLES]):
                at = place + row * width
                copy_blob(s, words[at + ADDRESS], words[at + SIZE], blob, end)
                words[at + ADDRESS] = end - first
                end += words[at + SIZE]
        place += count


@kernel
def sample_rows(words, starts, heads, names, widths, below, first, sample, count):
    """Adds those rows of frames, from row `first` of all on, to sample[:count] whose keys have a lot below `below`.
    Returns the first row that it has not looked at because the sample is full, and the new count.

    words, starts, heads, names, widths: as of `RowsBatch`. The lot, from 0 to LOTS - 1, is made of bits of the key's
    hash that choose neither its partition nor, in a directory of a usual depth, its entry.
    """
    row = 0
    for frame in range(len(starts)):
        place = starts[frame]
        for stream in range(len(widths)):
            for _ in range(heads[frame, stream, ROWS]):
                if row >= first:
                    lot = np.int64(hash64(words[place + KEY]) >> np.uint64(16)) & (LOTS - 1)
                    if lot < below:
                        if count == len(sample):
                            return row, count
                        sample[count, GROUP] = names[frame, 0]
                        sample[count, SAMPLED_GENERATION] = names[frame, 1]
                        sample[count, SAMPLED_STREAM] = stream
                        sample[count, SAMPLED_KEY] = words[place + KEY]
                        sample[count, SAMPLED_TIME] = words[place + TIME]
                        sample[count, LOT] = lot
                        count += 1
                row += 1
                place += widths[stream]
    return row, count
