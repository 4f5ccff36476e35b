"""The directory keeps its rules under random inserts, probes and expiries, hot keys and keys whose hashes collide."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import oracle
from join_harness import EVER, NEVER, Harness, Stream, check_accounts, groups_of, key_of, numbered, settle, untuned
from mpijoin.store import state as st

WINDOW = 40
KEYS = {
    "hot": some.just(3),
    "few": some.integers(0, 5),
    "many": some.integers(0, 10_000),
    # Equal in the low bits, so that splits separate nothing until very deep, or never.
    "deep": some.integers(0, 7).map(lambda n: key_of(n << 20 | 0xABCDE)),
    "inseparable": some.integers(0, 7).map(lambda n: key_of(n << 24 | 0xABCDEF)),
}


def test_key_of_inverts_the_hash():
    for hashed in (0, 1, 0xABCDEF, oracle.MASK, oracle.hash64(42)):
        assert oracle.hash64(key_of(hashed)) == hashed
    assert key_of(oracle.hash64(-5)) == -5


class Directories(RuleBasedStateMachine):
    """Two groups under random work. `rows` are all tuples so far, `watermark` what neither stream goes below again."""

    @initialize(
        theta=some.sampled_from([30, 200, 600, 3000]),
        block=some.sampled_from([64, 256]),
        has_blob=some.booleans(),
        partitions=some.integers(1, 2),
    )
    def start(self, theta, block, has_blob, partitions):
        self.stream, self.theta = Stream(WINDOW, 0, has_blob), theta
        self.harness = Harness([self.stream, self.stream], partitions, 1 << 24, block, theta)
        self.groups = groups_of(*range(partitions))
        self.rows, self.watermark, self.growth = ([], []), 0, (0, 0)

    @rule(
        side=some.integers(0, 1),
        keys=some.sampled_from(sorted(KEYS)).flatmap(lambda kind: some.lists(KEYS[kind], max_size=30)),
        gap=some.integers(0, 3),
        copies=some.integers(1, 4),
    )
    def insert(self, side, keys, gap, copies):
        times_and_keys = [(self.watermark + gap * i, key) for i, key in enumerate(keys * copies)]
        rows = numbered(times_and_keys, self.stream, (0, 9, 70), len(self.rows[side]))
        assert self.harness.insert(self.groups, side, rows) == len(self.groups)
        self.rows[side].extend(rows)
        self.harness.probe(self.groups)

    @rule(step=some.sampled_from([0, 1, 5, 30, 200]))
    def expire(self, step):
        self.watermark += step
        self.harness.expire(self.groups, (self.watermark, self.watermark))
        self.check_growth()

    def check_growth(self):
        """A directory that has grown, without merges, has at most 16 entries a bucket."""
        info = self.harness.operator.info(self.groups)
        depth, merges = int(info.depth.max()), int(info.merges.sum())
        if depth > self.growth[0] and merges == self.growth[1]:
            deepest = int(np.argmax(info.depth))
            assert 1 << depth <= 16 * info.buckets[deepest]
        self.growth = depth, merges

    @rule()
    def rest(self):
        settle(self.harness, self.groups, (self.watermark, self.watermark))
        for group, walked in check_accounts(self.harness, self.groups.tolist()).items():
            assert untuned(walked, self.theta, self.harness.state.groups[group, st.GROWS]) == []

    @invariant()
    def every_count_is_right_and_no_wanted_tuple_is_lost(self):
        if not hasattr(self, "harness"):
            return
        walked = check_accounts(self.harness, self.harness.started())
        for side in range(2):
            held = Counter(row for one in walked.values() for row in one.tuples[side])
            assert held <= Counter(self.rows[side])
            assert Counter(row for row in self.rows[side] if row.time >= self.watermark - WINDOW) <= held
            counters = self.harness.state.counters
            assert counters[st.INSERTED + side] == len(self.rows[side]) == counters[st.EXPIRED + side] + held.total()

    def teardown(self):
        if hasattr(self, "harness"):
            self.harness.expire(self.groups, (EVER, EVER))
            info = settle(self.harness, self.groups, (EVER, EVER))
            assert self.harness.operator.memory().held == 0
            assert info.buckets.tolist() == [1] * len(self.groups) and not info.depth.any()


Directories.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None, derandomize=True)
TestDirectories = Directories.TestCase


def tuned(rows, theta, block=64):
    """A harness that holds the rows as left tuples, tuned once."""
    harness = Harness([Stream(WINDOW), Stream(WINDOW)], memory=1 << 24, block=block, theta=theta)
    harness.round(groups_of(0), rows, [], (NEVER, NEVER))
    return harness


@pytest.mark.parametrize("theta", [30, 1000])
def test_a_hot_key_does_not_split_without_end(theta):
    harness = tuned(numbered([(0, 1)] * 2000), theta)
    first = harness.operator.info(groups_of(0))
    for _ in range(5):
        harness.expire(groups_of(0), (NEVER, NEVER))
    last = harness.operator.info(groups_of(0))
    assert (last.splits, last.depth) == (first.splits, first.depth)
    assert last.depth[0] <= 16 and last.buckets[0] == last.splits[0] + 1
    assert 1 << last.depth[0] <= 16 * last.buckets[0]


def test_keys_that_differ_only_above_the_low_24_bits_stay_together():
    harness = tuned(numbered([(0, key_of(n % 8 << 24 | 5)) for n in range(400)]), 500)
    settle(harness, groups_of(0))
    held = [bucket for bucket in check_accounts(harness, [0])[0].buckets if bucket.octets]
    assert [bucket.octets for bucket in held] == [400 * 24]


def test_an_unsplittable_bucket_is_looked_at_again_once_it_was_below_theta():
    harness = tuned(numbered([(0, 1)] * 40), 240)
    assert any(bucket.unsplittable for bucket in check_accounts(harness, [0])[0].buckets)
    harness.expire(groups_of(0), (NEVER, EVER))
    assert not any(bucket.unsplittable for bucket in check_accounts(harness, [0])[0].buckets)
    harness.round(groups_of(0), [], numbered([(0, key) for key in range(200)]), (NEVER, NEVER))
    settle(harness, groups_of(0))
    assert max(bucket.octets for bucket in check_accounts(harness, [0])[0].buckets) <= 480


def split_at_once(window, rows):
    """Splits, merges and buckets of a group whose first insert, of one stream, brought these rows; and its harness."""
    harness = Harness([Stream(window), Stream(window)], memory=1 << 24, block=256, theta=2000)
    harness.insert(groups_of(0), 0, rows)
    info = harness.operator.info(groups_of(0))
    return int(info.splits[0]), harness


def test_a_group_that_will_grow_is_split_for_it_while_that_moves_nothing():
    """100 rows of 24 bytes, as many to come on the other side: 4800 bytes in 2 buckets, unless the windows hold more
    epochs."""
    rows = numbered([(time, key_of(time)) for time in range(100)])
    assert split_at_once(30, rows)[0] == 0, "the window is shorter than what came: no more than 4 theta, 8000 bytes"
    assert split_at_once(150, rows)[0] == 3, (
        "two and a half times as much to hold: 9600 bytes and more, in buckets of up to 4000"
    )
    assert split_at_once(10**6, rows)[0] == 7, "not more than four times: 19,200 bytes"
    assert split_at_once(10**6, numbered([(7, key_of(key)) for key in range(100)]))[0] == 0, (
        "rows of one moment tell no rate"
    )


def test_what_was_split_for_more_is_merged_once_something_has_expired():
    rows = numbered([(time, key_of(time)) for time in range(100)])
    splits, harness = split_at_once(1000, rows)
    harness.probe(groups_of(0))
    harness.expire(groups_of(0), (100, 100))
    assert harness.operator.info(groups_of(0)).merges[0] == 0 and splits == 7
    harness.expire(groups_of(0), (100, 1080))  # most of the left tuples are wanted no more
    info = settle(harness, groups_of(0), (100, 1080))
    assert info.merges[0] == 7 and info.buckets[0] == 1
    assert untuned(check_accounts(harness, [0])[0], 2000) == []


def test_a_group_that_moves_goes_on_growing():
    """Else the slave that gets it would merge what is to be split again."""
    splits, supplier = split_at_once(1000, numbered([(time, key_of(time)) for time in range(100)]))
    supplier.probe(groups_of(0))
    consumer = Harness([Stream(1000), Stream(1000)], memory=1 << 24, block=256, theta=2000)
    consumer.operator.install([frame.copy() for frame in supplier.operator.get(0, 0)])
    consumer.expire(groups_of(0), (100, 100))
    info = settle(consumer, groups_of(0), (100, 100))
    assert splits == 7 and (info.splits[0], info.merges[0], info.buckets[0]) == (7, 0, 8)
    assert settle(consumer, groups_of(0), (100, 1080)).buckets[0] == 1


def test_a_split_or_merge_leaves_the_earliest_expiry_known():
    """Merged by time, the first block of two chains can end earlier than either chain's first block did."""
    harness = Harness([Stream(0), Stream(0)], block=64, theta=100)
    even, odd = (next(key for key in range(99) if oracle.hash64(key) & 1 == bit) for bit in (0, 1))
    rows = numbered([(10 * i + (key == odd), key) for i in range(6) for key in (even, odd)])
    harness.round(groups_of(0), rows, [], (NEVER, NEVER))
    assert harness.operator.info(groups_of(0)).buckets[0] == 2
    for bound in range(60):
        harness.expire(groups_of(0), (NEVER, bound))
        walked = check_accounts(harness, [0])[0]
        slots = int(harness.state.layout[0, st.SLOTS])
        assert sum(row.time < bound for row in walked.tuples[0]) < slots * len(walked.buckets)


def test_a_directory_that_has_shrunk_grows_again_in_its_old_region():
    harness = tuned(numbered([(0, key) for key in range(400)]), 400)
    deep = harness.operator.info(groups_of(0)).depth[0]
    used = harness.state.counters[st.UNUSED_ENTRY]
    harness.expire(groups_of(0), (NEVER, EVER))
    settle(harness, groups_of(0), (NEVER, EVER))
    assert deep > 2 and harness.operator.info(groups_of(0)).depth[0] == 0
    harness.round(groups_of(0), [], numbered([(0, key) for key in range(400)]), (NEVER, EVER))
    assert harness.operator.info(groups_of(0)).depth[0] == deep
    assert harness.state.counters[st.UNUSED_ENTRY] == used
