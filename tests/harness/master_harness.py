"""A cluster without processes.

It has the real master's core and mini-buffers, slaves that join rows one by one and check everything they are told, and
a network that delivers messages in any order that is possible.
"""

from collections import defaultdict, deque
from typing import NamedTuple

import numpy as np

from mpijoin.coordinator import events
from mpijoin.coordinator.master import MasterCore
from mpijoin.coordinator.reorganization import Loaded
from mpijoin.coordinator.setup import MasterSetup
from mpijoin.partitioning.buffers import MiniBuffers
from mpijoin.partitioning.scatter import Scattered
from mpijoin.policy import plan
from mpijoin.policy.view import GroupView
from mpijoin.producer import events as producing
from mpijoin.producer.views import never

MASTER = 0
WORDS = 5  # The words are the key (here the group), the time (the tick), the row, the blob's address and its size.


def blob_of(row):
    """Returns the variable-size payload of a row. Some rows have none."""
    return str(row).encode() * (row % 4)


def scattered_by(table, groups, tick, first_row):
    """Lays out rows first_row, first_row + 1, … of these groups by the table, as the master's scatter does."""
    groups = np.asarray(groups, np.int64)
    places = table.place[groups] if len(groups) else np.empty(0, np.int64)
    order = np.argsort(places, kind="stable")
    rows = first_row + order
    blobs = [blob_of(row) for row in rows.tolist()]
    sizes = np.array([len(blob) for blob in blobs], np.int64)
    tuples = np.empty((len(rows), WORDS), np.int64)
    tuples[:, 0], tuples[:, 1], tuples[:, 2] = groups[order], tick, rows
    tuples[:, 3], tuples[:, 4] = np.cumsum(sizes) - sizes, sizes
    starts = np.concatenate([[0], np.cumsum(np.bincount(places, minlength=len(table.place)))])
    blob_starts = np.concatenate([[0], np.cumsum(sizes)])[starts]
    firsts = np.zeros(len(starts) - 1, np.int64)
    return Scattered(tuples, np.frombuffer(b"".join(blobs), np.uint8), starts, blob_starts, firsts)


def rows_of(piece):
    """Returns {position of a group: its rows of both streams}. Checks that payloads lie at their addresses."""
    found = defaultdict(list)
    for stream, (tuples, blob) in enumerate(piece.columns):
        ends = np.cumsum(piece.counts[stream])
        assert len(tuples) == (ends[-1] if len(ends) else 0)
        for at, (_, tick, row, address, size) in enumerate(tuples.tolist()):
            assert blob[address : address + size].tobytes() == blob_of(row)
            found[int(np.searchsorted(ends, at, "right"))].append((stream, tick, row))
    return found


class Message(NamedTuple):
    """What a slave has to join. octets: the bytes of a message from the master, None if it came from any slave."""

    rows: dict  # This is {group: [(stream, tick, row)]} for every group that is listed.
    watermarks: tuple
    octets: int | None
    last: bool = False


class Order(NamedTuple):
    move: int
    step: str
    group: int
    peer: int


class State(NamedTuple):
    """A part of a group's state. kind: "portion", "final" with the input that was not joined, or "cancelled"."""

    move: int
    supplier: int
    group: int
    kind: str
    input: Message | None = None


class FakeSlave:
    def __init__(self, cluster, number, groups):
        self.cluster, self.number = cluster, number
        self.queue = deque()
        self.groups = set(groups)  # It joins these groups.
        self.reached = {}  # It is {group: watermarks}.
        # It is {move: [order, "shipping" or "shipped" or "frozen", kept input, whether anything was sent]}.
        self.giving = {}
        self.taking = {}  # It is {move: "staging" or "refused"}.
        self.ended = False

    def say(self, event):
        self.cluster.network[self.number, MASTER, "control"].append(event)

    def send(self, peer, state):
        self.cluster.network[self.number, peer, "state"].append(state)

    def take(self, message):
        match message:
            case events.Ask(_, period):
                self.answer(period)
            case events.Compute(relocation):
                count = self.cluster.chance.randint(0, len(self.groups))
                chosen = self.cluster.chance.sample(sorted(self.groups), count)
                self.say(events.Chosen(relocation, self.number, tuple(chosen)))
            case plan.Spill():
                pass  # What a slave has on its disk is no business of the master's.
            case Message():
                assert not self.ended, "a message after the last one"
                self.ended = message.last
                self.queue.append(message)
                self.finish()
            case Order():
                getattr(self, message.step)(message)
            case State():
                self.stage(message)

    def answer(self, period):
        chance = self.cluster.chance
        groups = tuple(GroupView(group, chance.random(), chance.randrange(1000)) for group in sorted(self.groups))
        self.say(Loaded(self.number, period, chance.random() * 100, chance.random(), chance.random(), groups))

    def join(self):
        """Joins a slice, which is some groups of the oldest message."""
        message = self.queue[0]
        for group in sorted(message.rows)[: self.cluster.chance.randint(1, 3)]:
            self.cluster.joined(self, group, message.rows.pop(group), message.watermarks)
        if message.rows:
            return
        self.queue.popleft()
        if message.octets is not None:
            self.say(producing.Consumed(self.number, message.octets))
        self.finish()

    def finish(self):
        if self.ended and not self.queue:
            assert not self.giving, "the last message came while a group was on its way"
            self.say(events.RankFinished(self.number))

    # These methods are the supplier's side.

    def ship(self, order):
        assert order.group in self.groups and order.move not in self.giving
        self.giving[order.move] = [order, "shipping", None, False]

    def go_on_shipping(self, move):
        """Sends one portion more, or reports that too little is left for another."""
        giving = self.giving[move]
        if self.cluster.chance.random() < 0.5:
            giving[3] = True
            self.send(giving[0].peer, State(move, self.number, giving[0].group, "portion"))
        else:
            giving[1] = "shipped"
            self.say(events.Stepped(move, self.number, "shipped"))

    def freeze(self, order):
        giving = self.giving[order.move]
        assert giving[1] == "shipped"
        rows, watermarks = [], self.reached.get(order.group, never(2))
        for message in self.queue:
            if order.group in message.rows:
                rows += message.rows.pop(order.group)
                watermarks = tuple(map(max, watermarks, message.watermarks))
        self.groups.remove(order.group)
        kept = Message({order.group: rows}, watermarks, None)
        giving[1:] = "frozen", kept, True
        self.send(order.peer, State(order.move, self.number, order.group, "final", kept))

    def drop(self, order):
        assert self.giving.pop(order.move)[1] == "frozen"
        self.say(events.Stepped(order.move, self.number, "dropped"))

    def restore(self, order):
        _, state, kept, sent = self.giving.pop(order.move)
        if state == "frozen":
            self.groups.add(order.group)
            self.queue.append(Message(dict(kept.rows), kept.watermarks, None))
        if sent:
            self.send(order.peer, State(order.move, self.number, order.group, "cancelled"))
        self.say(events.Stepped(order.move, self.number, "restored"))

    # This method is the consumer's side.

    def stage(self, state):
        if state.kind == "cancelled":
            self.taking.pop(state.move, None)
        elif self.taking.setdefault(state.move, "staging") == "refused":
            return
        elif self.cluster.chance.random() < self.cluster.refusals:
            self.taking[state.move] = "refused"
            self.say(events.Stepped(state.move, self.number, "refused"))
        elif state.kind == "final":
            assert self.taking.pop(state.move) == "staging"
            self.groups.add(state.group)
            self.reached[state.group] = state.input.watermarks
            self.queue.append(Message(dict(state.input.rows), state.input.watermarks, None))
            self.say(events.Stepped(state.move, self.number, "installed"))


class Cluster:
    """The cluster. chance: random.Random, which chooses everything · refusals: the share of states that are refused."""

    def __init__(self, chance, table, slaves, refusals=0.1, buffer_bytes=1 << 30, **settings):
        self.chance, self.table, self.refusals, self.buffer_bytes = chance, table, refusals, buffer_bytes
        settings = {"master_buffer_bytes": 1 << 30, **settings}
        self.core = MasterCore(MasterSetup(table, slaves, buffer_bytes, **settings))
        self.buffers = MiniBuffers(table, slaves)
        self.slaves = {slave: FakeSlave(self, slave, table.groups_of(slave).tolist()) for slave in slaves}
        self.network = defaultdict(deque)  # It is {(from, to, channel): messages, in order}.
        # These are the bytes of the messages that each slave has not reported as joined.
        self.flying = {slave: deque() for slave in slaves}
        self.row = 0
        self.sent_rows = defaultdict(list)  # It is {group: rows in the order of arrival}.
        self.joined_rows = defaultdict(list)
        self.told = []  # It has every action, in order.
        self.complete = False

    # These methods are the master's runtime.

    def ingest(self, groups, tick, completes):
        """Takes in a part of this tick.

        It has a row of the left stream for each of `groups`, and a row of the right stream for each in reverse order.
        """
        scattered = []
        for stream, own in enumerate((groups, groups[::-1])):
            for at, group in enumerate(own):
                self.sent_rows[group].append((stream, tick, self.row + at))
            scattered.append(scattered_by(self.table, own, tick, self.row))
            self.row += len(own)
        added = self.buffers.add(tuple(scattered))
        assert added.octets.keys() == set(self.core.active)
        self.do(producing.Ingested(added.octets, added.held, (tick + 1, tick + 1) if completes else None))
        self.buffers.settle()

    def end(self):
        self.do(producing.SourceEnded((1 << 40, 1 << 40)))

    def do(self, event):
        for action in self.core.actions(event):
            self.told.append(action)
            match action:
                case producing.Serve():
                    self.serve(action)
                case events.Ask(slave) | events.Compute(_, slave) | plan.Spill(slave):
                    self.network[MASTER, slave, "control"].append(action)
                case producing.Command(move, step, slave, group, peer):
                    self.network[MASTER, slave, "data"].append(Order(move, step, group, peer))
                case producing.Hold(_, group, slave):
                    self.do(producing.Held(group, self.buffers.hold(group, slave)))
                case producing.Deliver(_, group, slave):
                    self.do(producing.Delivered(group, self.buffers.deliver(group, slave)))
                case producing.CloseInput():
                    self.buffers.close()
                case events.Complete():
                    self.complete = True
        self.check_bytes()

    def serve(self, action):
        groups, pieces, _ = self.buffers.take(action.slave, action.items)
        rows = {group: [] for group in groups.tolist()}
        for piece in pieces:
            assert piece.counts.shape == (2, len(groups)), "pieces of other groups in one message"
            for at, own in rows_of(piece).items():
                for stream, tick, row in own:
                    rows[int(groups[at])].append((stream, tick, row))
                    assert (stream, tick, row) in self.sent_rows[int(groups[at])]
        octets = sum(piece.octets for piece in pieces)
        flying = self.flying[action.slave]
        flying.append(octets)
        assert sum(flying) <= self.buffer_bytes or sum(map(bool, flying)) == 1, "more than the slave's credit"
        self.network[MASTER, action.slave, "data"].append(Message(rows, action.watermarks, octets, action.last))

    def check_bytes(self):
        waiting = sum(view.waiting_bytes for view in self.core.slaves.values())
        assert waiting == sum(sum(one.octets for one in view.waiting) for view in self.core.slaves.values())

    # These methods are the slaves and the network.

    def joined(self, slave, group, rows, watermarks):
        """Takes note that a slave joins rows of a group, and expires what these watermarks allow."""
        assert group in slave.groups, f"slave {slave.number} joins group {group}, which it does not have"
        assert [own.number for own in self.slaves.values() if group in own.groups] == [slave.number]
        self.joined_rows[group] += rows
        reached = tuple(map(max, slave.reached.get(group, never(2)), watermarks))
        slave.reached[group] = reached
        done = len(self.joined_rows[group])
        missing = [row for row in self.sent_rows[group][done:] if row[1] < reached[row[0]]]
        assert not missing, f"group {group} is told that all before {reached} is there, but {missing} is not"

    def possible(self):
        """Returns everything that may happen next, except new input."""
        acts = [(self.arrive, channel) for channel, messages in self.network.items() if messages]
        for slave in self.slaves.values():
            if slave.queue:
                acts.append((slave.join,))
            acts += [(slave.go_on_shipping, move) for move, giving in slave.giving.items() if giving[1] == "shipping"]
        return acts

    def arrive(self, channel):
        message = self.network[channel].popleft()
        _, to, _ = channel
        if isinstance(message, producing.Consumed):
            assert self.flying[message.slave].popleft() == message.octets
        if to == MASTER:
            self.do(message)
        else:
            self.slaves[to].take(message)

    def settle(self):
        """Lets everything happen that can, in a random order."""
        while acts := self.possible():
            act, *words = self.chance.choice(acts)
            act(*words)
