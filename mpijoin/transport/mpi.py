"""The transport between processes over MPI. It sends only buffers and never pickles. No MPI call blocks: whoever must
wait sleeps between calls.

Each channel has its own communicator. A message is one synchronous send. A message above `piece_bytes`, or one of
several parts, is sent as its length and then as pieces, which the receiver puts straight into one buffer. A synchronous
send completes when the receiver has matched it. So `unsent_bytes` is what the peer has really not taken, and `close`
can tell that nothing is under way.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from contextlib import suppress
from typing import Callable, Collection, TypeVar

import mpi4py
import numpy as np

from mpijoin.data.codec import ALIGNMENT, aligned_empty, part_starts
from mpijoin.errors import PeerError
from mpijoin.transport.base import Channel, Data, Message, TransportStats, check_message, nothing, octets_of, parts_of

# One thread at a time calls MPI. At the level "serialized" MPI takes no locks, and unlike "funneled" it does not demand
# the thread that imported this module. MPI is not finalized at exit, because MPI_Finalize waits for all ranks in a busy
# loop, and for ever if one has died. `close` finalizes it. A process that leaves without closing ends the others, too.
mpi4py.rc(thread_level="serialized", finalize=False)

from mpi4py import MPI

Made = TypeVar("Made")

# MPI copies a piece inside one call, which takes some ms. A poll must not take much longer than that.
PIECE_BYTES = 8 << 20
# MPI has at most so many sends per (rank, channel). This limits the receiver's memory for unmatched small ones.
POSTED_MAX = 64
# A step takes at most so many sends per channel, and stops after so many bytes. This limits the receiver's memory, too.
MATCHED_MAX = 64
MATCHED_BYTES_MAX = 8 << 20
# This is a few times as long as a large message needs until it shows its next sign of life.
SPIN_S = 100e-6
# A poll spins no longer than this, however much arrives.
SPIN_MAX_S = 2e-3
PAUSE_MIN_S = 20e-6
# The pauses reach this length after some 10 ms of quiet.
PAUSE_SHORT_S = 2e-3
# Beyond it, a pause is a hundredth of the quiet time so far, because each waking costs about 50 us of a core.
PAUSE_MAX_S = 50e-3

# MPICH gives its shared memory this name. Other libraries attach theirs later, or remove the names themselves.
SEGMENT = "/dev/shm/mpich_shm_"

_CHANNELS = tuple(Channel)
# These are the tags. The first piece of a part is a _PART, and the others are each a _PIECE.
_WHOLE, _LENGTH, _PART, _PIECE = range(4)


class _Outgoing:
    """The sends to one (rank, channel), in order. Those that MPI has come first, and then those that wait."""

    def __init__(self, comm: MPI.Comm, to: int):
        self.comm = comm
        self.to = to
        # Each entry is (buffer, tag).
        self.waiting: deque[tuple[np.ndarray, int]] = deque()
        # Each entry is (request, buffer, tag). The buffer must live until the send completes.
        self.posted: deque[tuple[MPI.Request, np.ndarray, int]] = deque()

    def post(self) -> None:
        while self.waiting and len(self.posted) < POSTED_MAX:
            buffer, tag = self.waiting.popleft()
            self.posted.append((self.comm.Issend([buffer, MPI.BYTE], self.to, tag), buffer, tag))
        if self.posted:
            # Without this call, the peer may not see the send before this rank calls MPI again. That can be late,
            # because the rank decodes a block meanwhile.
            self.posted[0][0].Test()

    def completed_bytes(self) -> int | None:
        """Drops the sends that completed. Returns their bytes, or None if no send completed."""
        total_bytes = None
        while self.posted and self.posted[0][0].Test():
            _, buffer, tag = self.posted.popleft()
            total_bytes = (total_bytes or 0) + (0 if tag == _LENGTH else buffer.nbytes)
        if total_bytes is not None:
            self.post()
        return total_bytes


class _Incoming:
    """One message that is being received into `buffer`. It is whole when all its octets have been asked for, and every
    request is done."""

    def __init__(self, size_bytes: int, octets: int):
        self.buffer = aligned_empty(size_bytes)
        self.octets = self.missing_octets = octets
        self._end = 0
        self.requests: deque[MPI.Request] = deque()

    def receive(self, matched: MPI.Message, size_bytes: int, begins_part: bool) -> None:
        start = -(-self._end // ALIGNMENT) * ALIGNMENT if begins_part else self._end
        self._end = start + size_bytes
        self.missing_octets -= size_bytes
        self.requests.append(matched.Irecv([self.buffer[start : self._end], MPI.BYTE]))

    def is_whole(self) -> bool:
        while self.requests and self.requests[0].Test():
            self.requests.popleft()
        return not self.requests and not self.missing_octets


class MpiTransport:
    """This process's endpoint. The contract is in base.py."""

    def __init__(self, comm: MPI.Comm | None = None, piece_bytes: int = PIECE_BYTES):
        """All ranks must make their endpoints together. Without `comm` the endpoint spans MPI.COMM_WORLD, and `close`
        finalizes MPI for this process."""
        self._finalizes = comm is None
        self._world = comm or MPI.COMM_WORLD
        self._comms = [self._world.Dup() for _ in Channel]
        # All ranks took part in the duplication, so all ranks of this node have attached the segments by now.
        _forget_segments()
        self._piece_bytes = piece_bytes
        self.rank: int = self._world.rank
        self.size: int = self._world.size
        self.stats = TransportStats()
        self.library = " ".join(
            MPI.Get_library_version().replace("\0", " ").partition("\n")[0].replace(" Version:", "").split()
        )
        self._status = MPI.Status()
        # Both hold only lanes that have something under way.
        self._outgoing: dict[tuple[int, Channel], _Outgoing] = {}
        self._incoming: dict[tuple[int, Channel], deque[_Incoming]] = {}
        self._unsent_bytes = [0] * self.size
        self._arrived: list[Message] = []
        self._refuse: Collection[int] = ()
        self._pause_s = PAUSE_MIN_S
        # The barrier that this rank has entered and not left.
        self._barrier: MPI.Request | None = None

    def send(self, to: int, channel: Channel, data: Data) -> None:
        start_s = time.perf_counter()
        check_message(to, self.size, data)
        octets = octets_of(data)
        lane = self._outgoing.get((to, channel))
        if lane is None:
            lane = self._outgoing[to, channel] = _Outgoing(self._comms[channel], to)
        lane.waiting.extend(self._pieces(data))
        self._unsent_bytes[to] += octets
        self._guarded(lane.post)
        self.stats.sent_messages += 1
        self.stats.sent_bytes += octets
        self.stats.send_s += time.perf_counter() - start_s

    def poll(self, refuse: Collection[int] = ()) -> list[Message]:
        start_s = time.perf_counter()
        self._refuse = refuse
        self._guarded(self._advance)
        messages, self._arrived = self._arrived, []
        self.stats.poll_s += time.perf_counter() - start_s
        return messages

    def unsent_bytes(self, to: int | None = None) -> int:
        return sum(self._unsent_bytes) if to is None else self._unsent_bytes[to]

    def wait(self, timeout_s: float) -> None:
        if not self._arrived:
            self._sleep_until(lambda moved: moved, timeout_s)

    def flush(self, timeout_s: float) -> bool:
        return self._sleep_until(lambda moved: not self._outgoing, timeout_s)

    def barrier(self, timeout_s: float) -> None:
        if self._barrier is None:
            self._barrier = self._comms[Channel.CONTROL].Ibarrier()
        barrier = self._barrier
        if not self._sleep_until(lambda moved: barrier.Test(), timeout_s):
            raise PeerError(f"rank {self.rank}: not all {self.size} ranks reached the barrier in {timeout_s} s")
        self._barrier = None

    def close(self, timeout_s: float = 60.0, last: Callable[[], None] = nothing) -> None:
        """Does what the contract says. A rank enters the barrier only when all its sends were taken, so none of them
        can be cut off."""
        self._refuse = ()
        if not self._sleep_until(self._all_closed, timeout_s):
            raise PeerError(
                f"rank {self.rank}: not all {self.size} ranks closed in {timeout_s} s; "
                f"{self.unsent_bytes()} bytes from here were not taken"
            )
        last()
        for comm in self._comms:
            comm.Free()
        if self._finalizes:
            MPI.Finalize()

    def abort(self, code: int) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._world.Abort(code)
        # MPICH returns from MPI_Abort and lets the launcher kill the process. Nothing may run until then.
        os._exit(code)

    def _pieces(self, data: Data) -> list[tuple[np.ndarray, int]]:
        """Returns what to send for one message, as (buffer, tag) in order."""
        parts = parts_of(data)
        if len(parts) == 1 and parts[0].nbytes <= self._piece_bytes:
            return [(parts[0], _WHOLE)]
        length = np.array([part_starts(map(len, parts))[-1], octets_of(data)], dtype="<i8").view(np.uint8)
        pieces, step = [(length, _LENGTH)], self._piece_bytes
        for part in parts:
            pieces += [(part[start : start + step], _PIECE if start else _PART) for start in range(0, len(part), step)]
        return pieces

    def _guarded(self, step: Callable[[], Made]) -> Made:
        try:
            return step()
        except MPI.Exception as error:
            raise PeerError(f"rank {self.rank}: MPI failed: {error}") from error

    def _advance(self) -> bool:
        """Makes progress until nothing moves any more. Returns whether anything moved.

        MPI takes in little per call, and large messages move only while both sides are awake. So the rank spins for a
        short time while a message is on its way.
        """
        moved = self._progress()
        if not moved and not self._incoming:
            return False
        start_s = now_s = last_moved_s = time.perf_counter()
        while now_s - last_moved_s < SPIN_S and now_s - start_s < SPIN_MAX_S:
            moved_again = self._progress()
            now_s = time.perf_counter()
            if moved_again:
                moved, last_moved_s = True, now_s
            elif not self._incoming:
                break
        return moved

    def _progress(self) -> bool:
        """Moves sends and receives on by one step. Returns whether anything moved."""
        moved = self._complete_sends() if self._outgoing else False
        for channel in _CHANNELS:
            moved |= self._match(channel)
        if self._incoming:
            moved |= self._complete_receives()
        return moved

    def _complete_sends(self) -> bool:
        moved = False
        for (to, channel), lane in list(self._outgoing.items()):
            completed_bytes = lane.completed_bytes()
            if completed_bytes is not None:
                moved = True
                self._unsent_bytes[to] -= completed_bytes
                if not lane.posted:
                    del self._outgoing[to, channel]
        return moved

    def _match(self, channel: Channel) -> bool:
        """Begins to receive what MPI has for this rank. Returns whether there was anything."""
        if channel == Channel.RESULT and self._refuse:
            return self._match_accepted()
        return self._match_from(MPI.ANY_SOURCE, channel)

    def _match_accepted(self) -> bool:
        """Begins to receive RESULTs while some ranks are refused. A message of a refused rank is still taken whole if
        a part of it was taken before."""
        moved = False
        for source in range(self.size):
            if source not in self._refuse:
                moved |= self._match_from(source, Channel.RESULT)
            elif self._is_partial(source):
                moved |= self._match_from(source, Channel.RESULT, count_max=1)
        return moved

    def _match_from(self, source: int, channel: Channel, count_max: int = MATCHED_MAX) -> bool:
        improbe, begun_bytes, begun = self._comms[channel].Improbe, 0, 0
        while begun < count_max and begun_bytes < MATCHED_BYTES_MAX:
            matched = improbe(source, MPI.ANY_TAG, self._status)
            if matched is None:
                break
            begun += 1
            begun_bytes += self._begin_receive(matched, channel)
        return begun > 0

    def _is_partial(self, source: int) -> bool:
        lane = self._incoming.get((source, Channel.RESULT))
        return lane is not None and lane[-1].missing_octets > 0

    def _begin_receive(self, matched: MPI.Message, channel: Channel) -> int:
        """Asks MPI to put what was matched into its place. Returns its bytes."""
        status = self._status
        tag, size_bytes = status.Get_tag(), status.Get_count(MPI.BYTE)
        lane = self._incoming.setdefault((status.Get_source(), channel), deque())
        if tag == _LENGTH:
            length = np.empty(2, dtype="<i8")
            # This does not wait, because the sixteen bytes are here already.
            matched.Recv([length, MPI.BYTE])
            lane.append(_Incoming(*length.tolist()))
            return size_bytes
        if tag == _WHOLE:
            lane.append(_Incoming(size_bytes, size_bytes))
        lane[-1].receive(matched, size_bytes, tag == _PART)
        return size_bytes

    def _complete_receives(self) -> bool:
        """Hands over the messages that are whole. Within a lane, a later message waits for an earlier one. Returns
        whether there were any."""
        moved = False
        for (source, channel), lane in list(self._incoming.items()):
            while lane and lane[0].is_whole():
                self._arrived.append(Message(source, channel, lane[0].buffer))
                self.stats.received_messages += 1
                self.stats.received_bytes += lane.popleft().octets
                moved = True
            if not lane:
                del self._incoming[source, channel]
        return moved

    def _all_closed(self, moved: bool) -> bool:
        self._arrived.clear()
        if self._outgoing:
            return False
        if self._barrier is None:
            self._barrier = self._comms[Channel.CONTROL].Ibarrier()
        return self._barrier.Test() and not self._incoming

    def _sleep_until(self, done: Callable[[bool], bool], timeout_s: float) -> bool:
        """Makes progress until `done(moved)`, and sleeps in between. Returns whether this happened in time. The pauses
        also grow from one quiet call to the next, so that waiting stays cheap."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            moved = self._guarded(self._advance)
            if done(moved):
                self._pause_s = PAUSE_MIN_S
                return True
            remaining_s = deadline_s - time.monotonic()
            if remaining_s <= 0:
                return False
            self._pause_s = PAUSE_MIN_S if moved else _longer(self._pause_s)
            time.sleep(min(self._pause_s, remaining_s))


def _forget_segments() -> None:
    """Removes the names of the shared memory that MPICH has made for the ranks of this node. All of them have attached
    it by now.

    If a rank is killed, the memory would be left behind under its name. A later job step of the same number would take
    it for its own and hang.
    """
    with suppress(OSError), open("/proc/self/maps") as maps:
        for name in {line.split(maxsplit=5)[-1].strip() for line in maps if SEGMENT in line}:
            # Another rank may have removed the name already.
            with suppress(OSError):
                os.unlink(name)


def _longer(pause_s: float) -> float:
    return min(pause_s * (1.5 if pause_s < PAUSE_SHORT_S else 1.01), PAUSE_MAX_S)
