"""What an m-way probe works with: its cursor, and memory that is reserved once and never grows.

A probe takes a *batch* of fresh tuples of one stream and bucket: its *members*. It looks for the partners of all of
them in the chain of one other stream, then in the next one's; members without partners leave the batch, which is a list
of places in arrays that do not change. What is left is enumerated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpijoin.join.state import JoinState
from mpijoin.store.pool import reserve_words
from mpijoin.store.simd import LANES
from mpijoin.store.state import NONE, PAGES, SLOTS

# A cursor: where a probe that stopped goes on. STREAM: whose fresh tuples are joined, in BUCKET · FRESH_AT, FRESH_FROM:
# page and slot where the batch begins · NEXT_AT, NEXT_FROM: where the one after it does · LIMIT: members it may have ·
# GATHERED: that it had, MEMBERS: those left · STAGE: other streams that are done with, OTHER: the one that is being
# scanned, at slot SLOT of PAGE (scanned by time: for the member at ASKING) · CONFIRMED, FOUND_PAIRS: pairs that are
# known to match, and all · TOP: end of the lists of partners, BEGUN: before this stage · MEMBER (a place in the list),
# LEVEL: what is being enumerated · AHEAD: buckets from BUCKET on were asked for.
(
    GROUP_INDEX, BUCKET, STREAM, STEP, FRESH_AT, FRESH_FROM, NEXT_AT, NEXT_FROM, LIMIT, GATHERED, MEMBERS, STAGE, OTHER,
    PAGE, SLOT, ASKING, CONFIRMED, FOUND_PAIRS, TOP, BEGUN, MEMBER, LEVEL, AHEAD, MWAY_CURSOR_WORDS,
) = range(24)  # fmt: skip

# STEP: what comes next.
NEW_BATCH, COLLECT, ENUMERATE = range(3)

BATCH = 256  # members at most; as many tags and times as the innermost cache holds with the table of tags
TAG_TABLE = 1 << 13  # entries, of two bytes each
PAIRS = 1 << 14  # matches of a batch in one stream; a batch that has more is halved, but for a single member
ROOM = 1 << 12  # pairs that may wait for being looked at, behind those
LISTED = 256  # slots whose tags are looked up at a time
FETCHED_BUCKETS, FETCHED_BLOCKS = 16, 8  # whose chains are asked for together, and of each

# Columns of `levels`: the list of partners, how far it is, and of the tuples before it the latest time and the first
# deadline.
AT, BEGIN, END, LATEST, DEADLINE, LEVEL_WORDS = range(6)


class MwayScratch(NamedTuple):
    """Per tuple gathered: tag uint16[], key, time, deadline (last time that it waits for), slot (id) int64[]; first,
    count: int64[n, ..] its partners of each stream as a range of `partners` · member int64[]: which of them are in the
    batch, MEMBERS of them, in order · table int16[]: by a tag's low bits the first of the members (from 1) with such a
    tag, after int16[]: the next one, 0: none · pair_member, pair_slot: matches of the stage, then pairs that may be ·
    partners: slot ids · order: the other streams · levels, prefix (hash of the rows before): of the enumeration."""

    tag: np.ndarray
    key: np.ndarray
    time: np.ndarray
    deadline: np.ndarray
    slot: np.ndarray
    first: np.ndarray
    count: np.ndarray
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
    """Lists of partners have room for all that a batch may find and, of a single tuple, for all that the pool can hold:
    address space, of which only what is used takes memory."""
    streams = len(state.layout)
    held_max = int(state.pool[PAGES] * state.layout[:, SLOTS].max())
    return MwayScratch(
        tag=np.zeros(BATCH + LANES, np.uint16),
        key=np.zeros(BATCH, np.int64),
        time=np.zeros(BATCH, np.int64),
        deadline=np.zeros(BATCH, np.int64),
        slot=np.zeros(BATCH, np.int64),
        first=np.zeros((streams, BATCH), np.int64),
        count=np.zeros((streams, BATCH), np.int64),
        member=np.zeros(BATCH, np.int64),
        table=np.zeros(TAG_TABLE, np.int16),
        after=np.zeros(BATCH, np.int16),
        listed=np.zeros(LISTED + 1, np.int64),
        pair_member=np.zeros(PAIRS + ROOM, np.int64),
        pair_slot=np.zeros(PAIRS + ROOM, np.int64),
        partners=reserve_words(1 + streams * (PAIRS + ROOM) + held_max),
        order=np.zeros(streams, np.int64),
        levels=np.zeros((streams + 1, LEVEL_WORDS), np.int64),
        prefix=np.zeros(streams + 1, np.uint64),
        chains=np.zeros(streams * FETCHED_BUCKETS, np.int64),
    )


def start_probe_mway(cursor: np.ndarray) -> None:
    """Sets a cursor, int64[MWAY_CURSOR_WORDS], before the first group."""
    cursor[:] = 0
    cursor[[GROUP_INDEX, STREAM, LIMIT]] = -1, 0, BATCH
    cursor[[BUCKET, FRESH_AT, NEXT_AT, PAGE]] = NONE
