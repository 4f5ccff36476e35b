"""What a group has on disk: which rows may still meet it, when it is let go of, and where its frames lie."""

import pytest

from mpijoin.data.codec import encode
from mpijoin.spill.generations import Debt
from mpijoin.spill.packs import Packs
from mpijoin.spill.runs import Runs
from mpijoin.spill.scratch import open_scratch
from mpijoin.store.rows import ROWS_KIND
from mpijoin.store.state import FOREVER, TIME_MAX_VALUE, TIME_MIN_VALUE

NO_ROWS = (0, TIME_MAX_VALUE, TIME_MIN_VALUE)


@pytest.fixture
def runs(tmp_path):
    with open_scratch(str(tmp_path), "rank-1", {}) as scratch:
        yield Runs(scratch)


@pytest.fixture
def packs(runs):
    return Packs(runs)


def add(debt, packs, generation, *spans):
    """Writes a frame of a generation. spans: of each stream, how many rows, the earliest and the latest time."""
    data = encode(ROWS_KIND, {"generation": generation}, [], checksum=True)
    (place,) = packs.append(data, [0], [len(data)])
    debt.add(generation, spans, len(data), place, packs)


def test_rows_wait_for_what_may_meet_them_and_not_a_moment_longer(packs):
    debt = Debt([10, 20, FOREVER])
    add(debt, packs, 0, (1, 3, 5), NO_ROWS, NO_ROWS)
    assert debt.keep_until() == [TIME_MIN_VALUE, 15, 15]
    add(debt, packs, 1, NO_ROWS, (2, 4, 7), NO_ROWS)
    assert debt.keep_until() == [27, 15, 27]
    add(debt, packs, 1, NO_ROWS, NO_ROWS, (1, 0, 0))
    assert debt.keep_until() == [TIME_MAX_VALUE, TIME_MAX_VALUE, 27]


def test_a_generation_is_let_go_as_soon_as_nothing_can_meet_it(packs):
    debt = Debt([10, 20])
    add(debt, packs, 0, (1, 3, 5), NO_ROWS)
    add(debt, packs, 1, (1, 3, 5), (2, 4, 7))
    assert debt.let_go([TIME_MAX_VALUE, 15]) == []  # A row of the other stream may have this time.
    assert [one.number for one in debt.let_go([27, 16])] == [0]
    assert [one.number for one in debt.let_go([28, 16])] == [1]
    assert debt.octets == 0


def test_generations_that_owe_each_other_nothing_are_one_class(packs):
    debt = Debt([10, 20])
    add(debt, packs, 0, (1, 3, 5), NO_ROWS)
    add(debt, packs, 2, (1, 3, 5), NO_ROWS)
    assert [[one.number for one in own] for own in debt.classes] == [[0], [2]] and not debt.is_paid
    debt.merge()
    assert debt.is_paid
    add(debt, packs, 3, (1, 3, 5), NO_ROWS)
    assert [[one.number for one in own] for own in debt.classes] == [[0, 2], [3]] and not debt.is_paid


def test_a_pack_stays_until_nobody_wants_anything_in_it(packs, runs):
    first, second = Debt([10]), Debt([10])
    for generation in range(3):
        add(first, packs, generation, (1, 0, 0))
    add(second, packs, 3, (1, 0, 0))
    wanted = [frame.tobytes() for frame in second.frames()]
    first.remove()
    assert runs.held_bytes and [frame.tobytes() for frame in second.frames()] == wanted and len(wanted) == 1
    second.remove()
    assert not runs.held_bytes
