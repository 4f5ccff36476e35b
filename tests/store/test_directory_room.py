"""A directory that has no room left for a split or a merge leaves its buckets as they are, and joins on exactly."""

from collections import Counter

import numpy as np

import oracle
from join_harness import NEVER, Harness, Stream, check_accounts, groups_of, numbered
from mpijoin.join.window_join import window_join
from mpijoin.store import state as st

STREAM = Stream(window=1000)


def harness(**settings):
    return Harness([STREAM, STREAM], block=64, **settings)


def expected(rows):
    side = [(row.time, row.key, row.row) for row in rows]
    return Counter(oracle.join([side, side], [STREAM.window] * 2))


def test_without_entries_for_a_larger_directory_a_bucket_stays_whole():
    crowded = harness(theta=300)
    crowded.operator.info(groups_of(0))
    rows = numbered([(time, time) for time in range(40)])
    crowded.round(groups_of(0), rows[:1], rows[:1], (NEVER, NEVER))
    crowded.state.counters[st.UNUSED_ENTRY] = len(crowded.state.directory)
    crowded.round(groups_of(0), rows[1:], rows[1:], (NEVER, NEVER))
    assert len(check_accounts(crowded, [0])[0].buckets) < 3  # with room there are some ten
    assert crowded.row_pairs() == expected(rows)


def test_without_pages_to_copy_to_buckets_are_not_merged_until_there_are_some():
    crowded = harness(theta=300)
    rows = numbered([(time, time) for time in range(40)])
    crowded.round(groups_of(0), rows, rows, (NEVER, NEVER))
    pool = crowded.state.pool
    buckets, merges = len(check_accounts(crowded, [0])[0].buckets), crowded.operator.info(groups_of(0)).merges[0]
    assert buckets > 3
    pages, pool[st.PAGES] = int(pool[st.PAGES]), 0
    crowded.expire(groups_of(0), (30 + STREAM.window, 30 + STREAM.window))
    assert crowded.operator.info(groups_of(0)).merges[0] == merges
    pool[st.PAGES] = pages
    crowded.expire(groups_of(0), (39 + STREAM.window, 39 + STREAM.window))
    assert crowded.operator.info(groups_of(0)).merges[0] > merges
    assert len(check_accounts(crowded, [0])[0].buckets) < buckets
    assert crowded.row_pairs() == expected(rows)


def test_a_group_is_prepared_for_no_more_than_the_directory_takes():
    """Whatever is said to come, the splits end at the limits, and no other group's buckets are touched. Of what is
    said, each mini-partition-group gets between theta and 2 theta bytes."""
    table = window_join(8, 1 << 14, 1024, 1000, ((1, False, 1000), (1, False, 1000))).beside(1)
    every = np.arange(8)
    for group in range(8):
        table.expect(group, 1 << 12)
    table.expect(3, 1 << 40)
    info = table.info(every)
    assert info.buckets[every != 3].tolist() == [4] * 7 and 4 <= info.buckets[3] <= 1 << info.depth[3]
