"""A join whose groups are spilled to a "disk" of frames, and cleaned up by hand: class by class, in a second table over
the same pool."""

from collections import Counter

import numpy as np

from join_harness import Harness, groups_of
from mpijoin.join.window_join import Setup, WindowJoin
from mpijoin.store.pool import StreamSpec
from mpijoin.store.rows import HASH_BITS, between, rows_of

PLACES = 1 << HASH_BITS


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
        self.budget = setup.budget

    def spill(self, group):
        """Writes a group to the disk, and checks on the way that its frames say what they hold."""
        generation = self.main.operator.info(groups_of(group)).generations[0]
        for frame in self.main.operator.rows(group):
            rows = rows_of(frame, self.specs)
            assert (rows.group, rows.generation) == (group, generation)
            self.disk[group].setdefault(rows.generation, []).append(rows)
        self.main.operator.empty(group)

    def clean_up(self, group, low=0, high=PLACES, settles=True):
        """Finds what is owed among the classes of a group: here each generation is one."""
        for number, rows in enumerate(self.disk[group].values()):
            for one in rows:
                self.take_back(group, one, low, high)
            if number == 0 and settles:
                self.clean.operator.settle(groups_of(group))
            self.clean.probe(groups_of(group), self.budget)
        self.clean.operator.drop(group)

    def take_back(self, group, rows, low, high):
        part = rows.fresh._replace(tuples=between(rows.fresh.tuples, low, high))
        bounds = np.array([[0, len(part.tuples)]])
        assert self.clean.operator.insert(groups_of(group), rows.stream, part, bounds).groups == 1

    def results(self):
        """The rows of all results, found at run time or by the clean-up."""
        both = self.main.pairs + self.clean.pairs
        return Counter(tuple(one.row for one in found) for found in both)

    def found_by(self, harness):
        return Counter(tuple(one.row for one in found) for found in harness.pairs)
