"""Kernels that scan a block of another stream for partners of a batch's members.

They compare tags, or times where these tell more, and write down the pairs that may match. There are three ways: for
many members, for few, and for blocks where time tells more than tags.
"""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import part
from mpijoin.join.compare import low_bits
from mpijoin.join.mway_state import (
    ASKING,
    BATCH,
    FOUND_PAIRS,
    LISTED,
    MEMBERS,
    OTHER,
    PAGE,
    PAIRS,
    ROOM,
    SLOT,
    STREAM,
    TAG_TABLE,
)
from mpijoin.store.blocks import saturating_add, slot_id, tags_of, time_before
from mpijoin.store.simd import LANES, lowest_bit, match_tags, prefetch, unsigned
from mpijoin.store.state import (
    COMPARED,
    DONE,
    OUT_FULL,
    ROW,
    SPENT,
    TIME,
    TIME_MAX,
    TIME_MIN,
    TUPLE_WORDS,
    WINDOW,
)

TABLE_MIN = 16  # A table of tags pays for so many members or more.
# A block is scanned by time if it spans more than so many times both windows, and has so many tags alike or more.
MANY_WINDOWS, MANY_ALIKE = 4, 8


@part
def mark_members(m, members):
    """Enters the members' tags into the table."""
    for i in range(members - 1, -1, -1):
        member = m.member[unsigned(i)]
        entry = unsigned(np.int64(m.tag[unsigned(member)]) % TAG_TABLE)
        m.after[unsigned(member)] = m.table[entry]
        m.table[entry] = member + 1


@part
def unmark_members(m, members):
    for i in range(members):
        m.table[unsigned(np.int64(m.tag[unsigned(m.member[unsigned(i)])]) % TAG_TABLE)] = 0


@part
def scan_block(s, m, end, cursor):
    """Writes down which of slots SLOT..end of block PAGE may match which member.

    Returns DONE, or OUT_FULL if there is no room for more pairs.
    """
    if spans_many_windows(s, cursor) and goes_by_time(s, m, end, cursor):
        return scan_by_time(s, m, end, cursor)
    if cursor[MEMBERS] >= TABLE_MIN:
        return scan_by_table(s, m, end, cursor)
    return scan_by_tags(s, m, end, cursor)


@part
def count_compared(s, pairs):
    s.counters[COMPARED] += pairs
    s.counters[SPENT] += pairs


@part
def scan_by_table(s, m, end, cursor):
    """Does what `scan_block` does: each slot's tag is looked up in the table of the members' tags."""
    halves, words, table = s.halves, s.words, m.table
    other, page = cursor[OTHER], cursor[PAGE]
    tags, base, width = tags_of(s, page), slot_id(s, other, page, 0), s.layout[other, TUPLE_WORDS]
    found, first = cursor[FOUND_PAIRS], cursor[SLOT]
    low, status = first, DONE
    while low < end and status == DONE:
        high, listed = min(end, low + LISTED), 0
        for slot in range(low, high):
            m.listed[unsigned(listed)] = slot
            listed += table[unsigned(np.int64(halves[unsigned(tags + slot)]) % TAG_TABLE)] != 0
        for i in range(listed):
            slot = m.listed[unsigned(i)]
            if found > PAIRS + ROOM - BATCH:
                high, status = slot, OUT_FULL
                break
            tag, partner = halves[unsigned(tags + slot)], base + slot * width
            prefetch(words, partner)
            prefetch(words, partner + ROW)
            member = np.int64(table[unsigned(np.int64(tag) % TAG_TABLE)])
            while member != 0:
                m.pair_member[unsigned(found)] = member - 1
                m.pair_slot[unsigned(found)] = partner
                found += m.tag[unsigned(member - 1)] == tag
                member = np.int64(m.after[unsigned(member - 1)])
        low = high
    count_compared(s, (low - first) * cursor[MEMBERS])
    cursor[FOUND_PAIRS], cursor[SLOT] = found, low
    return status


@part
def scan_by_tags(s, m, end, cursor):
    """Does what `scan_block` does: each member's tag is compared with the tags of many slots at once."""
    halves, words, members = s.halves, s.words, cursor[MEMBERS]
    other, page = cursor[OTHER], cursor[PAGE]
    tags, base, width = tags_of(s, page), slot_id(s, other, page, 0), s.layout[other, TUPLE_WORDS]
    found, first = cursor[FOUND_PAIRS], cursor[SLOT]
    low, status = first, DONE
    while low < end:
        if found > PAIRS + ROOM - members * LANES:
            status = OUT_FULL
            break
        asked = low_bits(end - low)
        for i in range(members):
            member = m.member[unsigned(i)]
            mask = match_tags(halves, tags + low, m.tag[unsigned(member)]) & asked
            while mask != 0:
                partner = base + (low + lowest_bit(mask)) * width
                prefetch(words, partner)
                prefetch(words, partner + ROW)
                m.pair_member[unsigned(found)] = member
                m.pair_slot[unsigned(found)] = partner
                found += 1
                mask &= mask - 1
        low = min(end, low + LANES)
    count_compared(s, (low - first) * members)
    cursor[FOUND_PAIRS], cursor[SLOT] = found, low
    return status


@part
def spans_many_windows(s, cursor):
    """Returns whether a block spans so much more time than both windows that no tuple can reach most of it."""
    page = cursor[PAGE]
    reach = saturating_add(s.layout[cursor[STREAM], WINDOW], s.layout[cursor[OTHER], WINDOW])
    end = s.heads[page, TIME_MIN]
    for _ in range(MANY_WINDOWS):
        end = saturating_add(end, reach)
    return s.heads[page, TIME_MAX] > end


@part
def goes_by_time(s, m, end, cursor):
    """Returns whether tags let much through, and slots 0..end of the block are in the order of time.

    The first member serves as a sample for the tags.
    """
    page, other = cursor[PAGE], cursor[OTHER]
    tags, tag, alike = tags_of(s, page), m.tag[m.member[0]], 0
    for slot in range(end):
        alike += s.halves[unsigned(tags + slot)] == tag
    if alike < MANY_ALIKE or end > ROOM:
        return False
    at, width = slot_id(s, other, page, 0) + TIME, s.layout[other, TUPLE_WORDS]
    for _ in range(1, end):
        if s.words[unsigned(at + width)] < s.words[unsigned(at)]:
            return False
        at += width
    return True


@part
def scan_by_time(s, m, end, cursor):
    """Does what `scan_block` does, for a block in the order of time: a member meets only the tuples in its windows."""
    words, halves, members = s.words, s.halves, cursor[MEMBERS]
    other, page = cursor[OTHER], cursor[PAGE]
    tags, base, width = tags_of(s, page), slot_id(s, other, page, 0), s.layout[other, TUPLE_WORDS]
    found, first, compared = cursor[FOUND_PAIRS], cursor[SLOT], 0
    low, status = first, DONE
    while cursor[ASKING] < members:
        if found > PAIRS + ROOM - end:
            status = OUT_FULL
            break
        member = m.member[cursor[ASKING]]
        earliest, deadline = time_before(m.time[member], s.layout[other, WINDOW]), m.deadline[member]
        while low > first and words[unsigned(base + (low - 1) * width + TIME)] >= earliest:
            low -= 1
        while low < end and words[unsigned(base + low * width + TIME)] < earliest:
            low += 1
        slot = low
        while slot < end and words[unsigned(base + slot * width + TIME)] <= deadline:
            m.pair_member[unsigned(found)] = member
            m.pair_slot[unsigned(found)] = base + slot * width
            found += halves[unsigned(tags + slot)] == m.tag[member]
            slot += 1
        compared += slot - low + 1
        cursor[ASKING] += 1
    count_compared(s, compared)
    cursor[FOUND_PAIRS] = found
    if status == DONE:
        cursor[ASKING], cursor[SLOT] = 0, end
    return status
