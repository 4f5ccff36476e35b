"""Kernels that list the blocks of a group for its frames of rows, copy what is in them, and take a sample of that."""

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

# The columns of `counts`. A frame has those from ROWS on.
BLOCKS_OF, ROWS, EARLIEST, LATEST, BLOB_OCTETS, COUNT_COLUMNS = range(6)
# The columns of a sample of rows.
GROUP, SAMPLED_GENERATION, SAMPLED_STREAM, SAMPLED_KEY, SAMPLED_TIME, LOT, SAMPLE_COLUMNS = range(7)
LOTS = 1 << 16


@kernel
def list_rows(s, group, listed, counts):
    """Lists the blocks of a group as `list_blocks` does, but one stream after the other, and without fresh tuples, and
    counts them as `count_rows` does. Returns how many these are."""
    found, region = 0, s.groups[group, DIRECTORY]
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
    count_rows(s, listed[:found], counts)
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
def count_rows(s, listed, counts):
    """Fills counts int64[streams, 5]: how many of the listed blocks there are of each stream, their rows, the smallest
    and the largest of their times, and the bytes of their blobs."""
    counts[:] = 0
    for stream in range(len(counts)):
        counts[stream, EARLIEST] = TIME_MAX_VALUE
        counts[stream, LATEST] = TIME_MIN_VALUE
    for i in range(len(listed)):
        of = counts[listed[i, STREAM]]
        earliest, latest = times_of_first(s, listed[i, STREAM], listed[i, PAGE], listed[i, TUPLES])
        of[BLOCKS_OF] += 1
        of[BLOB_OCTETS] += listed[i, OCTETS]
        of[ROWS] += listed[i, TUPLES]
        of[EARLIEST] = min(of[EARLIEST], earliest)
        of[LATEST] = max(of[LATEST], latest)


@kernel
def copy_rows(s, listed, words, blob):
    """Copies the tuples of listed blocks, which lie one stream after the other, and their blobs. The copies point to
    the copied blobs, counted from the first one of their stream."""
    place, end, first, before = 0, np.int64(0), np.int64(0), np.int64(NONE)
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
def sample_rows(words, head, widths, group, generation, below, first, sample, count):
    """Adds those rows of a frame, from row `first` of all on, to sample[:count] whose keys have a lot below `below`.
    Returns the first row that it has not looked at because the sample is full, and the new count.

    words, head, widths: as of `RowsFrame`. The lot, from 0 to LOTS - 1, is made of bits of the key's hash that choose
    neither its partition nor, in a directory of a usual depth, its entry.
    """
    row = place = 0
    for stream in range(len(widths)):
        for _ in range(head[stream, 0]):
            if row >= first:
                lot = np.int64(hash64(words[place + KEY]) >> np.uint64(16)) & (LOTS - 1)
                if lot < below:
                    if count == len(sample):
                        return row, count
                    sample[count, GROUP] = group
                    sample[count, SAMPLED_GENERATION] = generation
                    sample[count, SAMPLED_STREAM] = stream
                    sample[count, SAMPLED_KEY] = words[place + KEY]
                    sample[count, SAMPLED_TIME] = words[place + TIME]
                    sample[count, LOT] = lot
                    count += 1
            row += 1
            place += widths[stream]
    return row, count
