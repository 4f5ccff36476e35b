"""The transport between threads of one process. Messages are passed by reference, and nothing is copied.

Each counter has one writer, and each inbox is a deque. So only the barrier needs a lock.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Callable, Collection

from mpijoin.errors import PeerError
from mpijoin.transport.base import Channel, Data, Message, TransportStats, check_message, nothing, octets_of


class _Hub:
    """What the endpoints of one process share."""

    def __init__(self, size: int):
        self.endpoints: list[LocalTransport] = []
        # These counts have the indices [from][to]. Only `from` writes the first one, and only `to` the other two.
        self.sent_bytes = [[0] * size for _ in range(size)]
        self.taken_bytes = [[0] * size for _ in range(size)]
        self.taken_messages = [[0] * size for _ in range(size)]
        self.abort_code: int | None = None
        # The lock guards the two fields below it.
        self.lock = threading.Lock()
        self.barrier_arrived = 0
        self.barrier_number = 0

    def wake_all(self) -> None:
        for endpoint in self.endpoints:
            endpoint._news.set()


class LocalTransport:
    """One endpoint. `create` makes all of them. The contract is in base.py."""

    def __init__(self, hub: _Hub, rank: int, size: int):
        self.rank = rank
        self.size = size
        self.stats = TransportStats()
        self.library = ""
        self._hub = hub
        # Other ranks append to the inbox, and this rank takes from it.
        self._inbox: deque[Message] = deque()
        # Refused messages still count as the sender's.
        self._refused: deque[Message] = deque()
        # These messages are taken, and the next poll returns them.
        self._arrived: list[Message] = []
        self._refuse: Collection[int] = ()
        # Other ranks set it after any change. This rank clears it before it looks.
        self._news = threading.Event()
        # The barrier that this rank has entered and not left.
        self._barrier_number: int | None = None

    @classmethod
    def create(cls, size: int) -> list[LocalTransport]:
        """Returns the endpoints of ranks 0 to size - 1."""
        hub = _Hub(size)
        hub.endpoints = [cls(hub, rank, size) for rank in range(size)]
        return list(hub.endpoints)

    def send(self, to: int, channel: Channel, data: Data) -> None:
        start_s = time.perf_counter()
        self._check_alive()
        check_message(to, self.size, data)
        octets = octets_of(data)
        self._hub.sent_bytes[self.rank][to] += octets
        self.stats.sent_messages += 1
        self.stats.sent_bytes += octets
        peer = self._hub.endpoints[to]
        peer._inbox.append(Message(self.rank, channel, data))
        peer._news.set()
        self.stats.send_s += time.perf_counter() - start_s

    def poll(self, refuse: Collection[int] = ()) -> list[Message]:
        start_s = time.perf_counter()
        self._refuse = refuse
        self._take()
        messages, self._arrived = self._arrived, []
        self.stats.poll_s += time.perf_counter() - start_s
        return messages

    def unsent_bytes(self, to: int | None = None) -> int:
        self._check_alive()
        sent, taken = self._hub.sent_bytes[self.rank], self._hub.taken_bytes[self.rank]
        return sum(sent) - sum(taken) if to is None else sent[to] - taken[to]

    def wait(self, timeout_s: float) -> None:
        self._check_alive()
        if not self._arrived:
            self._news.wait(max(0.0, timeout_s))
        self._check_alive()

    def flush(self, timeout_s: float) -> bool:
        return self._sleep_until(self._all_taken, timeout_s)

    def barrier(self, timeout_s: float) -> None:
        hub = self._hub
        if self._barrier_number is None:
            self._enter_barrier()
        if not self._sleep_until(lambda: hub.barrier_number != self._barrier_number, timeout_s):
            raise PeerError(
                f"rank {self.rank}: {hub.barrier_arrived} of {self.size} ranks reached the barrier in {timeout_s} s"
            )
        self._barrier_number = None

    def close(self, timeout_s: float = 60.0, last: Callable[[], None] = nothing) -> None:
        self.barrier(timeout_s)
        last()
        self._inbox.clear()
        self._refused.clear()
        self._arrived.clear()

    def abort(self, code: int) -> None:
        """Every further call of any endpoint raises PeerError with this exit code."""
        self._hub.abort_code = code
        self._hub.wake_all()

    def _check_alive(self) -> None:
        if self._hub.abort_code is not None:
            raise PeerError(f"rank {self.rank}: the run was aborted", self._hub.abort_code)

    def _take(self) -> None:
        """Moves the messages that are not refused from the inbox to `_arrived`."""
        self._check_alive()
        if self._news.is_set():
            self._news.clear()
        if not self._inbox and not self._refused:
            return
        refused, self._refused = self._refused, deque()
        for _ in range(len(refused)):
            self._sort_in(refused.popleft())
        while self._inbox:
            self._sort_in(self._inbox.popleft())

    def _sort_in(self, message: Message) -> None:
        if message.channel == Channel.RESULT and message.source in self._refuse:
            self._refused.append(message)
            return
        self._arrived.append(message)
        octets = octets_of(message.data)
        self.stats.received_messages += 1
        self.stats.received_bytes += octets
        self._hub.taken_bytes[message.source][self.rank] += octets
        self._hub.taken_messages[message.source][self.rank] += 1
        self._hub.endpoints[message.source]._news.set()

    def _all_taken(self) -> bool:
        return self.stats.sent_messages == sum(self._hub.taken_messages[self.rank])

    def _enter_barrier(self) -> None:
        hub = self._hub
        with hub.lock:
            self._barrier_number = hub.barrier_number
            hub.barrier_arrived += 1
            if hub.barrier_arrived == self.size:
                hub.barrier_arrived = 0
                hub.barrier_number += 1
                hub.wake_all()

    def _sleep_until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._take()
            if done():
                return True
            remaining_s = deadline_s - time.monotonic()
            if remaining_s <= 0:
                return False
            self._news.wait(remaining_s)
