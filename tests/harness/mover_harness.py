"""What the tests of moving groups share: slaves that have only an operator and a mover, on a wire of their own."""

from types import SimpleNamespace

import numpy as np

import oracle
from join_harness import NEVER, Harness, Stream, encode, groups_of, numbered, walk
from mpijoin.config.moves import PRECOPY
from mpijoin.data.codec import decode
from mpijoin.messages import Columns, Piece, Slot, State, encode_message, parse
from mpijoin.moving import steps
from mpijoin.orders import Order, Step
from mpijoin.rank import MASTER
from mpijoin.simulate.engine import SimulatedClock
from mpijoin.slave.inputs import Inputs
from mpijoin.slave.moving import Mover
from mpijoin.store.shipment import BLOCKS_KIND
from mpijoin.transport.base import octets_of, parts_of

SUPPLIER, CONSUMER = 1, 2
# The window is shorter than what comes at once. A group is therefore split by what it holds, not by what is to come.
STREAM = Stream(200, 1, True)
BLOCK = 256
# These bytes take the place of MiB, so that groups of a few hundred rows take many portions.
PORTION, ALLOWANCE = 2000, 6000


class Desk:
    """A rank on a wire of its own. `sent` has messages as they arrive, `unsent` the bytes that a peer has not taken."""

    def __init__(self, number):
        self.number, self.clock, self.sent, self.unsent = number, SimulatedClock(), [], {}
        self.transport = SimpleNamespace(unsent_bytes=lambda to: self.unsent.get(to, 0))

    def send(self, to, message):
        data = encode_message(message)
        self.unsent[to] = self.unsent.get(to, 0) + octets_of(data)
        self.sent.append((to, parse(tuple(part.copy() for part in parts_of(data)))))

    def taken(self):
        """Lets peers take all that was sent. Returns what it was."""
        sent, self.sent, self.unsent = self.sent, [], {}
        return sent


class Side:
    """A slave that has only an operator and a mover."""

    def __init__(
        self, number, streams=(STREAM, STREAM), partitions=2, memory=1 << 22, theta=600, block=BLOCK, kind=PRECOPY
    ):
        self.harness = Harness(list(streams), partitions, memory, block, theta)
        self.desk = Desk(number)
        self.mover = Mover(self.desk, self.harness.operator, Inputs((0,), partitions, 2), kind=kind)

    def order(self, step, move=7, group=1, peer=CONSUMER, taken=()):
        self.mover.expects(Order(move, step, group, peer))
        return self.mover.carry_out(move, step, group, list(taken))

    def walk(self, group=1):
        return walk(self.harness.state, group, self.harness.streams).tuples

    def add(self, rows, first, group=1, watermarks=(NEVER, NEVER)):
        """Joins that many new rows of the group in each stream."""
        found = rows_of(group, self.harness.streams[0], first, rows)
        self.harness.round(groups_of(group), found, rows_of(group, self.harness.streams[1], first, rows), watermarks)


def rows_of(group, stream, first, count, partitions=2):
    """Returns so many rows of this group, numbered from `first`."""
    keys = [key for key in range(8 * count + 40) if oracle.partition(key, partitions) == group][:count]
    return numbered([(first + at, key) for at, key in enumerate(keys)], stream, (0, 7, 90), first)


def supplier_of(rows=300, group=1, **settings):
    side = Side(SUPPLIER, **settings)
    side.add(rows, 0, group, (30, 40))
    return side


def states(sent):
    return [message for _, message in sent if isinstance(message, State)]


def steps_in(sent):
    return [(to, message.step) for to, message in sent if isinstance(message, Step)]


def sealed_bytes(frames):
    """Returns the bytes of tuples and payloads in the sealed blocks of these frames."""
    blocks = [decode(frame) for frame in frames]
    return sum(one.buffers[2].nbytes + one.buffers[3].nbytes for one in blocks if one.kind == BLOCKS_KIND)


def whole_bytes(frames):
    return sum(frame.nbytes for frame in frames)


def blocks_in(frames):
    return sum(len(decode(frame).buffers[0]) for frame in frames if decode(frame).kind == BLOCKS_KIND)


def ship_all(side, nothing_to_join=True):
    """Ships until nothing is left, each portion taken before the next. Returns the messages, portion by portion."""
    portions = []
    while side.mover.ship(nothing_to_join):
        portions.append(side.desk.taken())
        assert len(portions) < 1000, "it ships for ever"
    return portions


def slot_of(group, rows, watermarks, epoch, streams=(STREAM, STREAM), origin=None):
    """Returns a message of the master for both groups. It has these rows of one group, in the left stream."""
    both = [encode(groups_of(0, 1), own, stream, 2) for own, stream in zip((rows, []), streams)]
    counts = np.stack([bounds[:, 1] - bounds[:, 0] for _, bounds in both])
    piece = Piece(counts, tuple(Columns(*one) for one, _ in both))
    return Slot(MASTER, epoch, watermarks, groups_of(0, 1), (piece,), origin=origin)


def frozen_states(rows=300, **settings):
    """Returns all states that a consumer gets in a move, in order."""
    supplier = supplier_of(rows, **settings)
    supplier.order(steps.SHIP)
    arrived = [state for portion in ship_all(supplier) for state in states(portion)]
    supplier.order(steps.FREEZE)
    return arrived + states(supplier.desk.taken())
