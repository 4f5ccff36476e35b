"""The modelled join against the real one: what it compares, finds, splits and merges, and how its groups travel."""

from types import SimpleNamespace

import numpy as np
import pytest

from mpijoin.config.check import resolve
from mpijoin.config.job import SyntheticSource
from mpijoin.config.load import load_job
from mpijoin.data.batch import read_only
from mpijoin.errors import MemoryBudgetError, ProtocolError
from mpijoin.join.window_join import window_join
from mpijoin.operators.base import Keep, Out, Progress
from mpijoin.partitioning.hashing import hash_keys
from mpijoin.simulate.cluster import Manner, simulate
from mpijoin.simulate.costs import load_costs
from mpijoin.simulate.hollow import hollow_tuples
from mpijoin.simulate.keys import _probabilities, match_model
from mpijoin.simulate.modelled import ModelledJoin, Shape
from mpijoin.slave.delays import times_of
from mpijoin.store.insert import Fresh
from mpijoin.store.state import THETA_OFF

PARTITIONS, WINDOW, TICK, TUPLE_WORDS = 4, 600, 20, 8
GROUPS = np.arange(PARTITIONS)
NO_BLOB = read_only(np.zeros(0, np.uint8))


def source(bias):
    return SyntheticSource(bias=bias, domain=200_000)


NO_OUT = Out(2, 0)


def new_model(bias=0.5, theta=32_640, memory_bytes=1 << 40, window=WINDOW):
    shape = Shape(PARTITIONS, memory_bytes, 4096, theta, (8 * TUPLE_WORDS,) * 2, (window, window))
    return ModelledJoin(shape, match_model([source(bias)] * 2, PARTITIONS))


def new_real(theta):
    return window_join(PARTITIONS, 1 << 30, 4096, theta, [(TUPLE_WORDS - 3, False, WINDOW)] * 2)


def drawn(random, bias, rows, tick):
    """Tuples of the real kind, contiguous by partition, and the bounds of each."""
    cumulated = np.cumsum(_probabilities(bias, 200_000))
    keys = np.minimum(np.searchsorted(cumulated, random.random(rows) * cumulated[-1]), 199_999)
    partition = (hash_keys(keys) >> np.uint64(32)) * np.uint64(PARTITIONS) >> np.uint64(32)
    order = np.argsort(partition, kind="stable")
    tuples = np.zeros((rows, TUPLE_WORDS), np.int64)
    tuples[:, 0] = keys[order]
    tuples[:, 1] = np.sort(random.integers(tick * TICK, (tick + 1) * TICK, rows))[order]
    starts = np.searchsorted(partition[order], np.arange(PARTITIONS + 1))
    return tuples, np.stack([starts[:-1], starts[1:]], axis=1)


def join_all(operator, groups=GROUPS, budget=1 << 40):
    out = Out(2, 1 << 14)
    while operator.probe(groups, budget, out) is not Progress.DONE:
        out.clear()
    return out.found


def feed_model(model, tick, rows=(50, 50), groups=GROUPS):
    """So many tuples of each stream to each group, joined and expired; returns the results."""
    for stream, count in enumerate(rows):
        ends = np.cumsum(np.full(len(groups), count))
        tuples = hollow_tuples(int(ends[-1]), TUPLE_WORDS, tick * TICK, tick * TICK + TICK - 1)
        model.insert(groups, stream, SimpleNamespace(tuples=tuples), np.stack([ends - count, ends], axis=1))
    found = join_all(model, groups)
    model.expire(groups, ((tick + 1) * TICK,) * 2, NO_OUT)
    return found


@pytest.mark.parametrize("bias, theta", [(0.5, 32_640), (0.5, 100_000), (0.5, THETA_OFF), (0.7, 32_640)])
def test_the_model_counts_what_the_join_does(bias, theta):
    """A rate that rises to its double and falls to nothing again: the directory grows and shrinks."""
    random, real, model = np.random.default_rng(7), new_real(theta), new_model(bias, theta)
    results = np.zeros(2, np.int64)
    depths = []
    for tick in range(120):
        rate = 10 if tick < 45 else 20 if tick < 80 else 2
        for stream in range(2):
            tuples, bounds = drawn(random, bias, random.poisson(rate * TICK), tick)
            real.insert(GROUPS, stream, Fresh(read_only(tuples), NO_BLOB), bounds)
            hollow = hollow_tuples(len(tuples), TUPLE_WORDS, tick * TICK, (tick + 1) * TICK - 1)
            model.insert(GROUPS, stream, SimpleNamespace(tuples=hollow), bounds)
        results += (join_all(real), join_all(model))
        for operator in (real, model):
            operator.expire(GROUPS, ((tick + 1) * TICK,) * 2, NO_OUT)
        depths.append((real.info(GROUPS).buckets.sum(), model.info(GROUPS).buckets.sum()))
    wanted, got = real.totals, model.totals
    assert got.comparisons == pytest.approx(wanted.comparisons, rel=0.05)
    assert got.joined == wanted.joined
    assert results[1] == pytest.approx(results[0], rel=0.05, abs=40)
    depths = np.array(depths)
    assert (np.abs(depths[:, 0] - depths[:, 1]) <= 2 + depths[:, 0] // 4).mean() > 0.9
    if theta < THETA_OFF:
        assert got.splits == pytest.approx(wanted.splits, rel=0.25)
        assert got.merges == pytest.approx(wanted.merges, rel=0.35, abs=3) and got.merges > 0


def test_live_bytes_and_blocks_are_about_those_of_the_join():
    random, real, model = np.random.default_rng(3), new_real(32_640), new_model()
    for tick in range(60):
        for stream in range(2):
            tuples, bounds = drawn(random, 0.5, random.poisson(200), tick)
            real.insert(GROUPS, stream, Fresh(read_only(tuples), NO_BLOB), bounds)
            hollow = hollow_tuples(len(tuples), TUPLE_WORDS, tick * TICK, (tick + 1) * TICK - 1)
            model.insert(GROUPS, stream, SimpleNamespace(tuples=hollow), bounds)
        for operator in (real, model):
            join_all(operator)
            operator.expire(GROUPS, ((tick + 1) * TICK,) * 2, NO_OUT)
    assert model.totals.live_bytes == pytest.approx(real.totals.live_bytes, rel=0.05)
    assert model.totals.blocks == pytest.approx(real.totals.blocks, rel=0.1)
    assert model.info(GROUPS).live_bytes.sum() == pytest.approx(real.info(GROUPS).live_bytes.sum(), rel=0.05)


def test_a_probe_keeps_to_its_budget_and_gives_all_results_in_the_end():
    whole, pieces = new_model(), new_model()
    for tick in range(20):
        feed_model(whole, tick), feed_model(pieces, tick)
    for stream in range(2):
        for model in (whole, pieces):
            tuples = hollow_tuples(400, TUPLE_WORDS, 400, 419)
            ends = np.cumsum(np.full(PARTITIONS, 100))
            model.insert(GROUPS, stream, SimpleNamespace(tuples=tuples), np.stack([ends - 100, ends], axis=1))
    before, calls, found, out = pieces.tally.comparisons, 0, 0, Out(2, 1, Keep.LATEST_TIMES)
    while True:
        spent = pieces.tally.comparisons
        progress = pieces.probe(GROUPS, 5_000, out)
        assert 0 < pieces.tally.comparisons - spent <= 5_000
        times, counts = times_of(out, pieces)
        assert counts.sum() == out.found - found and ((times >= 400) & (times < 420)).all()
        found, calls = out.found, calls + 1
        out.clear()
        if progress is Progress.DONE:
            break
        assert progress is Progress.BUDGET
    assert found == join_all(whole) > 0
    assert calls == -(-(pieces.tally.comparisons - before) // 5_000) > 10


def test_what_is_expired_is_held_no_more_and_nothing_is_lost():
    model = new_model()
    for tick in range(100):
        feed_model(model, tick, (50, 20))
    totals = model.totals
    assert (
        totals.held[0] == PARTITIONS * 50 * WINDOW // TICK
        and totals.held[1] == PARTITIONS * 20 * WINDOW // TICK
    )
    assert totals.joined[0] == totals.held[0] + totals.expired[0] == 100 * 50 * PARTITIONS
    model.expire(GROUPS, (1 << 62, 1 << 62), NO_OUT)
    assert model.totals.held[0] == model.totals.held[1] == 0
    assert model.info(GROUPS).buckets.tolist() == [1] * PARTITIONS


@pytest.mark.parametrize("octets_max", [None, 10_000, 100_000])
def test_a_group_travels_whole_in_portions(octets_max):
    left, there, stayed = new_model(), new_model(), new_model()
    for tick in range(50):
        feed_model(left, tick), feed_model(stayed, tick)
    frames, since = [], 0
    whole = False
    while not whole:
        portion = left.get(2, since, octets_max)
        assert octets_max is None or sum(frame.nbytes for frame in portion[:-1]) <= octets_max
        frames += portion
        since, whole = left.reached(portion)
    info = left.info(np.array([2]))
    assert sum(frame.nbytes for frame in frames) == pytest.approx(info.live_bytes.sum(), rel=0.15)
    assert there.install(frames) == 2
    assert all(np.array_equal(one, other) for one, other in zip(there.info(np.array([2])), info))
    left.drop(2)
    assert left.totals.moved_out == there.totals.moved_in == tuple(info.tuples[0].tolist())
    assert left.totals.held[0] + there.totals.held[0] == stayed.totals.held[0]
    others = np.array([0, 1, 3])
    for tick in range(50, 60):
        found = feed_model(left, tick, groups=others) + feed_model(there, tick, groups=np.array([2]))
        assert found == feed_model(stayed, tick)
    assert left.tally.comparisons + there.tally.comparisons == stayed.tally.comparisons


def test_only_what_is_new_follows_a_first_portion():
    model = new_model(theta=THETA_OFF)
    for tick in range(20):
        feed_model(model, tick)
    first = model.get(0, 0)
    feed_model(model, 20)
    again = model.get(0, model.reached(first)[0])
    assert sum(frame.nbytes for frame in again) < sum(frame.nbytes for frame in first) / 5


def test_what_must_not_be_is_refused():
    model, other = new_model(), new_model()
    feed_model(model, 0), feed_model(other, 0)
    with pytest.raises(ProtocolError, match="partition 1 came, but tuples of it are held here"):
        other.install(model.get(1, 0))
    tuples = SimpleNamespace(tuples=hollow_tuples(4, TUPLE_WORDS, 20, 39))
    model.insert(np.array([1]), 0, tuples, np.array([[0, 4]]))
    for act in (lambda: model.get(1, 0), lambda: model.drop(1)):
        with pytest.raises(ProtocolError, match="partition 1 holds fresh tuples"):
            act()
    tight = new_model(memory_bytes=1000)
    with pytest.raises(MemoryBudgetError, match="partition 3 needs 6400 bytes here"):
        tight.install(other.get(3, 0))
    taken = tight.insert(np.array([1]), 0, SimpleNamespace(tuples=hollow_tuples(40, 8, 0, 1)), np.array([[0, 40]]))
    assert taken == (0, 3), "320 tuples of 8 words, and four blocks that are empty: 3 pages more than there are"
    assert "budget 0.001 MB" in str(tight.out_of_memory())
    assert 'or set [memory] spill = "generations"' in str(tight.out_of_memory())


def test_an_empty_group_travels_and_rows_are_reused():
    here, there = new_model(), new_model()
    for group in range(PARTITIONS):
        assert there.install(here.get(group, 0)) == group
        here.drop(group)
    assert here.totals.held[0] == there.totals.held[0] == 0
    for tick in range(3):
        assert feed_model(there, tick) >= 0
    for group in range(PARTITIONS):
        here.install(there.get(group, 0))
        there.drop(group)
    assert here.totals.held[0] == 600 and there.totals.held[0] == 0


def balance_of(model):
    """What the ledger wants of each stream: 0."""
    one = {name: np.array(value) for name, value in model.totals._asdict().items()}
    here = one["expired"] + one["held"] + one["moved_out"] - one["moved_in"] + one["discarded"] - one["replicas_in"]
    return (here - one["joined"]).tolist()


def test_a_group_is_dealt_to_two_and_given_back_and_both_together_find_what_one_finds():
    whole, first, further = new_model(), new_model(), new_model()
    own = np.array([1])
    for tick in range(20):
        assert feed_model(whole, tick, groups=own) == feed_model(first, tick, groups=own)
    before = np.array(first.totals.held)
    further.install(first.get(1, 0), replica=True)
    for part, model in enumerate((first, further)):
        model.deal(1, 0, 7, part)
    assert first.totals.held == (before[0] // 2, before[1]) == further.totals.held
    assert first.totals.replicas_out == further.totals.replicas_in == tuple(before)
    assert first.totals.discarded == further.totals.discarded == (before[0] // 2, 0)
    found = np.zeros(2, np.int64)
    for tick in range(20, 40):
        dealt = feed_model(first, tick, (25, 50), own) + feed_model(further, tick, (25, 50), own)
        found += (feed_model(whole, tick, groups=own), dealt)
    assert found[1] == pytest.approx(found[0], rel=0.02)
    given = further.give_dealt(1, 0)
    first.take_dealt(1, 0, given)
    assert first.totals.held == whole.totals.held and further.totals.held == (0, 0)
    assert further.totals.moved_out == first.totals.moved_in == (whole.totals.held[0] // 2, 0)
    assert further.totals.live_bytes == 0 and first.totals.live_bytes == whole.totals.live_bytes
    assert [balance_of(model) for model in (whole, first, further)] == [[0, 0]] * 3
    tight = new_model(memory_bytes=1000)
    with pytest.raises(MemoryBudgetError):
        tight.take_dealt(1, 0, given)


@pytest.mark.parametrize(
    "windows", [(WINDOW,), (WINDOW, WINDOW // 2), (WINDOW, WINDOW // 2, 2 * WINDOW), (WINDOW,) * 4]
)
def test_of_any_number_of_streams_the_model_finds_what_their_rates_and_windows_say(windows):
    """A result is counted by its latest tuple: one of each other stream lies in that one's window before it."""
    streams, ticks = len(windows), 6 * max(windows) // TICK
    matches = match_model([SyntheticSource(bias=0.5, domain=2000)] * streams, PARTITIONS)
    model = ModelledJoin(Shape(PARTITIONS, 1 << 40, 4096, THETA_OFF, (8 * TUPLE_WORDS,) * streams, windows), matches)
    rows, found = 30, []
    for tick in range(ticks):
        for stream in range(streams):
            ends = np.cumsum(np.full(PARTITIONS, rows))
            tuples = hollow_tuples(int(ends[-1]), TUPLE_WORDS, tick * TICK, tick * TICK + TICK - 1)
            model.insert(GROUPS, stream, SimpleNamespace(tuples=tuples), np.stack([ends - rows, ends], axis=1))
        found.append(join_all(model))
        model.expire(GROUPS, ((tick + 1) * TICK,) * streams, NO_OUT)
    held = np.array(windows) / TICK * rows  # of each stream, in a group's windows
    others = sum(np.prod(np.delete(held, stream)) for stream in range(streams))
    wanted = float((matches.chance * rows * others).sum())
    assert np.mean(found[ticks // 2 :]) == pytest.approx(wanted, rel=0.02)
    assert model.info(GROUPS).tuples.sum(axis=0) == pytest.approx(held * PARTITIONS * (streams > 1), rel=0.05)
    # The first stream's watermark stays: what waits for it alone does so, and its own tuples wait for others in vain.
    model.expire(GROUPS, [ticks * TICK, *[100 * ticks * TICK] * (streams - 1)], NO_OUT)
    assert [count > 0 for count in model.info(GROUPS).tuples.sum(axis=0)] == [False] + [True] * (streams - 1)


@pytest.mark.parametrize(
    "window, share", [("0 s", 0.0), ("100 ms", 0.01), ("1 s", 0.0975), ("5 s", 0.4375), ("15 s", 0.9375), ("30 s", 1.0)]
)
def test_what_comes_at_once_need_not_lie_within_a_window(tmp_path, window, share):
    """As fast as possible, an epoch may last longer than the windows. All 20 s of these streams would meet in it."""
    stream = {"kind": "synthetic", "rate": 1000, "domain": 1000, "bias": 0.5, "tuples": 20_000, "window": window}
    job = load_job({"left": stream, "right": stream, "output": {"results": "count", "path": str(tmp_path / "out")}})
    found = simulate(job, resolve(job), 2, Manner(load_costs("wsj_2005"))).summary["results"]
    assert found == pytest.approx(20_000**2 / 1000 * share, rel=0.07, abs=1)
