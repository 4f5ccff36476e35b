"""What a transport promises: whole messages between ranks, in order, without ever making the caller wait.

- May block: `wait`, `flush`, `barrier` and `close`, asleep and at most for their timeout. `send`, `poll` and
  `unsent_bytes` never do, however slow, silent or full the peer is.
- Order: kept per (source, channel), whatever the sizes. Nothing is promised between channels, so a RESULT that its
  receiver refuses never holds up DATA or CONTROL.
- Parts: a message may be sent in several arrays, so that none need be copied into another. Each begins at the next
  multiple of 64 bytes (codec.part_starts). Between processes it arrives in one, between threads as it is.
- Buffers: from `send` on the memory belongs to the transport and then to the receiver, who may hold it for ever: the
  sender never writes into it again. It may send the same memory to several ranks; hence receivers only read.
- Memory: a transport bounds nothing. What a rank has not taken stays with the sender and shows in `unsent_bytes`;
  credits and `refuse` keep that small.
- Progress: bytes move only while ranks call their transport. `wait`, `flush` and `barrier` also take messages in,
  refusing those that the last `poll` refused, and the next `poll` returns them; so two ranks may flush to each other.
- Threads: one thread at a time uses an endpoint.
- Failure: a rank known to be lost, and a timeout of `barrier` or `close`, is a `PeerError`. Nothing was returned twice
  or skipped, but what is unsent may never arrive: all that remains is `abort`. A peer that merely falls silent is not
  noticed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Callable, Collection, NamedTuple, Protocol

import numpy as np

Data = np.ndarray | tuple[np.ndarray, ...]  # contiguous uint8[n], or several: the parts of one message


class Channel(IntEnum):
    """Independent lanes between two ranks."""

    DATA = 0
    CONTROL = 1
    RESULT = 2
    STATE = 3


class Message(NamedTuple):
    """One message, whole. data: held by nobody else who would write into it."""

    source: int
    channel: Channel
    data: Data


@dataclass
class TransportStats:
    """What an endpoint has carried so far. `_s`: wall seconds inside `send` and `poll`, sleeping not included."""

    sent_messages: int = 0
    sent_bytes: int = 0
    received_messages: int = 0
    received_bytes: int = 0
    send_s: float = 0.0
    poll_s: float = 0.0


def nothing() -> None:
    """What most have left to do when they close."""


class Transport(Protocol):
    """One rank's endpoint. library: which library carries the messages, in its own words; "" if none does."""

    rank: int
    size: int
    stats: TransportStats
    library: str

    def send(self, to: int, channel: Channel, data: Data) -> None:
        """Hand over data (of any length, also beyond 2 GiB) for rank `to`, which may be this one."""

    def poll(self, refuse: Collection[int] = ()) -> list[Message]:
        """Move what can be moved and return what has arrived whole; RESULTs of the ranks in `refuse` stay there.

        A RESULT whose first bytes were taken before its sender was refused may still be returned.
        """

    def unsent_bytes(self, to: int | None = None) -> int:
        """Bytes handed to `send` and not yet taken by rank `to` (None: by all ranks)."""

    def wait(self, timeout_s: float) -> None:
        """Sleep until a poll may bring something or a send was taken; may wake early for no reason."""

    def flush(self, timeout_s: float) -> bool:
        """Wait until every send was taken; False when that did not happen in time."""

    def barrier(self, timeout_s: float) -> None:
        """Wait until all ranks are here. After a timeout (PeerError) a further call goes on with the same barrier."""

    def close(self, timeout_s: float = 60.0, last: Callable[[], None] = nothing) -> None:
        """Leave together, once all ranks agreed to end: waits for all, drops what nobody polled, frees everything.

        last: called when all are here. What is left to do belongs there: a launcher may end a process that has closed.
        """

    def abort(self, code: int) -> None:
        """Last resort: end all ranks with this exit code, without waiting for anyone.

        Between processes it does not return; between threads every further call of any endpoint raises PeerError.
        """


def parts_of(data: Data) -> tuple[np.ndarray, ...]:
    return (data,) if isinstance(data, np.ndarray) else data


def octets_of(data: Data) -> int:
    """Bytes of a message."""
    return sum(part.nbytes for part in parts_of(data))


def check_message(to: int, size: int, data: Data) -> None:
    """Refuse what no transport could carry: ValueError naming got and wanted."""
    if not 0 <= to < size:
        raise ValueError(f"send to rank {to}: there are ranks 0 to {size - 1}")
    for part in parts_of(data):
        if part.dtype != np.uint8 or part.ndim != 1 or not part.flags.c_contiguous:
            raise ValueError(f"send of {part.dtype}{list(part.shape)}: wanted contiguous uint8[n]")
