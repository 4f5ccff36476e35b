"""Flags of stored tuples: they are 0 when a tuple comes, and go with it wherever it goes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from join_harness import Harness, Stream, chain, check_accounts, groups_of, numbered, read_tuple, slots
from mpijoin.data.codec import decode, encode
from mpijoin.errors import ProtocolError
from mpijoin.store import state as st

STEP = some.sampled_from(["join", "join", "join", "flag", "flag", "copy", "move"])
FLAGS = [0, st.MATCHED, st.NEW, st.MATCHED | st.NEW, 255]


def flag_places(holder):
    """{(stream, row): where in `octets` the flag is} of all tuples of flagged streams that the holder has."""
    state, found = holder.state, {}
    for group in holder.started():
        entries = state.directory[state.groups[group, st.DIRECTORY] :][: 1 << int(state.groups[group, st.DEPTH])]
        for bucket in set(entries.tolist()):
            for number, stream in enumerate(holder.streams):
                for page in chain(state, bucket, number) if stream.flagged else ():
                    first = 8 * (page * int(state.pool[st.PAGE_WORDS]) + int(state.layout[number, st.FLAGS_AT]))
                    for place, slot in enumerate(slots(state, number, page), first):
                        found[number, read_tuple(state, stream, slot).row] = place
    return found


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    random=some.randoms(use_true_random=False),
    steps=some.lists(STEP, min_size=4, max_size=16),
    flagged=some.tuples(some.booleans(), some.booleans(), some.booleans()).filter(any),
    blobs=some.booleans(),
    block=some.sampled_from([64, 200, 1024]),
    theta=some.sampled_from([100, 600, st.THETA_OFF]),
)
def test_flags_stay_with_their_tuples(random, steps, flagged, blobs, block, theta):
    streams = [Stream(window, number, blobs, flag) for number, (window, flag) in enumerate(zip((25, 60, 9), flagged))]
    holders = [Harness(streams, 2, 1 << 22, block, theta) for _ in range(2)]
    owner, copied, rows, wanted, now = [0, 1], {}, [0] * len(streams), {}, 0
    for step in steps:
        group = random.randrange(2)
        holder = holders[owner[group]]
        if step == "join":
            parts = []
            for number, stream in enumerate(streams):
                batch = sorted((now + random.randrange(9), random.randrange(40)) for _ in range(random.randrange(40)))
                parts.append(numbered(batch, stream, (0, 5, 90), rows[number]))
                rows[number] += len(batch)
            now += 10
            for each, where in enumerate(owner):
                holders[where].round_of(groups_of(each), parts, (now,) * len(streams))
        elif step == "flag":
            for known, place in flag_places(holder).items():
                if random.random() < 0.3:
                    holder.state.octets[place] = wanted[known] = random.choice(FLAGS)
        else:
            to, frames, since = copied.pop(group, (1 - owner[group], [], 0))
            if not holder.operator.info(groups_of(group)).buckets[0]:
                continue
            more = holder.operator.get(group, since)
            if step == "copy":
                copied[group] = to, frames + more[:-1], holder.operator.reached(more)[0]
            else:
                holders[to].operator.install(frames + more)
                holder.operator.drop(group)
                owner[group] = to
        for one in holders:
            check_accounts(one, one.started())
            for known, place in flag_places(one).items():
                assert one.state.octets[place] == wanted.get(known, 0), (step, known)


def test_flags_that_are_not_one_for_each_tuple_are_refused():
    stream = Stream(100, flagged=True)
    holder, other = (Harness([stream, Stream(100)], 1) for _ in range(2))
    holder.round(groups_of(0), numbered([(1, key) for key in range(9)], stream), [], (0, 0))
    *_, tail = holder.operator.get(0, 0)
    kind, meta, buffers = decode(tail)
    flags = next(i for i, buffer in enumerate(buffers) if buffer.dtype == np.uint8)
    assert len(buffers[flags]) == 9
    for octets in (buffers[flags][1:], np.append(buffers[flags], np.uint8(0))):
        with pytest.raises(ProtocolError, match=f"{len(octets)} flags came, wanted 9"):
            other.operator.install([encode(kind, meta, [*buffers[:flags], octets, *buffers[flags + 1 :]])])
    assert other.operator.install([tail]) == 0
