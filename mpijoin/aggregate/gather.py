"""Kernels that gather the rows of one bucket: those whose results are due, and the histories of their keys.

They are sorted by key and, within a key, by time and row number, which is the order of its history.
"""

from __future__ import annotations

import numpy as np

from mpijoin.aggregate.state import DEAD, IN_ROWS, KEY_FIXED, KEY_VARIABLE, KEY_WORDS, PERIOD, SPAN
from mpijoin.compiled import part
from mpijoin.partitioning.hashing import hash64
from mpijoin.store.blocks import flags_of, slot_id, time_before
from mpijoin.store.read import same_key
from mpijoin.store.state import (
    COUNT,
    FIRST,
    KEY,
    NEXT,
    NONE,
    ROW,
    TIME,
    TIME_MAX,
    TIME_MAX_VALUE,
    TIME_MIN,
    TIME_MIN_VALUE,
)

TABLE_SHIFT = 40  # The lower bits of a key's hash are alike in a bucket.


@part
def due_before(rules, watermark):
    """Returns the time before which all results are due at this watermark: it, or the start of its period."""
    period = rules.rule[PERIOD]
    if period == 0 or watermark == TIME_MAX_VALUE:
        return watermark
    if watermark < TIME_MIN_VALUE + period:
        return np.int64(TIME_MIN_VALUE)
    return watermark // period * period


@part
def is_before(time, bound):
    """Returns whether a time is before a bound. The largest one stands for the end, before which everything is."""
    return time < bound or bound == TIME_MAX_VALUE


@part
def gather_due(s, work, bucket, after, before):
    """Gathers the rows with after <= time < before. Returns how many they are, and the earliest of their times."""
    found, earliest = 0, np.int64(TIME_MAX_VALUE)
    page = s.buckets[bucket, FIRST]
    while page != NONE:
        if s.heads[page, TIME_MAX] >= after and is_before(s.heads[page, TIME_MIN], before):
            for at in range(s.heads[page, COUNT]):
                slot = slot_id(s, 0, page, at)
                time = s.words[slot + TIME]
                if time >= after and is_before(time, before):
                    work.slots[found] = slot
                    earliest = min(earliest, time)
                    found += 1
        page = s.heads[page, NEXT]
    return found, earliest


@part
def has_due(s, bucket, after, before):
    """Returns whether a block of the bucket may have such rows."""
    page = s.buckets[bucket, FIRST]
    while page != NONE:
        if s.heads[page, TIME_MAX] >= after and is_before(s.heads[page, TIME_MIN], before):
            return True
        page = s.heads[page, NEXT]
    return False


@part
def number_keys(s, rules, work, due):
    """Numbers the keys of the first `due` rows from 0. Returns how many keys there are, and the mask of the table."""
    mask = 1
    while mask < 2 * due:
        mask *= 2
    for i in range(mask):
        work.table[i] = 0
    mask -= 1
    found = 0
    for i in range(due):
        at = place_of_key(s, rules, work, work.slots[i], mask)
        if work.table[at] == 0:
            work.first[found] = work.slots[i]
            found += 1
            work.table[at] = found
        work.keys[i] = work.table[at] - 1
    return found, mask


@part
def place_of_key(s, rules, work, slot, mask):
    """Returns the place in the table of a tuple's key, or the one where it would stand."""
    key, rule = s.words[slot + KEY], rules.rule
    at = np.int64(hash64(key) >> np.uint64(TABLE_SHIFT)) & mask
    while work.table[at] != 0:
        other = work.first[work.table[at] - 1]
        if s.words[other + KEY] == key and (
            rule[KEY_WORDS] == 0
            or same_key(s, slot, other, 0, rule[KEY_WORDS], rule[KEY_FIXED], rule[KEY_VARIABLE])
        ):
            break
        at = (at + 1) & mask
    return at


@part
def gather_history(s, rules, work, bucket, due, mask, after, earliest):
    """Adds the rows before `after` that are in the history of a gathered one, behind the first `due`. Returns how many
    there are in all, and how many rows of the bucket are dead."""
    found, dead, in_rows = due, 0, rules.rule[IN_ROWS] != 0
    since = np.int64(TIME_MIN_VALUE) if in_rows else time_before(earliest, rules.rule[SPAN])
    page = s.buckets[bucket, FIRST]
    while page != NONE:
        if s.heads[page, TIME_MIN] < after and s.heads[page, TIME_MAX] >= since:
            flags = flags_of(s, 0, page)
            for at in range(s.heads[page, COUNT]):
                slot = slot_id(s, 0, page, at)
                time = s.words[slot + TIME]
                if time >= after or time < since:
                    continue
                if in_rows and s.octets[flags + at] & DEAD:
                    dead += 1
                    continue
                place = place_of_key(s, rules, work, slot, mask)
                if work.table[place] != 0:
                    work.slots[found] = slot
                    work.keys[found] = work.table[place] - 1
                    found += 1
        page = s.heads[page, NEXT]
    return found, dead


@part
def sort_by_key(work, found, due, keys):
    """Fills `order` with the gathered rows, key by key, history first, and `starts` with where each key begins."""
    for key in range(keys + 1):
        work.starts[key] = 0
    for i in range(found):
        work.starts[work.keys[i] + 1] += 1
    for key in range(keys):
        work.starts[key + 1] += work.starts[key]
    for key in range(keys):
        work.other[key] = work.starts[key]
    for i in range(found):
        row = i + due if i + due < found else i + due - found
        place = work.other[work.keys[row]]
        work.order[place] = work.slots[row]
        work.other[work.keys[row]] = place + 1


@part
def comes_before(s, slot, other):
    """Returns whether a tuple comes before another one in the history of their key."""
    time, other_time = s.words[slot + TIME], s.words[other + TIME]
    return time < other_time or (time == other_time and s.words[slot + ROW] < s.words[other + ROW])


@part
def sort_rows(s, work, low, high):
    """Sorts order[low:high] by time and row. Rows mostly come in this order, so it merges the runs that it finds."""
    merged = True
    while merged:
        merged, start = False, low
        while start < high:
            middle = run_end(s, work, start, high)
            if middle == high:
                break
            end = run_end(s, work, middle, high)
            merge_runs(s, work, start, middle, end)
            merged, start = True, end


@part
def run_end(s, work, start, high):
    end = start + 1
    while end < high and not comes_before(s, work.order[end], work.order[end - 1]):
        end += 1
    return end


@part
def merge_runs(s, work, start, middle, end):
    i, j = start, middle
    for place in range(start, end):
        takes_left = j == end or (i < middle and not comes_before(s, work.order[j], work.order[i]))
        work.other[place] = work.order[i] if takes_left else work.order[j]
        i += takes_left
        j += not takes_left
    for place in range(start, end):
        work.order[place] = work.other[place]
