"""The state of a window join as arrays that kernels share: one NamedTuple, and the names of its columns.

Everything is an int64 word or a view of one. A *page* is `page_words` words; a page holds a block of tuples or a piece
of their blobs. A block is a column of tags and a column of tuples:

    tags uint16[slots] | tuples int64[slots, tuple_words], each: key, time, row, (blob address, blob size,) record

A *tag* is 16 bits of the key's hash: 32 of them fill a cache line and are compared by one instruction, so a probe reads
a quarter of the bytes that comparing keys would, and touches a tuple only where its tag matches. Then it wants key,
time and row at once: side by side they cost one cache miss, in columns of their own three (a fifth to a third of the
whole join).

A *slot id* names a stored tuple by one number, the index of its first word.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

NONE = -1  # no page, no bucket, no slot

# Columns of `heads`, one row per page.
NEXT, COUNT, TIME_MIN, TIME_MAX, BLOCK_ID, OWNER, BLOB_FIRST, BLOB_LAST, HEAD_WORDS = range(9)

# Columns of `buckets`, one row per mini-partition-group: per stream a cache line of seven words and one of the bucket's
# own.
FIRST, LAST, COUNTED, BYTES, FRESH_PAGE, FRESH_SLOT, FIRST_TIME_MAX, NEXT_FRESH, STREAM_WORDS = range(9)
SHAPE = STREAM_WORDS + NEXT_FRESH
BUCKET_WORDS = 2 * STREAM_WORDS
UNLISTED = -2  # NEXT_FRESH of a bucket that is not on its group's list of buckets with fresh tuples

# Columns of `groups`, one row per partition: its directory, then statistics.
DIRECTORY, DEPTH, DIRECTORY_CLASS, BUCKETS, DEEPEST, FRESH, COMPARISONS, RESULTS, BLOCKS, SPLITS, MERGES = range(11)
WATERMARK = 12  # and 13: how far each stream has been joined completely
GROUP_TUPLES = 14  # and 15: held, per stream
GROUP_BYTES = 16  # and 17: live tuple bytes, per stream
EXPIRES_FROM = 18  # and 19: no first block of this stream has a smaller maximum time
TUNED = 20  # 1: there is nothing to split or merge
GROWS = 21  # 1: it was split for more than it holds, and nothing has expired since: nothing is merged
GROUP_WORDS = 24

# Words of a tuple. Without blobs the record begins at ADDRESS.
KEY, TIME, ROW, ADDRESS, SIZE = range(5)

# Columns of `layout`, one row per stream.
SLOTS, TUPLES_AT, TUPLE_WORDS, TUPLE_BYTES, HAS_BLOB, WINDOW, LAYOUT_WORDS = range(7)

# Entries of `counters`.
(
    FREE_PAGE, UNUSED_PAGE, PAGES, PAGE_WORDS, NEXT_BLOCK_ID, FREE_BUCKET, UNUSED_BUCKET, UNUSED_ENTRY, THETA,
    OUT_COUNT,
    PAGES_HELD, PAGES_HELD_MAX, COMPARED, SPENT, FOUND, KEEPS, HASHED, SPLIT, MERGED,
) = range(19)  # fmt: skip
# COMPARED, SPLIT, MERGED: what was done here, and only ever grows; a group's own counters go with it when it moves ·
# FOUND: results so far, kept or not · HASHED 1: keys are hashes, and who compares the keys themselves counts and
# certifies.
INSERTED, INSERTED_BYTES, EXPIRED = 20, 22, 24  # two each, per stream
FREE_REGIONS = 26  # heads of the free lists of directory regions, by size class
COUNTERS = FREE_REGIONS + 26

# What a kernel returns.
DONE, BUDGET, OUT_FULL, NEED_BLOCKS = range(4)

# A probe's cursor: where a probe that stopped goes on. PHASE 0: left's fresh tuples, 1: right's. BUCKET: NONE between
# phases. COLLECTED words of candidates are filled, those before CONFIRMED are done with; AHEAD buckets from BUCKET on
# were asked for.
(
    GROUP_INDEX, PHASE, BUCKET, FRESH_AT, FRESH_FROM, OPPOSITE_AT, OPPOSITE_FROM, COLLECTED, CONFIRMED, AHEAD,
    CURSOR_WORDS,
) = range(11)  # fmt: skip

# What stays of the results until it is consumed (the counter KEEPS): nothing, they are only counted and certified; the
# slot ids of both tuples; or their later time.
NOTHING, SLOT_IDS, LATER_TIMES = range(3)

# A probe collects masks of candidates before it looks at keys and times: three words each, 30 KB of cache. A candidate
# is one tuple, ONE, and those of a mask, the first of which is FIRST_OTHER; ~FIRST_OTHER where the one is old and the
# others are fresh. Then the slot ids of up to PAIRED pairs, whose cache lines are asked for before the first of them is
# looked at.
MASK, ONE, FIRST_OTHER, CANDIDATE_WORDS = range(4)
CANDIDATES = 1280
# from here on a list of LISTED pages or slots; one candidate more is written
SHORT_LIST = (CANDIDATES + 1) * CANDIDATE_WORDS
LISTED = 256  # before it is known to be none
PAIRED = 320
FILTER = 1 << 13  # entries, of a byte each: which tags some fresh tuples have, but for the upper bits

TIME_MIN_VALUE = np.iinfo(np.int64).min
TIME_MAX_VALUE = np.iinfo(np.int64).max
DIRECTORY_DEPTH_MAX = 24  # DESIGN: a bucket whose hashes do not differ in the low 24 bits cannot be split
ENTRIES_PER_BUCKET_MAX = 16  # DESIGN: a split must not make the directory exceed 16 times its buckets
THETA_OFF = TIME_MAX_VALUE >> 2


class JoinState(NamedTuple):
    """words: int64[], halves: uint16[] and octets: uint8[] are views of one memory, the pages. heads: int64[pages, 8] ·
    buckets: int64[n, 16] · groups: int64[partitions, 24] · directory: int64[], the regions of all groups · layout:
    int64[2, 6] · counters: int64[] · candidates: int64[], a probe's scratch · mine, theirs: int64[PAIRED], others ·
    filter: uint8[FILTER], 0 between fresh blocks · certificate: uint64[1], of the results so far.

    Free pages are linked by NEXT, free buckets by NEXT_FRESH. Nothing ever grows: all is address space reserved once,
    of which only what was used takes memory.
    """

    words: np.ndarray
    halves: np.ndarray
    octets: np.ndarray
    heads: np.ndarray
    buckets: np.ndarray
    groups: np.ndarray
    directory: np.ndarray
    layout: np.ndarray
    counters: np.ndarray
    candidates: np.ndarray
    mine: np.ndarray
    theirs: np.ndarray
    filter: np.ndarray
    certificate: np.ndarray
