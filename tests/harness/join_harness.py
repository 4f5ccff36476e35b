"""What the operator's tests share: tuples as plain Python values, a driver of WindowJoin, and a walk over its state."""

from collections import Counter
from operator import lt
from typing import NamedTuple

import numpy as np

import oracle
from mpijoin.data.batch import read_only
from mpijoin.join.window_join import window_join
from mpijoin.operators.base import Keep, Out, Progress
from mpijoin.slave.delays import times_of
from mpijoin.store import state as st
from mpijoin.store.directory import PREFIX_SHIFT, UNSPLITTABLE
from mpijoin.store.insert import Fresh

NEVER, EVER = st.TIME_MIN_VALUE, st.TIME_MAX_VALUE
SIGN = 1 << 63
# These totals of an operator count what it has done. They never fall, whatever groups come and go.
RUNNING = (
    *("comparisons", "results", "splits", "merges", "blocks_max"),
    *("joined", "expired", "moved_in", "moved_out", "discarded"),
)


def fallen_counts(before, now):
    """Returns the totals in RUNNING that have fallen between two looks at an operator."""
    return [name for name in RUNNING if any(map(lt, listed(getattr(now, name)), listed(getattr(before, name))))]


def listed(total):
    return total if isinstance(total, tuple) else (total,)


class Stored(NamedTuple):
    """A tuple as the operator stores it. record: a tuple of ints."""

    time: int
    key: int
    row: int
    record: tuple = ()
    blob: bytes = b""


class Stream(NamedTuple):
    window: int = 0
    record_words: int = 0
    has_blob: bool = False
    flagged: bool = False


def signed(word):
    return (word & oracle.MASK ^ SIGN) - SIGN


def clamp(time):
    return min(max(time, NEVER), EVER)


def numbered(times_and_keys, stream=Stream(), sizes=(0,), first_row=0):
    """Returns tuples with rows 0, 1, ... Record and blob follow from the row, so that a wrong one is noticed."""
    return [
        Stored(clamp(time), key, row, record_of(row, stream), blob_of(row, stream, sizes))
        for row, (time, key) in enumerate(times_and_keys, first_row)
    ]


def record_of(row, stream):
    return tuple(signed(oracle.mix(row * 7 + word + 1)) for word in range(stream.record_words))


def blob_of(row, stream, sizes):
    if not stream.has_blob:
        return b""
    return bytes((row * 31 + i) & 0xFF for i in range(sizes[row % len(sizes)]))


def encode(groups, rows, stream, partitions):
    """Returns (Fresh, bounds) of the rows of `groups`, as a message would bring them, in order within a group."""
    by_group = {int(group): [] for group in groups}
    for row in rows:
        by_group.get(oracle.partition(row.key, partitions), []).append(row)
    counts = [len(some) for some in by_group.values()]
    ends = np.cumsum(counts, dtype=np.int64)
    return pack([row for some in by_group.values() for row in some], stream), np.stack([ends - counts, ends], axis=1)


def pack(rows, stream):
    words, address = [], 0
    for row in rows:
        words.append([row.key, row.time, row.row, *([address, len(row.blob)] if stream.has_blob else []), *row.record])
        address += len(row.blob)
    width = (5 if stream.has_blob else 3) + stream.record_words
    tuples = np.array(words, np.int64).reshape(len(rows), width)
    return Fresh(read_only(tuples), read_only(np.frombuffer(b"".join(row.blob for row in rows), np.uint8)))


def groups_of(*numbers):
    return read_only(np.array(numbers, np.int64))


class Harness:
    """One operator and the pairs it has found so far. They are whole tuples, so that a wrong one is noticed."""

    def __init__(
        self,
        streams,
        partitions=1,
        memory=1 << 23,
        block=4096,
        theta=st.THETA_OFF,
        result_buffer=1000,
        keep=Keep.SLOT_IDS,
        symmetric=None,
        marks=None,
        certifies=True,
        operator=None,
    ):
        """operator: what is driven, of these streams and partitions; None: a join."""
        layout = [(stream.record_words, stream.has_blob, stream.window, stream.flagged) for stream in streams]
        self.streams, self.partitions = streams, partitions
        self.operator = operator or window_join(partitions, memory, block, theta, layout, symmetric, marks)
        self.out = Out(len(streams), result_buffer, keep, certifies)
        self.pairs = []
        self.later_times = Counter()

    @property
    def state(self):
        return self.operator._table

    def insert(self, groups, stream, rows, new=False):
        fresh, bounds = encode(groups, rows, self.streams[stream], self.partitions)
        return self.operator.insert(groups, stream, fresh, bounds, new).groups

    def probe(self, groups, budget=1 << 40):
        """Probes until it is done. Returns how many calls it took."""
        calls, progress = 0, None
        while progress is not Progress.DONE:
            progress = self.operator.probe(groups, budget, self.out)
            self.consume()
            calls += 1
        return calls

    def consume(self):
        if self.operator.marker and not self.out.certifies and not self.out.is_final:
            self.operator.marker.keep(self.out, self.operator)
        for time, count in zip(*(side.tolist() for side in times_of(self.out, self.operator))):
            self.later_times[time] += count
        if self.out.keep is Keep.SLOT_IDS:
            sides = [self.read_all(i, side.tolist()) for i, side in enumerate(self.out.filled)]
            self.pairs += list(zip(*sides))
        self.out.clear()

    def round(self, groups, left, right, watermarks, budget=1 << 40, pieces=1):
        self.round_of(groups, (left, right), watermarks, budget, pieces)

    def round_of(self, groups, parts, watermarks, budget=1 << 40, pieces=1, new=False):
        """Inserts each stream's rows in so many pieces, then probes and expires. new: as of `Operator.insert`."""
        for piece in range(pieces):
            for stream, rows in enumerate(parts):
                part = rows[len(rows) * piece // pieces : len(rows) * (piece + 1) // pieces]
                assert self.insert(groups, stream, part, new) == len(groups)
        self.probe(groups, budget)
        self.expire(groups, watermarks)

    def expire(self, groups, watermarks):
        while self.operator.expire(groups, watermarks, self.out) is not Progress.DONE:
            self.consume()
        assert self.out.count == 0

    def started(self):
        """Returns the groups that have a directory here."""
        return np.flatnonzero(self.state.groups[:, st.BUCKETS]).tolist()

    def read(self, stream, slot):
        return read_tuple(self.state, self.streams[stream], slot)

    def read_all(self, stream, slots):
        """Returns the tuples with these slot ids. Most are in many results, but each is read once."""
        found = {slot: None if slot == st.NONE else self.read(stream, slot) for slot in set(slots)}
        return [found[slot] for slot in slots]

    def row_pairs(self):
        return Counter(tuple(None if row is None else row.row for row in pair) for pair in self.pairs)


def is_over(row, stream, reached):
    """Whether nothing that comes at or after `reached` can be a partner of the row."""
    return reached == EVER or (stream.window != st.FOREVER and row.time + stream.window < reached)


def read_tuple(state, stream, slot):
    """Returns the tuple with that slot id, read word by word."""
    words = state.words[slot : slot + (5 if stream.has_blob else 3) + stream.record_words].tolist()
    blob, at = b"", 3
    if stream.has_blob:
        blob, at = read_blob(state, words[st.ADDRESS], words[st.SIZE]), 5
    return Stored(words[st.TIME], words[st.KEY], words[st.ROW], tuple(words[at:]), blob)


def read_blob(state, address, size):
    page_bytes, found = 8 * int(state.pool[st.PAGE_WORDS]), b""
    page = address // page_bytes
    while len(found) < size:
        found += state.octets[address : min((page + 1) * page_bytes, address + size - len(found))].tobytes()
        page = int(state.heads[page, st.NEXT])
        address = page * page_bytes
    return found


def chain(state, bucket, stream):
    """Returns the pages of a bucket's chain, in order."""
    pages, page = [], int(state.buckets[bucket, stream * st.STREAM_WORDS + st.FIRST])
    while page != st.NONE:
        pages.append(page)
        page = int(state.heads[page, st.NEXT])
    assert (pages or [st.NONE])[-1] == state.buckets[bucket, stream * st.STREAM_WORDS + st.LAST]
    return pages


def blob_pages(state, page):
    pages, page = [], int(state.heads[page, st.BLOB_FIRST])
    while page != st.NONE:
        pages.append(page)
        page = int(state.heads[page, st.NEXT])
    return pages


def kept_pages(state, group):
    """Returns the pages of a group's kept blocks, and of their blobs."""
    pages, page = [], int(state.groups[group, st.KEPT])
    while page != st.NONE:
        pages += [page, *blob_pages(state, page)]
        page = int(state.heads[page, st.NEXT])
    return pages


def slots(state, stream, page):
    first = page * int(state.pool[st.PAGE_WORDS]) + int(state.layout[stream, st.TUPLES_AT])
    width = int(state.layout[stream, st.TUPLE_WORDS])
    return [first + slot * width for slot in range(int(state.heads[page, st.COUNT]))]


class Bucket(NamedTuple):
    number: int
    depth: int
    prefix: int
    unsplittable: bool
    octets: int


class Walked(NamedTuple):
    """A group as found by walking it: each stream's tuples in chain order, the buckets, and the pages with blobs."""

    tuples: tuple
    buckets: list
    depth: int
    pages: list


def walk(state, group, streams):
    """Walks a group, and checks on the way all that must hold of it whenever it has no fresh tuples."""
    row = state.groups[group].tolist()
    entries = state.directory[row[st.DIRECTORY] :][: 1 << row[st.DEPTH]].tolist()
    buckets, tuples, pages = [], tuple([] for _ in streams), []
    for number in dict.fromkeys(entries):
        bucket = check_bucket(state, number, entries, row[st.DEPTH])
        octets = sum(check_chain(state, group, bucket, i, stream, tuples[i], pages) for i, stream in enumerate(streams))
        buckets.append(bucket._replace(octets=octets))
    pages += kept_pages(state, group)
    assert row[st.BUCKETS] == len(buckets)
    assert row[st.DEEPEST] == sum(bucket.depth == row[st.DEPTH] for bucket in buckets)
    assert row[st.GROUP_TUPLES :: st.GROUP_STREAM_WORDS] == [len(some) for some in tuples]
    assert sum(row[st.GROUP_BYTES :: st.GROUP_STREAM_WORDS]) == sum(bucket.octets for bucket in buckets)
    assert row[st.BLOCKS] == len(pages) == len(set(pages))
    assert row[st.FRESH] == st.NONE
    return Walked(tuples, buckets, row[st.DEPTH], pages)


def check_bucket(state, number, entries, depth):
    shape = int(state.buckets[number, st.SHAPE])
    bucket = Bucket(number, shape & 0xFF, shape >> PREFIX_SHIFT, bool(shape & UNSPLITTABLE), 0)
    own = [entry for entry, other in enumerate(entries) if other == number]
    assert own == list(range(bucket.prefix, 1 << depth, 1 << bucket.depth))
    assert len(own) == 1 << (depth - bucket.depth)
    return bucket


def check_chain(state, group, bucket, stream, layout, tuples, pages):
    """Checks one chain and appends its tuples and pages. Returns the bytes of its live tuples."""
    octets, base, before = 0, stream * st.STREAM_WORDS, len(tuples)
    blocks = chain(state, bucket.number, stream)
    for page in blocks:
        head = state.heads[page].tolist()
        found = [read_tuple(state, layout, slot) for slot in slots(state, stream, page)]
        generation = int(state.groups[group, st.GENERATION])
        assert head[st.OWNER] == (generation * st.OPERATORS_MAX * st.GROUPS_MAX + group) * st.STREAMS_MAX + stream
        assert found
        assert [head[st.TIME_MIN], head[st.TIME_MAX]] == [f(row.time for row in found) for f in (min, max)]
        assert all(oracle.hash64(row.key) & ((1 << bucket.depth) - 1) == bucket.prefix for row in found)
        tags = state.halves[4 * page * int(state.pool[st.PAGE_WORDS]) :][: len(found)].tolist()
        assert tags == [oracle.hash64(row.key) >> 24 & 0xFFFF for row in found]
        octets += len(found) * int(state.layout[stream, st.TUPLE_BYTES]) + sum(len(row.blob) for row in found)
        tuples += found
        pages += [page, *blob_pages(state, page)]
    assert all(state.heads[page, st.COUNT] == state.layout[stream, st.SLOTS] for page in blocks[:-1])
    counted, live = state.buckets[bucket.number, [base + st.COUNTED, base + st.BYTES]].tolist()
    assert (counted, live) == (len(tuples) - before, octets)
    first_max = state.heads[blocks[0], st.TIME_MAX] if blocks else EVER
    assert state.buckets[bucket.number, base + st.FIRST_TIME_MAX] == first_max
    assert state.groups[group, st.EXPIRES_FROM + stream * st.GROUP_STREAM_WORDS] <= first_max
    return octets


def check_accounts(harness, groups):
    """Checks all groups, and that the operator's own counts are those of the walk. Returns {group: Walked}."""
    state, walked = harness.state, {group: walk(harness.state, group, harness.streams) for group in groups}
    pages = [page for one in walked.values() for page in one.pages]
    assert len(pages) == len(set(pages)) == state.pool[st.PAGES_HELD]
    free, released = free_list(state, st.FREE_PAGE), free_list(state, st.RELEASED_PAGE)
    assert len(released) == state.pool[st.RELEASED]
    assert len({*free, *released, *pages}) == len(free + released + pages) == state.pool[st.UNUSED_PAGE]
    return walked


def free_list(state, first):
    """Returns the free pages on the list that begins at entry `first` of the pool."""
    pages, page = [], int(state.pool[first])
    while page != st.NONE:
        pages.append(page)
        page = int(state.heads[page, st.NEXT])
    return pages


def key_of(hashed):
    """Returns the key that has this 64-bit hash.

    The hash is a bijection, so a test can make keys that collide where it wants them to.
    """
    for shift, factor in ((31, oracle.SECOND), (27, oracle.FIRST), (30, 1)):
        hashed = unshift(hashed, shift) * pow(factor, -1, 1 << 64) & oracle.MASK
    return signed(hashed - oracle.GOLDEN)


def unshift(x, shift):
    """Returns the y for which y ^ y >> shift == x."""
    y = x
    for _ in range(64 // shift):
        y = x ^ y >> shift
    return y


def settle(harness, groups, watermarks=(NEVER, NEVER)):
    """Tunes until nothing changes any more, and fails if that takes long. Returns the operator's info of the groups."""
    before = None
    for _ in range(40):
        harness.expire(groups, watermarks)
        info = harness.operator.info(groups)
        if before == (before := (info.splits.tolist(), info.merges.tolist())):
            return info
    raise AssertionError(f"still splitting or merging after 40 rounds: {before}")


def untuned(walked, theta, grows=False):
    """Returns what a tuned group must not have.

    This is buckets above 2 theta that may be split and, unless the group only grows, buddies that are to be merged.
    """
    by_place = {(bucket.depth, bucket.prefix): bucket for bucket in walked.buckets}
    found = [bucket for bucket in walked.buckets if bucket.octets > 2 * theta and may_split(walked, bucket)]
    for bucket in walked.buckets if not grows else ():
        buddy = by_place.get((bucket.depth, bucket.prefix ^ 1 << bucket.depth >> 1)) if bucket.depth else None
        if buddy and bucket.octets < theta and bucket.octets + buddy.octets < 2 * theta:
            found.append((bucket, buddy))
    return found


def may_split(walked, bucket):
    """Returns whether the bucket's tuples differ in the low 24 bits of their hashes, and the directory may grow.

    A bucket that was found unsplittable keeps that mark until it shrinks below theta, whatever tuples come to it.
    """
    codes = {oracle.hash64(row.key) & 0xFFFFFF for side in walked.tuples for row in side}
    own = {code for code in codes if code & ((1 << bucket.depth) - 1) == bucket.prefix}
    doubled_too_far = bucket.depth == walked.depth and 2 << bucket.depth > 16 * (len(walked.buckets) + 1)
    return len(own) > 1 and not doubled_too_far and not bucket.unsplittable
