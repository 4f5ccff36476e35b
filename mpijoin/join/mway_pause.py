"""The kernel that pauses an m-way probe: afterwards the marks of fresh tuples alone tell what is left of it."""

from __future__ import annotations

from mpijoin.compiled import kernel, part
from mpijoin.join.mway import enumerate_member
from mpijoin.join.mway_collect import collect
from mpijoin.join.mway_state import (
    BUCKET,
    COLLECT,
    ENUMERATE,
    FRESH_AT,
    FRESH_FROM,
    GROUP_INDEX,
    LEVEL,
    MEMBER,
    MEMBERS,
    NEXT_AT,
    NEXT_FROM,
    STEP,
    STREAM,
)
from mpijoin.store.state import (
    BUDGET,
    COMPARED,
    COMPARISONS,
    DONE,
    FRESH_PAGE,
    FRESH_SLOT,
    NONE,
    PAGE_WORDS,
    SPENT,
    STREAM_WORDS,
    TUPLE_WORDS,
    TUPLES_AT,
)


@kernel
def pause_probe_mway(s, m, cursor, groups, budget, out):
    """Goes on with a probe that stopped, to the last combination of the fresh tuple that it is at.

    Arguments and answers are those of `probe_groups_mway`. After DONE, a new probe of the groups does the rest.
    """
    s.counters[SPENT] = 0
    if cursor[BUCKET] == NONE:
        return DONE
    group, compared = groups[cursor[GROUP_INDEX]], s.counters[COMPARED]
    status = finish_member(s, m, group, cursor, budget, out)
    s.groups[group, COMPARISONS] += s.counters[COMPARED] - compared
    if status == DONE:
        mark_rest(s, m, cursor)
    return status


@part
def finish_member(s, m, group, cursor, budget, out):
    """Gives the rest of the combinations of the member that was begun. DONE, BUDGET or OUT_FULL."""
    # The collection is finished, and not broken off, so that it leaves no table of tags behind.
    if cursor[STEP] == COLLECT and collect(s, m, cursor, budget) == BUDGET:
        return BUDGET
    if cursor[STEP] != ENUMERATE or cursor[LEVEL] == NONE:
        return DONE
    status = enumerate_member(s, m, group, cursor, budget, out)
    if status == DONE:
        cursor[MEMBER] += 1
    return status


@part
def mark_rest(s, m, cursor):
    """Makes those tuples of the stream and bucket old that come before the first member that was not enumerated."""
    page, slot = cursor[FRESH_AT], cursor[FRESH_FROM]
    if cursor[STEP] == ENUMERATE:
        page, slot = cursor[NEXT_AT], cursor[NEXT_FROM]
        if cursor[MEMBER] < cursor[MEMBERS]:
            place, stream = m.slot[m.member[cursor[MEMBER]]], cursor[STREAM]
            page = place // s.pool[PAGE_WORDS]
            slot = (place - page * s.pool[PAGE_WORDS] - s.layout[stream, TUPLES_AT]) // s.layout[stream, TUPLE_WORDS]
    s.buckets[cursor[BUCKET], cursor[STREAM] * STREAM_WORDS + FRESH_PAGE] = page
    s.buckets[cursor[BUCKET], cursor[STREAM] * STREAM_WORDS + FRESH_SLOT] = slot if page != NONE else 0
