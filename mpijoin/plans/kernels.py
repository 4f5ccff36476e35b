"""Kernels that make the tuples of states, and results of them.

A tuple of a state stands for tuples of some streams, its *members*, which have the same key and lie in each other's
windows. It has these words:

    key, time, latest, then for each member the slot id of its tuple

It waits for partners until its *deadline*, when the first of its members stops waiting. The deadline is its time plus
the window of the state, which is the smallest of its members' windows. So the store lets it go with the first of them.
`latest` is the time of the latest member. The time of a tuple of one member is that of the member. In general it is no
later than `latest`, so that a two-way probe, which compares times and windows, finds at least all partners.
"""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import kernel, part
from mpijoin.store.blocks import slot_id, time_after
from mpijoin.store.directory import prefix_of
from mpijoin.store.simd import prefetch, unsigned
from mpijoin.store.state import (
    BUCKETS,
    COUNT,
    COUNTED,
    DEPTH,
    DIRECTORY,
    FIRST,
    FOREVER,
    FRESH,
    FRESH_PAGE,
    FRESH_SLOT,
    GROUPS_MAX,
    GROWS,
    KEY,
    NEXT,
    NEXT_FRESH,
    NONE,
    OWNER,
    PAGE_WORDS,
    ROW,
    STREAM_WORDS,
    STREAMS_MAX,
    THETA,
    THETA_OFF,
    TIME,
    TUNED,
    TUPLE_WORDS,
    WINDOW,
)
from mpijoin.store.tracks import is_new
from mpijoin.store.tune import tune_group

LATEST, MEMBERS = ROW, ROW + 1
# The tuples of this many pairs further on are asked for ahead.
AHEAD = 16


@kernel
def count_tuples(s, groups, stream, fresh, ends):
    """Sets ends[i], int64[m], to how many tuples of the stream the groups 0..i have. groups: int64[m] · fresh: whether
    the fresh ones are counted, or the others."""
    total = 0
    for i in range(len(groups)):
        bucket = s.groups[groups[i], FRESH]
        own = 0
        while bucket != NONE:
            own += fresh_in(s, bucket, stream)
            bucket = s.buckets[bucket, NEXT_FRESH]
        if not fresh:
            own = held_in(s, groups[i], stream) - own
        total += own
        ends[i] = total


@part
def fresh_in(s, bucket, stream):
    page, count = s.buckets[bucket, stream * STREAM_WORDS + FRESH_PAGE], 0
    if page != NONE:
        count -= s.buckets[bucket, stream * STREAM_WORDS + FRESH_SLOT]
    while page != NONE:
        count += s.heads[page, COUNT]
        page = s.heads[page, NEXT]
    return count


@part
def held_in(s, group, stream):
    region, held = s.groups[group, DIRECTORY], 0
    for entry in range(1 << s.groups[group, DEPTH]):
        bucket = s.directory[region + entry]
        if prefix_of(s, bucket) == entry:
            held += s.buckets[bucket, stream * STREAM_WORDS + COUNTED]
    return held


@kernel
def list_tuples(s, groups, stream, fresh, out):
    """Makes a tuple of a state of each tuple that `count_tuples` counts, in the order of the groups. out: int64[at
    least as many, MEMBERS + 1]."""
    at = 0
    for i in range(len(groups)):
        if fresh:
            bucket = s.groups[groups[i], FRESH]
            while bucket != NONE:
                base = stream * STREAM_WORDS
                page, slot = s.buckets[bucket, base + FRESH_PAGE], s.buckets[bucket, base + FRESH_SLOT]
                at = list_chain(s, stream, page, slot, NONE, 0, out, at)
                bucket = s.buckets[bucket, NEXT_FRESH]
            continue
        region = s.groups[groups[i], DIRECTORY]
        for entry in range(1 << s.groups[groups[i], DEPTH]):
            bucket = s.directory[region + entry]
            if prefix_of(s, bucket) == entry:
                base = stream * STREAM_WORDS
                last, end = s.buckets[bucket, base + FRESH_PAGE], s.buckets[bucket, base + FRESH_SLOT]
                at = list_chain(s, stream, s.buckets[bucket, base + FIRST], 0, last, end, out, at)


@part
def list_chain(s, stream, page, slot, last, end, out, at):
    """Lists the tuples from a slot of `page` on, up to before slot `end` of page `last`, if that is not NONE."""
    words, width = s.words, s.layout[stream, TUPLE_WORDS]
    while page != NONE:
        stop = end if page == last else s.heads[page, COUNT]
        place = slot_id(s, stream, page, slot)
        for _ in range(slot, stop):
            out[unsigned(at), KEY] = words[unsigned(place + KEY)]
            out[unsigned(at), TIME] = words[unsigned(place + TIME)]
            out[unsigned(at), LATEST] = words[unsigned(place + TIME)]
            out[unsigned(at), MEMBERS] = place
            place += width
            at += 1
        page, slot = NONE if page == last else s.heads[page, NEXT], 0
    return at


@kernel
def copy_tuples(s, groups, stream, out):
    """Copies the tuples of a state, none of which is fresh, in the order of the groups. out: int64[at least as many,
    words of a tuple]."""
    at = 0
    for i in range(len(groups)):
        region = s.groups[groups[i], DIRECTORY]
        for entry in range(1 << s.groups[groups[i], DEPTH]):
            bucket = s.directory[region + entry]
            page = s.buckets[bucket, stream * STREAM_WORDS + FIRST] if prefix_of(s, bucket) == entry else NONE
            while page != NONE:
                place = slot_id(s, stream, page, 0)
                for _ in range(s.heads[page, COUNT]):
                    for word in range(s.layout[stream, TUPLE_WORDS]):
                        out[unsigned(at), word] = s.words[unsigned(place + word)]
                    place += s.layout[stream, TUPLE_WORDS]
                    at += 1
                page = s.heads[page, NEXT]


@kernel
def merge_mini_partitions(s, groups):
    """Merges all mini-partitions of each group, as far as there are pages for that. groups: int64[m]; they hold no
    fresh tuple."""
    theta, s.counters[THETA] = s.counters[THETA], THETA_OFF
    for i in range(len(groups)):
        group, before = groups[i], np.int64(0)
        s.groups[group, GROWS] = 0
        while s.groups[group, BUCKETS] > 1 and s.groups[group, BUCKETS] != before:
            before = s.groups[group, BUCKETS]
            s.groups[group, TUNED] = 0
            tune_group(s, group)
    s.counters[THETA] = theta


@kernel
def keep_valid(words, left, right, left_window, right_window, count):
    """Moves those of the pairs 0..count whose members all lie in each other's windows to the front, and returns how
    many they are. Their keys are equal."""
    kept = 0
    for i in range(count):
        one, other = left[unsigned(i)], right[unsigned(i)]
        left[unsigned(kept)] = one
        right[unsigned(kept)] = other
        latest = max(words[unsigned(one + LATEST)], words[unsigned(other + LATEST)])
        deadline = time_after(words[unsigned(one + TIME)], left_window)
        kept += (latest <= deadline) & (latest <= time_after(words[unsigned(other + TIME)], right_window))
    return kept


@kernel
def keep_with_old_member(s, left, right, members, others, count):
    """Moves those of the pairs 0..count that have an old member to the front, and returns how many they are.

    s: the table of the streams' tuples · members, others: int64[], the streams of the members on either side.
    """
    kept = 0
    for i in range(count):
        one, other = left[unsigned(i)], right[unsigned(i)]
        left[unsigned(kept)] = one
        right[unsigned(kept)] = other
        kept += not (are_new(s, one, members) and are_new(s, other, others))
    return kept


@part
def are_new(s, place, members):
    """Returns whether all members of a tuple of a state are new."""
    for member in range(len(members)):
        if not is_new(s, members[member], s.words[unsigned(place + MEMBERS + member)]):
            return False
    return True


@kernel
def combine(s, pairs, count, members, window, out, groups, ends):
    """Makes a tuple of a state of each pair 0..count.

    s: the table of the pairs · pairs: int64[2, at least count] slot ids, in the order of groups · members: int64[2],
    how many those of its streams have · window: of the new state · out: int64[at least count, words] · groups, ends:
    int64[at least count], the groups of the pairs, each once, and where the pairs of each end. Returns how many groups
    these are.
    """
    words, found = s.words, 0
    left_window, right_window = s.layout[0, WINDOW], s.layout[1, WINDOW]
    for i in range(count):
        ahead = unsigned(min(i + AHEAD, count - 1))
        prefetch(words, pairs[0, ahead])
        prefetch(words, pairs[1, ahead])
        one, other = pairs[0, unsigned(i)], pairs[1, unsigned(i)]
        deadline = min(time_after(words[one + TIME], left_window), time_after(words[other + TIME], right_window))
        latest = max(words[one + LATEST], words[other + LATEST])
        out[i, KEY] = words[one + KEY]
        out[i, TIME] = latest if window == FOREVER else deadline - window
        out[i, LATEST] = latest
        for member in range(members[0]):
            out[i, MEMBERS + member] = words[one + MEMBERS + member]
        for member in range(members[1]):
            out[i, MEMBERS + members[0] + member] = words[other + MEMBERS + member]
        group = s.heads[one // s.pool[PAGE_WORDS], OWNER] // STREAMS_MAX & GROUPS_MAX - 1
        if found == 0 or groups[found - 1] != group:
            groups[found] = group
            found += 1
        ends[found - 1] = i + 1
    return found


@kernel
def tell_members(words, rows, windows, window):
    """Fills in all of a state's tuples but their members, which they have. words: of the members · rows: int64[m, words
    of a tuple] · windows: int64[members], theirs · window: of the state."""
    for i in range(len(rows)):
        deadline, latest = np.int64(FOREVER), words[rows[i, MEMBERS] + TIME]
        for member in range(len(windows)):
            time = words[rows[i, MEMBERS + member] + TIME]
            deadline = min(deadline, time_after(time, windows[member]))
            latest = max(latest, time)
        rows[i, KEY] = words[rows[i, MEMBERS] + KEY]
        rows[i, TIME] = latest if window == FOREVER else deadline - window
        rows[i, LATEST] = latest


@kernel
def expand(s, pairs, first, end, members, streams, slots, times):
    """Makes results of the pairs first..end.

    members: as of `combine` · streams: int64[n], the stream of each member of a result · slots: int64[n, at least
    end - first] slot ids, by stream · times: int64[at least end - first], of the latest tuple of each.
    """
    words = s.words
    for i in range(end - first):
        ahead = unsigned(min(first + i + AHEAD, end - 1))
        prefetch(words, pairs[0, ahead])
        prefetch(words, pairs[1, ahead])
        one, other = pairs[0, unsigned(first + i)], pairs[1, unsigned(first + i)]
        times[i] = max(words[one + LATEST], words[other + LATEST])
        for member in range(members[0]):
            slots[streams[member], i] = words[one + MEMBERS + member]
        for member in range(members[1]):
            slots[streams[members[0] + member], i] = words[other + MEMBERS + member]
