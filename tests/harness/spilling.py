"""A join whose groups are spilled to a "disk" of frames, and cleaned up by hand: class by class, in a second table over
the same pool."""

from collections import Counter

import numpy as np

from join_harness import EVER, NEVER, Harness, clamp, groups_of
from mpijoin.join.window_join import Setup, WindowJoin
from mpijoin.store.pool import StreamSpec
from mpijoin.store.rows import PLACES, between, rows_of


class Spilling:
    """`main` joins at run time. `disk` has for each group and generation the frames that were spilled.

    `clean` is the table of the clean-up. It has tuples only while `clean_up` runs.
    """

    def __init__(self, streams, setup, symmetric=None, memory=1 << 22):
        sizes = (setup.partitions, memory, setup.block, setup.theta, setup.result_buffer)
        self.main, self.clean = (Harness(streams, *sizes, symmetric=symmetric) for _ in range(2))
        self.specs = tuple(
            StreamSpec(stream.record_words, stream.has_blob, stream.window, stream.flagged) for stream in streams
        )
        made = Setup(setup.partitions, setup.theta, self.specs, 1, symmetric, fresh_meets_fresh=False)
        self.clean.operator = WindowJoin(made, self.main.operator._pool)
        self.disk = {group: {} for group in range(setup.partitions)}
        self.latest = {group: {} for group in range(setup.partitions)}  # The latest time of each stream's spilled rows.
        self.budget = setup.budget

    def spill(self, group):
        """Writes a group to the disk, and checks on the way that its frames say what they hold."""
        generation = self.main.operator.info(groups_of(group)).generations[0]
        for rows in self.write(group, self.main.operator.rows(groups_of(group))):
            assert rows.generation == generation
            latest = self.latest[group]
            for stream, (count, _, last) in enumerate(rows.spans.tolist()):
                if count:
                    latest[stream] = max(latest.get(stream, NEVER), last)
        self.main.operator.empty(groups_of(group))
        bounds = [self.owed_until(group, stream) for stream in range(len(self.specs))]
        self.main.operator.keep_until(groups_of(group), np.array([bounds]))

    def write(self, group, batches):
        for frame in (frame for batch in batches for frame in batch.frames):
            rows = rows_of(frame.data.copy(), self.specs)
            assert (rows.group, rows.generation) == (group, frame.generation)
            assert rows.spans.tolist() == frame.spans.tolist()
            self.disk[group].setdefault(rows.generation, []).append(rows)
            yield rows

    def owed_until(self, group, stream):
        """Returns until when rows of a stream may meet rows of the others that were spilled.

        Rows that were kept when they expired do not count: what comes after them cannot meet them, and what came before
        is of the same generation.
        """
        others = [(other, time) for other, time in self.latest[group].items() if other != stream]
        return max((clamp(time + self.specs[other].window) for other, time in others), default=NEVER)

    def drain(self):
        """Writes to the disk what has expired, but is kept. Returns how many rows these were."""
        count = 0
        for group in self.main.operator.kept().tolist():
            written = self.write(group, self.main.operator.kept_rows(groups_of(group)))
            count += sum(sum(rows.spans[:, 0]) for rows in written)
            self.main.operator.drop_kept(groups_of(group))
        assert not len(self.main.operator.kept())
        return count

    def clean_up(self, group, low=0, high=PLACES, settles=True):
        """Finds what is owed among the classes of a group: here each generation is one."""
        classes = [rows for _, rows in sorted(self.disk[group].items())]
        for number, rows in enumerate(classes):
            for one in rows:
                self.take_back(group, one, low, high)
            if number == 0 and settles:
                self.clean.operator.settle(groups_of(group))
            self.clean.probe(groups_of(group), self.budget)
            self.clean.expire(groups_of(group), self.still_to_come(classes[number + 1 :]))
        self.clean.operator.drop(group)

    def still_to_come(self, classes):
        """Returns for each stream the smallest time of its rows in the classes."""
        rows = [one for members in classes for one in members]
        return [
            min((one.spans[stream, 1] for one in rows), default=EVER)
            for stream in range(len(self.specs))
        ]

    def take_back(self, group, rows, low, high):
        for stream, own in enumerate(rows.fresh):
            part = own._replace(tuples=between(own.tuples, low, high))
            bounds = np.array([[0, len(part.tuples)]])
            assert self.clean.operator.insert(groups_of(group), stream, part, bounds).groups == 1

    def results(self):
        """The rows of all results, found at run time or by the clean-up."""
        both = self.main.pairs + self.clean.pairs
        return Counter(tuple(one.row for one in found) for found in both)

    def found_by(self, harness):
        return Counter(tuple(one.row for one in found) for found in harness.pairs)
