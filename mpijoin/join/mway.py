"""Kernels of the symmetric m-way join: a fresh tuple meets the chains of all other streams at once.

"Symmetric" is LAD's word (section 2): the tuples of each stream find their partners in the hash tables of the others.
In each bucket the streams take turns. A fresh tuple of stream i meets all tuples of the streams before i, but only the
old ones of the streams after it. So each combination appears once, in the turn of its last stream that has a fresh
tuple in it.

If no combination may consist of fresh tuples alone (APART), all stay marked as fresh until the bucket is done with.
Only in the turn of the last stream could such a combination appear. Each list of partners then has its old ones in
front. As long as no tuple of a combination is old, and no later list has an old one, only the old ones are followed up.
So none is enumerated in vain. (This is equation 1 of LAD-TR, for any number of streams.)

If another holder joins the group as well (TRACKS), no combination may consist of tuples alone that are new here. The
lists of a new tuple are put into the same order for that.

The partners of a fresh tuple in each other stream are listed first. Then the combinations of these lists are enumerated
depth first, together with the latest time and the first deadline of the tuples so far. No combination is ever stored,
and any number of them can be given in bounded pieces.
"""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import kernel, part
from mpijoin.join.mway_collect import collect, gather_batch, order_streams
from mpijoin.join.mway_state import (
    AHEAD,
    ALL_END,
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
    LAST_CHANCE,
    LATEST,
    LEVEL,
    LIMIT,
    MEMBER,
    MEMBERS,
    NEEDS_OLD,
    NEW_BATCH,
    NEXT_AT,
    NEXT_FROM,
    OLD_END,
    STEP,
    STREAM,
)
from mpijoin.join.state import LATEST_TIMES, NOTHING, SLOT_IDS
from mpijoin.partitioning.hashing import GOLDEN, mix
from mpijoin.store.blocks import tags_of, time_after
from mpijoin.store.fresh import make_bucket_old, make_old
from mpijoin.store.simd import LANES, LINE_TAGS, prefetch, unsigned
from mpijoin.store.state import (
    APART,
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
    TRACKS,
    UNLISTED,
    WINDOW,
)
from mpijoin.store.tracks import is_new


@kernel
def probe_groups_mway(s, m, cursor, groups, budget, out):
    """Joins the fresh tuples of the groups. Returns DONE, BUDGET or OUT_FULL.

    groups: int64[k] · budget: comparisons after which it returns BUDGET · out: int64[n, capacity], the slot ids of the
    results per stream, or in its first row their latest times, as the counter KEEPS says. counters[OUT_COUNT] columns
    are filled. After BUDGET or OUT_FULL it is called again with the same arguments and an unchanged cursor.
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
    """Goes on to the next group that has fresh tuples. Returns False if there is none."""
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
    """Makes the fresh tuples of the cursor's stream and bucket, if there are any, the next ones to join."""
    base = cursor[STREAM] * STREAM_WORDS
    cursor[FRESH_AT] = s.buckets[cursor[BUCKET], base + FRESH_PAGE]
    cursor[FRESH_FROM] = s.buckets[cursor[BUCKET], base + FRESH_SLOT]
    cursor[STEP] = NEW_BATCH


@part
def advance(s, m, group, cursor, budget, out):
    """Does one step: it makes a batch (or ends the turn), collects the batch's partners, and enumerates results.

    A batch whose partners are too many is made again with half as many tuples.
    """
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
    """Makes the stream's fresh tuples of the bucket old, and goes on to the next stream, or to the next bucket."""
    bucket = cursor[BUCKET]
    if s.counters[APART] == 0:
        make_old(s, bucket, cursor[STREAM])
    cursor[STREAM] += 1
    if cursor[STREAM] == len(s.layout):
        if s.counters[APART]:
            make_bucket_old(s, bucket)
        cursor[BUCKET] = s.groups[group, FRESH] = s.buckets[bucket, NEXT_FRESH]
        s.buckets[bucket, NEXT_FRESH] = UNLISTED
        cursor[AHEAD] -= 1
        cursor[STREAM] = 0
    if cursor[BUCKET] != NONE:
        begin_turn(s, cursor)


@part
def fetch_buckets(s, m, bucket):
    """Asks for the cache lines of the next buckets' chains, heads and tags. Returns how many buckets these are.

    All chains are followed in step, so that the cache misses of many chains overlap. Those of one chain cannot, because
    each block tells where the next one is.
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
    """Enumerates the combinations of each member with its partners, from the cursor on. DONE, BUDGET or OUT_FULL."""
    last = len(s.layout) - 1
    while cursor[MEMBER] < cursor[MEMBERS]:
        if cursor[LEVEL] == NONE:
            begin_member(s, m, cursor, last)
        status = enumerate_member(s, m, group, cursor, budget, out)
        if status != DONE:
            return status
        cursor[MEMBER] += 1
    return DONE


@part
def begin_member(s, m, cursor, last):
    """Sets up the lists that are combined: the member's partners in each other stream, and the member itself."""
    member = m.member[cursor[MEMBER]]
    for level in range(last + 1):
        m.levels[level, BEGIN] = m.first[level, member]
        m.levels[level, END] = m.first[level, member] + m.counts[level, member]
    m.partners[0] = m.slot[member]
    own = cursor[STREAM]
    m.levels[own, BEGIN], m.levels[own, END] = 0, 1
    m.levels[0, AT] = m.levels[0, BEGIN]
    m.levels[0, LATEST], m.levels[0, DEADLINE] = TIME_MIN_VALUE, TIME_MAX_VALUE
    m.levels[0, NEEDS_OLD] = s.counters[APART] and own == last
    if s.counters[TRACKS]:
        m.levels[0, NEEDS_OLD] = is_new(s, own, m.slot[member])
    if m.levels[0, NEEDS_OLD]:
        find_old(m, member, own, last)
    cursor[LEVEL] = 0


@part
def find_old(m, member, own, last):
    """Finds out at which levels a combination of the member, which is not old itself, can get an old tuple. own: the
    member's level."""
    levels, has_later = m.levels, False
    for level in range(last, -1, -1):
        olds = 0 if level == own else m.olds[level, member]
        levels[level, OLD_END], levels[level, ALL_END] = levels[level, BEGIN] + olds, levels[level, END]
        levels[level, LAST_CHANCE] = not has_later
        has_later |= olds > 0
    if levels[0, LAST_CHANCE]:
        levels[0, END] = levels[0, OLD_END]


@part
def ask_for_old(levels, level, at):
    """Sets the end of a level's list, now that partner `at` of the level above is followed up."""
    needs = levels[level - 1, NEEDS_OLD] != 0 and at >= levels[level - 1, OLD_END]
    levels[level, NEEDS_OLD] = needs
    levels[level, END] = levels[level, OLD_END if needs and levels[level, LAST_CHANCE] else ALL_END]


@part
def enumerate_member(s, m, group, cursor, budget, out):
    """Goes through the lists of one member depth first. DONE, BUDGET or OUT_FULL.

    A tuple is followed up only if its time fits those of all tuples before it.
    """
    words, levels, last, level = s.words, m.levels, len(s.layout) - 1, cursor[LEVEL]
    while level >= 0:
        at = levels[level, AT]
        if level == last - 1 and s.counters[KEEPS] == NOTHING and may_count(s, levels, level, budget):
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
                if levels[0, NEEDS_OLD]:
                    ask_for_old(levels, level, at)
    cursor[LEVEL] = NONE
    return DONE


@part
def hashed_on(hashed, row, level):
    """Returns the hash of a result's rows up to that of `level`, given the hash of the rows before it."""
    return np.uint64(row) if level == 0 else mix(mix(hashed + GOLDEN) + np.uint64(row))


@part
def pairs_of(levels, level):
    """Returns how many pairs the rest of a level's list makes with the list of the next level."""
    return (levels[level, END] - levels[level, AT]) * (levels[level + 1, END] - levels[level + 1, BEGIN])


@part
def may_count(s, levels, level, budget):
    """Returns whether all pairs of the rest of a level's list with the next level's, which is the last, go into
    combinations, and the budget allows for them."""
    if levels[0, NEEDS_OLD]:
        levels[level + 1, END] = levels[level + 1, ALL_END]
        if levels[level, NEEDS_OLD] and not levels[level, LAST_CHANCE]:
            return False
    return pairs_of(levels, level) <= budget - s.counters[SPENT]


@part
def count_last_two(s, m, group, level):
    """Counts and certifies all results that the tuples above make with those of this level and the last.

    Most results of short lists are found here, because nothing is looked up between one result and the next.
    """
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
    """Counts, certifies and keeps the results that the tuples above make with those of the last level.

    It goes as far as the budget and the room in `out` allow, and returns whether that was to the end of the list.
    """
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
