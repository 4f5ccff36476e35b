"""The pool: how blocks are laid out in pages, what is reserved, and that pages are used again."""

import pytest

from join_harness import NEVER, Harness, Stream, free_list, groups_of, numbered
from mpijoin.config import job
from mpijoin.store import pool
from mpijoin.store import state as st


def empty(partitions, memory_bytes, block_bytes, streams):
    specs = [pool.StreamSpec(*stream) for stream in streams]
    pages = pool.new_pool(memory_bytes, block_bytes, max(spec.tuple_words for spec in specs))
    return pool.new_table(pages, partitions, 1, specs)


def test_the_store_has_room_for_as_many_streams_as_a_job_may_have():
    assert st.STREAMS_MAX == job.STREAMS_MAX


@pytest.mark.parametrize("flagged", [False, True])
@pytest.mark.parametrize("words", [3, 4, 5, 8, 13, 100, 600])
@pytest.mark.parametrize("page_words", [8, 16, 64, 512, 8192])
def test_a_block_fits_its_page_and_one_tuple_more_would_not(words, page_words, flagged):
    def used(slots):
        return pool.tag_words(slots) + pool.flag_words(slots, flagged) + slots * words

    slots = pool.slots_in(page_words, words, flagged)
    assert slots >= 1 and (used(slots) <= page_words or slots == 1)
    assert used(slots + 1) > page_words


def test_tags_are_whole_cache_lines():
    assert [pool.tag_words(slots) for slots in (1, 32, 33, 64, 65)] == [8, 8, 16, 16, 24]


def test_words_of_a_tuple():
    assert [pool.tuple_words(record, blob) for record, blob in ((0, False), (2, False), (0, True), (3, True))] == [
        3,
        5,
        5,
        8,
    ]


def test_a_page_is_of_whole_cache_lines_and_long_enough_for_one_tuple():
    for block_bytes, record_words in ((8, 0), (100, 0), (64, 50), (4096, 3)):
        state = empty(1, 1 << 20, block_bytes, [(record_words, False, 0), (0, True, 5)])
        page_words = state.pool[st.PAGE_WORDS]
        assert page_words % pool.LINE_WORDS == 0 and 8 * page_words >= block_bytes
        ends = state.layout[:, st.TUPLES_AT] + state.layout[:, st.SLOTS] * state.layout[:, st.TUPLE_WORDS]
        assert (ends <= page_words).all() and (state.layout[:, st.SLOTS] >= 1).all()
        assert state.layout[:, st.TUPLE_BYTES].tolist() == [8 * (3 + record_words), 40]
        assert state.layout[:, st.HAS_BLOB].tolist() == [0, 1] and state.layout[:, st.WINDOW].tolist() == [0, 5]


def test_the_budget_bounds_the_pages():
    state = empty(3, 100_000, 4096, [(0, False, 0)] * 2)
    assert state.pool[st.PAGES] == 24 and len(state.words) == 24 * 512 and len(state.heads) == 24
    assert empty(3, 1, 4096, [(0, False, 0)] * 2).pool[st.PAGES] == 1


def test_the_views_are_of_one_memory():
    state = empty(1, 1 << 16, 256, [(0, False, 0)] * 2)
    state.words[3] = 0x0102030405060708
    assert state.halves[12] == 0x0708 and state.octets[24] == 8


def test_address_space_is_no_memory():
    """Sixty-four gigabytes may be reserved: only what is written counts."""
    words = pool.reserve_words(1 << 33)
    words[[0, -1]] = 1
    assert words[[0, -1]].sum() == 2


def test_pages_are_used_again_before_new_ones():
    harness = Harness([Stream(0), Stream(0)], block=64)
    groups = groups_of(0)
    harness.round(groups, numbered([(time, 1) for time in range(20)]), [], (NEVER, NEVER))
    assert harness.operator.memory().held == 10 * harness.operator._pool.page_bytes == 10 * 128
    harness.expire(groups, (NEVER, 20))
    assert harness.operator.memory().held == 0 and len(free_list(harness.state, st.FREE_PAGE)) == 10
    harness.round(groups, numbered([(time, 1) for time in range(20, 36)]), [], (NEVER, NEVER))
    counters = harness.state.pool
    assert counters[st.UNUSED_PAGE] == counters[st.PAGES_HELD_MAX] == 10 and counters[st.PAGES_HELD] == 8


def test_block_ids_are_never_used_again():
    harness = Harness([Stream(0), Stream(0)], block=64)
    groups, seen = groups_of(0), []
    for start in range(0, 60, 20):
        harness.round(groups, numbered([(start + time, 1) for time in range(20)]), [], (NEVER, NEVER))
        seen += harness.state.heads[:10, st.BLOCK_ID].tolist()
        harness.expire(groups, (NEVER, start + 20))
    assert len(set(seen)) == len(seen) == 30
