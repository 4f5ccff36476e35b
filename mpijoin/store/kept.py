"""Kernels for blocks that have expired, but are kept because tuples on a disk may still meet them.

Such a block is in no chain, so no probe sees it. It hangs on its group's list until it was written to the disk, too.
"""

from __future__ import annotations

from mpijoin.compiled import kernel, part
from mpijoin.store.blocks import generation_of, return_block
from mpijoin.store.state import (
    COUNT,
    GROUP_STREAM_WORDS,
    KEEP_UNTIL,
    KEPT,
    KEPT_TUPLES,
    NEXT,
    NONE,
    OWNER,
    SPILLED,
    STREAMS_MAX,
    TIME_MIN,
    TIME_MIN_VALUE,
)
from mpijoin.store.transfer_kernels import list_block


@part
def is_kept(s, group, stream, page):
    """Returns whether a block of the group that expires is kept."""
    until = s.groups[group, KEEP_UNTIL + stream * GROUP_STREAM_WORDS]
    return until != TIME_MIN_VALUE and s.heads[page, TIME_MIN] <= until


@part
def keep_block(s, group, stream, page):
    """Puts a block that was taken out of its chain on the list of kept blocks."""
    s.heads[page, NEXT] = s.groups[group, KEPT]
    s.groups[group, KEPT] = page
    s.counters[KEPT_TUPLES + stream] += s.heads[page, COUNT]


@kernel
def list_kept(s, groups, listed, names):
    """Lists the kept blocks of groups, as `list_rows` lists others."""
    found = 0
    for index in range(len(groups)):
        page = s.groups[groups[index], KEPT]
        while page != NONE:
            list_block(s, s.heads[page, OWNER] % STREAMS_MAX, page, listed[found])
            names[found, 0], names[found, 1] = groups[index], generation_of(s.heads[page, OWNER])
            found += 1
            page = s.heads[page, NEXT]
    return found


@kernel
def drop_kept(s, groups):
    """Frees the kept blocks of groups, and counts their tuples as spilled."""
    for index in range(len(groups)):
        page = s.groups[groups[index], KEPT]
        while page != NONE:
            following, stream = s.heads[page, NEXT], s.heads[page, OWNER] % STREAMS_MAX
            s.counters[KEPT_TUPLES + stream] -= s.heads[page, COUNT]
            s.counters[SPILLED + stream] += s.heads[page, COUNT]
            return_block(s, page)
            page = following
        s.groups[groups[index], KEPT] = NONE
