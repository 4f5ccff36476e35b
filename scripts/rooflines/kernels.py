"""Idealised kernels: each does one kind of the join's work and nothing else, as fast as we know how.

None of them is the engine's own. They share its formats, its hash and its single machine instructions
(mpijoin/store/simd.py), so that the engine's own work could reach their rates.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numba import njit

from mpijoin.join.state import FILTER
from mpijoin.partitioning.hashing import hash64, pair_hash, partition_of
from mpijoin.store.simd import LANES, LINE_TAGS, match_tags, prefetch, unsigned

TUPLE_WORDS = 3  # A tuple has key, time and row.
STAGED_WORDS = 24  # A write-combining buffer has so many words: eight tuples in three whole cache lines.
AHEAD = 16  # A cache line is asked for so many rows or blocks before its turn.
SLOTS = 157  # A block of 4 KiB holds so many tuples with their tags.
TAG_LINES = -(-SLOTS // LINE_TAGS)
PAGE_WORDS = 512


@njit
def scan_tags(tags, wanted, rounds):
    """Compares tags, uint16[n], with `wanted`, `wanted` + 1, … in so many rounds. n must be a multiple of 64."""
    found = 0
    for round in range(rounds):
        tag = np.uint16(wanted + round)
        for start in range(0, len(tags), LANES):
            found |= match_tags(tags, start, tag)
    return found


@njit
def list_marked(halves, start, count, marks, listed):
    """Lists which of the tags start..start + count are marked in a filter, and returns how many these are.

    marks: uint8[FILTER], a byte for each tag without its upper bits · listed: int64[count + 1].
    """
    found = 0
    for i in range(count):
        listed[unsigned(found)] = i
        found += np.int64(marks[unsigned(np.int64(halves[unsigned(start + i)]) % FILTER)])
    return found


@njit
def look_up_blocks(halves, marks, listed):
    """Returns how many of uint16[n], where n is a multiple of SLOTS, are marked. Each block is listed anew.

    A call from Python for each block would take as long again as its look-ups.
    """
    found = 0
    for start in range(0, len(halves), SLOTS):
        found += list_marked(halves, start, SLOTS, marks, listed)
    return found


@njit
def scan_keys(keys, wanted, rounds):
    """Counts how many of int64[n] equal `wanted`, then `wanted` + 1, …"""
    count = 0
    for round in range(rounds):
        key = wanted + round
        for i in range(len(keys)):
            count += keys[i] == key
    return count


@njit
def scan_blocks(halves, pages, tag):
    """Compares the tags of blocks that lie scattered over memory.

    halves: uint16[], the memory of the pages · pages: int64[], the blocks in their order.
    """
    found = 0
    for i in range(len(pages)):
        if i + AHEAD < len(pages):
            ahead = pages[i + AHEAD] * PAGE_WORDS * 4
            for line in range(TAG_LINES):
                prefetch(halves, ahead + line * LINE_TAGS)
        tags = pages[i] * PAGE_WORDS * 4
        for start in range(tags, tags + TAG_LINES // 2 * LANES, LANES):
            found |= match_tags(halves, start, tag)
        found |= match_tags(halves, tags + (TAG_LINES - 2) * LINE_TAGS, tag)
    return found


@njit
def load_lines(words, index):
    """Returns the sum of words[index[i]]. The loads do not wait for each other."""
    total = 0
    for i in range(len(index)):
        total += words[unsigned(np.int64(index[i]))]
    return total


@njit
def scatter_plain(key, time, row, tuples, filled):
    """Appends each tuple to the buffer of its key's partition.

    tuples: int64[partitions, words] · filled: int64[partitions].
    """
    partitions = len(tuples)
    for i in range(len(key)):
        own = unsigned(partition_of(hash64(key[i]), partitions))
        at = unsigned(filled[own])
        tuples[own, at], tuples[own, at + 1], tuples[own, at + 2] = key[i], time[i], row[i]
        filled[own] = at + TUPLE_WORDS


@njit
def scatter_combined(key, time, row, tuples, filled, staged):
    """Does the same by way of write-combining buffers in the innermost cache. Tuples that do not fill one stay there.

    tuples: int64[partitions, words], whole buffers · staged: int64[partitions, 24].
    """
    partitions = len(tuples)
    for i in range(len(key)):
        own = unsigned(partition_of(hash64(key[i]), partitions))
        at = filled[own]
        word = unsigned(at % STAGED_WORDS)
        staged[own, word], staged[own, word + 1], staged[own, word + 2] = key[i], time[i], row[i]
        filled[own] = at + TUPLE_WORDS
        if word == STAGED_WORDS - TUPLE_WORDS:
            first = unsigned(at - word)
            for copied in range(STAGED_WORDS):
                tuples[own, first + unsigned(copied)] = staged[own, unsigned(copied)]


@njit
def append(tuples, starts, buckets, last, filled, words, halves, free):
    """Appends tuples and their tags to the open blocks of their buckets. The next of `free` follows a full block.

    tuples: int64[n, 3], by partition · starts: int64[partitions + 1], where each partition begins · buckets: how many
    there are in a partition, a power of two · last, filled: int64[partitions * buckets], the open page of each bucket
    and the tuples in it · free: int64[], pages that are used in a circle.
    """
    taken, bucket, tag = 0, np.empty(AHEAD, np.int64), np.empty(AHEAD, np.uint16)
    for partition in range(len(starts) - 1):
        low, high = starts[partition], starts[partition + 1]
        for i in range(low, high + AHEAD):
            place = unsigned(i % AHEAD)
            if i >= low + AHEAD:
                own, row = unsigned(bucket[place]), unsigned(i - AHEAD)
                if filled[own] == SLOTS:
                    last[own], filled[own] = free[taken % len(free)], 0
                    taken += 1
                page, slot = last[own] * PAGE_WORDS, filled[own]
                halves[unsigned(page * 4 + slot)] = tag[place]
                target = unsigned(page + TAG_LINES * 8 + slot * TUPLE_WORDS)
                words[target], words[target + 1], words[target + 2] = tuples[row, 0], tuples[row, 1], tuples[row, 2]
                filled[own] = slot + 1
            if i < high:
                code = hash64(tuples[unsigned(i), 0])
                own = partition * buckets + np.int64(code & np.uint64(buckets - 1))
                bucket[place], tag[place] = own, np.uint16(code >> np.uint64(24) & np.uint64(0xFFFF))
                page = last[own] * PAGE_WORDS
                prefetch(halves, page * 4 + filled[own])
                prefetch(words, page + TAG_LINES * 8 + filled[own] * TUPLE_WORDS)
    return taken


@njit
def probe(halves, pages, blocks, rows, words, lines, loads, pairs, marks):
    """Does all that a probe must do, in one straight loop.

    The fresh rows of each bucket are compared with the tags of its blocks, tuples are loaded, and pairs are certified.
    Returns how many masks are not empty, and the certificate of the pairs (0, 0), (1, 1), …

    pages: int64[buckets * blocks] · rows: how many a bucket has · lines: int32[], indices of words, used in a circle ·
    loads, pairs: cache lines loaded and pairs certified per 1024 rows · marks: uint8[], all 0. If `marks` is empty,
    each row is compared with all tags. Else all tags are looked up in this filter of the rows' tags, and for each line
    that is loaded the rows are compared with one tag.
    """
    found = total = loaded = row = certified = 0
    certificate, listed = np.uint64(0), np.empty(SLOTS + 1, np.int64)
    for bucket in range(0, len(pages), blocks):
        for place in range(bucket + blocks, min(bucket + 2 * blocks, len(pages))):
            for line in range(TAG_LINES):
                prefetch(halves, pages[place] * PAGE_WORDS * 4 + line * LINE_TAGS)
        first, own = row, unsigned(pages[bucket] * PAGE_WORDS * 4)
        if len(marks) > 0:
            for i in range(rows):
                marks[unsigned((first + i) % FILTER)] = 1
            for place in range(bucket, bucket + blocks):
                found += list_marked(halves, pages[place] * PAGE_WORDS * 4, SLOTS, marks, listed)
            for i in range(rows):
                marks[unsigned((first + i) % FILTER)] = 0
        for _ in range(rows):
            tag = np.uint16(row)
            if len(marks) == 0:
                for place in range(bucket, bucket + blocks):
                    tags = unsigned(pages[place] * PAGE_WORDS * 4)
                    for start in range(0, TAG_LINES // 2 * LANES, LANES):
                        found += match_tags(halves, tags + unsigned(start), tag) != 0
                    found += match_tags(halves, tags + unsigned((TAG_LINES - 2) * LINE_TAGS), tag) != 0
            row += 1
            while loaded < row * loads >> 10:
                prefetch(words, lines[(loaded + 2 * AHEAD) % len(lines)])
                total += words[lines[loaded % len(lines)]]
                loaded += 1
                if len(marks) > 0:
                    for start in range(0, rows, LANES):
                        found += match_tags(halves, own + unsigned(start), np.uint16(loaded)) != 0
        for pair in range(certified, row * pairs >> 10):
            certificate += pair_hash(pair, pair)
        certified = row * pairs >> 10
    return found, certificate, total


@njit
def emit(mine, theirs, matches, out):
    """Writes the pairs that match to out: int64[2, n], and returns how many. No branch depends on the data."""
    count = 0
    for i in range(len(mine)):
        out[0, unsigned(count)], out[1, unsigned(count)] = mine[i], theirs[i]
        count += matches[i]
    return count


@njit
def certify(left, right):
    """Returns the sum of the pair hashes of rows that lie in order, int64[n] each."""
    total = np.uint64(0)
    for i in range(len(left)):
        total += pair_hash(left[i], right[i])
    return total


def widest(kernel: Any, instruction: str) -> str:
    """Returns the widest registers with which a compiled kernel uses an instruction: "zmm", "ymm", "xmm" or "none".

    >>> widest(scan_keys, "no such instruction")
    'none'
    """
    lines = [
        line
        for code in kernel.inspect_asm().values()
        for line in code.splitlines()
        if re.search(rf"\b{instruction}", line)
    ]
    return next((kind for kind in ("zmm", "ymm", "xmm") if any(f"%{kind}" in line for line in lines)), "none")
