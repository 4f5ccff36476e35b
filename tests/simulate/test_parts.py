"""The parts of the model: counts by tick, directories, keys, costs."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

import oracle
from mpijoin.config.check import resolve
from mpijoin.config.inject import Inject, Pressure
from mpijoin.config.job import (
    Aggregate,
    Change,
    Function,
    History,
    Job,
    Join,
    Memory,
    StreamJob,
    SyntheticSource,
)
from mpijoin.config.load import load_job
from mpijoin.errors import JobError
from mpijoin.simulate.cluster import Manner, simulate, simulated_job
from mpijoin.simulate.costs import Costs, load_costs, named_costs
from mpijoin.simulate.directory import Directory
from mpijoin.simulate.hollow import hollow_frame, hollow_tuples, ticks_of
from mpijoin.simulate.intake import ModelledStream
from mpijoin.simulate.keys import _probabilities, match_model
from mpijoin.simulate.windows import Windows

steps = some.lists(
    some.tuples(some.sampled_from(["add", "expire", "move", "clear"]), some.integers(0, 3), some.integers(0, 400)),
    max_size=80,
)


@given(steps)
def test_windows_are_counters_by_tick(steps):
    windows, wanted = Windows(2), [{}, {}, {}, {}]
    for action, row, number in steps:
        if action == "add":
            windows.add(number % 2, np.array([row]), number // 4 * 10, np.array([number]))
            own = wanted[row].setdefault(number // 4 * 10, [0, 0])
            own[number % 2] += number
        elif action == "expire":
            gone = sum(counts[0] for end, counts in wanted[row].items() if end < number)
            assert windows.expire(np.array([row]), np.array([[number], [-1]])).tolist() == [[gone], [0]]
            wanted[row] = {end: [0 if end < number else counts[0], counts[1]] for end, counts in wanted[row].items()}
        elif action == "clear":
            windows.clear(row)
            wanted[row] = {}
        else:
            kept = windows.take(row)
            windows.clear(3)
            if row != 3:
                windows.put(3, kept)
            wanted[3] = {end: list(counts) for end, counts in wanted[row].items()} if row != 3 else {}
        for at, own in enumerate(wanted):
            assert windows.live[:, at].tolist() == [
                sum(counts[stream] for counts in own.values()) for stream in range(2)
            ]
            kept = windows.take(at)
            found = dict(zip(kept.ends.tolist(), kept.counts.T.tolist()))
            assert found == {end: counts for end, counts in own.items() if any(counts)}


@given(some.lists(some.integers(0, 20_000), min_size=1, max_size=30), some.integers(0, 1000))
def test_a_directory_at_rest_is_within_theta_and_covers_every_hash(sizes, seed):
    theta = 100.0
    random = np.random.default_rng(seed)
    weights = random.random(1 << 10) + 0.1
    weights /= weights.sum()
    directory = Directory(
        lambda prefix, depth: (float(weights[prefix :: 1 << depth].sum()),) * 2 if depth <= 10 else (0, 0), theta
    )
    for size in sizes:
        directory.tune(size, 0)
        buckets = directory.buckets.values()
        covered = Counter(entry for one in buckets for entry in range(one.prefix, 1 << 10, 1 << one.depth))
        assert covered == Counter(range(1 << 10))
        assert sum(one.share for one in buckets) == pytest.approx(1)
        assert directory.cross == pytest.approx(sum(one.share**2 for one in buckets))
        for one in buckets:
            assert one.share * size <= 2 * theta or one.depth == 10
        assert size <= directory.split_above + 1e-6 and size >= directory.merge_below - 1e-6
        assert directory.splits - directory.merges == len(buckets) - 1
        assert directory.tune(size, 0) == (0, 0, 0.0)


def test_a_copied_directory_is_its_own():
    directory = Directory(lambda prefix, depth: (0.5**depth,) * 2, 100)
    directory.tune(900, 0)
    other = directory.copy()
    other.tune(10, 0)
    assert len(other.buckets) == 1 < len(directory.buckets) == 8
    assert (directory.cross, other.cross) == (1 / 8, 1.0)


def exact_keys(bias, domain):
    """Probability of every key, by the definition of the b-model."""
    bits = (domain - 1).bit_length()
    found = Counter()
    for number in range(1 << bits):
        ones = number.bit_count()
        found[number * domain >> bits] += bias ** (bits - ones) * (1 - bias) ** ones
    return found


@pytest.mark.parametrize("bias, domain", [(0.5, 1000), (0.7, 1000), (0.9, 1 << 10), (0.7, 1)])
def test_the_key_model_is_that_of_the_hashes(bias, domain):
    partitions = 7
    keys = exact_keys(bias, domain)
    model = match_model([SyntheticSource(bias=bias, domain=domain)] * 2, partitions)
    assert np.allclose(_probabilities(bias, domain), [keys[key] for key in range(domain)])
    for partition in range(partitions):
        own = {key: chance for key, chance in keys.items() if oracle.partition(key, partitions) == partition}
        weight = sum(own.values())
        assert model.models[0].weights[partition] == pytest.approx(weight)
        if weight:
            assert model.chance[partition] == pytest.approx(sum(one**2 for one in own.values()) / weight**2)
        for prefix, depth in ((0, 0), (1, 1), (2, 2), (5, 3)):
            share = sum(chance for key, chance in own.items() if oracle.hash64(key) % (1 << depth) == prefix)
            assert model.models[0].share(partition, prefix, depth) == pytest.approx(share / weight if weight else 0)


def test_keys_of_a_domain_too_large_to_count_are_drawn():
    source = SyntheticSource(bias=0.6, domain=1 << 40)
    model = match_model([source] * 2, 10)
    assert model.models[0].weights == pytest.approx([0.1] * 10, rel=0.05)
    assert model.chance == pytest.approx([10 * 0.52**40] * 10)


def test_two_streams_match_where_both_have_a_key():
    model = match_model([SyntheticSource(bias=0.5, domain=8), SyntheticSource(bias=0.5, domain=16)], 1)
    assert model.chance == pytest.approx([8 * (1 / 8) * (1 / 16)])


@pytest.mark.parametrize("domain", [1000, 1 << 40])
def test_any_number_of_streams_match_where_all_have_a_key(domain):
    sources = [SyntheticSource(bias=bias, domain=domain) for bias in (0.5, 0.7, 0.6)]
    of_a_bit = 0.5 * 0.7 * 0.6 + 0.5 * 0.3 * 0.4
    counted = domain == 1000
    partitions = 1 if counted else 10
    wanted = (
        float(np.prod([_probabilities(one.bias, domain) for one in sources], axis=0).sum()) if counted else of_a_bit**40
    )
    assert match_model(sources, partitions).chance == pytest.approx([partitions**2 * wanted] * partitions)
    assert match_model(sources[:1], partitions).chance == pytest.approx([1.0] * partitions)


def test_a_modelled_stream_follows_the_changes_of_its_rate():
    source = SyntheticSource(
        rate=1000.0, duration_ns=30 * 10**9, changes=(Change(10 * 10**9, rate=4000.0), Change(15 * 10**9, rate=100.0))
    )
    stream = ModelledStream(source, 0, 1, np.array([0.25, 0.75]), 10**6)
    counts = [stream.arrivals(second, 1000 * second, 1000 * second + 1000).sum() for second in range(30)]
    for low, high, rate in ((0, 10, 1000), (10, 15, 4000), (15, 30, 100)):
        assert abs(np.mean(counts[low:high]) - rate) < 5 * np.sqrt(rate / (high - low))
    assert stream.rate_per_unit() == 4.0 and stream.ended(30_000) and not stream.ended(29_999)


@pytest.mark.parametrize(
    "field, value",
    [
        ("arrivals", "b-model"),
        ("keys", "zipf"),
        ("permute", 3),
        ("disorder_ns", 1),
        ("changes", (Change(9, bias=0.9),)),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(field, value):
    stream = StreamJob("left", SyntheticSource(tuples=1, **{field: value}))
    with pytest.raises(JobError, match=rf"\[left\] {field.removesuffix('_ns')}: .*simulated"):
        simulated_job(Job((stream, stream)), Manner(load_costs("wsj_2005")))


def test_what_is_not_modelled_of_memory_is_refused_by_name():
    stream = StreamJob("left", SyntheticSource(tuples=1))
    job = Job((stream, stream), inject=Inject(memory=(Pressure(1, 1 << 20),)))
    for spill in ("generations", "rotate"):
        with pytest.raises(JobError) as raised:
            simulated_job(job._replace(memory=Memory(spill=spill)), Manner())
        assert raised.value.faults == [
            f'[memory] spill: got "{spill}", is not simulated: leave it out, or run the job for real',
            "[inject] memory: is not simulated: leave it out, or run the job for real",
        ]
        assert raised.value.exit_code == 2
        real = job._replace(memory=Memory(spill=spill))
        assert simulated_job(real, Manner(modelled=False)) is real, "the real operator spills"
    assert simulated_job(Job((stream, stream), memory=Memory(share=0.5)), Manner()).memory.share == 0.5


def test_what_is_modelled_is_an_inner_join():
    stream, manner = StreamJob("left", SyntheticSource(tuples=1)), Manner()
    with pytest.raises(JobError, match=r'\[join\] type: got "anti", is not simulated: .* run the job for real'):
        simulated_job(Job((stream, stream), join=Join("anti")), manner)
    with pytest.raises(JobError, match=r"\[aggregate\]: is not simulated"):
        simulated_job(Job((stream,), aggregate=Aggregate(History(rows=5), (Function("n", "count"),))), manner)


def test_hollow_arrays_have_a_size_and_no_memory():
    tuples = hollow_tuples(1 << 30, 8, 100, 119)
    assert tuples.nbytes == 1 << 36 and len(tuples[5:9]) == 4 and tuples[7:].copy().nbytes == (1 << 36) - 7 * 64
    frame = hollow_frame(1 << 33, "what it stands for")
    assert frame.nbytes == 1 << 33 and frame.content == "what it stands for"
    assert ticks_of(tuples, np.array([[0, 3], [3, 3], [3, 10]]))[0][:2] == (100, 119)


def test_tuples_of_several_ticks_that_were_put_together_are_told_apart():
    tuples = np.concatenate([hollow_tuples(3, 8, 0, 9), hollow_tuples(2, 8, 10, 19)])
    found = [(first, last, counts.tolist()) for first, last, counts in ticks_of(tuples, np.array([[0, 4], [4, 5]]))]
    assert found == [(0, 9, [3, 0]), (10, 19, [1, 1])]
    assert ticks_of(tuples[:0], np.array([[0, 0]])) == []


def test_a_stream_that_is_over_at_once_is_read_whole():
    stream = {"kind": "synthetic", "rate": 500, "duration": "0 s", "window": "5 s"}
    job = load_job({"left": stream, "right": stream, "output": {"results": "count"}})
    schema = resolve(job._replace(output=job.output._replace(path="none")))
    summary = simulate(job, schema, 1, Manner(load_costs("this_machine"))).summary
    assert (summary["results"], summary["streams"]["left"]["read"]) == (0, 0)


def test_costs_come_from_files(tmp_path):
    assert {"this_machine", "wsj_2005"} <= set(named_costs())
    for name in named_costs():
        costs = load_costs(name)
        assert costs.comparison_ns > 0 and costs.tuple_ns > 0 and 0 < costs.bandwidth_bytes_per_s < math.inf
    path = tmp_path / "mine.toml"
    path.write_text("comparison_ns = 2\nbandwidth_bytes_per_s = 1e8\nlatency_ns = 5e4")
    assert load_costs(str(path)) == Costs(comparison_ns=2.0, bandwidth_bytes_per_s=1e8, latency_ns=5e4)
    assert load_costs(str(path)).link == (0.0, 0.0, 5e-5, 1e8)


@pytest.mark.parametrize(
    "text, fault",
    [
        ("comparisons_ns = 2", "there is no field comparisons_ns: wanted some of comparison_ns, tuple_ns"),
        ("tuple_ns = -1", "tuple_ns: got -1, wanted a number, at least 0"),
        ("tuple_ns = true", "tuple_ns: got True, wanted a number"),
        ("tuple_ns = nan", "tuple_ns: got nan, wanted a number"),
        ("tuple_ns = inf", "tuple_ns: got inf, wanted a number"),
        ("\udcff = 1", "mine.toml: is not TOML: 'utf-8' codec can't decode"),
        ("bandwidth_bytes_per_s = 0", "bandwidth_bytes_per_s: got 0, wanted more"),
        ("tuple_ns", "mine.toml: "),
    ],
)
def test_faults_of_a_costs_file_are_named(tmp_path, text, fault):
    path = tmp_path / "mine.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(JobError, match=fault):
        load_costs(str(path))


def test_a_costs_file_that_is_not_there_names_those_that_are():
    with pytest.raises(JobError, match="costs: no_such: cannot be read: No such file.*this_machine.*wsj_2005"):
        load_costs("no_such")
