"""The pool of pages and the tables of groups over it.

The pool is address space for the whole memory budget, and it is reserved once. The budget may become smaller while it
is used, and grow again. Free pages that are too many for it then give their memory back to the system.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any, Sequence

import numpy as np

from mpijoin.named import NamedTuple
from mpijoin.store.blocks import take_free_pages
from mpijoin.store.simd import LINE_TAGS
from mpijoin.store.state import (
    COUNTERS,
    ENTRIES_PER_BUCKET_MAX,
    FLAGS_AT,
    FREE_BUCKET,
    FREE_PAGE,
    FREE_REGIONS,
    HAS_BLOB,
    HEAD_WORDS,
    LAYOUT_WORDS,
    MARK,
    MATCHED,
    NEXT,
    NONE,
    OPERATOR,
    PAGE_WORDS,
    PAGES,
    PAGES_HELD,
    POOL_COUNTERS,
    RELEASED,
    RELEASED_PAGE,
    SLOTS,
    THETA,
    TUPLE_BYTES,
    TUPLE_WORDS,
    TUPLES_AT,
    UNUSED_PAGE,
    WINDOW,
    StoreState,
    bucket_words,
    group_words,
)

LINE_WORDS = 8  # A cache line has this many words.
PAGES_MAX = 1 << 31
# Until it is written to, the budget is address space and takes no memory.
MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
# What a table needs beside its pages begins on small pages. Only with many mini-partitions does it go on to huge ones.
SMALL_BYTES = 2 << 20


def tuple_words(record_words: int, has_blob: bool) -> int:
    """Returns the words of a tuple: key, time, row, its blob's address and size if it has one, and its record."""
    return (5 if has_blob else 3) + record_words


def tag_words(slots: int) -> int:
    """Returns the words that the tags of so many slots take: whole cache lines, because they are read by lines."""
    return -(-slots // LINE_TAGS) * LINE_TAGS // 4


def flag_words(slots: int, flagged: bool) -> int:
    """Returns the words that the flags of so many slots take."""
    return -(-slots // 8) if flagged else 0


def slots_in(page_words: int, words: int, flagged: bool = False) -> int:
    """Returns how many tuples of so many words fit a block beside their tags and flags; it is at least one.

    >>> slots_in(512, 3), slots_in(512, 3, flagged=True)
    (157, 151)
    """
    slots = max(1, page_words // words)
    while slots > 1 and tag_words(slots) + flag_words(slots, flagged) + slots * words > page_words:
        slots -= 1
    return slots


def reserve_words(count: int, small_bytes: int = 0) -> np.ndarray:
    """Returns int64[count] of untouched address space, on huge pages where the system has them.

    Huge pages help because the misses of a probe are TLB misses. But the system finds memory for all of a huge page at
    once, which may take milliseconds. So the first `small_bytes` of an array of which most runs use little are on
    small pages.
    """
    octets = max(8 * count, mmap.PAGESIZE)
    memory = mmap.mmap(-1, octets, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    if hasattr(mmap, "MADV_HUGEPAGE") and small_bytes < octets:
        with suppress(OSError):  # A kernel without huge pages is slower, but not wrong.
            memory.madvise(mmap.MADV_HUGEPAGE, small_bytes)
    return np.frombuffer(memory, np.int64)[:count]


def memory_of(words: np.ndarray) -> mmap.mmap:
    """Returns the memory in which an array of `reserve_words` lies, from its first byte on."""
    base: Any = words
    while isinstance(base, np.ndarray):
        base = base.base
    return base.obj


def touch(words: np.ndarray, octets: int) -> None:
    """Makes the system find memory for the first `octets` of an array of `reserve_words` that is still unwritten."""
    words[: octets // 8 : mmap.PAGESIZE // 8] = 0


class Pool(NamedTuple):
    """Pages of one size, and the account of them. The tables of several operators may share one pool.

    state.py documents the arrays.
    """

    words: np.ndarray
    halves: np.ndarray
    octets: np.ndarray
    heads: np.ndarray
    counters: np.ndarray

    @property
    def page_bytes(self) -> int:
        return 8 * self.counters.item(PAGE_WORDS)

    @property
    def budget_bytes(self) -> int:
        """The bytes of all pages that may be held."""
        return self.counters.item(PAGES) * self.page_bytes

    @property
    def held_bytes(self) -> int:
        """The bytes of all pages in use, no matter which operator holds them."""
        return self.counters.item(PAGES_HELD) * self.page_bytes

    @property
    def free_bytes(self) -> int:
        """What can still be taken. It is negative if the budget fell below what is held."""
        return (self.counters.item(PAGES) - self.counters.item(PAGES_HELD)) * self.page_bytes

    def limit(self, octets: int) -> None:
        """Sets the budget, in bytes, to at most what the pool was made with, and releases what it does not allow.

        Huge pages are used only with the whole budget. With less, they would take memory for pages that were released.
        """
        pages = len(self.heads)
        self.counters[PAGES] = min(max(octets // self.page_bytes, 0), pages)
        memory, is_whole = memory_of(self.words), self.counters[PAGES] == pages
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # There is a kernel without huge pages.
                memory.madvise(mmap.MADV_HUGEPAGE if is_whole else mmap.MADV_NOHUGEPAGE)
        if not is_whole:
            self._give_back(int(self.counters[UNUSED_PAGE]), pages)
        self.trim()

    def trim(self) -> None:
        """Releases free pages if more pages have memory than the budget allows."""
        item = self.counters.item  # It takes half as long as an index.
        excess = item(UNUSED_PAGE) - item(RELEASED) - item(PAGES)
        if excess <= 0 or item(FREE_PAGE) == NONE:
            return
        pages = np.empty(excess, np.int64)
        # The next ones to be taken lie side by side.
        pages = np.sort(pages[: take_free_pages(self.heads, self.counters, pages)])
        self.heads[pages, NEXT] = np.append(pages[1:], self.counters[RELEASED_PAGE])
        self.counters[RELEASED_PAGE] = pages[0]
        self.counters[RELEASED] += len(pages)
        for run in np.split(pages, np.flatnonzero(np.diff(pages) > 1) + 1):
            self._give_back(int(run[0]), int(run[-1]) + 1)

    def _give_back(self, first: int, end: int) -> None:
        """Gives the memory of pages first..end back to the system. They read as 0 afterwards."""
        start, stop = first * self.page_bytes, end * self.page_bytes
        start = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        if start < stop // mmap.PAGESIZE * mmap.PAGESIZE:
            memory_of(self.words).madvise(mmap.MADV_DONTNEED, start, stop // mmap.PAGESIZE * mmap.PAGESIZE - start)

    def touch(self, octets: int) -> None:
        """Makes the system find memory for the first `octets` of the pages. The pool must be unused."""
        touch(self.words, min(octets, self.words.nbytes))
        self.heads.flat[0] = 0


class StreamSpec(NamedTuple):
    """What the store must know of a stream.

    window: in time units; with FOREVER, its tuples never expire · flagged: whether its tuples have flags.
    """

    record_words: int
    has_blob: bool
    window: int
    flagged: bool = False

    @property
    def tuple_words(self) -> int:
        return tuple_words(self.record_words, self.has_blob)

    def layout(self, page_words: int) -> np.ndarray:
        """Returns the stream's row of a table's `layout`, int64[LAYOUT_WORDS]."""
        slots = slots_in(page_words, self.tuple_words, self.flagged)
        tags, flags = tag_words(slots), flag_words(slots, self.flagged)
        row = np.zeros(LAYOUT_WORDS, np.int64)
        row[[SLOTS, TUPLES_AT, TUPLE_WORDS]] = slots, tags + flags, self.tuple_words
        row[[TUPLE_BYTES, HAS_BLOB, WINDOW]] = 8 * self.tuple_words, self.has_blob, self.window
        row[FLAGS_AT] = tags if self.flagged else 0
        return row


def new_pool(memory_bytes: int, block_bytes: int, widest_words: int) -> Pool:
    """Returns an empty pool.

    A page is `block_bytes` long, rounded up to whole cache lines. It is longer where not even one tuple of
    `widest_words` would fit.
    """
    page_words = max(block_bytes // 8, tag_words(1) + flag_words(1, flagged=True) + widest_words)
    page_words = -(-page_words // LINE_WORDS) * LINE_WORDS
    pages = min(max(memory_bytes // (8 * page_words), 1), PAGES_MAX - 1)
    words = reserve_words(pages * page_words)
    counters = np.zeros(POOL_COUNTERS, np.int64)
    counters[PAGES], counters[PAGE_WORDS] = pages, page_words
    counters[FREE_PAGE] = counters[RELEASED_PAGE] = NONE
    heads = reserve_words(pages * HEAD_WORDS).reshape(pages, HEAD_WORDS)
    return Pool(words, words.view(np.uint16), words.view(np.uint8), heads, counters)


def new_table(pool: Pool, partitions: int, theta: int, streams: Sequence[StreamSpec], operator: int = 0) -> StoreState:
    """Returns an empty table of up to STREAMS_MAX streams over the pool.

    theta: in bytes · operator: the operator's number among those that share the pool.
    """
    counters = np.zeros(COUNTERS, np.int64)
    counters[THETA], counters[OPERATOR], counters[MARK] = theta, operator, MATCHED
    counters[FREE_REGIONS:] = counters[FREE_BUCKET] = NONE
    pages, page_words = len(pool.heads), int(pool.counters[PAGE_WORDS])
    # Each bucket in use holds a page, except for the empty halves of splits.
    buckets = 4 * pages + 2 * partitions
    width = bucket_words(len(streams))
    return StoreState(
        *pool,
        buckets=reserve_words(buckets * width, SMALL_BYTES).reshape(buckets, width),
        groups=np.zeros((partitions, group_words(len(streams))), np.int64),
        directory=reserve_words(2 * ENTRIES_PER_BUCKET_MAX * buckets, SMALL_BYTES),
        layout=np.stack([stream.layout(page_words) for stream in streams]),
        counters=counters,
    )
