"""roofline.py: its kernels do the work whose rate they stand for, and its arithmetic is right. Nothing here measures
time."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from mpijoin.join.state import FILTER
from mpijoin.partitioning.hashing import certificate, hash_keys
from roofline import markdown, stage_rows, table, verdict
from rooflines import kernels
from rooflines.engine import Case, Run, Work
from rooflines.machine import Rate, fastest_s
from rooflines.model import Bound, bounds, probe_bound, probe_parts, whole

RANDOM = np.random.default_rng(11)
RATES = {
    "decode, 2 columns": Rate(10.0, "rows"),
    "copy, cached": Rate(160.0, "bytes", 1),
    "scatter, 60": Rate(20.0, "tuples"),
    "MPI, 1 MB": Rate(100.0, "bytes", 1),
    "MPI, 8 MB": Rate(240.0, "bytes", 1),
    "append": Rate(5.0, "tuples"),
    "certify": Rate(60.0, "pairs"),
    "tags, L1": Rate(1000.0, "tags"),
    "tags, looked up": Rate(80.0, "tags"),
    "block lines": Rate(50.0, "lines"),
    "lines": Rate(10.0, "lines"),
    "encode, 2 columns": Rate(6.0, "rows"),
}
WORK = Work(tuples=100, results=60, comparisons=2000, tags_first_read=3200, lines_of_old=30, expired=157)


def test_scans_find_what_is_there():
    tags = RANDOM.integers(10, 1000, 256).astype(np.uint16)
    tags[70] = 5
    assert kernels.scan_tags(tags, np.uint16(5), 1) == 1 << 6
    assert kernels.scan_tags(tags, np.uint16(4), 1) == 0
    keys = np.array([3, 4, 3, 9])
    assert kernels.scan_keys(keys, 3, 1) == 2
    assert kernels.scan_keys(keys, 3, 2) == 3  # then 4


def test_blocks_are_compared_whole():
    words = np.zeros(4 * kernels.PAGE_WORDS, np.int64)
    tags = words.view(np.uint16).reshape(4, -1)
    for slot in range(kernels.TAG_LINES * 32):
        tags[:], tags[2, slot] = 0, 9
        assert kernels.scan_blocks(words.view(np.uint16), np.array([2]), np.uint16(9)) != 0
    assert kernels.scan_blocks(words.view(np.uint16), np.array([0, 1, 3]), np.uint16(9)) == 0


def test_loads_read_every_line_once():
    words = RANDOM.integers(0, 100, 800)
    lines = RANDOM.permutation(100).astype(np.int32) * 8
    assert kernels.load_lines(words, lines) == words[::8].sum()


@pytest.mark.parametrize("combined", [False, True])
def test_scatter_keeps_the_order_in_each_buffer(combined):
    key, time, row = RANDOM.integers(0, 50, 1000), np.arange(1000) * 7, np.arange(1000)
    tuples, filled = np.zeros((6, 6000), np.int64), np.zeros(6, np.int64)
    staged = np.zeros((6, kernels.STAGED_WORDS), np.int64)
    if combined:
        kernels.scatter_combined(key, time, row, tuples, filled, staged)
    else:
        kernels.scatter_plain(key, time, row, tuples, filled)
    partition = (hash_keys(key) >> np.uint64(32)) * np.uint64(6) >> np.uint64(32)
    assert filled.sum() == 3000
    for own in range(6):
        wanted = np.stack([key, time, row], axis=1)[partition == own].ravel()
        whole_buffers = len(wanted) // kernels.STAGED_WORDS * kernels.STAGED_WORDS if combined else len(wanted)
        rest = staged[own, : len(wanted) - whole_buffers]
        assert np.array_equal(np.append(tuples[own, :whole_buffers], rest), wanted)


def test_append_puts_tuples_and_tags_into_their_buckets():
    tuples = RANDOM.integers(0, 1 << 40, (1000, kernels.TUPLE_WORDS))
    words = np.zeros(64 * kernels.PAGE_WORDS, np.int64)
    last, filled, free = np.arange(4), np.zeros(4, np.int64), np.arange(4, 64)
    taken = kernels.append(tuples, np.array([0, 400, 1000]), 2, last, filled, words, words.view(np.uint16), free)
    pages = words.reshape(64, -1)
    found = pages[:, kernels.TAG_LINES * 8 :][:, : kernels.SLOTS * 3].reshape(-1, 3)
    found = found[found.any(axis=1)]
    assert sorted(map(tuple, found)) == sorted(map(tuple, tuples))
    assert taken == (len(np.flatnonzero(pages.any(axis=1))) - 4)
    code = int(hash_keys(pages[last[0], kernels.TAG_LINES * 8 :][:1])[0])
    assert code & 1 == 0, "the first bucket has hashes that end in 0"
    assert pages[last[0]].view(np.uint16)[0] == code >> 24 & 0xFFFF


def test_emit_leaves_out_what_does_not_match():
    out = np.zeros((2, 4), np.int64)
    matches = np.array([True, False, True])
    assert kernels.emit(np.array([1, 2, 3]), np.array([4, 5, 6]), matches, out) == 2
    assert out[:, :2].tolist() == [[1, 3], [4, 6]]


def test_certify_gives_the_certificate():
    left, right = RANDOM.integers(0, 1 << 40, (2, 100))
    assert int(kernels.certify(left, right)) == certificate(left, right)


def test_the_idealised_probe_does_all_of_its_work():
    words = np.zeros(8 * kernels.PAGE_WORDS, np.int64)
    words.view(np.uint16)[0] = 1
    pages, lines = np.arange(8), np.arange(0, 512, 8).astype(np.int32)
    found, certified, _ = kernels.probe(
        words.view(np.uint16), pages, 2, 4, words, lines, 2048, 1024, np.zeros(0, np.uint8)
    )
    assert found == 2 * 3 + 1, "row 0 finds the zeros in all chunks of its bucket's two blocks, row 1 the planted tag"
    assert int(certified) == certificate(np.arange(16), np.arange(16)), "a pair of each of 16 rows"


def test_the_idealised_probe_with_a_filter_does_all_of_its_work():
    words = np.ones(8 * kernels.PAGE_WORDS, np.int64)
    words.view(np.uint16)[:] = 60_000
    words.view(np.uint16)[[5, 50]] = 3, 1
    pages, lines, marks = np.arange(8), np.arange(0, 512, 8).astype(np.int32), np.zeros(FILTER, np.uint8)
    found, certified, _ = kernels.probe(words.view(np.uint16), pages, 2, 4, words, lines, 2048, 1024, marks)
    assert found == 2 + 2, "tags 3 and 1 of the first bucket are looked up, and compared with the lines 3 and 1 of 32"
    assert int(certified) == certificate(np.arange(16), np.arange(16)) and not marks.any()


def test_marked_tags_are_listed():
    tags, marks, listed = (
        np.array([9, 5, FILTER + 5, 7, 5], np.uint16),
        np.zeros(FILTER, np.uint8),
        np.zeros(5, np.int64),
    )
    marks[5] = 1
    assert kernels.list_marked(tags, 1, 4, marks, listed) == 3 and listed[:3].tolist() == [0, 1, 3]
    blocks = np.tile(np.array([5, 9], np.uint16), kernels.SLOTS)  # two blocks of an odd number of slots
    assert kernels.look_up_blocks(blocks, marks, np.zeros(kernels.SLOTS + 1, np.int64)) == kernels.SLOTS


def test_fastest_never_counts_the_first_call():
    calls = []
    assert 0 <= fastest_s(lambda: calls.append(1), 0.0) < 1
    assert len(calls) == 2


def test_bounds_count_work_over_rates():
    least = bounds(RATES, WORK, Bound(0.5, ""))
    wanted = {"decode": 10, "key coding": 10, "scatter": 5, "send": 10, "receive": 10, "append": 20, "probe": 0.5}
    assert {name: least[name].seconds for name in wanted} == wanted
    assert least["expire"].seconds == pytest.approx(0.1)
    assert least["write"].seconds == 10


@pytest.mark.parametrize(("measured_s", "wanted_s"), [(0.01, 5.0), (6.0, 6.0), (50.0, 8.0)])
def test_a_probe_takes_at_least_its_dearest_part_and_at_most_all(monkeypatch, measured_s, wanted_s):
    """Processor: 2000 / 1000 + 60 / 60 = 3 s · memory: 100 lines / 50 + 30 / 10 = 5 s."""
    monkeypatch.setattr("rooflines.model.probe_s", lambda *_: measured_s / WORK.tuples)
    assert probe_bound(RATES, WORK, 0.0).seconds == pytest.approx(wanted_s)


def test_tags_that_meet_many_fresh_tuples_are_looked_up():
    """Compared: 320 s · looked up: 3200 / 80 s, and 30 lines of old tuples with two masks of 64 for 100 fresh ones."""
    assert probe_parts(RATES, replace(WORK, comparisons=320_000))["tags"] == pytest.approx(40 + 30 * 128 / 1000)


SECONDS = {"master": {"decode": 20.0, "idle": 60.0}, "slaves": {"append": 40.0, "probe": 30.0, "idle": 10.0}}
OWN_CORES, SHARED, ONE_CORE = (Run(Case("", ranks, cores), 100.0, SECONDS) for ranks, cores in ((2, 2), (3, 2), (2, 1)))
LEAST = {"decode": Bound(10.0, "d"), "append": Bound(20.0, "a"), "probe": Bound(25.0, "p")}


def reached(run, **bounds):
    one = whole(run, LEAST | {name: Bound(seconds, "") for name, seconds in bounds.items()})
    return one.critical, one.reached


def test_no_run_takes_less_than_its_longest_rank_nor_than_all_ranks_on_their_cores():
    assert reached(OWN_CORES) == ("slaves", 0.45), "one slave: 20 + 25 s"
    assert reached(OWN_CORES, probe=5.0, append=3.0) == ("master", 0.1)
    assert reached(SHARED) == ("all", 0.275), (
        "10 + 20 + 25 s on two cores, though two slaves need no more than 22.5 s each"
    )
    assert reached(SHARED, decode=20.0, probe=5.0, append=3.0) == ("master", 0.2), "which works on one core alone"
    assert reached(ONE_CORE) == ("all", 0.55)
    assert whole(ONE_CORE, LEAST).slowest.name == "append"


def test_a_bound_that_was_beaten_counts_for_no_more_than_the_stage_took():
    assert reached(SHARED, decode=90.0) == ("all", (20.0 + 20.0 + 25.0) / 2 / 100)


def test_a_missed_target_is_called_missed():
    met, missed = (verdict(whole(OWN_CORES, LEAST | {"probe": Bound(seconds, "")})) for seconds in (25.0, 5.0))
    assert met.startswith("met") and "the slaves alone can take" in met
    assert missed.startswith("MISSED")


def test_tables_account_for_all_of_the_time():
    rows = stage_rows(whole(OWN_CORES, LEAST), 1_000_000)
    by_name = {row[0]: row for row in rows}
    assert by_name["append"][2:] == ["40.0000", "20%", "0.0", "20.0000", "50%  <- slowest"]
    assert by_name["loops, waiting"][2:4] == ["110.0000", "55%"]
    assert by_name["whole"][2:] == ["200.0000", "100%", "0.0", "90.0000", "45%"]
    assert len(table(rows).splitlines()) == len(rows)
    assert markdown(rows).splitlines()[1] == "|---|---|---|---|---|---|---|"
