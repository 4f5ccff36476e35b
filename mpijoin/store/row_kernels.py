"""Kernels that list the blocks of groups for frames of rows, copy what is in them, and take a sample of that."""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import kernel, part
from mpijoin.partitioning.hashing import hash64
from mpijoin.store.blocks import copy_blob, flags_of, slot_id
from mpijoin.store.directory import prefix_of
from mpijoin.store.simd import unsigned
from mpijoin.store.state import (
    ADDRESS,
    COUNT,
    DEPTH,
    DIRECTORY,
    FIRST,
    FLAGS_AT,
    FRESH_PAGE,
    FRESH_SLOT,
    GENERATION,
    HAS_BLOB,
    KEY,
    MATCHED,
    MATCHED_ROW,
    NEXT,
    NONE,
    ROW,
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
def list_rows(s, groups, listed, names):
    """Lists the blocks of groups as `list_blocks` does, but one stream after the other, and without fresh tuples.
    Returns how many there are. names: int64[n, 2], the group and the generation of each block."""
    found = np.int64(0)
    for index in range(len(groups)):
        group, first = groups[index], found
        found = list_rows_of_group(s, group, listed, first)
        for i in range(first, found):
            names[i, 0], names[i, 1] = group, s.groups[group, GENERATION]
    return found


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
def cut_rows(s, listed, names, frame_bytes, ends, heads, lengths):
    """Cuts listed blocks into frames, each of one group and generation and of about `frame_bytes` at most. Returns how
    many there are.

    names: int64[n, 2], of each block · ends: int64[n], where in `listed` each frame ends · heads: int64[n, streams, 4],
    how many rows of each stream a frame has, the smallest and the largest of their times, and the bytes of their blobs
    · lengths: int64[n, 2], the words of all tuples of a frame, and the bytes of all blobs.
    """
    frame, octets = np.int64(-1), np.int64(0)
    for i in range(len(listed)):
        stream, before = listed[i, STREAM], octets
        words = listed[i, TUPLES] * s.layout[stream, TUPLE_WORDS]
        own = 8 * words + listed[i, OCTETS]
        is_new = i == 0 or names[i, 0] != names[i - 1, 0] or names[i, 1] != names[i - 1, 1]
        octets = own if is_new else octets + own
        if is_new or octets // frame_bytes != before // frame_bytes:
            frame += 1
            begin_head(heads[frame])
            lengths[frame, 0] = lengths[frame, 1] = 0
        earliest, latest = times_of_first(s, stream, listed[i, PAGE], listed[i, TUPLES])
        of = heads[frame, stream]
        of[ROWS] += listed[i, TUPLES]
        of[EARLIEST] = min(of[EARLIEST], earliest)
        of[LATEST] = max(of[LATEST], latest)
        of[BLOB_OCTETS] += listed[i, OCTETS]
        lengths[frame, 0] += words
        lengths[frame, 1] += listed[i, OCTETS]
        ends[frame] = i + 1
    return frame + 1


@part
def begin_head(head):
    """Says that a frame has no rows."""
    for stream in range(len(head)):
        head[stream, ROWS] = head[stream, BLOB_OCTETS] = 0
        head[stream, EARLIEST] = TIME_MAX_VALUE
        head[stream, LATEST] = TIME_MIN_VALUE


@kernel
def copy_rows(s, listed, ends, names, heads, places, words, blob):
    """Fills frames with what they say and with the tuples and blobs of listed blocks. Tuples that were matched are
    marked. Gaps between these parts are zeros.

    ends: where in `listed` each frame ends · names: int64[frames, 2] · heads: of each frame · places: int64[frames, 3],
    where in `words` what a frame says begins, where its tuples do, and where in `blob` its blobs do · words, blob: the
    same memory.
    """
    first = np.int64(0)
    for frame in range(len(ends)):
        head, tuples, blobs = places[frame, 0], places[frame, 1], places[frame, 2]
        end = copy_head(names[frame], heads[frame], head, words)
        fill(words, end, tuples)
        end = copy_rows_of_frame(s, listed[first : ends[frame]], tuples, blobs, words, blob)
        fill(words, end, blobs // 8)
        first = ends[frame]


@part
def copy_head(name, head, at, words):
    """Writes what a frame says, and returns the place behind it."""
    for column in range(HEAD_COLUMNS):
        words[at + column] = name[column] if column < 2 else 0
    for stream in range(len(head)):
        for column in range(HEAD_COLUMNS):
            words[at + (1 + stream) * HEAD_COLUMNS + column] = head[stream, column]
    return at + (1 + len(head)) * HEAD_COLUMNS


@part
def fill(words, first, stop):
    for at in range(first, stop):
        words[at] = 0


@part
def copy_rows_of_frame(s, listed, place, end, words, blob):
    """Copies listed blocks, which lie one stream after the other, and returns the place behind their tuples. The copies
    of tuples point to the copied blobs, counted from the first one of their stream."""
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
        if s.layout[stream, FLAGS_AT]:
            flags = flags_of(s, stream, listed[i, PAGE])
            for row in range(listed[i, TUPLES]):
                if s.octets[flags + row] & MATCHED:
                    words[place + row * width + ROW] |= MATCHED_ROW
        place += count
    return place


@kernel
def sample_rows(sample, count, words, starts, heads, names, widths, below, first):
    """Adds those rows of frames, from row `first` of all on, to sample[:count] whose keys have a lot below `below`.
    Returns the first row that it has not looked at because the sample is full, or -1, and the new count.

    words, starts, heads, names, widths: as of `RowsBatch`. The lot, from 0 to LOTS - 1, is made of bits of the key's
    hash that choose neither its partition nor, in a directory of a usual depth, its entry.
    """
    row = np.int64(0)
    for frame in range(len(starts)):
        place = starts[frame]
        for stream in range(len(widths)):
            rows, width = heads[frame, stream, ROWS], widths[stream]
            for i in range(min(max(first - row, 0), rows), rows):
                key = words[unsigned(place + i * width + KEY)]
                lot = np.int64(hash64(key) >> np.uint64(16)) & (LOTS - 1)
                if lot < below:
                    if count == len(sample):
                        return row + i, count
                    sample[count, GROUP] = names[frame, 0]
                    sample[count, SAMPLED_GENERATION] = names[frame, 1]
                    sample[count, SAMPLED_STREAM] = stream
                    sample[count, SAMPLED_KEY] = key
                    sample[count, SAMPLED_TIME] = words[place + i * width + TIME]
                    sample[count, LOT] = lot
                    count += 1
            row += rows
            place += rows * width
    return np.int64(-1), count
