"""The state of one operator's table over a pool of pages, as arrays that kernels share, and the names of their columns.

Everything is an int64 word or a view of one. A *page* is `page_words` words; a page holds a block of tuples or a piece
of their blobs. A block is a column of tags, one of flags where its stream has them, and a column of tuples:

    tags uint16[slots] | flags uint8[slots] | tuples int64[slots, tuple_words], each: key, time, row, (blob address,
    blob size,) record

A *tag* is 16 bits of the key's hash: 32 of them fill a cache line and are compared by one instruction, so a probe reads
a quarter of the bytes that comparing keys would, and touches a tuple only where its tag matches. Then it wants key,
time and row at once: side by side they cost one cache miss, in columns of their own three (a fifth to a third of the
whole join).

*Flags* are what an operator notes about a tuple while it is held: that it was matched, or that it is new to one of two
holders. They are 0 when a tuple comes, stay with it through splits, merges and moves, and may be written after its
block is sealed, when its words may not. Only streams that ask for flags have them.

A *slot id* names a stored tuple by one number, the index of its first word. Streams are numbered from 0 in the job's
order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

STREAMS_MAX = 8
NONE = -1  # no page, no bucket, no slot
FOREVER = np.iinfo(np.int64).max  # the window of a stream whose tuples wait for partners until the end

# Columns of `heads`, one row per page.
NEXT, COUNT, TIME_MIN, TIME_MAX, BLOCK_ID, OWNER, BLOB_FIRST, BLOB_LAST, HEAD_WORDS = range(9)
# OWNER packs whose a block is: ((generation * OPERATORS_MAX + operator) * GROUPS_MAX + group) * STREAMS_MAX + stream.
GROUPS_MAX, OPERATORS_MAX, GENERATIONS_MAX = 1 << 28, 1 << 8, 1 << 24

# Columns of `buckets`, one row per mini-partition-group: per stream a cache line of seven words and one of the bucket's
# own, for which there are always two lines.
FIRST, LAST, COUNTED, BYTES, FRESH_PAGE, FRESH_SLOT, FIRST_TIME_MAX, NEXT_FRESH, STREAM_WORDS = range(9)
SHAPE = STREAM_WORDS + NEXT_FRESH
UNLISTED = -2  # NEXT_FRESH of a bucket that is not on its group's list of buckets with fresh tuples

# Columns of `groups`, one row per partition: its directory, then statistics.
DIRECTORY, DEPTH, DIRECTORY_CLASS, BUCKETS, DEEPEST, FRESH, COMPARISONS, RESULTS, BLOCKS, SPLITS, MERGES = range(11)
TUNED = 11  # 1: there is nothing to split or merge
GROWS = 12  # 1: it was split for more than it holds, and nothing has expired since: nothing is merged
GENERATION = 13  # of the blocks that it takes: what was spilled before is of earlier ones
# Of stream i, so many words further on by GROUP_STREAM_WORDS * i: how far it has been joined completely; tuples and
# live tuple bytes held; and a time such that no first block of it has a smaller maximum time.
WATERMARK, GROUP_TUPLES, GROUP_BYTES, EXPIRES_FROM, GROUP_STREAM_WORDS = 16, 17, 18, 19, 4

# Words of a tuple. Without blobs the record begins at ADDRESS.
KEY, TIME, ROW, ADDRESS, SIZE = range(5)
FIXED_WORDS = ADDRESS  # what each tuple has

# Columns of `layout`, one row per stream.
SLOTS, TUPLES_AT, TUPLE_WORDS, TUPLE_BYTES, HAS_BLOB, WINDOW, FLAGS_AT, LAYOUT_WORDS = range(8)
# TUPLES_AT, FLAGS_AT: words from the beginning of a page; FLAGS_AT 0: the stream has no flags.

# Bits of a flag.
MATCHED, NEW = 1, 2

# Entries of `pool`, which all tables over it share.
FREE_PAGE, UNUSED_PAGE, PAGES, PAGE_WORDS, NEXT_BLOCK_ID, PAGES_HELD, PAGES_HELD_MAX, POOL_COUNTERS = range(8)

# Entries of `counters`.
(
    OPERATOR, FREE_BUCKET, UNUSED_BUCKET, UNUSED_ENTRY, THETA, OUT_COUNT, OWN_PAGES, OWN_PAGES_MAX, COMPARED, SPENT,
    FOUND, KEEPS, HASHED, SPLIT, MERGED, LACKING,
) = range(16)  # fmt: skip
# OPERATOR: its number among those that share the pool · OWN_PAGES: that it holds of the pool's.
# COMPARED, SPLIT, MERGED: what was done here, and only ever grows; a group's own counters go with it when it moves ·
# FOUND: results so far, kept or not · HASHED 1: keys are hashes, and who compares the keys themselves counts and
# certifies.
INSERTED, INSERTED_BYTES, EXPIRED = (16 + STREAMS_MAX * kind for kind in range(3))  # of stream i: i further on
FREE_REGIONS = 16 + STREAMS_MAX * 3  # heads of the free lists of directory regions, by size class
COUNTERS = FREE_REGIONS + 26

# What a kernel returns.
DONE, BUDGET, OUT_FULL = range(3)

TIME_MIN_VALUE = np.iinfo(np.int64).min
TIME_MAX_VALUE = np.iinfo(np.int64).max
DIRECTORY_DEPTH_MAX = 24  # a bucket whose hashes do not differ in the low 24 bits cannot be split
ENTRIES_PER_BUCKET_MAX = 16  # a split must not make the directory exceed 16 times its buckets
THETA_OFF = TIME_MAX_VALUE >> 2


def bucket_words(streams: int) -> int:
    """Words of a bucket of a table for so many streams."""
    return max(2, streams) * STREAM_WORDS


def group_words(streams: int) -> int:
    """Words of a group of a table for so many streams."""
    return WATERMARK + GROUP_STREAM_WORDS * streams


def words_of(first: int, streams: int) -> list[int]:
    """Where in a row of `groups` a stream's word is, for each of so many streams; `first`: that of stream 0.

    >>> words_of(GROUP_TUPLES, 3)
    [17, 21, 25]
    """
    return [first + GROUP_STREAM_WORDS * stream for stream in range(streams)]


class StoreState(NamedTuple):
    """A table for n streams over a pool. A type with these fields and further ones serves the kernels of the store as
    well.

    Of the pool, the same arrays in every table over it: words int64[], halves uint16[] and octets uint8[], views of one
    memory, the pages · heads int64[pages, 8] · pool int64[7]. Of the table: buckets int64[b, 8 * max(2, n)] · groups
    int64[partitions, 16 + 4 n] · directory int64[], the regions of all groups · layout int64[n, 7] · counters int64[].

    Free pages are linked by NEXT, free buckets by NEXT_FRESH. Nothing ever grows: all is address space reserved once,
    of which only what was used takes memory.
    """

    words: np.ndarray
    halves: np.ndarray
    octets: np.ndarray
    heads: np.ndarray
    pool: np.ndarray
    buckets: np.ndarray
    groups: np.ndarray
    directory: np.ndarray
    layout: np.ndarray
    counters: np.ndarray
