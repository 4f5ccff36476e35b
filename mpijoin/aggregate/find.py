"""The kernels that an aggregate calls: one finds the results that are due, the other lets go of rows."""

from __future__ import annotations

from mpijoin.aggregate.compact import let_go, list_if_dead, mark_dead, rewrite_listed
from mpijoin.aggregate.gather import (
    due_before,
    gather_due,
    gather_history,
    has_due,
    number_keys,
    sort_by_key,
    sort_rows,
)
from mpijoin.aggregate.slide import has_result, slide
from mpijoin.aggregate.state import (
    AT,
    ENTRY,
    FAULT,
    FAULT_SLOT,
    GIVEN,
    IN_ROWS,
    LACKING,
    NO_ROOM,
    SPAN,
    STAGED,
    TOO_LARGE,
)
from mpijoin.compiled import kernel, part
from mpijoin.store.directory import prefix_of
from mpijoin.store.state import (
    COMPARED,
    COMPARISONS,
    COUNTED,
    DEPTH,
    DIRECTORY,
    DONE,
    OUT_FULL,
    RESULTS,
    TIME,
    WATERMARK,
)


@kernel
def find_results(s, rules, work, groups, marks, table, count):
    """Works out the results of the groups that become due with the marks, bucket by bucket, and adds them to `table`.

    groups: int64[m]; they hold no fresh tuple · marks: int64[m], a watermark for each · table: int64[1 + f + 1,
    capacity], of which `count` columns are filled: slot ids, answers and nulls. Returns why it stopped, and the new
    count. After OUT_FULL and NO_ROOM it goes on where it stopped; the cursor says how many rows the scratch memory
    lacks.
    """
    cursor = work.cursor
    while True:
        count = hand_out(work, table, count)
        if cursor[GIVEN] < cursor[STAGED]:
            return OUT_FULL, count
        if cursor[AT] == len(groups):
            return DONE, count
        status = find_in_group(s, rules, work, groups[cursor[AT]], marks[cursor[AT]])
        if status != DONE:
            return status, count


@part
def hand_out(work, table, count):
    """Copies results that are worked out to the table, as far as they fit."""
    cursor = work.cursor
    while cursor[GIVEN] < cursor[STAGED] and count < table.shape[1]:
        table[0, count] = work.given[cursor[GIVEN]]
        for i in range(len(work.answers)):
            table[1 + i, count] = work.answers[i, cursor[GIVEN]]
        cursor[GIVEN] += 1
        count += 1
    return count


@part
def find_in_group(s, rules, work, group, mark):
    """Works out the results of the next bucket of a group that has any. Without one, the cursor goes to the next
    group."""
    cursor = work.cursor
    cursor[STAGED] = cursor[GIVEN] = 0
    after = due_before(rules, s.groups[group, WATERMARK])
    before = due_before(rules, max(s.groups[group, WATERMARK], mark))
    while after < before and cursor[ENTRY] < 1 << s.groups[group, DEPTH]:
        bucket = s.directory[s.groups[group, DIRECTORY] + cursor[ENTRY]]
        if prefix_of(s, bucket) == cursor[ENTRY] and has_due(s, bucket, after, before):
            if s.buckets[bucket, COUNTED] > len(work.slots):
                cursor[LACKING] = s.buckets[bucket, COUNTED]
                return NO_ROOM
            status = find_in_bucket(s, rules, work, group, bucket, after, before)
            if status != DONE or cursor[STAGED] > 0:
                cursor[ENTRY] += 1
                return status
        cursor[ENTRY] += 1
    cursor[AT] += 1
    cursor[ENTRY] = 0
    return DONE


@part
def find_in_bucket(s, rules, work, group, bucket, after, before):
    """Works out the results of one bucket's rows with after <= time < before."""
    due, earliest = gather_due(s, work, bucket, after, before)
    if due == 0:
        return DONE
    keys, mask = number_keys(s, rules, work, due)
    found, dead = gather_history(s, rules, work, bucket, due, mask, after, earliest)
    s.counters[COMPARED] += found
    s.groups[group, COMPARISONS] += found
    sort_by_key(work, found, due, keys)
    for key in range(keys):
        low, high = work.starts[key], work.starts[key + 1]
        sort_rows(s, work, low, high)
        if not answer_key(s, rules, work, low, high, after):
            return TOO_LARGE
        if rules.rule[IN_ROWS]:
            for i in range(low, high - rules.rule[SPAN] + 1):
                mark_dead(s, work.order[i])
                dead += 1
    if rules.rule[IN_ROWS]:
        list_if_dead(s, work, bucket, dead)
    s.groups[group, RESULTS] += work.cursor[STAGED]
    return DONE


@part
def answer_key(s, rules, work, low, high, after):
    """Adds the results of the rows order[low:high] of one key that are not older than `after`. Returns False where a
    sum is too large."""
    cursor, first = work.cursor, low
    while s.words[work.order[first] + TIME] < after:
        first += 1
    staged = cursor[STAGED]
    for i in range(first, high):
        if has_result(s, rules, work, i, high):
            work.given[cursor[STAGED]] = work.order[i]
            work.answers[len(work.answers) - 1, cursor[STAGED]] = 0
            cursor[STAGED] += 1
    for function in range(len(rules.functions)):
        if not slide(s, rules, work, function, low, high, first, staged):
            cursor[FAULT], cursor[FAULT_SLOT] = function, work.queue[0]
            return False
    return True


@kernel
def finish_groups(s, rules, work, groups, marks):
    """Advances the watermarks of the groups, lets go of what no row to come can need, and tunes the groups.

    The arguments are those of `find_results`, which must have ended, and whose results must be consumed.
    """
    rewrite_listed(s, work)
    for i in range(len(groups)):
        let_go(s, rules, groups[i], marks[i])
