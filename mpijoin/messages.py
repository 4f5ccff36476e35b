"""These are all messages between ranks: what each one says, who may send it, and its frame on the wire.

| message      | from → to                 | channel | says |
|--------------|---------------------------|---------|------|
| Slot         | producer → slave          | DATA    | rows of the slave's partitions, and their watermarks |
| Order        | producer → slave          | DATA    | the next step of a hand-over, in order with the slots |
| Share        | master → producer         | CONTROL | what the producer reads, and where it begins |
| Directive    | master → producer         | CONTROL | what the coordinator has decided |
| Notes        | producer → master         | CONTROL | what the coordinator has to know |
| ComputePartitions | master → slave       | CONTROL | choose groups of so many bytes, which will go to another slave |
| Partitions   | slave → master            | CONTROL | the answer: the groups |
| SpillOrder   | master → slave            | CONTROL | put groups of so many bytes on your disk |
| State        | slave → slave             | STATE   | a part of a group on its way from supplier to consumer |
| ResultRows   | slave → collector         | RESULT  | result rows of one epoch, as an Arrow record batch |
| EpochEnd     | slave → collector         | RESULT  | all results up to this epoch have been sent |
| Ready        | all → master → all        | CONTROL | its kernels are loaded; from the master: those of all ranks |
| Report       | all → master, producer    | CONTROL | what was consumed (credit), and how it is; also a heartbeat |
| AskLoads     | master → slave            | CONTROL | a reorganization epoch ends: how loaded are you? |
| Loads        | slave → master            | CONTROL | the answer: backlog, shares of time, and what each group cost |
| Step         | slave → master            | CONTROL | a step of a hand-over is done, or refused |
| Finished     | others → master           | CONTROL | the rank has done its part: counts and files |
| Failed       | any → master              | CONTROL | the rank cannot go on |
| Marker       | producer → slave          | DATA    | a checkpoint cuts the input here; all that came before is saved |
| ResultMarker | slave → collector         | RESULT  | a checkpoint cuts the results here |
| Saved        | others → master           | CONTROL | the rank's part of a checkpoint is on disk, or why it is not |
| Restore      | master → slave            | CONTROL | take these groups out of a checkpoint, before the run begins |
| Restored     | slave → master → slave    | CONTROL | the slave has done so, or why not; from the master: all have |
| Signalled    | others → master           | CONTROL | a signal came that asks for a checkpoint |
| Stop         | master → all              | CONTROL | leave with this exit code |
| Begin        | master → all              | CONTROL | the setup of the run, where ranks are processes |

Most messages are a few plain values, which travel as the meta of the frame. For the others, `content` returns their
meta and buffers, and `of` makes the message from them again.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable

import numpy as np

from mpijoin.data.codec import Frame, decode, encode, encode_parts
from mpijoin.directives import Directive, Notes, Share
from mpijoin.errors import ProtocolError
from mpijoin.named import NamedTuple
from mpijoin.orders import AskLoads, ComputePartitions, Content, Loads, Order, Partitions, SpillOrder, Step
from mpijoin.partitioning.table import NO_MOVE, NO_PEER, NO_STREAM
from mpijoin.records import (
    Counts,
    Fed,
    Feeding,
    Figures,
    Followed,
    GroupSpans,
    InputState,
    PartInfo,
    Span,
    SpillFigures,
    Transfer,
)

NO_BLOB = np.frombuffer(b"", np.uint8)  # which cannot be written


class Columns(NamedTuple):
    """Tuples of one stream, which lie together by partition. `tuples` are int64[n, tuple_words], `blob` is uint8[]."""

    tuples: np.ndarray
    blob: np.ndarray


class Piece(NamedTuple):
    """What one slave gets of one ingested part of a tick. `counts`, int64[streams, m], are the rows per stream and
    group of the slave. `columns` are those of each stream."""

    counts: np.ndarray
    columns: tuple[Columns, ...]

    @property
    def octets(self) -> int:
        return sum(one.tuples.nbytes + one.blob.nbytes for one in self.columns)


class Slot(NamedTuple):
    """`groups`, int64[m], are the partitions of the pieces. `watermarks` are those of each stream after these pieces.
    In a paced run, `origin` is the (event time, second of the run) at which event time began to pass. It is None at
    speed "max". The message waited `turn_s` for its turn (producer/exchange.py). If its one group is shared with
    another slave, `step` says what its rows are here, or what is to be done, in the move of number `move` with the
    slave `peer`. The rows of stream `dealt` are dealt among the slaves that share it."""

    producer: int
    epoch: int
    watermarks: tuple[int, ...]
    groups: np.ndarray
    pieces: tuple[Piece, ...]
    last: bool = False
    origin: tuple[int, float] | None = None
    turn_s: float = 0.0
    move: int = NO_MOVE
    step: str = ""
    peer: int = NO_PEER
    dealt: int = NO_STREAM

    def frame(self, checksum: bool = False) -> np.ndarray:
        """Returns the frame as one array, for a disk or for another message."""
        return encode(KINDS[Slot], *self.content(), checksum)

    def content(self) -> Content:
        names = ("producer", "epoch", "watermarks", "last", "origin", "turn_s", "move", "step", "peer", "dealt")
        meta = {name: getattr(self, name) for name in names}
        columns = [one for piece in self.pieces for one in piece.columns]
        counts = [np.concatenate([piece.counts for piece in self.pieces])] if self.pieces else []
        # Each buffer costs both sides some time, and most streams have no blobs.
        blobs = [one.blob for one in columns] if any(len(one.blob) for one in columns) else []
        return meta, [self.groups, *counts, *(one.tuples for one in columns), *blobs]

    @classmethod
    def of(cls, meta: dict[str, Any], buffers: list[np.ndarray]) -> Slot:
        watermarks, groups, pieces = tuple(meta["watermarks"]), buffers[0], list[Piece]()
        if buffers[1:]:
            streams, counts = len(watermarks), buffers[1]
            blobs = buffers[2 + len(counts) :] or [NO_BLOB] * len(counts)
            columns = list(map(Columns, buffers[2 : 2 + len(counts)], blobs))
            for at in range(0, len(counts), streams):
                pieces.append(Piece(counts[at : at + streams], tuple(columns[at : at + streams])))
        origin = meta["origin"] and tuple(meta["origin"])
        rest = (meta[name] for name in ("turn_s", "move", "step", "peer", "dealt"))
        own = (watermarks, groups, tuple(pieces), meta["last"], origin, *rest)
        return cls(meta["producer"], meta["epoch"], *own)

    @property
    def octets(self) -> int:
        return sum(piece.octets for piece in self.pieces)

    @property
    def rows_per_stream(self) -> np.ndarray:
        """The rows of each stream, int64[streams]."""
        return sum((piece.counts.sum(axis=1) for piece in self.pieces), np.zeros(len(self.watermarks), np.int64))

    @property
    def rows(self) -> np.ndarray:
        """The rows of all streams per group, int64[m]."""
        return sum((piece.counts.sum(axis=0) for piece in self.pieces), np.zeros(len(self.groups), np.int64))


class ResultRows(NamedTuple):
    """Results of the query of this number. `batch`, uint8[], is an Arrow record batch in IPC form."""

    slave: int
    epoch: int
    query: int
    batch: np.ndarray

    def content(self) -> Content:
        return {"slave": self.slave, "epoch": self.epoch, "query": self.query}, [self.batch]

    @classmethod
    def of(cls, meta: dict[str, Any], buffers: list[np.ndarray]) -> ResultRows:
        return cls(meta["slave"], meta["epoch"], meta["query"], *buffers)


class EpochEnd(NamedTuple):
    """An `idle` slave has no groups. Nobody should wait for it until it sends again."""

    slave: int
    epoch: int
    last: bool = False
    idle: bool = False


class Ready(NamedTuple):
    """`host` is the node of the rank, and its kernels were ready after `compile_s` seconds. The master sends in
    `started_s` when its clock started, in seconds since 1970. All ranks count from there."""

    rank: int
    started_s: float = 0.0
    host: str = ""
    compile_s: float = 0.0


class State(NamedTuple):
    """`frames`, uint8[] each, come from `Operator.get`. Only the last message of a move has `input`: the group's rows
    that the supplier had received and not joined, in Slots of this one group, the oldest first. `marks` are the group's
    watermarks of each producer, if there are several. If `cancelled`, the consumer forgets the move, because no more
    will come. If the supplier keeps the group, too, stream `dealt` is dealt between both. If `rows`, it leaves such a
    group, and the frames have its rows of that stream."""

    move: int
    supplier: int
    group: int
    frames: tuple[np.ndarray, ...]
    input: tuple[Slot, ...] = ()
    cancelled: bool = False
    marks: tuple[tuple[int, ...], ...] = ()
    dealt: int = NO_STREAM
    rows: bool = False

    def content(self) -> Content:
        final = [slot.frame() for slot in self.input]
        names = ("move", "supplier", "group", "cancelled", "marks", "dealt", "rows")
        meta = {name: getattr(self, name) for name in names}
        return {**meta, "final": len(final)}, [*self.frames, *final]

    @classmethod
    def of(cls, meta: dict[str, Any], buffers: list[np.ndarray]) -> State:
        count = len(buffers) - meta["final"]
        inner = map(decode, buffers[count:])
        final = tuple(Slot.of(one.meta, one.buffers) for one in inner)
        rest = (meta["cancelled"], tuple(map(tuple, meta["marks"])), meta["dealt"], meta["rows"])
        return cls(meta["move"], meta["supplier"], meta["group"], tuple(buffers[:count]), final, *rest)


class Report(NamedTuple):
    """`consumed_bytes` counts since the last report. The others are as of now. `epoch` was joined last; -1: the rank
    only says that it is alive, and how far it has come. `busy_s` and `comm_s` are the seconds of joining and
    communicating since the clock started. `state_bytes` are in use, of the `limit_bytes` of its memory. `fed` is how
    far a producer has come, and None from others."""

    rank: int
    consumed_bytes: int = 0
    epoch: int = -1
    results: int = 0
    busy_s: float = 0.0
    state_bytes: int = 0
    comm_s: float = 0.0
    comparisons: int = 0
    limit_bytes: int = 0
    spilling: SpillFigures = SpillFigures()
    fed: Fed | None = None


class Finished(NamedTuple):
    """`counts` and `figures` are those of a slave, and None from others. `rows` are those that a collector has written.
    `files` are the rank's part files. `feeding` is what a producer has done. `plans` are those that a slave has
    followed, if there are several ways to join."""

    rank: int
    counts: Counts | None = None
    figures: Figures | None = None
    rows: int = 0
    files: tuple[str, ...] = ()
    plans: tuple[Followed, ...] = ()
    feeding: Feeding | None = None


class Failed(NamedTuple):
    rank: int
    exit_code: int
    reason: str
    trace: str = ""


class Marker(NamedTuple):
    """`number` is that of the checkpoint. With `cuts_metrics` it cuts the metrics, too. `anew` says that the files of
    the one before are gone. With `stops` the run ends, so input that is not joined yet is saved as it is."""

    number: int
    cuts_metrics: bool = True
    anew: bool = False
    stops: bool = False


class ResultMarker(NamedTuple):
    slave: int
    number: int


class Saved(NamedTuple):
    """`counts` are those of a slave at the cut, and None from others. `rows` is as in `Finished`. `parts` are the
    result files so far, and `groups` those of the slave. `waiting` has the place of each `Slot` that a producer had not
    sent, or, where the run stops, that the slave had received and not joined. Of a producer, `position` is the place of
    where it stands in its input, and `input` says more. `octets` were written, and joining stood still for `seconds`.
    `fault` says why the part could not be saved."""

    rank: int
    number: int
    counts: Counts | None = None
    rows: int = 0
    parts: tuple[PartInfo, ...] = ()
    groups: tuple[GroupSpans, ...] = ()
    waiting: tuple[Span, ...] = ()
    octets: int = 0
    seconds: float = 0.0
    fault: str = ""
    position: Span | None = None
    input: InputState | None = None


class Restore(NamedTuple):
    """`groups` are those of the slave, as in `Saved`. The slave checks the files in `parts`. Their names are
    relative to the run's folder."""

    number: int
    groups: tuple[GroupSpans, ...]
    parts: tuple[PartInfo, ...] = ()


class Restored(NamedTuple):
    """`fault` names the file that is damaged, and says how. It took `seconds` to take everything out."""

    rank: int
    number: int
    fault: str = ""
    seconds: float = 0.0


class Signalled(NamedTuple):
    rank: int
    name: str


class Stop(NamedTuple):
    exit_code: int
    reason: str = ""


class Begin(NamedTuple):
    """`setup` has the plain values (launch/begin.py). `columns`, uint8[] each, is an Arrow schema for every stream."""

    setup: dict[str, Any]
    columns: tuple[np.ndarray, ...]

    def content(self) -> Content:
        return self.setup, list(self.columns)

    @classmethod
    def of(cls, meta: dict[str, Any], buffers: list[np.ndarray]) -> Begin:
        return cls(meta, tuple(buffers))


KINDS: dict[type, int] = {
    Slot: 1, ResultRows: 2, EpochEnd: 3, Report: 4, Finished: 5, Failed: 6, Stop: 7, Begin: 8, Ready: 9, Order: 10,
    AskLoads: 11, Loads: 12, State: 13, Step: 14, Marker: 15, ResultMarker: 20, Saved: 21, Restore: 22, Restored: 23,
    Signalled: 24, ComputePartitions: 25, Partitions: 26, SpillOrder: 27, Share: 29, Directive: 30, Notes: 31,
}
MESSAGES = {kind: message for message, kind in KINDS.items()}

# These messages say themselves what their meta and buffers are.
Framed = Slot | ResultRows | Loads | State | Begin | Share
AnyMessage = (
    Framed | EpochEnd | Report | Finished | Failed | Stop | Ready | Order | AskLoads | Step | Marker | ResultMarker
    | Saved | Restore | Restored | Signalled | ComputePartitions | Partitions | SpillOrder | Directive | Notes
)
_FRAMED: dict[type, Callable[[dict[str, Any], list[np.ndarray]], Framed]] = {
    Slot: Slot.of, ResultRows: ResultRows.of, Loads: Loads.of, State: State.of, Begin: Begin.of,
    Share: Share.of,
}


def _each(make: Callable[[Any], Any]) -> Callable[[Iterable[Any]], tuple[Any, ...]]:
    return lambda values: tuple(map(make, values))


# These functions make the records in a message's meta again.
_RECORDS: dict[str, Callable[[Any], Any]] = {
    "counts": Counts.of,
    "files": tuple,
    "chosen": tuple,
    "parts": _each(lambda plain: PartInfo(*plain)),
    "groups": _each(GroupSpans.of),
    "waiting": _each(lambda plain: Span(*plain)),
    "spilling": SpillFigures.of,
    "fed": Fed.of,
    "feeding": Feeding.of,
    "input": InputState.of,
    "plans": _each(lambda plain: Followed(*plain)),
    "position": lambda plain: Span(*plain),
}
_FIGURES: dict[type, Callable[[Any], Any]] = {Finished: Figures.of, Step: Transfer.of}


def encode_message(message: AnyMessage) -> tuple[np.ndarray, ...]:
    """Returns the frame of a message, in parts (codec.encode_parts)."""
    kind = KINDS[type(message)]
    if isinstance(message, Framed):
        return encode_parts(kind, *message.content())
    return encode_parts(kind, message._asdict(), [])


def parse(data: np.ndarray | tuple[np.ndarray, ...]) -> AnyMessage:
    """Returns the message in what was received. Raises CodecError for damage, and ProtocolError for an unknown kind."""
    return message_of(decode(data))


def message_of(frame: Frame) -> AnyMessage:
    """Returns the message in a frame. Raises ProtocolError for an unknown kind."""
    if frame.kind not in MESSAGES:
        raise ProtocolError(f"got a message of kind {frame.kind}, wanted one of {sorted(MESSAGES)}")
    message = MESSAGES[frame.kind]
    if message in _FRAMED:
        return _FRAMED[message](frame.meta, frame.buffers)
    made: AnyMessage = message(**{name: _record(message, name, value) for name, value in frame.meta.items()})
    return made


def _record(message: type, name: str, value: Any) -> Any:
    make = _FIGURES.get(message) if name == "figures" else _RECORDS.get(name)
    return value if make is None or value is None else make(value)
