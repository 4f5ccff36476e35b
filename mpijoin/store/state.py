"""The state of one operator's table over a pool of pages: arrays that kernels share, and the names of their columns.

Everything is an int64 word or a view of one. A *page* has `page_words` words and holds a block of tuples, or a piece of
their blobs. A block is a column of tags, a column of flags if its stream has them, and a column of tuples:

    tags uint16[slots] | flags uint8[slots] | tuples int64[slots, tuple_words], each: key, time, row, (blob address,
    blob size,) record

A *tag* is 16 bits of the key's hash. 32 tags fill a cache line and are compared by one instruction, so a probe reads a
quarter of the bytes that it would read to compare keys, and it touches a tuple only where its tag matches. Then it
needs key, time and row at once. Side by side they cost one cache miss; in columns of their own they would cost three,
which is a fifth to a third of the whole join.

*Flags* are what an operator notes about a tuple while it is held: that it was matched, or that it is new to one of two
holders. They are 0 when a tuple comes, and stay with it through splits, merges and moves. They may still be written
after the tuple's block is sealed, when its words may not. Only streams that ask for flags have them.

A *slot id* names a stored tuple by one number, the index of its first word. Streams are numbered from 0 in the job's
order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijoin.named import NamedTuple

STREAMS_MAX = 8
# This number stands for no page, no bucket, no slot.
NONE = -1
# This is the window of a stream whose tuples wait for partners until the end.
FOREVER = np.iinfo(np.int64).max

# Columns of `heads`, one row per page.
NEXT, COUNT, TIME_MIN, TIME_MAX, BLOCK_ID, OWNER, BLOB_FIRST, BLOB_LAST, HEAD_WORDS = range(9)
# OWNER packs to whom a block belongs: ((generation * OPERATORS_MAX + operator) * GROUPS_MAX + group) * STREAMS_MAX +
# stream.
GROUPS_MAX, OPERATORS_MAX, GENERATIONS_MAX = 1 << 28, 1 << 8, 1 << 24

# Columns of `buckets`, one row per mini-partition-group. Each stream has a cache line: seven words of its own, and an
# eighth that belongs to the bucket as a whole. There are always at least two lines, so that the bucket has two words.
FIRST, LAST, COUNTED, BYTES, FRESH_PAGE, FRESH_SLOT, FIRST_TIME_MAX, NEXT_FRESH, STREAM_WORDS = range(9)
SHAPE = STREAM_WORDS + NEXT_FRESH
# This is the NEXT_FRESH of a bucket that is not on its group's list of buckets with fresh tuples.
UNLISTED = -2

# Columns of `groups`, one row per partition: its directory first, then statistics.
DIRECTORY, DEPTH, DIRECTORY_CLASS, BUCKETS, DEEPEST, FRESH, COMPARISONS, RESULTS, BLOCKS, SPLITS, MERGES = range(11)
TUNED = 11  # It is 1 while there is nothing to split or merge.
# It is 1 if the group was split for more than it holds, and nothing has expired since. While it is 1, nothing is
# merged.
GROWS = 12
# The blocks that the group takes now are of this generation. What was spilled before is of earlier ones.
GENERATION = 13
RESULTS_BEFORE = 14  # How many of RESULTS were found before this generation began.
# The first of the blocks that have expired, but are kept, because tuples on a disk may still meet them. They are linked
# by NEXT and are in no chain any more.
KEPT = 15
# It is 1 while other tables refer to the group's tuples. They then stay where they are: nothing is split or merged.
PINNED = 16
# Each stream has these words; those of stream i lie GROUP_STREAM_WORDS * i further on. WATERMARK: how far the stream
# has been joined completely · GROUP_TUPLES, GROUP_BYTES: tuples held in chains, and their live bytes · EXPIRES_FROM: a
# time such that no first block of the stream has a smaller maximum time · KEEP_UNTIL: a block that expires is kept if
# it begins no later; TIME_MIN_VALUE: none is kept.
WATERMARK, GROUP_TUPLES, GROUP_BYTES, EXPIRES_FROM, KEEP_UNTIL, GROUP_STREAM_WORDS = 17, 18, 19, 20, 21, 5

# Words of a tuple. ADDRESS and SIZE are its blob's; in a stream without blobs the record begins at ADDRESS.
KEY, TIME, ROW, ADDRESS, SIZE = range(5)
FIXED_WORDS = ADDRESS  # Every tuple has these first words.

# Columns of `layout`, one row per stream.
SLOTS, TUPLES_AT, TUPLE_WORDS, TUPLE_BYTES, HAS_BLOB, WINDOW, FLAGS_AT, LAYOUT_WORDS = range(8)
# TUPLES_AT and FLAGS_AT count words from the beginning of a page. FLAGS_AT is 0 if the stream has no flags.

# Bits of a flag. MARK_BITS are those of the queries over one table: a tuple was matched in the first one, and so on.
MATCHED, NEW = 1, 2
MARK_BITS = (MATCHED, 4, 8, 16, 32, 64)
# A row on its way from or to a disk has this bit in its word ROW if it was matched. KEYLESS is the next higher bit.
MATCHED_ROW = 1 << 61

# Entries of `pool`, which all tables over it share. PAGES: how many may be held, which can be fewer than there are, and
# fewer than are held · UNUSED_PAGE: the first of those that were never used · RELEASED_PAGE: the first of the free ones
# whose memory was given back to the system, RELEASED in number.
(
    FREE_PAGE, UNUSED_PAGE, PAGES, PAGE_WORDS, NEXT_BLOCK_ID, PAGES_HELD, PAGES_HELD_MAX, RELEASED_PAGE, RELEASED,
    POOL_COUNTERS,
) = range(10)  # fmt: skip

# Entries of `counters`.
(
    OPERATOR, FREE_BUCKET, UNUSED_BUCKET, UNUSED_ENTRY, THETA, OUT_COUNT, OWN_PAGES, OWN_PAGES_MAX, COMPARED, SPENT,
    FOUND, KEEPS, HASHED, SPLIT, MERGED, LACKING, APART, PAIRS, LOOKS_BACK, MARK, COMES, TRACKS,
) = range(22)  # fmt: skip
# OPERATOR: the operator's number among those that share the pool · OWN_PAGES: how many of the pool's pages it holds.
# COMPARED, SPLIT, MERGED: what was done here; they only ever grow, whereas a group's own counters leave with the group.
# FOUND: results so far, kept or not · HASHED: 1 if keys are hashes; then results are counted and certified by whoever
# compares the keys themselves, and not by the kernels · APART: 1 if no result may consist of fresh tuples alone ·
# PAIRS: which pairs are results, as the join type wants it (join/marks.py) · LOOKS_BACK: if tuples of stream 0 look
# for partners only when their own windows are over, the longest such window plus 1, or FOREVER; else 0 · MARK: the bit
# of a flag that says that a tuple has a partner, or is done with · COMES: the flag of tuples that are inserted now ·
# TRACKS: 1 if no result may consist of NEW tuples alone.
# INSERTED, INSERTED_BYTES, EXPIRED, SPILLED, KEPT_TUPLES: these are the entries of stream 0; those of stream i lie i
# further on. KEPT_TUPLES: how many tuples are in kept blocks now.
INSERTED, INSERTED_BYTES, EXPIRED, SPILLED, KEPT_TUPLES = (
    TRACKS + 1 + STREAMS_MAX * kind for kind in range(5)
)
# The heads of the free lists of directory regions start here, one for each size class.
FREE_REGIONS = KEPT_TUPLES + STREAMS_MAX
COUNTERS = FREE_REGIONS + 26

# A kernel returns one of these.
DONE, BUDGET, OUT_FULL = range(3)

TIME_MIN_VALUE = np.iinfo(np.int64).min
TIME_MAX_VALUE = np.iinfo(np.int64).max
DIRECTORY_DEPTH_MAX = 24  # A bucket whose hashes do not differ in their low 24 bits cannot be split.
ENTRIES_PER_BUCKET_MAX = 16  # A split must not give the directory more than 16 entries per bucket.
THETA_OFF = TIME_MAX_VALUE >> 2


def bucket_words(streams: int) -> int:
    """Returns the words of a bucket in a table of so many streams."""
    return max(2, streams) * STREAM_WORDS


def group_words(streams: int) -> int:
    """Returns the words of a group in a table of so many streams."""
    return WATERMARK + GROUP_STREAM_WORDS * streams


def words_of(first: int, streams: int) -> list[int]:
    """Returns where each of so many streams has its word in a row of `groups`. first: where stream 0 has it.

    >>> words_of(GROUP_TUPLES, 3)
    [18, 23, 28]
    """
    return [first + GROUP_STREAM_WORDS * stream for stream in range(streams)]


def looking_back(window: int) -> int:
    """Returns what LOOKS_BACK is for a window of stream 0.

    >>> looking_back(0), looking_back(FOREVER) == FOREVER
    (1, True)
    """
    return min(window, FOREVER - 1) + 1


class StoreState(NamedTuple):
    """A table of n streams over a pool. The store's kernels also take a type that has further fields after these.

    The first arrays are the pool's, and every table over it has the same ones: words int64[], halves uint16[] and
    octets uint8[] are three views of one memory, the pages · heads int64[pages, 8] · pool int64[9]. The others are the
    table's: buckets int64[b, 8 * max(2, n)] · groups int64[partitions, 17 + 5 n] · directory int64[], the regions of
    all groups · layout int64[n, 7] · counters int64[].

    Free pages are linked by NEXT, free buckets by NEXT_FRESH. No array ever grows: each is address space that is
    reserved once, and only the parts that were used take memory.
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


class Stored(NamedTuple):
    """What it takes to read stored tuples and their blobs. A `StoreState`, which has these arrays, may be given in its
    place."""

    words: np.ndarray
    octets: np.ndarray
    heads: np.ndarray
    pool: np.ndarray


def stored_in(state: Any) -> Stored:
    """The arrays of a state that begins as a `StoreState`."""
    return Stored(state.words, state.octets, state.heads, state.pool)
