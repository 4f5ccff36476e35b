"""Sentences of "Parallelizing Windowed Stream Joins in a Shared-Nothing Cluster", section IV-D, each with what checks
it."""

from collections import Counter

import oracle
from join_harness import NEVER, Harness, Stream, check_accounts, groups_of, key_of, numbered, settle
from mpijoin.store import state as st

GROUP = groups_of(0)


def holder(theta=st.THETA_OFF, window=1000, block=64):
    return Harness([Stream(window), Stream(window)], memory=1 << 22, block=block, theta=theta)


def walked(harness):
    return check_accounts(harness, [0])[0]


def keys_with(bits, depth, count):
    """Keys whose hashes end in these `depth` bits and differ above."""
    return [key_of(n << 32 | n << depth & 0xFFFFFF | bits) for n in range(count)]


def test_tuples_in_a_head_block_join_before_it_is_full():
    """ "the tuples in a head block may participate in the join when it is not full" """
    harness = holder(block=4096)
    harness.round(GROUP, numbered([(1, 7)]), [], (1, 1))
    harness.round(GROUP, [], numbered([(2, 7)]), (2, 2))
    assert harness.row_pairs() == Counter({(0, 0): 1})


def test_no_pair_twice_although_both_heads_hold_fresh_tuples():
    """ "To eliminate duplicate output results, we omit the fresh tuples within the head blocks of the opposite mini
    window-partitions, as the head blocks will participate in the join when they become full." """
    harness = holder(block=4096)
    for batch in range(3):  # all in the same two head blocks, of which ever more is old
        rows = numbered([(batch, 7)] * 4, first_row=4 * batch)
        harness.round(GROUP, rows, rows, (batch, batch))
    assert len(walked(harness).pages) == 2
    assert harness.row_pairs() == Counter({(left, right): 1 for left in range(12) for right in range(12)})


def test_an_expiring_block_has_met_the_fresh_tuples_of_the_opposite_head():
    """ "While expiring a block from a mini-window, the block is joined with the fresh tuples within the head block of
    the opposite mini-window; this ensures the completeness of the join results." """
    harness = holder(window=10)
    harness.round(GROUP, numbered([(0, 7), (0, 7)]), [], (0, 0))
    # Right's batch brings the last partners at time 10 and, with time 30, the end of the left block.
    harness.round(GROUP, [], numbered([(10, 7), (11, 7), (30, 7)]), (0, 30))
    assert harness.row_pairs() == Counter({(0, 0): 1, (1, 0): 1})
    assert walked(harness).tuples[0] == [] and len(walked(harness).tuples[1]) == 3


def test_a_block_expires_whole_and_only_when_its_last_tuple_may():
    """ "The tuples within each window partition should be expired periodically." """
    harness = holder(window=10)
    slots = int(harness.state.layout[0, st.SLOTS])
    harness.round(GROUP, numbered([(time, 7) for time in range(2 * slots)]), [], (NEVER, NEVER))
    for watermark in range(11 + 2 * slots):
        harness.expire(GROUP, (NEVER, watermark))
        gone = sum(slots for block in range(2) if (block + 1) * slots - 1 < watermark - 10)
        assert len(walked(harness).tuples[0]) == 2 * slots - gone


def test_a_group_above_two_theta_is_split_and_stays_within_the_range():
    """ "We split a partition-group when its size is above [2 theta], and try to merge partitions whenever a partition
    size falls below [theta]." """
    theta, tuple_bytes = 1200, 24
    harness = holder(theta)
    rows = numbered([(0, key) for key in range(2 * theta // tuple_bytes + 1)])
    harness.round(GROUP, rows[:-1], [], (NEVER, NEVER))
    assert len(walked(harness).buckets) == 1  # exactly 2 theta
    harness.round(GROUP, rows[-1:], [], (NEVER, NEVER))
    assert len(walked(harness).buckets) == 2
    assert all(bucket.octets <= 2 * theta for bucket in walked(harness).buckets)


def test_two_to_the_difference_of_the_depths_entries_point_to_a_bucket():
    """ "The number of hashtable entries pointing to a bucket is given by [2^(d - d')]; the [d'] least significant bits
    of these entries are the same." """
    harness = holder(theta=480)
    skewed = keys_with(0b101, 3, 150) + keys_with(0b010, 3, 20) + keys_with(0b000, 3, 20)
    harness.round(GROUP, numbered([(0, key) for key in skewed]), [], (NEVER, NEVER))
    settle(harness, GROUP)
    depths = {bucket.depth for bucket in walked(harness).buckets}  # `walk` checks entries and bits of each
    assert len(depths) > 1 and max(depths) == walked(harness).depth


def test_a_split_below_the_global_depth_leaves_the_directory_as_large_as_it_is():
    """ "When the size of a mini-partition-group, with local depth less than the global depth, is larger than [2 theta],
    we split the mini-partition-group by assigning half of the entries to each new mini-group and distributing the
    tuples accordingly; the local depth of the newly created partitions are increased by one." """
    harness = holder(theta=480)
    one_sided = [key_of(n << 32 | 3 | n % 4 << 2) for n in range(100)]  # bits ..11: depth grows on that side only
    harness.round(GROUP, numbered([(0, key) for key in one_sided]), [], (NEVER, NEVER))
    settle(harness, GROUP)
    before = walked(harness)
    shallow = next(bucket for bucket in before.buckets if bucket.prefix == 0)
    assert shallow.depth == 1 < before.depth
    harness.round(GROUP, numbered([(0, key) for key in keys_with(0, 1, 45)], first_row=100), [], (NEVER, NEVER))
    after = walked(harness)
    assert after.depth == before.depth and len(after.buckets) == len(before.buckets) + 1
    assert {bucket.depth for bucket in after.buckets if bucket.prefix in (0b00, 0b10)} == {2}


def test_a_split_at_the_global_depth_doubles_the_directory_first():
    """ "To split a mini-partition-group with the local depth same as the global depth, the total entries in the
    hashtable should be doubled first, increasing the global depth" """
    harness = holder(theta=480)
    assert harness.operator.info(GROUP).depth[0] == 0
    harness.round(GROUP, numbered([(0, key) for key in range(41)]), [], (NEVER, NEVER))
    assert walked(harness).depth == 1
    assert [(bucket.depth, bucket.prefix) for bucket in walked(harness).buckets] == [(1, 0), (1, 1)]


def test_buddies_merge_when_one_is_small_and_their_sum_is_below_two_theta():
    """ "When the size of a mini-partition-group is less than [theta], the bucket is merged with its buddy bucket, if
    any, provided the sum of the sizes of two buckets is less than [2 theta] and the local depths of the two buckets are
    same." """
    harness = holder(theta=480, window=10)
    low, high = (
        [(5, key) for key in keys_with(0, 1, 30)],
        [(0 if n < 6 else 3, key) for n, key in enumerate(keys_with(1, 1, 25))],
    )
    harness.round(GROUP, numbered(low + high), [], (NEVER, NEVER))
    assert [bucket.octets for bucket in walked(harness).buckets] == [720, 600]
    harness.expire(GROUP, (NEVER, 11))  # six tuples go: below theta, but the sum is not below 2 theta
    assert [bucket.octets for bucket in walked(harness).buckets] == [720, 456]
    harness.expire(GROUP, (NEVER, 14))
    assert [(bucket.depth, bucket.octets) for bucket in walked(harness).buckets] == [(0, 720)]


def test_buckets_of_different_local_depth_do_not_merge():
    """ "... provided ... the local depths of the two buckets are same" """
    harness = holder(theta=480)
    rows = numbered([(0, key) for key in keys_with(0b01, 2, 30) + keys_with(0b11, 2, 30) + keys_with(0b10, 2, 2)])
    harness.round(GROUP, rows, [], (NEVER, NEVER))
    settle(harness, GROUP)
    small = next(bucket for bucket in walked(harness).buckets if bucket.prefix == 0)
    assert small.octets < 480 and small.depth == 1
    assert {bucket.depth for bucket in walked(harness).buckets if bucket.prefix & 1} == {2}


def test_a_split_and_a_merge_keep_the_order_of_time():
    """ "the tuples should maintain the temporal order in the stream" """
    harness = holder(theta=480, window=20)
    rows = numbered([(n, key) for n, key in enumerate(range(120))])
    harness.round(GROUP, rows, [], (NEVER, NEVER))
    for watermark in range(0, 160, 5):
        harness.expire(GROUP, (NEVER, watermark))
        for bucket in walked(harness).buckets:
            mask = (1 << bucket.depth) - 1
            own = [row.time for row in walked(harness).tuples[0] if oracle.hash64(row.key) & mask == bucket.prefix]
            assert own == sorted(own)
    assert harness.operator.info(GROUP).splits[0] > 2 and harness.operator.info(GROUP).merges[0] > 2
