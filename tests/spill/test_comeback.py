"""Groups that are spilled at any time, cleaned up while there is nothing else to do, and brought back into memory where
there is room: the answer is the oracle's for every type of join, and every row is accounted for."""

import random
from collections import Counter
from itertools import cycle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import oracle
from join_harness import EVER, NEVER, Harness, Stream, check_accounts, groups_of, numbered
from mpijoin.data.batch import KEYLESS
from mpijoin.join.marks import MARKS
from mpijoin.spill.runs import Runs
from mpijoin.spill.scratch import open_scratch
from mpijoin.spill.spiller import Spiller
from mpijoin.store import state as st
from random_joins import CUTS, SETUPS, Setup, joins, rounds

MEMORY = 1 << 22
STREAMS = some.sampled_from([2, 2, 3, 4])
# What is done after a round.
DEEDS = some.lists(some.sampled_from(["spill", "spill all", "idle", "nothing"]), min_size=1, max_size=9)


def cleaned(harness, spiller, rooms=()):
    """Does what there is to do while nothing else is. Returns in how many steps. rooms: how many times the least memory
    there is for it, each for some steps in turn."""
    steps, until, rooms, memory = 0, 0, cycle(rooms), harness.operator.memory()
    pages = 3 + BLOB_BYTES_MAX // harness.operator.page_bytes
    least = 2 * len(harness.streams) * pages * harness.operator.page_bytes
    while spiller.clean_up(harness.out):
        harness.consume()
        steps += 1
        if steps > until and spiller.may_lose_memory and (room := next(rooms, None)):
            harness.operator.limit(memory.budget - memory.free + room * least)
            until = steps + STEPS
    harness.consume()
    harness.operator.limit(memory.budget)
    return steps


def wanted(kind, streams, rows):
    windows = [None if stream.window == st.FOREVER else stream.window for stream in streams]
    told = [[(row.time, None if row.row & KEYLESS else row.key, row.row) for row in own] for own in rows]
    return Counter(oracle.typed(kind, told, windows) if len(rows) == 2 else oracle.join(told, windows))


def new_spiller(harness, folder, threshold=1.0):
    scratch = open_scratch(str(folder), "rank-1")
    return scratch, Spiller(harness.operator, harness.operator.beside(1), Runs(scratch), 0, threshold)


KINDS = some.sampled_from(["inner", *MARKS])
# How many times the least memory there is for the last clean-up, and for how many steps of it.
ROOMS = some.lists(some.sampled_from([4, 4, 8, 1000]), min_size=1, max_size=4)
STEPS, BLOB_BYTES_MAX = 20, 300
SEEDS = 25  # of each type


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    SETUPS, joins(STREAMS), CUTS, DEEDS, some.sampled_from([0.001, 1.0]), some.booleans(), KINDS, some.booleans(),
    ROOMS,
)  # fmt: skip
def test_what_goes_and_comes_back_is_found_once(
    tmp_path_factory, setup, join, cuts, deeds, threshold, expires, kind, certifies, rooms
):
    streams, rows = join
    marks = MARKS.get(kind) if len(streams) == 2 else None
    own = setup.partitions, MEMORY, setup.block, setup.theta, setup.result_buffer
    harness = Harness(streams, *own, marks=marks, certifies=certifies or marks is None)
    scratch, spiller = new_spiller(harness, tmp_path_factory.mktemp("scratch"), threshold)
    deeds, every = cycle(deeds), range(setup.partitions)
    with scratch:
        for parts, reached in rounds(rows, cuts):
            marks = reached if expires else [NEVER] * len(streams)
            for group in every:
                harness.round_of(groups_of(group), parts, marks, setup.budget, setup.pieces)
            deed = next(deeds)
            if deed.startswith("spill"):
                spiller.begin_spill(1 if deed == "spill" else MEMORY, "random", every)
                while spiller.spill_next():
                    pass
            if deed == "idle":
                cleaned(harness, spiller)
                assert threshold < 1 or not spiller.open_groups, "there is room for all, so all came back"
                check_accounts(harness, harness.started())
        harness.expire(groups_of(*every), [EVER] * len(streams))
        spiller.begin_end(every, harness.out)
        cleaned(harness, spiller, rooms)
    assert harness.row_pairs() == wanted(kind, streams, rows)
    totals = harness.operator.totals
    assert totals.joined == tuple(map(len, rows))
    assert (np.array(totals.taken_back) + spiller.let_go).tolist() == list(totals.spilled)
    assert spiller.figures.disk_bytes == 0


def drawn(chance):
    """Two streams and their rows in the order of arrival, with disorder, few keys, null keys and long texts."""
    keys, streams, rows = chance.choice([1, 4, 40]), [], []
    for _ in range(2):
        window = chance.choice([0, 15, 60, 60, st.FOREVER])
        streams.append(Stream(window, *chance.choice([(0, False), (1, False), (2, True)])))
        times = sorted(range(120), key=lambda time: time + chance.random() * 20)[: chance.choice([40, 120, 120])]
        own = numbered([(time, chance.randrange(keys)) for time in times], streams[-1], [0, 9, 300])
        rows.append([row._replace(row=row.row | KEYLESS * (chance.random() < 0.05)) for row in own])
    return streams, rows


@pytest.mark.parametrize("kind", MARKS)
def test_each_type_has_its_answer_from_memory_and_from_the_disk(tmp_path, kind):
    """Groups of few keys are worked off in parts and in chunks, and rows of one batch leave in many ways."""
    seen = Counter()
    for seed in range(SEEDS):
        chance = random.Random(f"{kind} {seed}")
        streams, rows = drawn(chance)
        setup = Setup(chance.randint(1, 3), chance.choice([256, 512]), chance.choice([60, 1000]))
        own = setup.partitions, MEMORY, setup.block, setup.theta, chance.choice([1, 7, 1000])
        harness = Harness(streams, *own, marks=MARKS[kind], certifies=chance.random() < 0.5)
        scratch, spiller = new_spiller(harness, tmp_path, chance.choice([0.001, 1.0]))
        every, cuts = range(setup.partitions), [([rest, rest], 0) for rest in range(0, 120, chance.choice([10, 20]))]
        rooms = chance.choice([(), (3,), (3, 1000), (6,)])
        with scratch:
            for parts, marks in rounds(rows, cuts):
                harness.round_of(groups_of(*every), parts, marks)
                if chance.random() < 0.5:
                    spiller.begin_spill(chance.choice([1, MEMORY]), "random", every)
                    while spiller.spill_next():
                        pass
                if chance.random() < 0.2:
                    seen["idle"] += cleaned(harness, spiller, rooms) > 0
            harness.expire(groups_of(*every), [EVER] * 2)
            found = len(harness.pairs)
            spiller.begin_end(every, harness.out)
            cleaned(harness, spiller, rooms)
            seen["at the end"] += len(harness.pairs) > found
        assert harness.row_pairs() == wanted(kind, streams, rows), f"seed {seed}"
        assert not harness.out.certifies or harness.out.found == len(harness.pairs)
        assert (harness.operator.totals.taken_back + spiller.let_go).tolist() == list(harness.operator.totals.spilled)
        assert spiller.figures.disk_bytes == 0
    assert min(seen.values()) > SEEDS / 4, seen


@pytest.mark.parametrize("kind", MARKS)
def test_marks_of_one_key_last_from_chunk_to_chunk(tmp_path, kind):
    """Each row has one partner at most, in one chunk of the other stream and in another generation."""
    streams = [Stream(0), Stream(0)]
    rows = [numbered([(time, 1) for time in range(300) if time % (5 - 2 * side)]) for side in range(2)]
    harness = Harness(streams, 1, MEMORY, 256, 1000, marks=MARKS[kind])
    scratch, spiller = new_spiller(harness, tmp_path)
    with scratch:
        for side in range(2):
            harness.round_of(groups_of(0), [rows[side] if side == own else [] for own in range(2)], [NEVER] * 2)
            spiller.begin_spill(MEMORY, "largest", [0])
            spiller.spill_next()
        harness.expire(groups_of(0), [EVER] * 2)
        spiller.begin_end([0], harness.out)
        cleaned(harness, spiller, (1,))
    assert harness.row_pairs() == wanted(kind, streams, rows)


def spilled(tmp_path, rows):
    harness = Harness([Stream(1000), Stream(1000)], 1, MEMORY, 256)
    scratch, spiller = new_spiller(harness, tmp_path)
    harness.round(groups_of(0), rows, rows, (NEVER, NEVER))
    spiller.begin_spill(1, "largest", [0])
    assert not spiller.spill_next() and harness.operator.memory().held == 0
    return harness, spiller, scratch


def test_a_group_that_came_back_finds_results_at_once(tmp_path):
    rows = numbered([(time, time % 7) for time in range(300)])
    harness, spiller, scratch = spilled(tmp_path, rows)
    with scratch:
        assert cleaned(harness, spiller) and not spiller.open_groups
        assert harness.operator.totals.held == (300, 300) and spiller.figures.disk_bytes == 0
        before = len(harness.pairs)
        harness.round(groups_of(0), numbered([(300, 3)], first_row=300), [], (NEVER, NEVER))
        assert len(harness.pairs) - before == len([row for row in rows if row.key == 3])


def test_what_does_not_fit_after_all_stays_on_disk(tmp_path, monkeypatch):
    rows = numbered([(time, time % 7) for time in range(2000)])
    harness, spiller, scratch = spilled(tmp_path, rows)
    with scratch:
        take_back = type(harness.operator).take_back
        monkeypatch.setattr(type(harness.operator), "take_back", lambda *args: take_back(*args) and False)
        assert cleaned(harness, spiller) and spiller.open_groups == 1
        totals = harness.operator.totals
        assert totals.held == (0, 0) and totals.spilled == (4000, 4000) and totals.taken_back == (2000, 2000)
        monkeypatch.undo()
        assert not cleaned(harness, spiller), "or it would be tried for ever"
        harness.round(groups_of(0), rows[:1], rows[:1], (500, 500))
        spiller.begin_spill(1, "largest", [0])
        spiller.spill_next()
        assert cleaned(harness, spiller) and spiller.open_groups == 1
