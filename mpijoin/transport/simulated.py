"""The transport in virtual time. Links have latency and bandwidth, messages cost their ranks time, and a seed
determines the disturbances.

A message leaves at the time of its sender's clock. It waits for the sender's link, so n messages of one rank leave one
after the other. Then it travels, waits for the receiver's link, and arrives. Messages of one (source, destination,
channel) stay in order, and no others do. A rank may send an object instead of bytes. It then gives the object's size,
and the object is handed over as it is.
"""

from __future__ import annotations

import math
from collections import deque
from random import Random
from typing import Any, Callable, Collection, Protocol

from mpijoin.errors import PeerError
from mpijoin.named import NamedTuple
from mpijoin.transport.base import Channel, Data, Message, TransportStats, check_message, nothing, octets_of


class Scheduler(Protocol):
    """Virtual time. The code that runs the ranks keeps it."""

    def at(self, time_s: float, act: Callable[[], None]) -> None:
        """Calls `act` when the time has come. Calls for the same time happen in the order in which they were asked for.
        """

    def now_s(self, rank: int) -> float:
        """Returns the time of the rank's own clock."""

    def charge(self, rank: int, seconds: float) -> None:
        """Notes that the rank's processor worked for so many seconds."""

    def notify(self, rank: int, time_s: float) -> None:
        """Notes that something has changed for the rank. If it sleeps, it wakes."""

    def sleep(self, rank: int, timeout_s: float) -> None:
        """Is called by the rank itself. It returns when the rank is notified, or after the timeout."""


class LinkCosts(NamedTuple):
    """What messages cost. Each message takes `message_s`, and each byte `byte_s`, of processor time at either end.
    `latency_s` and `bytes_per_s` describe each rank's link."""

    message_s: float = 0.0
    byte_s: float = 0.0
    latency_s: float = 0.0
    bytes_per_s: float = math.inf


class Disturbance(NamedTuple):
    """Random trouble. Each message takes longer by `delay_s` in the mean. Each rank and each link stalls for `stall_s`
    in the mean, and does so every `stall_every_s` in the mean. 0 stands for never."""

    seed: int = 0
    delay_s: float = 0.0
    stall_s: float = 0.0
    stall_every_s: float = 0.0


class Stalls:
    """The times at which one rank or link stands still. They are drawn one after the other as time passes, so equal
    seeds give equal stalls."""

    def __init__(self, disturbance: Disturbance, name: int):
        self._random = Random((disturbance.seed << 20) + name)
        self._length_s, self._every_s = disturbance.stall_s, disturbance.stall_every_s
        self._start_s = self._end_s = -1.0
        if not self._every_s:
            self._start_s = self._end_s = math.inf

    def over_s(self, time_s: float) -> float:
        """Returns the first moment from `time_s` on at which it does not stand still."""
        while self._end_s <= time_s:
            self._start_s = max(0.0, self._end_s) + self._random.expovariate(1 / self._every_s)
            self._end_s = self._start_s + self._random.expovariate(1 / self._length_s)
        return self._end_s if self._start_s <= time_s else time_s


class Parcel(NamedTuple):
    """A message on its way. Its sender handed it over at `sent_s`."""

    source: int
    to: int
    channel: Channel
    data: Any
    octets: int
    sent_s: float


class Network:
    """All links. `trace` is a number that is made of every arrival. Two runs with equal traces were the same run."""

    def __init__(
        self,
        size: int,
        scheduler: Scheduler,
        costs: LinkCosts = LinkCosts(),
        disturbance: Disturbance = Disturbance(),
        late_s: Callable[[int, float], float] = lambda rank, time_s: 0.0,
    ):
        """`late_s` returns by how much longer a message to this rank takes at this time."""
        self.size, self.scheduler, self.costs = size, scheduler, costs
        self.endpoints = [SimulatedTransport(self, rank) for rank in range(size)]
        self.trace = 0
        self.parcels = 0
        self.aborted: int | None = None
        self.barrier_number = self.barrier_arrived = 0
        self._late_s, self._delay_s = late_s, disturbance.delay_s
        self._random = Random(disturbance.seed)
        self._stalls = [Stalls(disturbance, 1 + link) for link in range(size)]
        self._out_free_s, self._in_free_s = [0.0] * size, [0.0] * size
        # The time at which the last message of each lane arrives.
        self._last_s: dict[tuple[int, int, int], float] = {}

    def post(self, parcel: Parcel) -> None:
        self.endpoints[parcel.to].announce(parcel)
        self.scheduler.at(parcel.sent_s, lambda: self._depart(parcel))

    def _depart(self, parcel: Parcel) -> None:
        source, to, costs = parcel.source, parcel.to, self.costs
        takes_s = parcel.octets / costs.bytes_per_s
        start_s = self._stalls[source].over_s(max(parcel.sent_s, self._out_free_s[source]))
        self._out_free_s[source] = start_s + takes_s
        there_s = start_s + costs.latency_s + self._late_s(to, start_s)
        if self._delay_s:
            there_s += self._random.expovariate(1 / self._delay_s)
        if source != to:
            there_s = max(there_s, self._in_free_s[to]) + takes_s
            self._in_free_s[to] = max(self._in_free_s[to], start_s + costs.latency_s) + takes_s
        lane = (source, to, parcel.channel)
        there_s = max(there_s, self._last_s.get(lane, 0.0))
        self._last_s[lane] = there_s
        self.scheduler.at(there_s, lambda: self._arrive(parcel, there_s))

    def _arrive(self, parcel: Parcel, time_s: float) -> None:
        kind = getattr(parcel.data, "kind", 0)
        self.trace = hash((self.trace, time_s, parcel.source, parcel.to, int(parcel.channel), kind, parcel.octets))
        self.parcels += 1
        endpoint = self.endpoints[parcel.to]
        endpoint.arrived(parcel)
        self.scheduler.notify(parcel.to, time_s)

    def wake_all(self, time_s: float) -> None:
        for rank in range(self.size):
            self.scheduler.notify(rank, time_s)


class SimulatedTransport:
    """One endpoint. The contract is in base.py. Methods that block need a scheduler whose ranks can sleep within a
    call."""

    def __init__(self, network: Network, rank: int):
        self.rank, self.size = rank, network.size
        self.stats = TransportStats()
        self.library = ""
        # The times at which the messages that are on their way to this rank were sent.
        self._under_way: list[float] = []
        # The earliest such time among the messages that have arrived since the last `awaited_since`.
        self._awaited_s = math.inf
        self._network = network
        # These messages have arrived, but still count as the sender's.
        self._inbox: deque[Parcel] = deque()
        # The next poll returns these messages.
        self._taken: list[Message] = []
        self._refuse: Collection[int] = ()
        self._unsent_bytes = [0] * network.size
        self._unsent = 0
        # The barrier that this rank has entered and not left.
        self._barrier: int | None = None

    def send(self, to: int, channel: Channel, data: Data) -> None:
        check_message(to, self.size, data)
        self.hand_over(to, channel, data, octets_of(data))

    def hand_over(self, to: int, channel: Channel, thing: Any, octets: int) -> None:
        """Sends an object that stands for a message of so many bytes."""
        self._check_alive()
        network, scheduler = self._network, self._network.scheduler
        self.stats.send_s += self._charge(octets)
        self.stats.sent_messages += 1
        self.stats.sent_bytes += octets
        self._unsent_bytes[to] += octets
        self._unsent += 1
        network.post(Parcel(self.rank, to, channel, thing, octets, scheduler.now_s(self.rank)))

    def poll(self, refuse: Collection[int] = ()) -> list[Message]:
        self._check_alive()
        self._refuse = refuse
        self._take()
        messages, self._taken = self._taken, []
        return messages

    def _take(self) -> None:
        """Takes the messages that have arrived and are not refused. The next poll returns them."""
        if not self._inbox:
            return
        refused: deque[Parcel] = deque()
        for parcel in self._inbox:
            if parcel.channel == Channel.RESULT and parcel.source in self._refuse:
                refused.append(parcel)
            else:
                self._taken.append(self._received(parcel))
        self._inbox = refused

    def _received(self, parcel: Parcel) -> Message:
        network, stats = self._network, self.stats
        stats.poll_s += self._charge(parcel.octets)
        stats.received_messages += 1
        stats.received_bytes += parcel.octets
        sender = network.endpoints[parcel.source]
        sender._unsent_bytes[self.rank] -= parcel.octets
        sender._unsent -= 1
        network.scheduler.notify(parcel.source, network.scheduler.now_s(self.rank))
        return Message(parcel.source, parcel.channel, parcel.data)

    def _charge(self, octets: int) -> float:
        """Charges this rank for a message at its end. Returns the processor time."""
        costs = self._network.costs
        spent_s = costs.message_s + octets * costs.byte_s
        self._network.scheduler.charge(self.rank, spent_s)
        return spent_s

    def announce(self, parcel: Parcel) -> None:
        """Notes that a message for this rank was sent."""
        self._under_way.append(parcel.sent_s)

    def arrived(self, parcel: Parcel) -> None:
        self._under_way.remove(parcel.sent_s)
        self._awaited_s = min(self._awaited_s, parcel.sent_s)
        self._inbox.append(parcel)

    def awaited_since(self) -> float:
        """Returns since when any message was on its way to this rank. This looks at the messages that have arrived
        since the last call, and at those that are still under way."""
        since_s, self._awaited_s = min(self._awaited_s, *self._under_way, math.inf), math.inf
        return since_s

    def unsent_bytes(self, to: int | None = None) -> int:
        self._check_alive()
        return sum(self._unsent_bytes) if to is None else self._unsent_bytes[to]

    def wait(self, timeout_s: float) -> None:
        self._check_alive()
        self._take()
        if not self._taken:
            self._network.scheduler.sleep(self.rank, timeout_s)
            self._check_alive()
            self._take()

    def flush(self, timeout_s: float) -> bool:
        return self._sleep_until(lambda: self._unsent == 0, timeout_s)

    def barrier(self, timeout_s: float) -> None:
        network = self._network
        if self._barrier is None:
            self._barrier = network.barrier_number
            network.barrier_arrived += 1
            if network.barrier_arrived == self.size:
                network.barrier_arrived, network.barrier_number = 0, network.barrier_number + 1
                network.wake_all(network.scheduler.now_s(self.rank))
        if not self._sleep_until(lambda: network.barrier_number != self._barrier, timeout_s):
            raise PeerError(
                f"rank {self.rank}: {network.barrier_arrived} of {self.size} ranks reached the barrier in {timeout_s} s"
            )
        self._barrier = None

    def close(self, timeout_s: float = 60.0, last: Callable[[], None] = nothing) -> None:
        self.barrier(timeout_s)
        last()
        self._inbox.clear()
        self._taken.clear()

    def abort(self, code: int) -> None:
        """Every further call of any endpoint raises PeerError with this exit code."""
        self._network.aborted = code
        self._network.wake_all(self._network.scheduler.now_s(self.rank))

    def _check_alive(self) -> None:
        if self._network.aborted is not None:
            raise PeerError(f"rank {self.rank}: the run was aborted", self._network.aborted)

    def _sleep_until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        scheduler = self._network.scheduler
        end_s = scheduler.now_s(self.rank) + timeout_s
        while True:
            self._check_alive()
            self._take()
            if done():
                return True
            left_s = end_s - scheduler.now_s(self.rank)
            if left_s <= 0:
                return False
            scheduler.sleep(self.rank, left_s)
