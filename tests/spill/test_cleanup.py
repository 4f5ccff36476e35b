"""Clean-ups whose memory comes and goes. What they find is checked by whole runs, too."""

from __future__ import annotations

import pytest

import mpijoin.spill.spiller
import mpijoin.spill.work
import mpijoin.store.row_reader
import mpijoin.store.transfer
import oracle
from join_harness import Harness, Stream, groups_of, numbered
from mpijoin.config.job import LARGEST
from mpijoin.operators.base import Keep, Out
from mpijoin.spill.runs import Runs
from mpijoin.spill.scratch import open_scratch
from mpijoin.spill.spiller import Spiller
from mpijoin.store.state import FOREVER

GENERATIONS, ROWS = 6, 2000
SMALL, LARGE = 64 << 10, 4 << 20


@pytest.fixture(params=[1, ROWS], ids=["one key", "many keys"])
def spiller(request, tmp_path, monkeypatch):
    """One group owes results for six generations, in each of which every key comes equally often in each stream."""
    for module in (mpijoin.spill.work, mpijoin.spill.spiller):
        monkeypatch.setattr(module, "PIECE_BYTES", 1)
    keys = request.param
    harness = Harness([Stream(FOREVER), Stream(FOREVER)], memory=LARGE, block=512, theta=4096, keep=Keep.NOTHING)
    with open_scratch(str(tmp_path), "rank-1", {}) as scratch:
        spiller = Spiller(harness.operator, harness.operator.beside(1), Runs(scratch))
        for generation in range(GENERATIONS):
            for stream in range(2):
                rows = numbered([(generation, row % keys) for row in range(ROWS)], first_row=generation * ROWS)
                assert harness.insert(groups_of(0), stream, rows) == 1
            harness.probe(groups_of(0))
            spiller.begin_spill(1, LARGEST, [0])
            spiller.spill_next()
        spiller.operator = harness.operator
        spiller.owed = ROWS * (ROWS // keys) * GENERATIONS * (GENERATIONS - 1)
        yield spiller


def clean_up(spiller, limits, after=20):
    """As `cleaned`. Returns how many results are found."""
    return cleaned(spiller, limits, after).found


def cleaned(spiller, limits, after=20):
    """Gives the memory of `limits`, one after each so many steps if it may, and the last one to the end. Returns where
    the results went."""
    out, limits = Out(2, 1 << 12, Keep.NOTHING), list(limits)
    spiller.operator.limit(limits.pop(0))
    spiller.begin_end([0], out)
    steps = 0
    while spiller.clean_up(out):
        out.clear()
        steps += 1
        if limits and steps >= after and spiller.may_lose_memory:
            spiller.operator.limit(limits.pop(0))
            steps = 0
    return out


@pytest.mark.parametrize("spiller", [ROWS], indirect=True)
def test_a_clean_up_goes_on_in_larger_parts_when_memory_comes_back(spiller):
    disk_bytes = spiller.figures.disk_bytes
    assert clean_up(spiller, [SMALL, LARGE]) == spiller.owed
    # Once to cut, some of it for the first parts, and once more for all the rest.
    assert spiller.figures.read_back_bytes < 8 * disk_bytes


def test_a_clean_up_with_little_memory_to_the_end_finds_the_same(spiller):
    disk_bytes = spiller.figures.disk_bytes
    assert clean_up(spiller, [SMALL]) == spiller.owed
    assert spiller.figures.read_back_bytes > 16 * disk_bytes


@pytest.mark.parametrize("after", [5, 18, 23, 30])
def test_a_clean_up_goes_on_in_smaller_parts_when_memory_is_taken_away(spiller, after):
    assert clean_up(spiller, [6 * SMALL, SMALL], after) == spiller.owed
    assert not spiller.figures.disk_bytes


def test_memory_may_come_and_go_amid_a_clean_up(spiller):
    assert clean_up(spiller, [LARGE // 8, SMALL, LARGE, SMALL, LARGE]) == spiller.owed


def test_chunks_of_one_stream_meet_all_chunks_of_the_others_whatever_is_read_meanwhile(tmp_path, monkeypatch):
    """All rows have one key, and few of them fit into memory: frames of several generations are read at once."""
    for module in (mpijoin.store.row_reader, mpijoin.store.transfer):
        monkeypatch.setattr(module, "FRAME_BYTES", 4096)
    harness, rows = Harness([Stream(FOREVER)] * 2, memory=LARGE, block=256, theta=4096, keep=Keep.NOTHING), 200
    with open_scratch(str(tmp_path), "rank-1", {}) as scratch:
        spiller = Spiller(harness.operator, harness.operator.beside(1), Runs(scratch))
        for generation in range(3):
            for stream in range(2):
                harness.insert(groups_of(0), stream, numbered([(generation, 7)] * rows, first_row=generation * rows))
            harness.probe(groups_of(0))
            spiller.begin_spill(1, LARGEST, [0])
            spiller.spill_next()
        spiller.operator = harness.operator
        found = cleaned(spiller, [5 << 10])
    wanted = [(one, other) for one in range(3 * rows) for other in range(3 * rows) if one // rows != other // rows]
    assert (found.found, f"{found.certificate:016x}") == (len(wanted), oracle.certificate(wanted))
