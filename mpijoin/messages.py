"""Every message between ranks: what it says, who may send it, and its frame on the wire.

| message  | from → to          | channel | says |
|----------|--------------------|---------|------|
| Slot     | master → slave     | DATA    | rows of the slave's partitions and how far each stream is complete; `last` ends the input |
| Order    | master → slave     | DATA    | the next step of a group's hand-over, in order with the slots |
| State    | slave → slave      | STATE   | a part of a group on its way from supplier to consumer |
| Rows     | slave → collector  | RESULT  | result rows of one epoch, as an Arrow record batch |
| EpochEnd | slave → collector  | RESULT  | all results up to this epoch have been sent; `last` ends them |
| Ready    | all → master → all | CONTROL | the rank's kernels are loaded; from the master: those of all ranks are |
| Report   | slave → master     | CONTROL | what was consumed (credit) and how the slave is doing; also the heartbeat |
| Ask      | master → slave     | CONTROL | a reorganization epoch ends: how loaded are you? |
| Loads    | slave → master     | CONTROL | the answer: backlog, shares of time, and what each group cost |
| Step     | slave → master     | CONTROL | a step of a hand-over is done, or refused |
| Finished | slave, collector → master | CONTROL | the rank has done its part: counts and files |
| Failed   | any → master       | CONTROL | the rank cannot go on |
| Marker   | master → slave     | DATA    | a checkpoint cuts the input here: all before it is joined, then the state is saved |
| ResultMarker | slave → collector | RESULT | likewise for results |
| Saved    | slave, collector → master | CONTROL | its part of a checkpoint is on disk, or why not |
| Restore  | master → slave     | CONTROL | take these groups out of a checkpoint, before the run begins |
| Restored | slave → master → slave | CONTROL | it has, or why not; from the master: all have |
| Signalled | slave, collector → master | CONTROL | a signal came that asks for a checkpoint |
| Stop     | master → all       | CONTROL | leave with this exit code |
| Begin    | master → all       | CONTROL | the plan of the run, where ranks are processes |
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from mpijoin.data.codec import Frame, decode, encode, encode_parts
from mpijoin.errors import ProtocolError


class Columns(NamedTuple):
    """Tuples of one stream, contiguous by partition: tuples int64[n, tuple_words] · blob uint8[]."""

    tuples: np.ndarray
    blob: np.ndarray


class Piece(NamedTuple):
    """What one slave gets of one ingested part of a tick. counts: int64[2, m] rows per stream and group of the slave."""

    counts: np.ndarray
    columns: tuple[Columns, Columns]

    @property
    def octets(self) -> int:
        return sum(one.tuples.nbytes + one.blob.nbytes for one in self.columns)


@dataclass(frozen=True)
class Slot:
    """groups: int64[m], the partitions that the pieces are of · watermarks: of left and right, after these pieces · origin:
    of a paced run, (event time, second of the run) at which event time began to pass; None at speed "max"."""

    producer: int
    epoch: int
    watermarks: tuple[int, int]
    groups: np.ndarray
    pieces: tuple[Piece, ...]
    last: bool = False
    origin: tuple[int, float] | None = None

    kind = 1

    def encode(self) -> tuple[np.ndarray, ...]:
        return encode_parts(self.kind, *self._content())

    def frame(self, checksum: bool = False) -> np.ndarray:
        """In one, for a disk or another message."""
        return encode(self.kind, *self._content(), checksum)

    def _content(self) -> tuple[dict[str, Any], list[np.ndarray]]:
        meta = {
            "producer": self.producer,
            "epoch": self.epoch,
            "watermarks": list(self.watermarks),
            "last": self.last,
            "origin": self.origin and list(self.origin),
        }
        columns = [array for piece in self.pieces for one in piece.columns for array in one]
        return meta, [self.groups, *(piece.counts for piece in self.pieces), *columns]

    @classmethod
    def of(cls, frame: Frame) -> Slot:
        count = len(frame.buffers) // 5  # buffers a piece
        groups, *counts = frame.buffers[: 1 + count]
        columns = map(Columns, *[iter(frame.buffers[1 + count :])] * 2)
        pieces = [Piece(one, (next(columns), next(columns))) for one in counts]
        meta = frame.meta
        origin = meta["origin"] and tuple(meta["origin"])
        return cls(meta["producer"], meta["epoch"], tuple(meta["watermarks"]), groups, tuple(pieces), meta["last"], origin)

    @property
    def octets(self) -> int:
        return sum(piece.octets for piece in self.pieces)

    @property
    def rows(self) -> np.ndarray:
        """int64[m]: rows of both streams per group."""
        total = np.zeros(len(self.groups), np.int64)
        for piece in self.pieces:
            total += piece.counts[0] + piece.counts[1]
        return total


@dataclass(frozen=True)
class Rows:
    """batch: uint8[], an Arrow record batch in IPC form."""

    slave: int
    epoch: int
    batch: np.ndarray

    kind = 2

    def encode(self) -> tuple[np.ndarray, ...]:
        return encode_parts(self.kind, {"slave": self.slave, "epoch": self.epoch}, [self.batch])

    @classmethod
    def of(cls, frame: Frame) -> Rows:
        return cls(frame.meta["slave"], frame.meta["epoch"], frame.buffers[0])


@dataclass(frozen=True)
class Plain:
    """A message of a few plain values, which travel as the frame's meta."""

    kind = 0

    def encode(self) -> np.ndarray:
        return encode(self.kind, {one.name: getattr(self, one.name) for one in fields(self)}, [])

    @classmethod
    def of(cls, frame: Frame) -> Plain:
        return cls(**frame.meta)


@dataclass(frozen=True)
class EpochEnd(Plain):
    """idle: the slave has no groups: nobody should wait for it until it sends again."""

    slave: int
    epoch: int
    last: bool = False
    idle: bool = False

    kind = 3


@dataclass(frozen=True)
class Ready(Plain):
    """started_s: from the master, when its clock started (since 1970), for all to count from · host: the rank's node."""

    rank: int
    started_s: float = 0.0
    host: str = ""
    kind = 9


@dataclass(frozen=True)
class Order(Plain):
    """step: "ship", "freeze", "drop" or "restore", all to the supplier · peer: the consumer."""

    move: int
    step: str
    group: int
    peer: int

    kind = 10


@dataclass(frozen=True)
class Ask(Plain):
    """period: the number of the reorganization epoch that ends."""

    period: int

    kind = 11


@dataclass(frozen=True)
class Loads:
    """Of the time since the last answer. backlog_bytes: mean, over its distribution epochs, of what was left in the stream
    buffer at their end · busy, communication: shares of its wall time · groups, work (in comparisons, of this time),
    live_bytes (now): int64[m]."""

    rank: int
    period: int
    backlog_bytes: float
    busy: float
    communication: float
    groups: np.ndarray
    work: np.ndarray
    live_bytes: np.ndarray

    kind = 12

    def encode(self) -> np.ndarray:
        meta = {name: getattr(self, name) for name in ("rank", "period", "backlog_bytes", "busy", "communication")}
        return encode(self.kind, meta, [self.groups, self.work, self.live_bytes])

    @classmethod
    def of(cls, frame: Frame) -> Loads:
        return cls(**frame.meta, **dict(zip(("groups", "work", "live_bytes"), frame.buffers)))


@dataclass(frozen=True)
class State:
    """frames: uint8[] each, of `Operator.get` · input: the last message of a move has the group's rows that the supplier
    had received and not joined, as a Slot of this one group; None before · cancelled: there will be no more, forget it."""

    move: int
    supplier: int
    group: int
    frames: tuple[np.ndarray, ...]
    input: Slot | None = None
    cancelled: bool = False

    kind = 13

    def encode(self) -> tuple[np.ndarray, ...]:
        final = [] if self.input is None else [self.input.frame()]
        meta = {"move": self.move, "supplier": self.supplier, "group": self.group, "cancelled": self.cancelled}
        return encode_parts(self.kind, {**meta, "final": bool(final)}, [*self.frames, *final])

    @classmethod
    def of(cls, frame: Frame) -> State:
        meta, frames = dict(frame.meta), list(frame.buffers)
        final = Slot.of(decode(frames.pop())) if meta.pop("final") else None
        return cls(frames=tuple(frames), input=final, **meta)


@dataclass(frozen=True)
class Step(Plain):
    """step: "shipped" (the rest fits one slot), "dropped" or "restored" by the supplier; "installed" or "refused" by the
    consumer · figures: of the transfer, as the slave measured it."""

    move: int
    slave: int
    step: str
    reason: str = ""
    figures: dict[str, float] = field(default_factory=dict)

    kind = 14


@dataclass(frozen=True)
class Report(Plain):
    """consumed_bytes since the last report; the others are as of now. epoch: that was joined; -1: the rank only says that it is
    alive, and how far it has come · busy_s, comm_s: joining and communicating, since the clock started."""

    rank: int
    consumed_bytes: int = 0
    epoch: int = -1
    results: int = 0
    busy_s: float = 0.0
    state_bytes: int = 0
    comm_s: float = 0.0
    comparisons: int = 0

    kind = 4


@dataclass(frozen=True)
class Finished(Plain):
    """counts: the rank's side of the ledger and its figures for the summary · files: its part files."""

    rank: int
    counts: dict[str, Any] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)

    kind = 5


@dataclass(frozen=True)
class Failed(Plain):
    rank: int
    exit_code: int
    reason: str
    trace: str = ""

    kind = 6


@dataclass(frozen=True)
class Marker(Plain):
    """number: of the checkpoint · cuts_metrics: it cuts the metrics, too · anew: what was written for the one before is gone."""

    number: int
    cuts_metrics: bool = True
    anew: bool = False

    kind = 15


@dataclass(frozen=True)
class ResultMarker(Plain):
    slave: int
    number: int

    kind = 20


@dataclass(frozen=True)
class Saved(Plain):
    """counts: the rank's side of the ledger at the cut, as in `Finished` · parts: each result file so far, as
    sinks.parts.PartInfo · groups: [group, bytes that are alive, spans], a span being [file name, offset, bytes] of a frame ·
    octets, seconds: what was written, and how long joining stood still for it · fault: why it could not be done."""

    rank: int
    number: int
    counts: dict[str, Any] = field(default_factory=dict)
    parts: list = field(default_factory=list)
    groups: list = field(default_factory=list)
    octets: int = 0
    seconds: float = 0.0
    fault: str = ""

    kind = 21


@dataclass(frozen=True)
class Restore(Plain):
    """groups: [group, spans] of the slave's groups, as in `Saved` · parts: files for it to check, with names from the run's on."""

    number: int
    groups: list
    parts: list = field(default_factory=list)

    kind = 22


@dataclass(frozen=True)
class Restored(Plain):
    """fault: the file that is damaged, and how · seconds: that it took to take everything out."""

    rank: int
    number: int
    fault: str = ""
    seconds: float = 0.0

    kind = 23


@dataclass(frozen=True)
class Signalled(Plain):
    rank: int
    name: str

    kind = 24


@dataclass(frozen=True)
class Stop(Plain):
    exit_code: int
    reason: str = ""

    kind = 7


@dataclass(frozen=True)
class Begin:
    """plan: uint8[], a pickled `Plan`."""

    plan: np.ndarray

    kind = 8

    def encode(self) -> np.ndarray:
        return encode(self.kind, {}, [self.plan])

    @classmethod
    def of(cls, frame: Frame) -> Begin:
        return cls(frame.buffers[0])


MESSAGES = {
    message.kind: message
    for message in (
        *(Slot, Rows, EpochEnd, Report, Finished, Failed, Stop, Begin, Ready, Order, Ask, Loads, State, Step),
        *(Marker, ResultMarker, Saved, Restore, Restored, Signalled),
    )
}


def parse(data: np.ndarray | tuple[np.ndarray, ...]):
    """The message in what was received. Raises CodecError on damage, ProtocolError on an unknown kind."""
    frame = decode(data)
    if frame.kind not in MESSAGES:
        raise ProtocolError(f"got a message of kind {frame.kind}, wanted one of {sorted(MESSAGES)}")
    return MESSAGES[frame.kind].of(frame)


__all__ = [*(message.__name__ for message in MESSAGES.values()), "Columns", "Piece", "parse"]
