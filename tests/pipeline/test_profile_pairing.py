"""Pairs, rows without partner, and what a condition says of a sample of both: against the definition, and the bounds
against what they promise."""


import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mpijoin.config.job import Join, Reduced
from mpijoin.config.load import load_job
from mpijoin.data.schema import Column, JoinSchema, StreamSchema
from mpijoin.errors import JobError
from mpijoin.pipeline.profile import pairing
from mpijoin.pipeline.profile.condition import condition_of
from mpijoin.pipeline.profile.estimates import Asked, Counted, estimate, results_of
from mpijoin.pipeline.profile.pairing import COUNTED, LONE, MET, PAIRS, draw, pair_counter
from mpijoin.pipeline.profile.results import Ranges, choose
from mpijoin.pipeline.profile.seeking import NO, OPEN, YES

WINDOWS = [(0, 0), (6, 0), (0, 6), (3, 4), (100, 100)]
RANGES = Ranges(0, 20, 5, 4)
COUNT = (Reduced("n", "count()"),)


def condition(where):
    columns = (Column("x", pa.float64()), Column("n", pa.int32()))
    streams = [StreamSchema(side, Column("ts", pa.int64()), 1, (Column("k", pa.int64()),), False, columns)
               for side in ("left", "right")]  # fmt: skip
    sections = {side: {"path": "f.parquet", "time": "ts", "time_unit": "s", "key": "k"} for side in ("left", "right")}
    return condition_of(load_job({**sections, "join": {"where": where}}), JoinSchema(tuple(streams), "s"))


def made_rows(seed, n=150):
    chance = np.random.default_rng(seed)
    return pd.DataFrame({
        "range": np.zeros(n, np.int64), "hash": chance.integers(0, 3, n), "time": chance.integers(0, 100, n),
        "stream": chance.integers(0, 2, n), "is_own": chance.random(n) < 0.8,
        "real_0": chance.integers(0, 4, n).astype(float), "real_0_null": chance.random(n) < 0.2,
        "whole_0": chance.integers(0, 4, n), "whole_0_null": chance.random(n) < 0.2,
    })  # fmt: skip


def is_pair(rows, windows, left, right):
    time = rows.time
    alike = rows["hash"][left] == rows["hash"][right] and rows.range[left] == rows.range[right]
    return alike and time[left] - windows[1] <= time[right] <= time[left] + windows[0]


def holds(rows, left, right):
    """left.x > right.n, where a null is never true."""
    return not rows.real_0_null[left] and not rows.whole_0_null[right] and rows.real_0[left] > rows.whole_0[right]


def by_slot(found, what, held=None):
    own = found[(found.what == what) & ((found.priority == COUNTED) == (held is None))]
    own = own if held is None else own[own.held == held]
    return np.bincount(own.slot, own.number, RANGES.count * RANGES.slots).tolist()


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("seed", range(3))
def test_pairs_and_tuples_without_partner_are_those_of_the_definition(seed, windows):
    rows = made_rows(seed)
    pairs = np.zeros((2, 20), np.int64)
    met, kept = np.zeros((2, len(rows)), bool), np.zeros((2, len(rows)), bool)
    left, right = (np.flatnonzero(rows.stream == side) for side in (0, 1))
    for one in left:
        for other in (other for other in right if is_pair(rows, windows, one, other)):
            latest = one if rows.time[one] > rows.time[other] else other
            both = np.array([1, holds(rows, one, other)])
            pairs[:, rows.time[latest] // 5] += both * rows.is_own[latest]
            for row in (one, other):
                met[0, row], kept[0, row] = True, kept[0, row] or bool(both[1])
    found = pair_counter(RANGES, windows, (0, 1), condition("left.x > right.n"))((0, 1), rows)
    assert by_slot(found, PAIRS) == pairs[0].tolist() and by_slot(found, PAIRS, YES) == pairs[1].tolist()
    for side in (0, 1):
        own = rows.is_own & (rows.stream == side)
        wanted = {LONE: own & ~met[0], MET: own & met[0]}
        for what, chosen in wanted.items():
            assert by_slot(found, what + side) == np.bincount(rows.time[chosen] // 5, minlength=20).tolist()
        held = rows.time[own & kept[0]] // 5
        assert by_slot(found, MET + side, YES) == np.bincount(held, minlength=20).tolist()
        assert sum(by_slot(found, MET + side, OPEN)) == 0
    assert pairs[0].sum() > pairs[1].sum() > 0 or windows == (0, 0)


@pytest.mark.parametrize("kind, where", [(pa.string(), "left.s == 'a'"), (pa.date32(), "left.s is null")])
def test_a_condition_about_what_is_no_number_is_refused_by_name(kind, where):
    time, key = Column("ts", pa.int64()), Column("key", pa.int64())
    stream = StreamSchema("left", time, 1, (key,), False, (Column("s", kind),))
    sides = {name: {"kind": "synthetic", "tuples": 1} for name in ("left", "right")}
    job = load_job({**sides, "join": {"where": where}})
    with pytest.raises(JobError, match="profile can ask about numbers, .*, and left.s is of another kind"):
        condition_of(job, JoinSchema((stream, stream._replace(name="right")), "s"))


def test_without_a_condition_nothing_is_drawn_and_a_group_may_be_empty():
    rows = made_rows(1)
    found = pair_counter(RANGES, (5, 5), (0,), None)((0, 0), rows)
    assert (found.priority == COUNTED).all() and set(found.what) == {PAIRS, MET, LONE}
    for some in (rows[:0], rows[rows.stream == 1].reset_index(drop=True)):
        found = pair_counter(RANGES, (5, 5), (0, 1), condition("left.x > right.n"))((0, 0), some)
        assert found[found.what.isin([PAIRS, MET, MET + 1])].number.sum() == 0
        assert found[found.what == LONE + 1].number.sum() == (some.is_own & (some.stream == 1)).sum()


def test_partners_that_are_not_all_asked_are_said_to_be_open(monkeypatch):
    """A tuple with 100 partners, of which one holds; and one with 100, of which none does."""
    n = 102
    rows = made_rows(0, n)
    zero = np.zeros(n, np.int64)
    rows = rows.assign(hash=zero, time=zero, real_0_null=zero > 0, whole_0_null=zero > 0, whole_0=zero, is_own=True)
    rows = rows.assign(stream=np.where(np.arange(n) < 2, 0, 1), real_0=np.where(np.arange(n) == 0, 1.0, 0.0))
    rows.loc[2:100, "whole_0"] = 1
    asked = pair_counter(RANGES, (0, 0), (0,), condition("left.x > right.n"))
    assert [sum(by_slot(asked((0, 0), rows), MET, held)) for held in (NO, YES, OPEN)] == [1, 1, 0]
    monkeypatch.setattr(pairing, "ASKED_MAX", 100)  # of each, every second partner
    found = asked((0, 0), rows)
    assert sum(by_slot(found, MET, OPEN)) == 2 - sum(by_slot(found, MET, YES)) and sum(by_slot(found, MET, NO)) == 0


def test_draws_of_several_groups_make_one_fair_sample():
    """Of 50, 500 and 5000, each with 400 at most: those below a priority are as many as their groups are large."""
    sizes, taken, seen = (50, 500, 5000), np.zeros(3), np.zeros(5000)
    for seed in range(400):
        generator = np.random.default_rng(seed)
        for place, size in enumerate(sizes):
            drawn = draw(size, 400, generator)
            assert len(set(drawn.chosen.tolist())) == len(drawn.chosen) == min(size, 400)
            chosen = drawn.chosen[drawn.priority < 0.06]
            taken[place] += len(chosen)
            seen += np.bincount(chosen, minlength=5000) * (size == 5000)
    expected = 400 * 0.06 * np.array(sizes)
    assert np.all(np.abs(taken - expected) < 4 * np.sqrt(expected))
    assert np.abs(np.array_split(seen, 10) - seen.mean()).mean() < 6 and seen.max() < 60


def drawn_of(chance, per_slot, share, taken):
    """A sample of so many pairs that lie in slots, of which a share holds in each slot."""
    slot = np.repeat(np.arange(len(per_slot)), per_slot)
    held = chance.random(len(slot)) < np.asarray(share)[slot]
    chosen = chance.choice(len(slot), taken, replace=False)
    counts = [np.bincount(slot[some], minlength=len(per_slot)).astype(float) for some in (chosen, chosen[held[chosen]])]
    return Asked(*counts, np.zeros(len(per_slot))), int(held.sum())


@pytest.mark.parametrize("share", [0.5, 0.01, 0.0005])
def test_the_bound_of_a_sample_holds_about_as_often_as_it_says(share):
    ranges, per_slot, ones = Ranges(0, 10, 1, 10), np.full(10, 20_000), np.ones(1)
    covered = bounds = 0
    for seed in range(200):
        asked, truth = drawn_of(np.random.default_rng(seed), per_slot, np.full(10, share), 5000)
        found = estimate(ranges, np.arange(1), per_slot.astype(float), asked, ones, "")
        assert not found.is_exact and found.results > 0
        covered += abs(found.results - truth) <= found.error
        bounds += found.is_bound
    assert covered >= 184 and found.error < 0.1 * 200_000
    assert (bounds > 5) == (share == 0.0005)


def test_the_bound_holds_with_a_sample_of_ranges_too_whose_shares_differ():
    ranges, slots = Ranges(0, 1, 400, 1), 400
    chance = np.random.default_rng(5)
    per_slot = np.rint(100 * (chance.pareto(3, slots) + 0.5)).astype(int)
    share = np.clip(chance.normal(0.2, 0.1, slots), 0, 1)
    covered = 0
    for seed in range(100):
        chosen = choose(ranges, 0.25, seed)
        own = np.where(np.isin(np.arange(slots), chosen), per_slot, 0)
        asked, _ = drawn_of(np.random.default_rng(seed), own, share, 2000)
        found = estimate(ranges, chosen, own.astype(float), asked, per_slot.astype(float), "")
        covered += abs(found.results - (per_slot * share).sum()) <= found.error
        assert np.isnan(found.per_slot).sum() == 300
    assert covered >= 92


def test_a_peak_is_not_made_by_a_few_hits_and_is_kept_where_there_are_many():
    ranges, per_slot = Ranges(0, 1000, 1, 1000), np.full(1000, 1000)
    flat, steep = np.full(1000, 0.001), np.where(np.arange(1000) < 20, 0.5, 0.001)
    peaks = []
    for share in (flat, steep):
        asked, _ = drawn_of(np.random.default_rng(3), per_slot, share, 100_000)
        found = estimate(ranges, np.arange(1), per_slot.astype(float), asked, np.ones(1), "")
        assert found.per_slot.sum() == pytest.approx(found.results)
        peaks.append(found.per_slot.max())
    assert peaks[0] < 2 and 350 < peaks[1] < 700


def counted_of(met, lone, held, undecided=0, taken=None):
    """One slot, and a stream of so many tuples with and without partner in the window."""
    one = np.ones(1)
    asked = Asked(one * (taken or met), one * held, one * undecided)
    return Counted(one * 1000, {0: one * met, 1: one * met}, {0: one * lone, 1: one * lone},
                   Asked(one * 1000, one * 10, one * 0), {0: asked, 1: asked})  # fmt: skip


@pytest.mark.parametrize(
    "join, results",
    [
        (Join("inner"), 10),
        (Join("left"), 10 + 45),
        (Join("right"), 10 + 42),
        (Join("full"), 10 + 45 + 42),
        (Join("semi"), 70),
        (Join("anti"), 45),
        (Join("inner", match="last"), 70),
        (Join("inner", reduce=COUNT), 70),
        (Join("left", match="last"), 110 + 5),
        (Join("left", reduce=COUNT), 110 + 5),
    ],
)
def test_each_type_has_its_own_sum(join, results):
    ranges = Ranges(0, 1, 1, 1)
    rows = np.full((2, 1), 110.0)
    counted = counted_of(met=100, lone=10, held=70)
    found = results_of(join, ("a", "b"), ranges, np.arange(1), counted, rows, (5, 2))
    assert found.results.results == results and found.results.is_exact and found.pairs.results == 1000
    assert found.results.per_slot.tolist() == [results]
    doubtful = results_of(
        join, ("a", "b"), ranges, np.arange(1), counted_of(100, 10, 60, undecided=20), rows, (5, 2)
    ).results
    asks_no_rows, asks_each = join == Join("inner"), join.answers_rows and join.type == "left"
    assert doubtful.results == results and doubtful.is_exact == (asks_no_rows or asks_each)
    if not doubtful.is_exact:
        assert doubtful.error == pytest.approx(10 * (2 if join.type == "full" else 1) ** 0.5)


def test_what_no_sample_holds_is_below_a_bound():
    one, ranges = np.ones(1), Ranges(0, 1, 1, 1)
    counted = Counted(one * 10**9, {}, {}, Asked(one * 10_000, one * 0, one * 0))
    found = results_of(Join("inner"), "ab", ranges, np.arange(1), counted, np.ones((2, 1)), (0, 0)).results
    assert found.is_bound and not found.is_exact and 300_000 < found.results == found.error < 400_000
    assert found.per_slot.tolist() == [found.results]
    none = Counted(one * 0, {}, {}, Asked(*[one * 0] * 3))
    found = results_of(Join("inner"), "ab", ranges, np.arange(1), none, np.ones((2, 1)), (0, 0)).results
    assert (found.results, found.error, found.is_exact, found.is_bound) == (0, 0, True, False)


def test_no_result_in_some_ranges_is_a_bound_too():
    ranges = Ranges(0, 1, 100, 1)
    chosen = choose(ranges, 0.5)
    found = estimate(ranges, chosen, np.zeros(100), None, np.ones(100), "")
    assert found.is_bound and found.results == pytest.approx(1.96**2 * 2)
