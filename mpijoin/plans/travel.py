"""States that travel with their group (DCAPE, section 4).

"Two states can move tuples in between them if and only if they contain tuples with the same schema."

A tuple of a state travels as the places of its members, each counted among the tuples that its stream has in the group,
in the order in which these travel, too. All else can be told from the members.
"""

from __future__ import annotations

from typing import Iterator, Sequence

import numpy as np

from mpijoin.data.batch import read_only
from mpijoin.data.codec import decode
from mpijoin.data.codec import encode as encode_frame
from mpijoin.errors import ProtocolError
from mpijoin.plans.kernels import MEMBERS, count_tuples, list_tuples, tell_members
from mpijoin.plans.node import Made, bounds_of, state_of
from mpijoin.plans.tree import Found
from mpijoin.store.state import FOREVER, TIME, TIME_MIN_VALUE, WATERMARK, WINDOW, StoreState, words_of

# Messages and frames of groups have smaller kinds (store/shipment.py).
STATES_KIND = 24
FRAME_PLACES = 1 << 18  # A frame has about so many places, of 4 bytes.


def encode(s: StoreState, group: int, found: Found) -> Iterator[np.ndarray]:
    """Yields frames of a state of a group. s: the table of the streams' tuples.

    What can have no partner any more is left out: the store may have let members of it go.
    """
    members, window, rows = found.state.members, found.state.window, found.made.tuples
    watermarks = s.groups[group, words_of(WATERMARK, len(s.layout))]
    if window != FOREVER:
        others = [stream for stream in range(len(s.layout)) if stream not in members]
        rows = rows[rows[:, TIME] >= max(int(watermarks[others].min()) - window, TIME_MIN_VALUE)]
    places = np.empty((len(rows), len(members)), np.int32)
    for at, stream in enumerate(members):
        slots = _slots_of(s, np.array([group]), stream)
        order = np.argsort(slots)
        places[:, at] = order[np.searchsorted(slots, rows[:, MEMBERS + at], sorter=order)]
    step = max(1, FRAME_PLACES // len(members))
    for first in range(0, len(places), step):
        yield encode_frame(STATES_KIND, {"group": group, "members": list(members)}, [places[first : first + step]])


def split(parts: Sequence[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Returns the frames of states among the frames of a group, and the others."""
    is_state = [decode(part).kind == STATES_KIND for part in parts]
    return [part for part, own in zip(parts, is_state) if own], [part for part, own in zip(parts, is_state) if not own]


class Arrived:
    """Implements `Source`: the states that have come with a group."""

    def __init__(self, s: StoreState, groups: np.ndarray, frames: Sequence[np.ndarray]):
        """s: the table in which the group is now · groups: int64[1]. ProtocolError: a frame is of another group, or of
        tuples that there are not."""
        self._s, self._groups = s, groups
        self._places: dict[tuple[int, ...], list[np.ndarray]] = {}
        for frame in map(decode, frames):
            members = tuple(frame.meta["members"])
            if frame.meta["group"] != groups[0] or frame.buffers[0].shape[1:] != (len(members),):
                raise ProtocolError(f"states of partition {frame.meta['group']} came with partition {groups[0]}")
            self._places.setdefault(members, []).append(frame.buffers[0])

    def find(self, groups: np.ndarray, members: frozenset[int]) -> Found | None:
        for own, places in self._places.items():
            if members == frozenset(own):
                return self._found(own, np.concatenate(places))
        return None

    def _found(self, members: tuple[int, ...], places: np.ndarray) -> Found:
        s, rows = self._s, np.empty((len(places), MEMBERS + len(members)), np.int64)
        for at, stream in enumerate(members):
            slots = _slots_of(s, self._groups, stream)
            if len(places) and not 0 <= places[:, at].min() <= places[:, at].max() < len(slots):
                raise ProtocolError(f"partition {self._groups[0]}: states came of more than {len(slots)} tuples")
            rows[:, MEMBERS + at] = slots[places[:, at]]
        windows = s.layout[list(members), WINDOW]
        state = state_of(members, windows.tolist())
        tell_members(s.words, rows, read_only(windows.copy()), state.window)
        return Found(state, Made(self._groups, bounds_of(np.array([len(rows)])), rows))


def _slots_of(s: StoreState, groups: np.ndarray, stream: int) -> np.ndarray:
    """Returns int64[n]: the slot ids of the tuples that a stream has in a group, in the order of its chain."""
    ends = np.zeros(1, np.int64)
    count_tuples(s, groups, stream, False, ends)
    rows = np.empty((int(ends[0]), MEMBERS + 1), np.int64)
    list_tuples(s, groups, stream, False, rows)
    return rows[:, MEMBERS].copy()
