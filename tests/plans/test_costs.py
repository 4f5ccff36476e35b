"""Samples tell how many combinations of any streams there are, and by them the cheapest of all trees is found."""

import random
from itertools import product

import numpy as np
import pytest

from join_harness import Harness, Stream, groups_of, numbered
from mpijoin.config.plan import Binary, members_of
from mpijoin.join.window_join import Setup
from mpijoin.plans.choice import AGREEING, SAVING_MIN, Choice
from mpijoin.plans.costs import Costs, Sample, equal_guesses
from mpijoin.plans.operator import PlannedJoin
from mpijoin.plans.sample import sample_fresh
from mpijoin.store.pool import StreamSpec, new_pool

STREAMS = [Stream(40), Stream(25), Stream(60)]


def all_trees(streams):
    """Every tree over a set of streams, once for each order of its sides."""
    if len(streams) == 1:
        yield from streams
    for chosen in product((False, True), repeat=len(streams)):
        left, right = ([one for one, is_left in zip(streams, chosen) if is_left == side] for side in (True, False))
        if left and right:
            yield from (Binary(*sides) for sides in product(list(all_trees(left)), list(all_trees(right))))


def random_sample(chance, streams, tuples=5):
    words = [chance.choice([0, 0, 1, 3, 9]) for _ in range(streams * tuples * streams)]
    partners = np.array(words, float).reshape(streams, tuples, streams)
    for stream, own in enumerate(partners):
        own[:, stream] = 1
    rates, held = ([chance.choice([0, 1, 20, 300]) for _ in range(streams)] for _ in range(2))
    return Sample(np.array(rates, float), np.array(held, float), list(partners))


@pytest.mark.parametrize("streams", [3, 4, 5])
def test_the_best_tree_is_the_cheapest_of_all(streams):
    chance, trees = random.Random(streams), list(all_trees(list(range(streams))))
    for _ in range(20):
        costs = Costs(random_sample(chance, streams))
        assert costs.of(costs.best_tree()) == pytest.approx(min(map(costs.of, trees)))
        assert costs.of(costs.best()) == pytest.approx(min(map(costs.of, [None, *trees])))


def test_a_sample_of_all_tuples_counts_all_combinations():
    """Of times that all differ, each combination ends with one of its tuples."""
    chance = random.Random(1)
    times = chance.sample(range(300), 180)
    rows = [numbered([(at, chance.randrange(4)) for at in sorted(times[low : low + 60])]) for low in range(0, 180, 60)]
    specs = tuple(StreamSpec(stream.record_words, stream.has_blob, stream.window) for stream in STREAMS)
    operator = PlannedJoin(Setup(2, 200, specs), None, new_pool(1 << 22, 256, 8), 50)
    harness = Harness(STREAMS, 2, operator=operator)
    for stream, own in enumerate(rows):
        harness.insert(groups_of(0, 1), stream, own)
    partners, found = [], np.zeros((100, 3), np.int64)
    for stream, own in enumerate(rows):
        assert sample_fresh.bound(harness.state)(groups_of(0, 1), stream, 1, 0, 100, found) == len(own)
        partners.append(found[: len(own)].astype(float))
    made = Costs(Sample(np.full(3, 60.0), np.full(3, 60.0), partners))._made
    for members in ((0, 1), (0, 2), (1, 2), (0, 1, 2)):
        wanted = 0
        for some in product(*(rows[stream] for stream in members)):
            latest = max(one.time for one in some)
            fits = all(latest <= one.time + STREAMS[stream].window for one, stream in zip(some, members))
            wanted += fits and len({one.key for one in some}) == 1
        assert made[sum(1 << stream for stream in members)] == pytest.approx(wanted) and wanted > 20


def test_samples_are_taken_evenly():
    rows, harness = numbered([(at, 0) for at in range(100)]), Harness(STREAMS)
    harness.insert(groups_of(0), 0, rows)
    harness.insert(groups_of(0), 1, rows)
    found = np.zeros((100, 3), np.int64)
    # The tuples of times 4, 14, 24 and so on meet those of stream 1 that are no more than 25 older.
    assert sample_fresh.bound(harness.state)(groups_of(0), 0, 10, 4, 100, found) == 10
    assert found[:10, 1].tolist() == [min(at, 25) + 1 for at in range(4, 100, 10)]
    assert sample_fresh.bound(harness.state)(groups_of(0), 0, 10, 4, 3, found) == 3


@pytest.mark.parametrize("streams", range(3, 9))
def test_equal_guesses_begin_m_way(streams):
    assert Choice(streams).plan is None
    assert sorted(members_of(Costs(equal_guesses(streams)).best_tree())) == list(range(streams))


def test_a_plan_changes_only_if_that_saves_enough_more_than_once():
    """Streams 0 and 1 never meet, and have `many` partners in stream 2."""

    def sample(many):
        partners = [[[1, 0, many]], [[0, 1, many]], [[many, 0, 1], [0, many, 1]]]
        return Sample(np.ones(3), np.ones(3), [np.array(own, float) for own in partners])

    def saving(many):
        costs = Costs(sample(many))
        return 1 - costs.of(costs.best()) / costs.of(None)

    few, more = next(many for many in range(1, 99) if 0.02 < saving(many) < SAVING_MIN), 40
    assert saving(more) > SAVING_MIN and AGREEING == 2
    choice = Choice(3)
    assert [choice.decide(sample(many)) for many in (few, few, few, more, few, more, more)] == [False] * 6 + [True]
    assert {*choice.plan} >= {Binary(0, 1)} or {*choice.plan} >= {Binary(1, 0)}
    assert not choice.decide(sample(more))
