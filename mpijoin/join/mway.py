"""Kernels of the symmetric m-way join: fresh tuples against the chains of all other streams at once, no state in
between.

"Symmetric" is LAD's word (section 2): each stream's tuples find their partners in the others' hash tables. In each
bucket the streams take turns. A fresh tuple of stream i meets all tuples of the streams before i, and of those after it
only the old ones: each combination appears once, in the turn of its last stream that has a fresh member. Its partners
in each other stream are listed first, then the combinations of these lists are enumerated depth first, with the latest
time and the first deadline of the tuples so far: no combination is ever stored, and any number of them comes in bounded
pieces.
"""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import kernel, part
from mpijoin.join.mway_collect import collect, gather_batch, order_streams
from mpijoin.join.mway_state import (
    AHEAD,
    AT,
    BATCH,
    BEGIN,
    BUCKET,
    COLLECT,
    DEADLINE,
    END,
    ENUMERATE,
    FETCHED_BLOCKS,
    FETCHED_BUCKETS,
    FRESH_AT,
    FRESH_FROM,
    GATHERED,
    GROUP_INDEX,
    LATEST,
    LEVEL,
    LIMIT,
    MEMBER,
    MEMBERS,
    NEW_BATCH,
    NEXT_AT,
    NEXT_FROM,
    STEP,
    STREAM,
)
from mpijoin.join.state import LATEST_TIMES, NOTHING, SLOT_IDS
from mpijoin.partitioning.hashing import GOLDEN, mix
from mpijoin.store.blocks import tags_of, time_after
from mpijoin.store.simd import LANES, LINE_TAGS, prefetch, unsigned
from mpijoin.store.state import (
    BUDGET,
    COMPARED,
    COMPARISONS,
    COUNT,
    DONE,
    FIRST,
    FOUND,
    FRESH,
    FRESH_PAGE,
    FRESH_SLOT,
    HASHED,
    HEAD_WORDS,
    KEEPS,
    NEXT,
    NEXT_FRESH,
    NONE,
    OUT_COUNT,
    OUT_FULL,
    RESULTS,
    ROW,
    SPENT,
    STREAM_WORDS,
    TIME,
    TIME_MAX_VALUE,
    TIME_MIN_VALUE,
    UNLISTED,
    WINDOW,
)


@kernel
def probe_groups_mway(s, m, cursor, groups, budget, out):
    """Joins the fresh tuples of the groups. groups: int64[k] · budget: comparisons after which it returns BUDGET · out:
    int64[n, capacity], slot ids of results per stream, or in its first row their latest times, as the counter KEEPS
    says; counters[OUT_COUNT] of them are filled.

    Returns DONE, BUDGET or OUT_FULL; after the latter two it is called again with the same arguments, the cursor as
    left.
    """
    s.counters[SPENT] = 0
    compared = s.counters[COMPARED]
    status = DONE
    while status == DONE and (cursor[BUCKET] != NONE or next_group(s, groups, cursor)):
        group = groups[cursor[GROUP_INDEX]]
        status = advance(s, m, group, cursor, budget, out)
        s.groups[group, COMPARISONS] += s.counters[COMPARED] - compared
        compared = s.counters[COMPARED]
    return status


@part
def next_group(s, groups, cursor):
    """Goes on to the next group that has fresh tuples; False if there is none."""
    cursor[GROUP_INDEX] += 1
    while cursor[GROUP_INDEX] < len(groups) and s.groups[groups[cursor[GROUP_INDEX]], FRESH] == NONE:
        cursor[GROUP_INDEX] += 1
    if cursor[GROUP_INDEX] == len(groups):
        return False
    cursor[BUCKET] = s.groups[groups[cursor[GROUP_INDEX]], FRESH]
    cursor[AHEAD] = cursor[STREAM] = 0
    begin_turn(s, cursor)
    return True


@part
def begin_turn(s, cursor):
    """The stream's fresh tuples of the bucket, if any, are joined next."""
    base = cursor[STREAM] * STREAM_WORDS
    cursor[FRESH_AT] = s.buckets[cursor[BUCKET], base + FRESH_PAGE]
    cursor[FRESH_FROM] = s.buckets[cursor[BUCKET], base + FRESH_SLOT]
    cursor[STEP] = NEW_BATCH


@part
def advance(s, m, group, cursor, budget, out):
    """Does one step: makes a batch, or ends the turn; collects its partners; enumerates."""
    if cursor[STEP] == NEW_BATCH:
        if cursor[AHEAD] == 0:
            cursor[AHEAD] = fetch_buckets(s, m, cursor[BUCKET])
        if cursor[FRESH_AT] == NONE or not order_streams(s, m, cursor[BUCKET], cursor[STREAM]):
            end_turn(s, group, cursor)
            return DONE
        gather_batch(s, m, cursor)
        cursor[STEP] = COLLECT
    if cursor[STEP] == COLLECT:
        status = collect(s, m, cursor, budget)
        if status == BUDGET:
            return BUDGET
        if status == OUT_FULL:
            cursor[LIMIT], cursor[STEP] = cursor[GATHERED] // 2, NEW_BATCH
            return DONE
        cursor[MEMBER], cursor[LEVEL], cursor[STEP] = 0, NONE, ENUMERATE
    status = enumerate_batch(s, m, group, cursor, budget, out)
    if status == DONE:
        cursor[FRESH_AT], cursor[FRESH_FROM] = cursor[NEXT_AT], cursor[NEXT_FROM]
        cursor[LIMIT], cursor[STEP] = min(BATCH, 2 * cursor[LIMIT]), NEW_BATCH
    return status


@part
def end_turn(s, group, cursor):
    """The stream's tuples of the bucket are old from now on; goes on to the next stream, or bucket."""
    bucket, base = cursor[BUCKET], cursor[STREAM] * STREAM_WORDS
    s.buckets[bucket, base + FRESH_PAGE] = NONE
    s.buckets[bucket, base + FRESH_SLOT] = 0
    cursor[STREAM] += 1
    if cursor[STREAM] == len(s.layout):
        cursor[BUCKET] = s.groups[group, FRESH] = s.buckets[bucket, NEXT_FRESH]
        s.buckets[bucket, NEXT_FRESH] = UNLISTED
        cursor[AHEAD] -= 1
        cursor[STREAM] = 0
    if cursor[BUCKET] != NONE:
        begin_turn(s, cursor)


@part
def fetch_buckets(s, m, bucket):
    """Asks for the heads and tags of the next buckets' chains; returns how many buckets.

    All chains are followed in step, so that the cache misses of many overlap: those of one are a chain themselves.
    """
    streams, count = len(s.layout), 0
    while bucket != NONE and count < FETCHED_BUCKETS:
        for stream in range(streams):
            page = s.buckets[bucket, stream * STREAM_WORDS + FIRST]
            m.chains[count * streams + stream] = page
            prefetch(s.heads, max(page, 0) * HEAD_WORDS)
        bucket = s.buckets[bucket, NEXT_FRESH]
        count += 1
    for _ in range(FETCHED_BLOCKS):
        for i in range(count * streams):
            page = m.chains[i]
            if page != NONE:
                tags = tags_of(s, page)
                for slot in range(0, max(s.heads[page, COUNT], LANES), LINE_TAGS):
                    prefetch(s.halves, tags + slot)
                m.chains[i] = s.heads[page, NEXT]
                prefetch(s.heads, max(m.chains[i], 0) * HEAD_WORDS)
    return count


@part
def enumerate_batch(s, m, group, cursor, budget, out):
    """Gives the combinations of each member with its partners, from the cursor on; DONE, BUDGET or OUT_FULL."""
    last = len(s.layout) - 1
    while cursor[MEMBER] < cursor[MEMBERS]:
        if cursor[LEVEL] == NONE:
            begin_member(m, cursor, last)
        status = enumerate_member(s, m, group, cursor, budget, out)
        if status != DONE:
            return status
        cursor[MEMBER] += 1
    return DONE


@part
def begin_member(m, cursor, last):
    """Sets up the lists that are combined: at each stream's level its partners, at its own the member alone."""
    member = m.member[cursor[MEMBER]]
    for level in range(last + 1):
        m.levels[level, BEGIN] = m.first[level, member]
        m.levels[level, END] = m.first[level, member] + m.count[level, member]
    m.partners[0] = m.slot[member]
    own = cursor[STREAM]
    m.levels[own, BEGIN], m.levels[own, END] = 0, 1
    m.levels[0, AT] = m.levels[0, BEGIN]
    m.levels[0, LATEST], m.levels[0, DEADLINE] = TIME_MIN_VALUE, TIME_MAX_VALUE
    cursor[LEVEL] = 0


@part
def enumerate_member(s, m, group, cursor, budget, out):
    """Depth first over the lists of one member: a tuple is followed up only if it can be with all those before it."""
    words, levels, last, level = s.words, m.levels, len(s.layout) - 1, cursor[LEVEL]
    while level >= 0:
        at = levels[level, AT]
        if level == last - 1 and s.counters[KEEPS] == NOTHING and pairs_of(levels, level) <= budget - s.counters[SPENT]:
            count_last_two(s, m, group, level)
            level -= 1
        elif level == last:
            if s.counters[SPENT] >= budget:
                cursor[LEVEL] = level
                return BUDGET
            if s.counters[KEEPS] != NOTHING and s.counters[OUT_COUNT] == out.shape[1]:
                cursor[LEVEL] = level
                return OUT_FULL
            level -= take_last(s, m, group, level, budget, out)
        elif at == levels[level, END]:
            level -= 1
        else:
            levels[level, AT] = at + 1
            s.counters[SPENT] += 1
            partner = m.partners[unsigned(at)]
            time = words[unsigned(partner + TIME)]
            latest = max(levels[level, LATEST], time)
            deadline = min(levels[level, DEADLINE], time_after(time, s.layout[level, WINDOW]))
            if latest <= deadline:
                m.prefix[level + 1] = hashed_on(m.prefix[level], words[unsigned(partner + ROW)], level)
                level += 1
                levels[level, AT] = levels[level, BEGIN]
                levels[level, LATEST], levels[level, DEADLINE] = latest, deadline
    cursor[LEVEL] = NONE
    return DONE


@part
def hashed_on(hashed, row, level):
    """The hash of a result's rows up to that of `level`, given that of those before."""
    return np.uint64(row) if level == 0 else mix(mix(hashed + GOLDEN) + np.uint64(row))


@part
def pairs_of(levels, level):
    """How many pairs the rest of a level's list makes with the next level's."""
    return (levels[level, END] - levels[level, AT]) * (levels[level + 1, END] - levels[level + 1, BEGIN])


@part
def count_last_two(s, m, group, level):
    """Counts and certifies all results that the tuples above make with those of this level and the last: what most
    results of short lists go through, with nothing looked up between two of them."""
    words, levels, partners = s.words, m.levels, m.partners
    latest_above, deadline_above, prefix = levels[level, LATEST], levels[level, DEADLINE], m.prefix[level]
    window, window_last = s.layout[level, WINDOW], s.layout[level + 1, WINDOW]
    begin, end = levels[level + 1, BEGIN], levels[level + 1, END]
    s.counters[SPENT] += pairs_of(levels, level)
    found, total = np.int64(0), np.uint64(0)
    for i in range(levels[level, AT], levels[level, END]):
        partner = partners[unsigned(i)]
        time = words[unsigned(partner + TIME)]
        latest, deadline = max(latest_above, time), min(deadline_above, time_after(time, window))
        base = mix(hashed_on(prefix, words[unsigned(partner + ROW)], level) + GOLDEN)
        for j in range(begin, end):
            partner = partners[unsigned(j)]
            time, row = words[unsigned(partner + TIME)], np.uint64(words[unsigned(partner + ROW)])
            is_result = (time <= deadline) & (latest <= deadline) & (latest <= time_after(time, window_last))
            total += mix(base + row) if is_result else np.uint64(0)
            found += is_result
    s.counters[FOUND] += found
    if s.counters[HASHED] == 0:
        s.certificate[0] += total
    s.groups[group, RESULTS] += found


@part
def take_last(s, m, group, level, budget, out):
    """Counts, certifies and keeps the results that the tuples above make with those of the last level, as far as budget
    and room go; whether all are done with."""
    words, levels, keeps = s.words, m.levels, s.counters[KEEPS]
    latest, deadline, window = levels[level, LATEST], levels[level, DEADLINE], s.layout[level, WINDOW]
    begin, count = levels[level, AT], s.counters[OUT_COUNT]
    end = min(levels[level, END], begin + budget - s.counters[SPENT])
    if keeps != NOTHING:
        end = min(end, begin + out.shape[1] - count)
    found, total = np.int64(0), np.uint64(0)
    base = mix(m.prefix[level] + GOLDEN)
    for i in range(begin, end):
        partner = m.partners[unsigned(i)]
        time, row = words[unsigned(partner + TIME)], np.uint64(words[unsigned(partner + ROW)])
        is_result = (time <= deadline) & (latest <= time_after(time, window))
        hashed = row if level == 0 else mix(base + row)
        total += hashed if is_result else np.uint64(0)
        if keeps == SLOT_IDS:
            out[level, unsigned(count + found)] = partner
        elif keeps == LATEST_TIMES:
            out[0, unsigned(count + found)] = max(latest, time)
        found += is_result
    if keeps == SLOT_IDS:
        for upper in range(level):
            partner = m.partners[unsigned(levels[upper, AT] - 1)]
            for i in range(found):
                out[upper, unsigned(count + i)] = partner
    s.counters[SPENT] += end - begin
    if keeps != NOTHING:
        s.counters[OUT_COUNT] += found
    s.counters[FOUND] += found
    if s.counters[HASHED] == 0:
        s.certificate[0] += total
    s.groups[group, RESULTS] += found
    levels[level, AT] = end
    return end == levels[level, END]
