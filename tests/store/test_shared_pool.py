"""Two operators over one pool: each finds what the oracle finds, and memory that one gives back serves the other."""

from collections import Counter

import numpy as np

import oracle
from join_harness import Harness, Stream, chain, groups_of, numbered
from mpijoin.join.window_join import Setup, WindowJoin
from mpijoin.store import state as st
from mpijoin.store.pool import StreamSpec, new_pool

STREAMS = [Stream(40, 1, True), Stream(25)]
PAGES, BLOCK = 600, 512


def pair(pages=PAGES):
    """Two holders of tuples of the same streams, over one pool of so many pages."""
    specs = tuple(StreamSpec(stream.record_words, stream.has_blob, stream.window) for stream in STREAMS)
    pool, holders = new_pool(pages * BLOCK, BLOCK, max(spec.tuple_words for spec in specs)), []
    for number in range(2):
        holder = Harness(STREAMS, 2, block=BLOCK)
        holder.operator = WindowJoin(Setup(2, 600, specs, number), pool)
        holders.append(holder)
    return pool, holders


def owners(holder):
    """(generation, operator, group, stream) of each block of the holder's groups, by the heads of their pages."""
    table = holder.state
    for group in holder.started():
        entries = table.directory[table.groups[group, st.DIRECTORY] :][: 1 << int(table.groups[group, st.DEPTH])]
        for bucket in set(entries.tolist()):
            for stream in range(len(STREAMS)):
                for page in chain(table, bucket, stream):
                    number, stream_of = divmod(int(table.heads[page, st.OWNER]), st.STREAMS_MAX)
                    number, group_of = divmod(number, st.GROUPS_MAX)
                    yield (*divmod(number, st.OPERATORS_MAX), group_of, stream_of)


def rows_of(seed, ticks):
    random = np.random.default_rng(seed)
    keys = [random.integers(0, 9, ticks).tolist() for _ in STREAMS]
    return [numbered(list(enumerate(own)), stream, (0, 90)) for own, stream in zip(keys, STREAMS)]


def test_each_joins_its_own_and_all_pages_come_back():
    pool, holders = pair()
    sides = [rows_of(seed, 200) for seed in (1, 2)]
    for start in range(0, 200, 20):
        for holder, side in zip(holders, sides):
            holder.round(groups_of(0, 1), *(rows[start : start + 20] for rows in side), (start + 20, start + 20))
        held = [holder.operator.memory() for holder in holders]
        assert pool.held_bytes == sum(memory.held for memory in held) > 0
        assert {(memory.budget, memory.free) for memory in held} == {(PAGES * BLOCK, pool.free_bytes)}
    for holder, side in zip(holders, sides):
        wanted = oracle.join([[(row.time, row.key, row.row) for row in rows] for rows in side], [40, 25])
        assert holder.row_pairs() == Counter(wanted)
        assert holder.out.certificate == int(oracle.certificate(wanted), 16)
        holder.expire(groups_of(0, 1), (1 << 40, 1 << 40))
    assert pool.held_bytes == 0


def test_what_one_gives_back_the_other_can_use():
    _, (one, other) = pair(180)
    left = numbered([(time, time) for time in range(600)], STREAMS[0], (0,))
    done = one.insert(groups_of(0, 1), 0, left)
    assert done == 2
    assert other.insert(groups_of(0, 1), 0, left) < 2, "the pool is one budget"
    one.probe(groups_of(0, 1))
    one.expire(groups_of(0, 1), (1 << 40, 1 << 40))
    assert one.operator.memory().held == 0
    other.probe(groups_of(0, 1))
    for group in (0, 1):
        other.operator.drop(group)
    assert other.insert(groups_of(0, 1), 0, left) == 2


def test_a_block_s_head_says_whose_it_is_and_the_generation_travels():
    _, (one, other) = pair()
    one.round(groups_of(1), numbered([(1, key) for key in range(30)], STREAMS[0], (0,)), [], (0, 0))
    assert set(owners(one)) == {(0, 0, 1, 0)}
    frames = one.operator.get(1, 0)
    assert other.operator.install(frames, generation=5) == 1
    assert other.operator.info(groups_of(1)).generations.tolist() == [5]
    assert set(owners(other)) == {(5, 1, 1, 0)}, "generation, operator, group, stream"
    one.operator.drop(1)
    assert one.operator.install(other.operator.get(1, 0)) == 1
    assert one.operator.info(groups_of(1)).generations.tolist() == [5], "it came with the group"
