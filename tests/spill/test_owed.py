"""How many results are owed at least: exactly what a clean-up finds, as long as the sample has all rows."""

import random
from itertools import product

import numpy as np
import pytest

from mpijoin.data.batch import read_only
from mpijoin.spill.owed import Owed
from mpijoin.store.rows import RowsBatch, RowsFrame
from mpijoin.store.state import FOREVER

NOBODY = np.empty(0, np.uint8)
EARLIEST = np.iinfo(np.int64).min


def frame(group, generation, rows):
    """rows: (key, time) of each stream."""
    words = np.array([word for own in rows for one in own for word in (*one, 0)], np.int64)
    head = np.array([(len(own), 0, 0, 0) for own in rows])
    widths = read_only(np.full(len(rows), 3))
    return RowsBatch.of(RowsFrame(NOBODY, group, generation, head, words, NOBODY, widths))


def owed_of(generations, windows, merged):
    """Counts by trying every combination. generations: the rows of each stream, by generation."""
    rows = [[(number, *one) for number, own in generations.items() for one in own[at]] for at in range(len(windows))]
    count = 0
    for chosen in product(*rows):
        latest = max(time for _, _, time in chosen)
        waits = all(window == FOREVER or latest - time <= window for (_, _, time), window in zip(chosen, windows))
        same_class = len({max(number, merged) for number, _, _ in chosen}) == 1
        count += waits and not same_class and len({key for _, key, _ in chosen}) == 1
    return count


@pytest.mark.parametrize("streams", [1, 2, 3, 4])
def test_a_sample_of_all_rows_tells_exactly_what_is_owed(streams):
    for seed in range(12):
        chance = random.Random(f"{streams} {seed}")
        windows = [chance.choice([0, 3, 20, FOREVER]) for _ in range(streams)]
        owed, generations, merged = Owed(windows), {}, chance.choice([-1, 1])
        first = chance.choice([0, EARLIEST])
        for number in range(chance.randint(1, 5)):
            counts = [chance.randrange(7) for _ in windows]
            generations[number] = [
                [(chance.randrange(3), first + chance.randrange(30)) for _ in range(count)] for count in counts
            ]
            owed.add(frame(7, number, generations[number]))
        owed.count({7: merged})
        assert owed.results == owed_of(generations, windows, merged)


def test_a_sample_of_some_keys_never_tells_too_much():
    rows = [[(key, time) for key in range(500) for time in (0, 5)] for _ in range(2)]
    whole, small = Owed([10, 10]), Owed([10, 10], rows_max=700)
    for one in (whole, small):
        for number in range(3):
            one.add(frame(1, number, rows))
        one.count({1: -1})
    assert whole.results == 500 * 4 * 6 and 0 < small.results < whole.results / 4
    assert small.results % 24 == 0, "all rows of a key are in the sample, or none"


def test_what_is_paid_is_not_owed_and_meets_what_comes_later():
    owed = Owed([10, 10])
    for number in range(2):
        owed.add(frame(1, number, [[(4, number)], [(4, number)]]))
    owed.count({1: -1})
    assert owed.results == 2
    owed.paid(1)
    owed.count({})
    assert owed.results == 0
    owed.add(frame(1, 2, [[(4, 2)], []]))
    owed.count({1: 1})
    assert owed.results == 2
    owed.paid(1, gone=[0])
    owed.add(frame(1, 3, [[(4, 3)], []]))
    owed.count({1: 2})
    assert owed.results == 1
    owed.forget(1)
    owed.add(frame(1, 4, [[(4, 4)], []]))
    owed.count({1: -1})
    assert owed.results == 0
