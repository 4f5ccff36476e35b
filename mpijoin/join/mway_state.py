"""What an m-way probe works with: its cursor, and memory that is reserved once and never grows.

A probe takes a *batch* of fresh tuples of one stream and bucket; they are its *members*. It looks for the partners of
all members in the chain of one other stream, then in that of the next. Each of these is a *stage*. Members without
partners leave the batch. The batch is a list of places in arrays, and these arrays do not change when members leave.
The combinations of the remaining members are enumerated.
"""

from __future__ import annotations

import numpy as np

from mpijoin.join.state import JoinState
from mpijoin.named import NamedTuple
from mpijoin.store.pool import SMALL_BYTES, reserve_words
from mpijoin.store.simd import LANES
from mpijoin.store.state import NONE, SLOTS

# A cursor says where a probe that stopped goes on. STREAM, BUCKET: whose fresh tuples are joined · FRESH_AT,
# FRESH_FROM: the page and slot where the batch begins · NEXT_AT, NEXT_FROM: where the next batch begins · LIMIT: how
# many members a batch may have · GATHERED: how many it had at first · MEMBERS: how many are left · STAGE: how many
# other streams are done with · OTHER: the stream that is being scanned, at slot SLOT of PAGE · ASKING: the member for
# which a block is being scanned by time · FOUND_PAIRS: how many pairs there are · CONFIRMED: how many of these are
# known to match · TOP: the end of the lists of partners · BEGUN: where that was before this stage · MEMBER, LEVEL: what
# is being enumerated, where MEMBER is a place in the list · AHEAD: how many buckets, from BUCKET on, were asked for ·
# OLDS: how many matches of this stage are with old tuples, once fresh ones are being scanned, and NONE before that.
(
    GROUP_INDEX, BUCKET, STREAM, STEP, FRESH_AT, FRESH_FROM, NEXT_AT, NEXT_FROM, LIMIT, GATHERED, MEMBERS, STAGE, OTHER,
    PAGE, SLOT, ASKING, CONFIRMED, FOUND_PAIRS, TOP, BEGUN, MEMBER, LEVEL, AHEAD, OLDS, MWAY_CURSOR_WORDS,
) = range(25)  # fmt: skip

# STEP says what comes next.
NEW_BATCH, COLLECT, ENUMERATE = range(3)

# A batch has at most so many members: their tags and times fit the innermost cache together with the table of tags.
BATCH = 256
TAG_TABLE = 1 << 13  # The table of tags has so many entries, of two bytes each.
# A batch may have so many matches in one stream. If it has more, it is halved, unless it has a single member.
PAIRS = 1 << 14
ROOM = 1 << 12  # So many more pairs may wait, behind the matches, to be looked at.
LISTED = 256  # The tags of so many slots are looked up at a time.
# The chains of so many buckets are asked for together, and of each chain so many blocks.
FETCHED_BUCKETS, FETCHED_BLOCKS = 16, 8

# Columns of `levels`. Each level has a list of partners, from BEGIN to END, of which AT is the next one; LATEST and
# DEADLINE are the latest time and the first deadline of the tuples before it. If a combination needs an old tuple, the
# list begins with these, up to OLD_END, and its fresh ones follow up to ALL_END. NEEDS_OLD: no tuple before it is old ·
# LAST_CHANCE: no list after it has an old one.
AT, BEGIN, END, LATEST, DEADLINE, OLD_END, ALL_END, NEEDS_OLD, LAST_CHANCE, LEVEL_WORDS = range(10)


class MwayScratch(NamedTuple):
    """The arrays of an m-way probe.

    For each gathered tuple: tag uint16[BATCH + LANES] · key, time, deadline (the last time at which it waits), slot
    (its slot id) int64[BATCH] · first, counts: int64[n, BATCH], its partners in each stream as a range of `partners` ·
    olds int64[n, BATCH]: how many of these, at the front, are old.

    member int64[BATCH]: the gathered tuples that are still in the batch, MEMBERS of them, in order · table
    int16[TAG_TABLE]: the low bits of a tag lead to the first member with these bits, counted from 1 (0: none) · after
    int16[BATCH]: leads from a member to the next one with these bits · listed: slots whose tags are in the table ·
    pair_member, pair_slot: the matches of the stage, then pairs that may match · partners: slot ids · order: the other
    streams, in the order of the stages · levels: see above · prefix: at each level, the hash of the rows before it ·
    chains: the pages that are asked for ahead.
    """

    tag: np.ndarray
    key: np.ndarray
    time: np.ndarray
    deadline: np.ndarray
    slot: np.ndarray
    first: np.ndarray
    counts: np.ndarray
    olds: np.ndarray
    member: np.ndarray
    table: np.ndarray
    after: np.ndarray
    listed: np.ndarray
    pair_member: np.ndarray
    pair_slot: np.ndarray
    partners: np.ndarray
    order: np.ndarray
    levels: np.ndarray
    prefix: np.ndarray
    chains: np.ndarray


def new_scratch(state: JoinState) -> MwayScratch:
    """Returns the arrays of an m-way probe.

    The lists of partners have room for all that a batch may find and, for a single tuple, for all that the pool can
    hold. This is address space, and only the part that is used takes memory.
    """
    streams = len(state.layout)
    held_max = len(state.heads) * int(state.layout[:, SLOTS].max())
    return MwayScratch(
        tag=np.zeros(BATCH + LANES, np.uint16),
        key=np.zeros(BATCH, np.int64),
        time=np.zeros(BATCH, np.int64),
        deadline=np.zeros(BATCH, np.int64),
        slot=np.zeros(BATCH, np.int64),
        first=np.zeros((streams, BATCH), np.int64),
        counts=np.zeros((streams, BATCH), np.int64),
        olds=np.zeros((streams, BATCH), np.int64),
        member=np.zeros(BATCH, np.int64),
        table=np.zeros(TAG_TABLE, np.int16),
        after=np.zeros(BATCH, np.int16),
        listed=np.zeros(LISTED + 1, np.int64),
        pair_member=np.zeros(PAIRS + ROOM, np.int64),
        pair_slot=np.zeros(PAIRS + ROOM, np.int64),
        partners=reserve_words(1 + streams * (PAIRS + ROOM) + held_max, SMALL_BYTES),
        order=np.zeros(streams, np.int64),
        levels=np.zeros((streams + 1, LEVEL_WORDS), np.int64),
        prefix=np.zeros(streams + 1, np.uint64),
        chains=np.zeros(streams * FETCHED_BUCKETS, np.int64),
    )


def start_probe_mway(cursor: np.ndarray) -> None:
    """Sets a cursor, int64[MWAY_CURSOR_WORDS], to before the first group."""
    cursor[:] = 0
    cursor[[GROUP_INDEX, STREAM, LIMIT]] = -1, 0, BATCH
    cursor[[BUCKET, FRESH_AT, NEXT_AT, PAGE]] = NONE
