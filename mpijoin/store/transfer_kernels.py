"""Kernels that read the blocks of a group, put blocks into a group, and let a whole group go."""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import kernel, part
from mpijoin.partitioning.hashing import hash64
from mpijoin.store.blocks import append_blob, copy_blob, flags_of, slot_id, tags_of, take_page
from mpijoin.store.directory import (
    PREFIX_SHIFT,
    UNSPLITTABLE,
    buckets_left,
    empty_chain,
    note_first,
    prefix_of,
    return_directory,
    take_bucket,
    take_directory,
    take_region,
)
from mpijoin.store.insert import TAG_SHIFT
from mpijoin.store.state import (
    ADDRESS,
    BLOB_FIRST,
    BLOCK_ID,
    BUCKETS,
    BYTES,
    COUNT,
    COUNTED,
    DEEPEST,
    DEPTH,
    DIRECTORY,
    DIRECTORY_CLASS,
    EXPIRES_FROM,
    FIRST,
    FIRST_TIME_MAX,
    FLAGS_AT,
    FREE_BUCKET,
    FRESH,
    FRESH_PAGE,
    FRESH_SLOT,
    GENERATION,
    GROUP_BYTES,
    GROUP_STREAM_WORDS,
    GROUP_TUPLES,
    GROWS,
    HAS_BLOB,
    KEPT,
    KEY,
    LAST,
    NEXT,
    NEXT_BLOCK_ID,
    NEXT_FRESH,
    NONE,
    OWNER,
    RESULTS,
    RESULTS_BEFORE,
    SHAPE,
    SIZE,
    SLOTS,
    SPILLED,
    STREAM_WORDS,
    STREAMS_MAX,
    TIME,
    TIME_MAX,
    TIME_MAX_VALUE,
    TIME_MIN,
    TUPLE_BYTES,
    TUPLE_WORDS,
    UNLISTED,
    UNUSED_BUCKET,
)

# Columns of a list of blocks, one row per block.
ID, PAGE, STREAM, TUPLES, OCTETS, BLOCK_COLUMNS = range(6)


@kernel
def block_id(s, stream, page):
    """Returns the id of a block.

    A block that is found full for the first time gets its last id, which its head keeps as a negative number.
    """
    heads = s.heads
    if heads[page, BLOCK_ID] >= 0 and heads[page, COUNT] == s.layout[stream, SLOTS]:
        heads[page, BLOCK_ID] = -s.pool[NEXT_BLOCK_ID]
        s.pool[NEXT_BLOCK_ID] += 1
    return abs(heads[page, BLOCK_ID])


@kernel
def blob_octets(s, page):
    """Returns how many bytes all blobs of the block in `page` have."""
    octets, page = 0, s.heads[page, BLOB_FIRST]
    while page != NONE:
        octets += s.heads[page, COUNT]
        page = s.heads[page, NEXT]
    return octets


@kernel
def list_blocks(s, group, shapes, ends, listed):
    """Lists what a group consists of, and returns how many blocks these are.

    It fills shapes int64[buckets] · listed int64[blocks, 5]: id, page, stream, tuples and bytes of blobs of each block,
    chain by chain in order · ends int64[streams * buckets]: where in `listed` each chain ends.
    """
    found, index, chains, region = 0, 0, 0, s.groups[group, DIRECTORY]
    for entry in range(1 << s.groups[group, DEPTH]):
        bucket = s.directory[region + entry]
        if prefix_of(s, bucket) == entry:
            shapes[index] = s.buckets[bucket, SHAPE]
            index += 1
            for stream in range(len(s.layout)):
                page = s.buckets[bucket, stream * STREAM_WORDS + FIRST]
                while page != NONE:
                    list_block(s, stream, page, listed[found])
                    found += 1
                    page = s.heads[page, NEXT]
                ends[chains] = found
                chains += 1
    return found


@part
def list_block(s, stream, page, row):
    row[ID] = block_id(s, stream, page)
    row[PAGE] = page
    row[STREAM] = stream
    row[TUPLES] = s.heads[page, COUNT]
    row[OCTETS] = blob_octets(s, page)


@kernel
def count_fresh(s, group, fresh):
    """Fills fresh int64[streams * buckets]: how many tuples at the end of each chain are fresh.

    The chains are in the order of `list_blocks`.
    """
    chain, region = 0, s.groups[group, DIRECTORY]
    for entry in range(1 << s.groups[group, DEPTH]):
        bucket = s.directory[region + entry]
        if prefix_of(s, bucket) == entry:
            for stream in range(len(s.layout)):
                page = s.buckets[bucket, stream * STREAM_WORDS + FRESH_PAGE]
                fresh[chain] = 0 if page == NONE else -s.buckets[bucket, stream * STREAM_WORDS + FRESH_SLOT]
                while page != NONE:
                    fresh[chain] += s.heads[page, COUNT]
                    page = s.heads[page, NEXT]
                chain += 1


@kernel
def mark_fresh_tuples(s, group, fresh):
    """Makes the last tuples of each chain of an installed group fresh, as many as `count_fresh` has counted."""
    chain, region = 0, s.groups[group, DIRECTORY]
    for entry in range(1 << s.groups[group, DEPTH]):
        bucket = s.directory[region + entry]
        if prefix_of(s, bucket) == entry:
            for stream in range(len(s.layout)):
                if fresh[chain] > 0:
                    mark_last(s, group, bucket, stream, fresh[chain])
                chain += 1


@part
def mark_last(s, group, bucket, stream, count):
    """Makes the last `count` tuples of a chain fresh, count > 0, and lists the bucket for the next probe."""
    base = stream * STREAM_WORDS
    page, old = s.buckets[bucket, base + FIRST], s.buckets[bucket, base + COUNTED] - count
    while old >= s.heads[page, COUNT]:
        old -= s.heads[page, COUNT]
        page = s.heads[page, NEXT]
    s.buckets[bucket, base + FRESH_PAGE] = page
    s.buckets[bucket, base + FRESH_SLOT] = old
    if s.buckets[bucket, NEXT_FRESH] == UNLISTED:
        s.buckets[bucket, NEXT_FRESH] = s.groups[group, FRESH]
        s.groups[group, FRESH] = bucket


@kernel
def copy_blocks(s, stream, listed, tuples, blob):
    """Copies the tuples of listed blocks, all of one stream, and their blobs. The copies point to the copied blobs."""
    row, octets, width = 0, np.int64(0), s.layout[stream, TUPLE_WORDS]
    for i in range(len(listed)):
        source = slot_id(s, stream, listed[i, PAGE], 0)
        for _ in range(listed[i, TUPLES]):
            for word in range(width):
                tuples[row, word] = s.words[source + word]
            if s.layout[stream, HAS_BLOB]:
                copy_blob(s, tuples[row, ADDRESS], tuples[row, SIZE], blob, octets)
                tuples[row, ADDRESS] = octets
                octets += tuples[row, SIZE]
            source += width
            row += 1


@kernel
def copy_flags(s, listed, flags):
    """Copies the flags of those listed blocks whose streams have flags."""
    place = 0
    for i in range(len(listed)):
        if s.layout[listed[i, STREAM], FLAGS_AT]:
            first = flags_of(s, listed[i, STREAM], listed[i, PAGE])
            for slot in range(listed[i, TUPLES]):
                flags[place] = s.octets[first + slot]
                place += 1


@kernel
def place_flags(s, pages, flags):
    """Gives the tuples of placed blocks the flags that `copy_flags` has copied."""
    place = 0
    for i in range(len(pages)):
        stream = s.heads[pages[i], OWNER] % STREAMS_MAX
        if s.layout[stream, FLAGS_AT]:
            first = flags_of(s, stream, pages[i])
            for slot in range(s.heads[pages[i], COUNT]):
                s.octets[first + slot] = flags[place]
                place += 1


@kernel
def buckets_free(s, wanted):
    """Returns how many buckets can be taken. It stops counting at `wanted`."""
    free, bucket = buckets_left(s), s.counters[FREE_BUCKET]
    while free < wanted and bucket != NONE:
        free += 1
        bucket = s.buckets[bucket, NEXT_FRESH]
    return free


@kernel
def open_group(s, group, started, depth, buckets):
    """Gives a group that holds no tuple a directory of this depth, still without buckets.

    started: whether the group has a directory already. Returns False, and changes nothing, if memory is lacking.
    """
    if buckets_free(s, buckets) < buckets:
        return False
    region = take_region(s, depth)
    if region == NONE:
        return False
    if started:
        drop_group(s, group)
    groups = s.groups
    groups[group, DIRECTORY] = region
    groups[group, DIRECTORY_CLASS] = depth
    groups[group, DEPTH] = depth
    groups[group, BUCKETS] = buckets
    groups[group, FRESH] = groups[group, KEPT] = NONE
    for stream in range(len(s.layout)):
        groups[group, EXPIRES_FROM + stream * GROUP_STREAM_WORDS] = TIME_MAX_VALUE
    return True


@kernel
def place_blocks(s, group, stream, counts, tuples, blob, wanted, pages):
    """Puts the wanted blocks, block i with counts[i] tuples, into pages of the group. pages[i] then says where."""
    row, start = np.int64(0), np.int64(0)
    for i in range(len(counts)):
        end = row + counts[i]
        if wanted[i]:
            pages[i] = place_block(s, group, stream, row, end, start, tuples, blob)
        if s.layout[stream, HAS_BLOB]:
            for j in range(row, end):
                start += tuples[j, SIZE]
        row = end


@kernel
def place_block(s, group, stream, row, end, start, tuples, blob):
    """Puts tuples[row:end] into a page of their own and returns the page.

    Their blobs follow one another in `blob` from `start` on.
    """
    page, heads, width = take_page(s, group, stream), s.heads, s.layout[stream, TUPLE_WORDS]
    tags, target = tags_of(s, page), slot_id(s, stream, page, 0)
    heads[page, COUNT] = end - row
    for i in range(row, end):
        for word in range(width):
            s.words[target + word] = tuples[i, word]
        s.halves[tags + i - row] = np.uint16(hash64(tuples[i, KEY]) >> np.uint64(TAG_SHIFT) & np.uint64(0xFFFF))
        heads[page, TIME_MIN] = min(heads[page, TIME_MIN], tuples[i, TIME])
        heads[page, TIME_MAX] = max(heads[page, TIME_MAX], tuples[i, TIME])
        if s.layout[stream, HAS_BLOB]:
            size = tuples[i, SIZE]
            s.words[target + ADDRESS] = append_blob(s, page, group, stream, blob, start, size)
            start += size
        target += width
    return page


@kernel
def link_group(s, group, shapes, ends, pages):
    """Gives an opened group its buckets, and these their chains of `pages`.

    shapes, ends: as `list_blocks` fills them.
    """
    groups, depth, low = s.groups, s.groups[group, DEPTH], np.int64(0)
    for index in range(len(shapes)):
        own, prefix = shapes[index] & 0xFF, shapes[index] >> PREFIX_SHIFT
        bucket = take_bucket(s, own, prefix)
        s.buckets[bucket, SHAPE] = shapes[index]
        groups[group, DEEPEST] += own == depth
        for entry in range(prefix, 1 << depth, 1 << own):
            s.directory[groups[group, DIRECTORY] + entry] = bucket
        for stream in range(len(s.layout)):
            high = ends[index * len(s.layout) + stream]
            link_chain(s, group, bucket, stream, pages, low, high)
            low = high


@kernel
def link_chain(s, group, bucket, stream, pages, low, high):
    """Makes pages[low:high] the chain of an empty bucket, and counts the tuples in them."""
    buckets, groups, base = s.buckets, s.groups, stream * STREAM_WORDS
    for i in range(low, high):
        page = pages[i]
        if i == low:
            buckets[bucket, base + FIRST] = page
            buckets[bucket, base + FIRST_TIME_MAX] = s.heads[page, TIME_MAX]
        else:
            s.heads[pages[i - 1], NEXT] = page
        buckets[bucket, base + LAST] = page
        octets = s.heads[page, COUNT] * s.layout[stream, TUPLE_BYTES] + blob_octets(s, page)
        buckets[bucket, base + COUNTED] += s.heads[page, COUNT]
        buckets[bucket, base + BYTES] += octets
        groups[group, GROUP_TUPLES + stream * GROUP_STREAM_WORDS] += s.heads[page, COUNT]
        groups[group, GROUP_BYTES + stream * GROUP_STREAM_WORDS] += octets
    note_first(s, group, stream, bucket)


@kernel
def drop_group(s, group):
    """Frees the pages, the buckets and the region of a group. Its row is then as if it had never been started."""
    empty_buckets(s, group)
    return_directory(s, group)
    for word in range(s.groups.shape[1]):
        s.groups[group, word] = 0


@part
def empty_buckets(s, group):
    """Frees the blocks of a group. Its buckets are empty then."""
    for entry in range(1 << s.groups[group, DEPTH]):
        bucket = s.directory[s.groups[group, DIRECTORY] + entry]
        if prefix_of(s, bucket) == entry:
            for stream in range(len(s.layout)):
                empty_chain(s, bucket, stream)
            s.buckets[bucket, SHAPE] &= ~UNSPLITTABLE


@kernel
def empty_groups(s, groups):
    """Frees the blocks of groups that hold no fresh tuple, counts their tuples as spilled, and begins their next
    generation.

    A group keeps its watermarks and statistics. It also keeps its directory, because the next generation will need
    about the same one, unless the directories of emptied groups have most of the buckets.
    """
    for index in range(len(groups)):
        empty_group(s, groups[index])


@part
def empty_group(s, group):
    """Empties one of the groups."""
    groups = s.groups
    empty_buckets(s, group)
    if s.counters[UNUSED_BUCKET] > len(s.buckets) // 2:
        return_directory(s, group)
        take_directory(s, group)
    for stream in range(len(s.layout)):
        base = stream * GROUP_STREAM_WORDS
        s.counters[SPILLED + stream] += groups[group, GROUP_TUPLES + base]
        groups[group, GROUP_TUPLES + base] = groups[group, GROUP_BYTES + base] = 0
        groups[group, EXPIRES_FROM + base] = TIME_MAX_VALUE
    groups[group, GENERATION] += 1
    groups[group, RESULTS_BEFORE] = groups[group, RESULTS]
    groups[group, GROWS] = 1
