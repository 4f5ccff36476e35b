"""What a transport promises: it carries whole messages between ranks, in order, and never makes a sender wait.

- Blocking: `wait`, `flush`, `barrier` and `close` may block. They sleep meanwhile, and return after their timeout at
  the latest. `send`, `poll` and `unsent_bytes` never block, however slow, silent or full the peer is.
- Order: messages of one (source, channel) stay in order, whatever their sizes are. Nothing is promised between
  channels, so a RESULT that its receiver refuses never holds up DATA or CONTROL.
- Parts: a message may be sent in several arrays, so that none of them must be copied into another. Each begins at the
  next multiple of 64 bytes (codec.part_starts). Between processes the message arrives as one array. Between threads it
  arrives as it was sent.
- Buffers: after `send` the memory belongs to the transport, and later to the receiver, who may keep it for ever. The
  sender never writes into it again. It may send the same memory to several ranks, so receivers only read it.
- Memory: a transport limits nothing. Messages that a rank has not taken stay with the sender, and `unsent_bytes` counts
  them. Credits and `refuse` keep this count small.
- Progress: bytes move only while ranks call their transport. `wait`, `flush` and `barrier` also take messages in, but
  refuse those that the last `poll` refused. The next `poll` returns them. So two ranks may flush to each other.
- Threads: one thread at a time uses an endpoint.
- Failure: a rank that is known to be lost raises `PeerError`, and so does a timeout of `barrier` or `close`. No message
  was returned twice or skipped, but unsent messages may never arrive, so the caller can only `abort`. A transport does
  not notice a peer that merely falls silent.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Callable, Collection, Protocol

import numpy as np

from mpijoin.named import NamedTuple

# One contiguous uint8[n], or several of them, which are the parts of one message.
Data = np.ndarray | tuple[np.ndarray, ...]


class Channel(IntEnum):
    """Independent lanes between two ranks."""

    DATA = 0
    CONTROL = 1
    RESULT = 2
    STATE = 3


class Message(NamedTuple):
    """One whole message. Nobody who holds `data` ever writes into it."""

    source: int
    channel: Channel
    data: Data


@dataclass
class TransportStats:
    """What an endpoint has carried so far. Fields in `_s` are wall seconds inside `send` and `poll`, without sleep."""

    sent_messages: int = 0
    sent_bytes: int = 0
    received_messages: int = 0
    received_bytes: int = 0
    send_s: float = 0.0
    poll_s: float = 0.0


def nothing() -> None:
    """Does nothing. Most callers have nothing left to do when they close."""


class Transport(Protocol):
    """One rank's endpoint. `library` is the name that the library that carries the messages gives itself, or "" if
    there is none."""

    rank: int
    size: int
    stats: TransportStats
    library: str

    def send(self, to: int, channel: Channel, data: Data) -> None:
        """Hand over data for rank `to`, which may be this one. The data may have any length, also beyond 2 GiB."""

    def poll(self, refuse: Collection[int] = ()) -> list[Message]:
        """Move what can be moved, and return the messages that have arrived whole. RESULTs of the ranks in `refuse`
        stay with their senders.

        A RESULT whose first bytes were taken before its sender was refused may still be returned.
        """

    def unsent_bytes(self, to: int | None = None) -> int:
        """Return the bytes that were given to `send` and that rank `to` has not taken yet. None stands for all ranks.
        """

    def wait(self, timeout_s: float) -> None:
        """Sleep until a poll may bring something or a send was taken. It may wake early without a reason."""

    def flush(self, timeout_s: float) -> bool:
        """Wait until every send was taken. Return False if this did not happen in time."""

    def barrier(self, timeout_s: float) -> None:
        """Wait until all ranks are here. After a timeout (PeerError) another call continues with the same barrier."""

    def close(self, timeout_s: float = 60.0, last: Callable[[], None] = nothing) -> None:
        """Leave together with all ranks, once they have agreed to end. It waits for all of them, drops messages that
        nobody polled, and frees everything.

        `last` is called when all ranks are here. It must do everything that is left to do, because a launcher may end a
        process that has closed.
        """

    def abort(self, code: int) -> None:
        """End all ranks with this exit code, without waiting for anyone. This is the last resort.

        Between processes it does not return. Between threads every further call of any endpoint raises PeerError.
        """


def parts_of(data: Data) -> tuple[np.ndarray, ...]:
    return (data,) if isinstance(data, np.ndarray) else data


def octets_of(data: Data) -> int:
    """Returns the bytes of a message."""
    return sum(part.nbytes for part in parts_of(data))


def check_message(to: int, size: int, data: Data) -> None:
    """Raises ValueError for a message that no transport could carry. The error says what was got and what is wanted."""
    if not 0 <= to < size:
        raise ValueError(f"send to rank {to}: there are ranks 0 to {size - 1}")
    for part in parts_of(data):
        if part.dtype != np.uint8 or part.ndim != 1 or not part.flags.c_contiguous:
            raise ValueError(f"send of {part.dtype}{list(part.shape)}: wanted contiguous uint8[n]")
