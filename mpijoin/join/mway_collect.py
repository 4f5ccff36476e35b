"""Kernels that gather a batch of fresh tuples and collect their partners in one other stream after the other."""

from __future__ import annotations

from mpijoin.compiled import part
from mpijoin.join.mway_scan import TABLE_MIN, mark_members, scan_block, unmark_members
from mpijoin.join.mway_state import (
    ASKING,
    BEGUN,
    BUCKET,
    CONFIRMED,
    FOUND_PAIRS,
    FRESH_AT,
    FRESH_FROM,
    GATHERED,
    LIMIT,
    MEMBERS,
    NEXT_AT,
    NEXT_FROM,
    OLDS,
    OTHER,
    PAGE,
    PAIRS,
    SLOT,
    STAGE,
    STREAM,
    TOP,
)
from mpijoin.store.blocks import slot_id, tags_of, time_after
from mpijoin.store.simd import unsigned
from mpijoin.store.state import (
    APART,
    BUDGET,
    COUNT,
    COUNTED,
    DONE,
    FIRST,
    FRESH_PAGE,
    FRESH_SLOT,
    KEY,
    NEXT,
    NONE,
    OUT_FULL,
    SPENT,
    STREAM_WORDS,
    TIME,
    TIME_MAX,
    TIME_MAX_VALUE,
    TIME_MIN,
    TIME_MIN_VALUE,
    TRACKS,
    TUPLE_WORDS,
    WINDOW,
)
from mpijoin.store.tracks import is_new

# So many pairs are collected, and their cache lines asked for, before the first of them is looked at.
LOOKED_AT = 512


@part
def order_streams(s, m, bucket, stream):
    """Orders the other streams by how many tuples the bucket holds of them.

    Returns False if the stream's turn can give no result, because another stream has no tuple, or only fresh ones are
    there where fresh tuples must not meet each other.
    """
    count = 0
    for other in range(len(s.layout)):
        held = s.buckets[bucket, other * STREAM_WORDS + COUNTED]
        if held == 0:
            return False
        if other == stream:
            continue
        place = count
        while place > 0 and s.buckets[bucket, m.order[place - 1] * STREAM_WORDS + COUNTED] > held:
            m.order[place] = m.order[place - 1]
            place -= 1
        m.order[place] = other
        count += 1
    return s.counters[APART] == 0 or stream < len(s.layout) - 1 or has_old(s, bucket, stream)


@part
def has_old(s, bucket, end):
    """Returns whether any of the streams before `end` has an old tuple in the bucket."""
    for stream in range(end):
        base = stream * STREAM_WORDS
        all_fresh = s.buckets[bucket, base + FIRST] == s.buckets[bucket, base + FRESH_PAGE]
        if not all_fresh or s.buckets[bucket, base + FRESH_SLOT] > 0:
            return True
    return False


@part
def gather_batch(s, m, cursor):
    """Makes a batch of up to LIMIT fresh tuples, from the cursor on. They may come from several blocks."""
    stream, page, slot, members = cursor[STREAM], cursor[FRESH_AT], cursor[FRESH_FROM], 0
    width, window, words = s.layout[stream, TUPLE_WORDS], s.layout[stream, WINDOW], s.words
    while page != NONE and members < cursor[LIMIT]:
        count = min(s.heads[page, COUNT] - slot, cursor[LIMIT] - members)
        tags, at = tags_of(s, page) + slot, slot_id(s, stream, page, slot)
        for i in range(members, members + count):
            m.tag[unsigned(i)] = s.halves[unsigned(tags)]
            m.slot[unsigned(i)] = at
            m.key[unsigned(i)] = words[unsigned(at + KEY)]
            m.time[unsigned(i)] = words[unsigned(at + TIME)]
            m.deadline[unsigned(i)] = time_after(words[unsigned(at + TIME)], window)
            m.member[unsigned(i)] = i
            at += width
            tags += 1
        members += count
        slot += count
        if slot == s.heads[page, COUNT]:
            page, slot = s.heads[page, NEXT], 0
    cursor[NEXT_AT], cursor[NEXT_FROM] = page, slot
    cursor[GATHERED] = cursor[MEMBERS] = members
    cursor[STAGE] = cursor[ASKING] = 0
    cursor[TOP], cursor[PAGE], cursor[SLOT] = 1, NONE, 0


@part
def collect(s, m, cursor, budget):
    """Collects the partners of a batch.

    DONE: the partners of its MEMBERS, of which none may be left, are listed · BUDGET: the budget is spent · OUT_FULL:
    there are too many partners, and the batch must be made smaller.
    """
    while cursor[STAGE] < len(s.layout) - 1 and cursor[MEMBERS] > 0:
        if cursor[PAGE] == NONE:
            begin_stage(s, m, cursor)
        status = scan_chain(s, m, cursor, budget)
        if status == BUDGET:
            return BUDGET
        if cursor[MEMBERS] >= TABLE_MIN:
            unmark_members(m, cursor[MEMBERS])
        if status == OUT_FULL:
            return OUT_FULL
        end_stage(s, m, cursor)
    return DONE


@part
def begin_stage(s, m, cursor):
    other = m.order[cursor[STAGE]]
    cursor[OTHER] = other
    cursor[PAGE] = s.buckets[cursor[BUCKET], other * STREAM_WORDS + FIRST]
    cursor[CONFIRMED] = cursor[FOUND_PAIRS] = cursor[SLOT] = cursor[ASKING] = 0
    cursor[BEGUN], cursor[OLDS] = cursor[TOP], NONE
    if cursor[MEMBERS] >= TABLE_MIN:
        mark_members(m, cursor[MEMBERS])


@part
def scan_chain(s, m, cursor, budget):
    """Scans a stream's blocks, from the cursor on, for partners of the members. DONE, BUDGET or OUT_FULL."""
    other = cursor[OTHER]
    base, window = other * STREAM_WORDS, s.layout[other, WINDOW]
    earliest, latest = TIME_MAX_VALUE, TIME_MIN_VALUE
    for i in range(cursor[MEMBERS]):
        member = unsigned(m.member[unsigned(i)])
        earliest, latest = min(earliest, m.time[member]), max(latest, m.deadline[member])
    while cursor[PAGE] != NONE:
        if s.counters[SPENT] >= budget:
            return BUDGET
        page = cursor[PAGE]
        # Fresh tuples of later streams are left out, because they join when their own turn comes. Those of earlier
        # streams are old by now. If fresh tuples must not meet each other, they are still marked, and scanned last.
        at_mark = page == s.buckets[cursor[BUCKET], base + FRESH_PAGE] and cursor[OLDS] == NONE
        end = s.buckets[cursor[BUCKET], base + FRESH_SLOT] if at_mark else s.heads[page, COUNT]
        status = DONE
        if s.heads[page, TIME_MIN] <= latest and time_after(s.heads[page, TIME_MAX], window) >= earliest:
            status = scan_block(s, m, end, cursor)
        if status == DONE and at_mark and other < cursor[STREAM]:
            keep_matches(s, m, cursor)
            cursor[SLOT], cursor[OLDS] = end, matches(cursor)
        elif status == DONE:
            cursor[PAGE], cursor[SLOT] = NONE if at_mark else s.heads[page, NEXT], 0
        if status == OUT_FULL or cursor[FOUND_PAIRS] - cursor[CONFIRMED] >= LOOKED_AT or cursor[PAGE] == NONE:
            keep_matches(s, m, cursor)
            if cursor[CONFIRMED] > PAIRS:
                return OUT_FULL
    return DONE


@part
def keep_matches(s, m, cursor):
    """Moves those pairs to the front whose keys are equal and whose times lie in both windows.

    If only one member is left, its partners go straight to its list.
    """
    words, window = s.words, s.layout[cursor[OTHER], WINDOW]
    kept = cursor[CONFIRMED]
    for i in range(kept, cursor[FOUND_PAIRS]):
        member, partner = m.pair_member[unsigned(i)], m.pair_slot[unsigned(i)]
        m.pair_member[unsigned(kept)] = member
        m.pair_slot[unsigned(kept)] = partner
        time = words[unsigned(partner + TIME)]
        in_windows = (time <= m.deadline[unsigned(member)]) & (m.time[unsigned(member)] <= time_after(time, window))
        kept += (words[unsigned(partner + KEY)] == m.key[unsigned(member)]) & in_windows
    if cursor[MEMBERS] == 1:
        top = cursor[TOP]
        for i in range(kept):
            m.partners[unsigned(top + i)] = m.pair_slot[unsigned(i)]
        cursor[TOP] += kept
        kept = 0
    cursor[CONFIRMED] = cursor[FOUND_PAIRS] = kept


@part
def matches(cursor):
    """Returns how many matches this stage has had so far."""
    return cursor[TOP] - cursor[BEGUN] if cursor[MEMBERS] == 1 else cursor[CONFIRMED]


@part
def end_stage(s, m, cursor):
    """Lists each member's partners in this stream, one list after the other. Members without any leave the batch."""
    members, other = cursor[MEMBERS], cursor[OTHER]
    first, count = m.first[other], m.counts[other]
    if s.counters[APART]:
        count_old(m, cursor, m.olds[other], matches(cursor) if cursor[OLDS] == NONE else cursor[OLDS])
    if members == 1:
        member = unsigned(m.member[0])
        first[member], count[member] = cursor[BEGUN], matches(cursor)
        cursor[MEMBERS] = count[member] > 0
    else:
        cursor[MEMBERS] = list_partners(m, cursor, first, count, members)
    if s.counters[TRACKS]:
        put_old_first(s, m, cursor, other)
    cursor[STAGE] += 1


@part
def count_old(m, cursor, olds, count):
    """Counts for each member how many of the stage's first `count` matches, which are with old tuples, it has."""
    for i in range(cursor[MEMBERS]):
        olds[unsigned(m.member[unsigned(i)])] = 0
    if cursor[MEMBERS] == 1:
        olds[unsigned(m.member[0])] = count
        return
    for i in range(count):
        olds[unsigned(m.pair_member[unsigned(i)])] += 1


@part
def put_old_first(s, m, cursor, other):
    """Moves the old ones among the partners of each member that is new to the front, and counts them."""
    partners = m.partners
    for i in range(cursor[MEMBERS]):
        member = unsigned(m.member[unsigned(i)])
        if is_new(s, cursor[STREAM], m.slot[member]):
            front = m.first[other, member]
            for at in range(front, front + m.counts[other, member]):
                partner = partners[unsigned(at)]
                if not is_new(s, other, partner):
                    partners[unsigned(at)] = partners[unsigned(front)]
                    partners[unsigned(front)] = partner
                    front += 1
            m.olds[other, member] = front - m.first[other, member]


@part
def list_partners(m, cursor, first, count, members):
    """Sorts the matches of the stage by member, with a counting sort. Returns how many members have any."""
    for i in range(members):
        count[unsigned(m.member[unsigned(i)])] = 0
    for i in range(cursor[CONFIRMED]):
        count[unsigned(m.pair_member[unsigned(i)])] += 1
    place, kept = cursor[TOP], 0
    for i in range(members):
        member = unsigned(m.member[unsigned(i)])
        m.member[unsigned(kept)] = member
        place += count[member]
        first[member] = place
        kept += count[member] > 0
    cursor[TOP] = place
    # `first` holds where each list ends. Filling the lists from their ends turns that into where they begin.
    for i in range(cursor[CONFIRMED] - 1, -1, -1):
        member = unsigned(m.pair_member[unsigned(i)])
        first[member] -= 1
        m.partners[unsigned(first[member])] = m.pair_slot[unsigned(i)]
    return kept
