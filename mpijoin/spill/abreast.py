"""The clean-up of several groups side by side, whose rows fit into memory together.

A slave with little memory has small groups, and then the calls for each class of each group take longer than to join
it. So one class of every group is inserted, then all are probed at once, and so on with the next class of each. A group
that does not fit after all leaves the others. What was joined of it is one class from then on.
"""

from __future__ import annotations

from collections import deque
from typing import Container, Mapping, Sequence

import numpy as np

from mpijoin.data.batch import read_only
from mpijoin.data.room import Room
from mpijoin.join.window_join import WindowJoin
from mpijoin.named import NamedTuple
from mpijoin.operators.base import Progress
from mpijoin.spill.generations import Class, Debt
from mpijoin.spill.work import Steps, Times, Work, most_at_once, octets_of_class, room_of, times_to_come
from mpijoin.store.insert import Fresh
from mpijoin.store.state import ADDRESS

# With larger classes the calls do not matter, and the rows of a class are in memory twice.
SMALL_BYTES = 1 << 20
# A run stops between clean-ups only, and more bytes at once would be no faster.
TOGETHER_BYTES = 64 << 20


class Course(NamedTuple):
    """What a group owes. times: as of `times_to_come` · peak_bytes: the most that will be in memory at once, about."""

    group: int
    classes: Sequence[Class]
    times: Times
    peak_bytes: int

    @property
    def octets(self) -> list[int]:
        """Bytes on disk of each class."""
        return [octets_of_class(own) for own in self.classes]


def course_of(group: int, classes: Sequence[Class], windows: Sequence[int]) -> Course:
    """windows: of each stream, in time units."""
    times = times_to_come(classes, range(len(windows)))
    return Course(group, classes, times, most_at_once(classes, times[1:], windows))


def next_courses(
    owing: deque[int], alone: Container[int], debts: Mapping[int, Debt], table: WindowJoin
) -> list[Course]:
    """Takes the first of the groups that owe, as long as they are small, fit into the table's memory together, and have
    no more than TOGETHER_BYTES. alone: groups that are to have all memory for themselves."""
    courses, windows = list[Course](), [stream.window for stream in table.streams]
    room_bytes, least_bytes, left_bytes = room_of(table), len(windows) * table.page_bytes, TOGETHER_BYTES
    while owing and owing[0] not in alone:
        course = course_of(owing[0], debts[owing[0]].classes, windows)
        room_bytes -= course.peak_bytes + least_bytes
        left_bytes -= sum(course.octets)
        if max(course.octets) > SMALL_BYTES or room_bytes < 0 or left_bytes < 0:
            break
        courses.append(course)
        owing.popleft()
    return courses


class Abreast(Work):
    """Finds what the classes of each of several groups owe each other.

    joined: of groups for which there was no room, how many of their first classes were joined.
    """

    def __init__(self, table: WindowJoin, courses: Sequence[Course], windows: Sequence[int], room: Room):
        """table, windows: as of `Work` · room: into which frames are read."""
        super().__init__(table, windows)
        self._courses, self._room, self._words = courses, room, Room()
        self._widths = [stream.tuple_words for stream in table.streams]
        self.joined: dict[int, int] = {}

    def _join_all(self) -> Steps:
        for course in self._courses:
            self._table.expect(course.group, course.peak_bytes)
        index, courses = 0, list(self._courses)
        while courses:
            yield from self._insert(courses, index)
            courses = [one for one in courses if one.group not in self.joined]
            groups = np.array([one.group for one in courses], np.int64)
            if index == 0:
                self._table.settle(groups)
            else:
                yield from self._probe(groups)
            index += 1
            for one in courses:
                if index == len(one.classes):
                    self._table.drop(one.group)
            courses = [one for one in courses if index < len(one.classes)]
            if courses:
                groups = np.array([one.group for one in courses])
                yield from self._expire(groups, [one.times[index] for one in courses])

    def _insert(self, courses: Sequence[Course], index: int) -> Steps:
        """Inserts the rows of one class of each group, as far as there is room."""
        waiting = deque(courses)
        while waiting:
            piece, octets = [], 0
            while waiting and not self._is_full(octets):
                piece.append(waiting.popleft())
                octets += octets_of_class(piece[-1].classes[index])
            self._insert_piece(piece, index)
            if self._is_full(self._read_bytes):
                yield Progress.BUDGET

    def _insert_piece(self, courses: Sequence[Course], index: int) -> None:
        fresh, bounds = self._gathered([one.classes[index] for one in courses])
        groups, fitting = np.array([one.group for one in courses]), np.arange(len(courses))
        for stream, rows in enumerate(fresh):
            at = 0
            while at < len(fitting):
                chosen = fitting[at:]
                at += self._table.insert(groups[chosen], stream, rows, bounds[stream][chosen]).groups
                if at < len(fitting):
                    lacking = int(groups[fitting[at]])
                    self._table.drop(lacking)
                    self.joined[lacking] = index
                    fitting = np.delete(fitting, at)

    def _gathered(self, classes: Sequence[Class]) -> tuple[list[Fresh], np.ndarray]:
        """Returns the rows of classes, by stream, and int64[streams, m, 2]: where those of each class begin and end."""
        counts = np.array([[sum(one.rows[at].tuples for one in own) for own in classes] for at in self._streams])
        ends = np.cumsum(counts, axis=1)
        sizes = [8 * rows * width for rows, width in zip(ends[:, -1].tolist(), self._widths)]
        words = [
            memory.view(np.int64).reshape(-1, width) for memory, width in zip(self._words.take(sizes), self._widths)
        ]
        blobs: list[list[np.ndarray]] = [[] for _ in self._streams]
        rows, octets = [0] * len(words), [0] * len(words)
        for generation in (generation for own in classes for generation in own):
            for frame in self._read(generation, self._room):
                for stream, (tuples, blob) in enumerate(frame.fresh):
                    place = words[stream][rows[stream] : rows[stream] + len(tuples)]
                    place[:] = tuples
                    rows[stream] += len(tuples)
                    if self._table.streams[stream].has_blob:
                        place[:, ADDRESS] += octets[stream]
                        blobs[stream].append(blob.copy())
                        octets[stream] += len(blob)
        none = np.empty(0, np.uint8)
        texts = (np.concatenate([none, *own]) for own in blobs)
        fresh = [Fresh(read_only(tuples), read_only(blob)) for tuples, blob in zip(words, texts)]
        return fresh, np.stack((ends - counts, ends), axis=2)
