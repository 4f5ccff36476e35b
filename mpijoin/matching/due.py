"""Kernels that find the tuples of the first stream whose windows are over, so that all of their partners are there."""

from __future__ import annotations

from mpijoin.compiled import part
from mpijoin.join.unmatched import EIGHT, FLAGS_PER_WORD
from mpijoin.matching.state import AT, BEFORE_PAGES, BUDGET_MAX, DUE_MAX, ENTRY, PAGE
from mpijoin.store.blocks import flags_of, slot_id, tags_of
from mpijoin.store.directory import prefix_of
from mpijoin.store.expire import advance_watermarks, expiry_bound
from mpijoin.store.simd import unsigned
from mpijoin.store.state import (
    BUDGET,
    COMPARED,
    COMPARISONS,
    COUNT,
    DEPTH,
    DIRECTORY,
    DONE,
    FIRST,
    FLAGS_AT,
    GROUP_STREAM_WORDS,
    MARK,
    NEXT,
    NONE,
    OUT_FULL,
    PAGE_WORDS,
    RESULTS,
    SPENT,
    TIME,
    TIME_MAX_VALUE,
    TIME_MIN,
    TUPLE_WORDS,
    WATERMARK,
)


@part
def find_due(s, groups, watermarks, table, count, answer):
    """Advances the watermarks of the groups, and adds the results of tuples that are over to `table`.

    groups: int64[m]; they hold no fresh tuple · watermarks: int64[m, 2], or int64[1, 2] for all of them · table:
    int64[2 + answers, capacity], of which `count` columns are filled · answer: writes the results of the tuples in
    `due`: `match_due` or `reduce_due`. Returns DONE, BUDGET or OUT_FULL, and the new count. The cursor says where it
    goes on.

    A tuple that is done with is marked, so that no later round finds it again, here or where its group goes.
    """
    cursor = s.cursor
    s.counters[SPENT] = 0
    while cursor[AT] < len(groups):
        group, before, compared = groups[cursor[AT]], count, s.counters[COMPARED]
        advance_watermarks(s, group, watermarks[min(cursor[AT], len(watermarks) - 1)])
        status, count = find_in_group(s, group, table, count, answer)
        s.groups[group, RESULTS] += count - before
        s.groups[group, COMPARISONS] += s.counters[COMPARED] - compared
        if status != DONE:
            return status, count
        cursor[AT] += 1
        cursor[ENTRY] = 0
    return DONE, count


@part
def find_in_group(s, group, table, count, answer):
    cursor, region, bound = s.cursor, s.groups[group, DIRECTORY], expiry_bound(s, group, 0)
    if s.groups[group, WATERMARK + GROUP_STREAM_WORDS] == TIME_MAX_VALUE:
        bound = TIME_MAX_VALUE  # The other stream has ended, so no window is too long.
    while cursor[ENTRY] < 1 << s.groups[group, DEPTH]:
        bucket = s.directory[region + cursor[ENTRY]]
        if prefix_of(s, bucket) == cursor[ENTRY]:
            if cursor[PAGE] == BEFORE_PAGES:
                cursor[PAGE] = s.buckets[bucket, FIRST]
            while cursor[PAGE] != NONE:
                due = gather_due(s, bound, min(DUE_MAX, table.shape[1] - count))
                if due > 0:
                    count = answer(s, bucket, due, table, count)
                if cursor[PAGE] != NONE and count == table.shape[1]:
                    return OUT_FULL, count
                if cursor[PAGE] != NONE and s.counters[SPENT] >= BUDGET_MAX:
                    return BUDGET, count
        cursor[ENTRY] += 1
        cursor[PAGE] = BEFORE_PAGES
        if s.counters[SPENT] >= BUDGET_MAX:
            return BUDGET, count
    return DONE, count


@part
def gather_due(s, bound, room):
    """Marks up to `room` tuples that are over, and notes their slot ids and tags. Returns how many they are.

    It begins with block PAGE, which it sets to the one at which it goes on.
    """
    found, page, mark = 0, s.cursor[PAGE], s.counters[MARK]
    while page != NONE:
        if s.heads[page, TIME_MIN] < bound or bound == TIME_MAX_VALUE:
            flags, tags, first = flags_of(s, 0, page), tags_of(s, page), slot_id(s, 0, page, 0)
            eight = page * s.pool[PAGE_WORDS] + s.layout[0, FLAGS_AT]
            for low in range(0, s.heads[page, COUNT], FLAGS_PER_WORD):
                if s.words[unsigned(eight)] & mark * EIGHT != mark * EIGHT:
                    for slot in range(low, min(s.heads[page, COUNT], low + FLAGS_PER_WORD)):
                        one = first + slot * s.layout[0, TUPLE_WORDS]
                        is_over = s.words[unsigned(one + TIME)] < bound or bound == TIME_MAX_VALUE
                        if s.octets[unsigned(flags + slot)] & mark == 0 and is_over:
                            if found == room:
                                s.cursor[PAGE] = page
                                return found
                            s.octets[unsigned(flags + slot)] |= mark
                            s.due[found] = one
                            s.tags[found] = s.halves[unsigned(tags + slot)]
                            found += 1
                eight += 1
        page = s.heads[page, NEXT]
    s.cursor[PAGE] = NONE
    return found
