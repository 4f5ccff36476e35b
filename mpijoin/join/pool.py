"""The block pool: address space for the memory budget, reserved once, and the arrays that describe its pages."""

from __future__ import annotations

import mmap

import numpy as np

from mpijoin.join.simd import LINE_TAGS
from mpijoin.join.state import (
    BUCKET_WORDS,
    COUNTERS,
    ENTRIES_PER_BUCKET_MAX,
    FILTER,
    FREE_BUCKET,
    FREE_PAGE,
    FREE_REGIONS,
    GROUP_WORDS,
    HAS_BLOB,
    HASHED,
    KEEPS,
    LAYOUT_WORDS,
    LISTED,
    NONE,
    PAGE_WORDS,
    PAGES,
    PAIRED,
    SHORT_LIST,
    SLOT_IDS,
    SLOTS,
    THETA,
    TUPLE_BYTES,
    TUPLE_WORDS,
    TUPLES_AT,
    UNUSED_PAGE,
    WINDOW,
    JoinState,
)

LINE_WORDS = 8  # a cache line
PAGES_MAX = 1 << 31
MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # the budget is address space, not memory, until it is written


def tuple_words(record_words: int, has_blob: bool) -> int:
    """Words of a tuple: key, time, row, where its blob is, and its record."""
    return (5 if has_blob else 3) + record_words


def tag_words(slots: int) -> int:
    """Words of the tags of so many slots: whole cache lines, since they are read by lines."""
    return -(-slots // LINE_TAGS) * LINE_TAGS // 4


def slots_in(page_words: int, words: int) -> int:
    """Tuples of so many words that fit a block: max(1, block / tuple bytes), less what their tags take.

    >>> slots_in(512, 3)
    157
    """
    slots = max(1, page_words // words)
    while slots > 1 and tag_words(slots) + slots * words > page_words:
        slots -= 1
    return slots


def stream_layout(page_words: int, words: int, has_blob: bool, window: int) -> np.ndarray:
    """One row of `JoinState.layout`."""
    slots = slots_in(page_words, words)
    row = np.zeros(LAYOUT_WORDS, np.int64)
    row[[SLOTS, TUPLES_AT, TUPLE_WORDS]] = slots, tag_words(slots), words
    row[[TUPLE_BYTES, HAS_BLOB, WINDOW]] = 8 * words, has_blob, window
    return row


def reserve_words(count: int) -> np.ndarray:
    """int64[count] of untouched address space, on huge pages where the system has them (a probe's misses are TLB
    misses)."""
    memory = mmap.mmap(-1, max(8 * count, mmap.PAGESIZE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # a kernel without huge pages: slower, not wrong
    return np.frombuffer(memory, np.int64)[:count]


def touch(words: np.ndarray, octets: int) -> None:
    """Has the system find memory for the first `octets` of what `reserve_words` gave and nobody has written to yet."""
    words[: octets // 8 : mmap.PAGESIZE // 8] = 0


def new_state(
    partitions: int,
    memory_bytes: int,
    block_bytes: int,
    theta: int,
    streams: list[tuple[int, bool, int]],
    keeps: int = SLOT_IDS,
    hashed: bool = False,
) -> JoinState:
    """An empty state. streams: (record_words, has_blob, window) of left and right; theta in bytes · keeps, hashed:
    state.py.

    A page is `block_bytes` long, or longer where not even one tuple would fit; whole cache lines.
    """
    widths = [tuple_words(words, has_blob) for words, has_blob, _ in streams]
    page_words = max(block_bytes // 8, tag_words(1) + max(widths))
    page_words = -(-page_words // LINE_WORDS) * LINE_WORDS
    pages = min(max(memory_bytes // (8 * page_words), 1), PAGES_MAX - 1)
    words = reserve_words(pages * page_words)
    counters = np.zeros(COUNTERS, np.int64)
    counters[PAGES], counters[PAGE_WORDS], counters[THETA], counters[UNUSED_PAGE] = pages, page_words, theta, 0
    counters[KEEPS], counters[HASHED] = keeps, hashed
    counters[FREE_REGIONS:] = counters[[FREE_PAGE, FREE_BUCKET]] = NONE
    buckets = 4 * pages + 2 * partitions  # a bucket in use holds a page, but for the empty halves of splits
    return JoinState(
        words=words,
        halves=words.view(np.uint16),
        octets=words.view(np.uint8),
        heads=reserve_words(pages * 8).reshape(pages, 8),
        buckets=reserve_words(buckets * BUCKET_WORDS).reshape(buckets, BUCKET_WORDS),
        groups=np.zeros((partitions, GROUP_WORDS), np.int64),
        directory=reserve_words(2 * ENTRIES_PER_BUCKET_MAX * buckets),
        layout=np.stack([stream_layout(page_words, width, *s[1:]) for width, s in zip(widths, streams)]),
        counters=counters,
        candidates=np.zeros(SHORT_LIST + LISTED, np.int64),
        mine=np.zeros(PAIRED, np.int64),
        theirs=np.zeros(PAIRED, np.int64),
        filter=np.zeros(FILTER, np.uint8),
        certificate=np.zeros(1, np.uint64),
    )
