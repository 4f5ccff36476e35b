"""What a profile advises, its job file, its text, JSON and tables."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from mpijoin.config.job import Join, Memory, Reduced
from mpijoin.config.load import load_job
from mpijoin.pipeline.profile import advice as advising
from mpijoin.pipeline.profile.advice import advise, advised_job, backlog, job_text, run_command
from mpijoin.pipeline.profile.arrivals import Arrivals
from mpijoin.pipeline.profile.debt import expected_debt
from mpijoin.pipeline.profile.findings import Extent, Profile, Side, held_longer
from mpijoin.pipeline.profile.keys import Keys, KeySums, TopKey
from mpijoin.pipeline.profile.report import json_text, tables_of, text_of, write_table
from mpijoin.pipeline.profile.results import PAIRS_NAME, Expected, Ranges, Sample

SECONDS = 1024


def make_side(name, counts, top, window_s=60, disorder=0):
    rows = int(counts.sum())
    last = int(1e6 * SECONDS) - 1
    extent = Extent(rows, 0, 0, rows, 0, last, 0.0, 0, 99, disorder)
    sums = KeySums(100, rows, rows * np.log2(max(rows, 2) / 100), rows * rows / 100, top)
    cells = np.full(64, rows // 64)
    return Side(
        name, f"{name}.parquet", int(window_s * 1e9), 4, 1000, extent, Arrivals(0.0, SECONDS, counts), Keys(sums, cells)
    )


def make_profile(
    rate=1000, top_share=0.01, results=None, window_s=60, disorder=0, burst=1, sampled=False, names=("left", "right"),
    join=Join(), kept=1.0,
):
    counts = np.full(4096, rate * SECONDS // 4096)
    counts[100:140] *= burst
    rows = int(counts.sum())
    sides = [make_side(name, counts, int(top_share * rows), window_s, disorder) for name in names]
    per_slot = np.full(128, (rows if results is None else results) / 128)
    if sampled:
        per_slot[::2] = np.nan
    counted = 64 if sampled else 128
    ranges, error = Ranges(0, 8_000_000, 128, 1), 12.0 if sampled else 0.0
    expected = Expected(128 * float(np.nanmean(per_slot)), error, ranges, counted, per_slot)
    top = (
        TopKey("hot, hot", tuple(side.keys.sums.most for side in sides)),
        TopKey("é", tuple(range(1, len(sides) + 1))),
    )
    kept_only = replace(expected, results=kept * expected.results, per_slot=kept * per_slot)
    return Profile(tuple(sides), 100, top, kept_only, expected, {}, join)


def test_tuples_are_held_after_their_stream_has_ended():
    side = make_side("left", np.full(4096, 1), 1)  # four tuples a second, each held for 60 s; bins of a quarter
    held = side.state_within(np.array([900.0, 1000, 1024, 1054, 1054.25, 1083, 1084, 1085, 2000])) / side.tuple_bytes
    assert held[:2].tolist() == [241, 241]  # all bins that a window touches
    assert held[2:].tolist() == [240, 120, 119, 4, 0, 0]


def make_job():
    stream = {"time": "ts", "time_unit": "us", "key": "k"}
    left = {"path": "left.parquet", "window": "60 s", **stream}
    right = {"path": "right.parquet", "lateness": "1 s", **stream}
    return load_job({"left": left, "right": right, "output": {"path": "run"}})


def test_few_tuples_need_one_slave_and_the_defaults():
    found = advise(make_profile())
    assert (found.slaves, found.partitions, found.buffer_bytes, found.lateness_ns) == (1, 60, 64 << 20, (0, 0))
    assert found.warnings == ()
    assert {hint.field for hint in found.hints} == {
        "cluster.producers", "slaves", "cluster.partitions", "cluster.buffer", "tuning.theta", "left.lateness",
        "right.lateness",
    }  # fmt: skip


def test_slaves_rise_with_the_rate_and_the_results():
    slaves = [advise(make_profile(rate=rate, top_share=0.001)).slaves for rate in (10_000, 1_000_000, 4_000_000)]
    assert slaves == [1, 2, 8]  # 0.45 us each of 2 x rate tuples, at half a core a slave; and results
    assert advise(make_profile(results=SECONDS * 10**9)).slaves == 17


def test_producers_rise_with_the_rate_as_far_as_the_input_can_be_shared_out():
    rates = (10_000, 8_000_000, 40_000_000)
    found = [advise(make_profile(rate=rate, top_share=0.001), shares=100) for rate in rates]
    assert [one.producers for one in found] == [1, 2, 7]  # 38 ns each of 2 x rate tuples, at half a core a producer
    assert found[1].hints[0].field == "cluster.producers" and "0.6 cores, at 38 ns a tuple" in found[1].hints[0].why
    assert run_command(found[2], "job.toml") == f"mpirun -n {found[2].slaves + 7} mpijoin run job.toml"
    assert advised_job(make_job(), found[2]).cluster.producers == 7


def test_an_input_of_one_row_group_has_one_producer_and_the_advice_says_what_to_do():
    found = advise(make_profile(rate=40_000_000, top_share=0.001), shares=1)
    assert found.producers == 1
    assert "for 7 producers; but the input can be shared out in one part only" in found.hints[0].why
    assert found.hints[0].why.endswith("write it as several files, or in more row groups")


def test_slaves_rise_with_the_windows_bytes():
    profile = make_profile(rate=400_000, window_s=1000, top_share=0.001)
    found = advise(profile)
    assert found.slaves == -(-profile.state_bytes * 1.6 // (4 << 30)) > 1
    assert "windows need" in next(hint.why for hint in found.hints if hint.field == "slaves")


def test_a_limit_of_the_job_is_kept_and_what_does_not_fit_is_spilled(tmp_path):
    profile = make_profile(rate=40_000, top_share=0.001, window_s=64)  # 2 x 64 s of rows of 32 bytes
    needed = profile.state_bytes * 1.6
    assert needed == pytest.approx(262e6, rel=0.01)
    roomy, tight = (advise(profile, Memory(limit_bytes=int(share * needed))) for share in (1.01, 0.5))
    assert roomy.slaves == tight.slaves == 1
    assert roomy.spill == "off" and not [hint for hint in roomy.hints if hint.field == "memory.spill"]
    assert tight.spill == "generations"
    (hint,) = [hint for hint in tight.hints if hint.field == "memory.spill"]
    # Between two spills, 0.9 x 0.85 of the half is in memory: 38 % of the windows. The others wait for the clean-up.
    assert hint.why.startswith("the windows need about 263 MB, more than 1 slave may hold, at 128500 KiB each; ")
    assert "up to 60% of the results" in hint.why and "up to 1.56 GB of rows" in hint.why
    path = tmp_path / "job.toml"
    path.write_text(job_text(make_job(), tight))
    assert load_job(path).memory.spill == "generations" and "# " + "  memory.spill = generations: " in path.read_text()
    rotating = advise(profile, Memory(int(0.5 * needed), "rotate"))
    assert rotating.spill == "rotate" and len(rotating.hints) == len(roomy.hints)
    assert advise(profile, Memory(int(1.01 * needed), "generations")).spill == "generations"


def test_what_is_owed_is_less_with_more_memory_and_more_with_more_streams():
    def owed(part, names=("left", "right"), **fields):
        profile = make_profile(rate=40_000, top_share=0.001, window_s=64, names=names)
        return expected_debt(profile, part * profile.state_bytes * 1.6, Memory(**fields))

    shares = [owed(part).share for part in (0.05, 0.2, 0.5, 0.9)]
    assert shares == sorted(shares, reverse=True) and shares[0] > 0.9 and shares[-1] > 0.2
    assert owed(1) is None and owed(0.9, threshold=1, share=0.01).share < 0.12
    assert owed(0.5, names=("a", "b", "c")).share > owed(0.5).share
    assert owed(0.5, threshold=0.5).octets > owed(0.5).octets


def test_a_join_that_cannot_spill_generations_gets_more_slaves_instead(tmp_path):
    profile = make_profile(rate=40_000, top_share=0.001, window_s=64, join=Join("left", match="last"))
    memory = Memory(limit_bytes=int(0.4 * profile.state_bytes * 1.6))
    found = advise(profile, memory)
    assert (found.slaves, found.spill) == (3, "off")
    assert 'fewer are enough with memory.spill = "rotate", and find all results later' in job_text(make_job(), found)
    path = tmp_path / "job.toml"
    job = make_job()._replace(join=profile.join, memory=memory)
    path.write_text(job_text(job, found))
    assert load_job(path).join == profile.join
    for join in (Join(), Join("left")):
        spilling = advise(replace(profile, join=join), memory)
        assert (spilling.slaves, spilling.spill) == (1, "generations")


def test_rows_that_others_look_back_at_are_held_longer_than_their_window():
    sections = {name: {"path": "f.parquet", "window": window} for name, window in (("left", "9 s"), ("right", "2 s"))}
    assert held_longer(load_job(sections)) == [0, 0]
    assert held_longer(load_job({**sections, "join": {"match": "last"}})) == [0, 9_000_000_000]
    side = make_profile(window_s=60).sides[1]
    assert replace(side, longer_ns=30 * 10**9).state_tuples == pytest.approx(1.5 * side.state_tuples, rel=0.01)
    assert replace(side, longer_ns=None).state_tuples == side.extent.rows


def test_functions_of_partners_take_a_word_each_and_no_columns_of_the_second_stream():
    plain, sums = make_profile(), (Reduced("n", "count()"), Reduced("t", "min(right.time)"))
    assert plain.results_bytes == 64 * plain.expected.results
    assert replace(plain, join=Join(reduce=sums)).results_bytes == (32 + 16) * plain.expected.results


def test_pairs_that_fail_the_condition_cost_slaves_as_much_as_results():
    few = make_profile(results=SECONDS * 10**9, kept=0.01, join=Join(where="left.x > 1"))
    found = advise(few)
    assert found.slaves == advise(make_profile(results=SECONDS * 10**9)).slaves == 17
    assert "pairs of equal keys per second" in found.hints[1].why
    assert few.results_bytes == pytest.approx(SECONDS * 10**7 * 64)


def test_an_estimate_says_so_and_from_how_many_pairs():
    profile = make_profile(join=Join("left", "left.x > 1"), kept=0.01)
    samples = (Sample(PAIRS_NAME, 95_000, 950, 0, 1_000_000), Sample("left", 20_000, 19_000, 10, 50_000))
    expected = replace(profile.expected, error=500.0, samples=samples)
    alone = replace(expected, results=2500.0, samples=samples[1:])
    profile = replace(profile, expected=expected, alone={"left": alone})
    text, told = text_of(profile, advise(profile), 64), json.loads(json_text(profile, advise(profile), 64))["expected"]
    assert "+- 500 (95 %, an estimate)" in text
    assert "  the condition holds for 950 of 95,000 sampled pairs, of 1,000,000 in all" in text
    assert "19,000 of 20,000 sampled rows of left" in text and "(and 10 may have one), of 50,000 in all" in text
    assert "of them rows of left without partner: about 2,500 +- 500" in text
    assert (told["exact"], told["below"], told["samples"][0]["taken"]) == (False, False, 95_000)
    assert told["pairs"]["exact"] and told["without_partner"]["left"]["results"] == 2500
    none = replace(expected, results=38.2, error=38.2, is_bound=True, samples=(samples[0]._replace(held=0),))
    profile = replace(profile, expected=none, alone={})
    text, told = text_of(profile, advise(profile), 64), json.loads(json_text(profile, advise(profile), 64))["expected"]
    assert "results expected: below 39 (95 %, an estimate)" in text and "holds for none of 95,000" in text
    assert (told["results"], told["below"]) == (39, True)


def test_only_the_time_in_which_the_windows_do_not_fit_is_owed():
    calm, burst = make_profile(), make_profile(burst=50)  # for 10 of 1024 s, and a window of 60 s
    budget = calm.state_bytes * 1.6 / 0.8
    assert expected_debt(calm, budget, Memory()) is None
    assert 0 < expected_debt(burst, budget, Memory()).share < 0.1


def test_partitions_are_sixteen_a_slave_in_sixties():
    for rate in (10, 10**6, 4 * 10**6, 10**7):
        found = advise(make_profile(rate=rate, top_share=0.0001))
        assert found.partitions % 60 == 0 and found.partitions >= 16 * found.slaves


def test_bursts_need_a_larger_buffer():
    calm, bursty = make_profile(rate=1_000_000), make_profile(rate=1_000_000, burst=30)
    assert backlog(calm, 2) == 0
    # 10 s of 60 M tuples/s, less what two slaves join
    assert backlog(bursty, 2) == pytest.approx(10 * (60e6 - 2 / advising.load_of(1, 0.5)), rel=0.01)
    assert advise(bursty).buffer_bytes > advise(calm).buffer_bytes


def test_lateness_is_the_disorder_and_never_less_than_the_jobs_own():
    found = advise(make_profile(disorder=250_000))
    assert found.lateness_ns == (250_000_000, 250_000_000)
    job = advised_job(make_job(), found)
    assert (job.streams[0].lateness_ns, job.streams[1].lateness_ns) == (250_000_000, 1_000_000_000)


def test_a_hot_key_is_named():
    assert "no more than 3 slaves" in advise(make_profile(rate=2_000_000, top_share=0.3, window_s=0)).warnings[0]
    (warning,) = advise(make_profile(rate=10_000_000, top_share=0.9, window_s=0)).warnings
    assert "hot, hot" in warning and "alone" in warning
    assert "no key is in all" in advise(replace(make_profile(), common=0)).warnings[-1]


def test_the_job_file_is_the_job_with_the_advice(tmp_path):
    job, found = make_job(), advise(make_profile(rate=4_000_000, top_share=0.4, disorder=7))
    path = tmp_path / "job.toml"
    path.write_text(job_text(job, found))
    assert load_job(path) == advised_job(job, found)
    assert load_job(path).cluster.partitions == found.partitions
    assert "# Beware: " in path.read_text()
    assert run_command(found, "job.toml") == f"mpirun -n {found.slaves + 1} mpijoin run job.toml"


def test_the_job_keeps_a_toml_comment_whatever_a_key_is_called(tmp_path):
    profile = make_profile(rate=4_000_000, top_share=0.4)
    odd = replace(profile, top=(replace(profile.top[0], key="a\nb\x07"),))
    path = tmp_path / "job.toml"
    path.write_text(job_text(make_job(), advise(odd)))
    assert load_job(path) == advised_job(make_job(), advise(odd))


@pytest.mark.parametrize("sampled", [False, True])
def test_text_and_json_say_the_same(sampled):
    profile = make_profile(sampled=sampled)
    text, found = text_of(profile, advise(profile), 4096), json.loads(json_text(profile, advise(profile), 4096))
    assert f"{found['expected']['results']:,}" in text
    assert ("+- 12" in text) == sampled == (not found["expected"]["exact"])
    assert found["advice"]["cluster.partitions"]["value"] == "60"
    assert found["streams"]["left"]["rate_per_s"] == pytest.approx(1000)
    assert found["top_keys"][1] == {"key": "é", "left": 1, "right": 2}
    assert all(len(line) < 260 for line in text.splitlines())


@pytest.mark.parametrize("sampled", [False, True])
def test_tables_are_whole_columns(tmp_path, sampled):
    profile = make_profile(sampled=sampled)
    tables = tables_of(profile, 1024)
    assert list(tables) == ["arrivals", "burstiness", "entropy", "keys", "expected"]
    for name, table in tables.items():
        assert len({len(column) for column in table.values()}) == 1
        write_table(table, tmp_path / f"{name}.csv")
    assert len(tables["arrivals"]["left_per_s"]) == 1024
    assert tables["arrivals"]["left_per_s"].mean() == pytest.approx(1000)
    expected = tables["expected"]
    total = np.nansum(expected["results_per_s"] * (expected["to_s"] - expected["from_s"]))
    assert total == pytest.approx(profile.expected.results / (2 if sampled else 1))
    assert expected["left_state_bytes"].max() == profile.sides[0].state_tuples * profile.sides[0].tuple_bytes


def test_stretches_are_merged_for_the_curve():
    profile = make_profile()
    many = Expected(3000.0, 0.0, Ranges(0, 3_414_000, 300, 10), 300, np.ones(3000))
    table = tables_of(replace(profile, expected=many), 64)["expected"]
    assert len(table["from_s"]) == 1000
    assert np.allclose(table["results_per_s"][:-1], 3 / 1.0242)


def test_figures_are_drawn(tmp_path):
    from mpijoin.pipeline.profile.figures import draw_all

    profiles = (
        make_profile(),
        make_profile(rate=4, sampled=True),
        make_profile(names="abcdefgh"),
        make_profile(names="a"),
    )
    for number, profile in enumerate(profiles):
        folder = tmp_path / str(number)
        folder.mkdir()
        paths = draw_all(profile, tables_of(profile, 512), folder)
        assert len(paths) == 5 and all(path.stat().st_size > 5000 for path in paths)


@pytest.mark.parametrize(
    "low, high, wanted", [(1.1, 1.8, ["1.2", "1.4", "1.6", "1.8"]), (0.02, 500, ["-1", "0", "1", "2"])]
)
def test_a_logarithmic_axis_has_few_labels(low, high, wanted):
    """Decades by their exponents. Those between had labels, too, which overlapped."""
    from mpijoin.report.style import log_axis, new_figure

    _, axes = new_figure()
    axes.set(xscale="log", xlim=(low, high))
    log_axis(axes.xaxis)
    ticks = zip(axes.xaxis.get_majorticklocs(), axes.xaxis.get_majorticklabels())
    seen = [label.get_text() for place, label in ticks if low <= place <= high]
    assert [re.sub(r".*\{(-?\d+)\}.*", r"\1", text) for text in seen] == wanted
    assert not any(label.get_text() for label in axes.xaxis.get_minorticklabels())


def test_any_number_of_streams_is_told_and_advised(tmp_path):
    names = ("p", "s", "trigger")
    profile = make_profile(names=names, disorder=250_000)
    found, text = advise(profile), text_of(profile, advise(profile), 4096)
    assert found.lateness_ns == (250_000_000,) * 3
    assert [hint.field for hint in found.hints[-3:]] == [f"streams.{name}.lateness" for name in names]
    assert text.splitlines()[0].split() == list(names) and "keys in all streams: 100" in text
    told = json.loads(json_text(profile, found, 4096))
    assert list(told["streams"]) == list(names) and told["top_keys"][1] == {"key": "é", "p": 1, "s": 2, "trigger": 3}
    stream = {"time": "ts", "time_unit": "us", "key": "k", "window": "unbounded"}
    job = load_job(
        {"streams": {name: {"path": f"{name}.parquet", **stream} for name in names}, "output": {"path": "run"}}
    )
    path = tmp_path / "job.toml"
    path.write_text(job_text(job, found))
    assert load_job(path) == advised_job(job, found)
    assert [stream.lateness_ns for stream in load_job(path).streams] == [250_000_000] * 3


def test_the_hottest_key_meets_itself_in_the_windows_of_its_latest_tuple():
    two, three = make_profile(window_s=64), make_profile(window_s=64, names="abc")
    hot = two.top[0].tuples[0]
    assert two.hottest_results_per_s == pytest.approx(hot**2 * 2 / 16 / SECONDS)
    assert three.hottest_results_per_s == pytest.approx(hot**3 * 3 / 16**2 / SECONDS)
    assert make_profile(names="a").hottest_results_per_s == pytest.approx(hot / SECONDS)
