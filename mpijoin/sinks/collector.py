"""Results that are merged at one rank: slaves send theirs, and the collector writes them epoch by epoch."""

from __future__ import annotations

from collections import deque
from typing import Callable, Collection, Protocol, Sequence

import numpy as np
import pyarrow as pa

from mpijoin.errors import ProtocolError
from mpijoin.messages import EpochEnd, ResultMarker, ResultRows, encode_message
from mpijoin.operators.base import Out, Rows
from mpijoin.records import PartInfo
from mpijoin.sinks.table import TableBuilder
from mpijoin.transport.base import Data

HELD_BYTES_MAX = 64 << 20  # rows of epochs that are not open yet; beyond it, slaves that are ahead must wait


class SendSink:
    """The slave's side. Every batch of results is sent at once, with its epoch and query.

    The sink of the first query tells of epochs, and of checkpoints, for all.
    """

    def __init__(self, builder: TableBuilder | None, rank: int, send: Callable[[Data], None], query: int = 0):
        """builder: None where results are only counted."""
        self._builder = builder
        self._rank = rank
        self._send = send
        self._query = query

    def consume(self, out: Out, rows: Rows, epoch: int) -> None:
        if self._builder is None:
            return
        for piece in self._builder.pieces(out.filled, rows):
            self._builder.add(piece, rows)
            batch = self._builder.take().to_batches()[0]
            octets = np.frombuffer(batch.serialize(), np.uint8)
            self._send(encode_message(ResultRows(self._rank, epoch, self._query, octets)))

    def end_epoch(self, epoch: int, last: bool) -> None:
        self._tell(EpochEnd(self._rank, epoch, last))

    def rest(self, epoch: int) -> None:
        self._tell(EpochEnd(self._rank, epoch, idle=True))

    def cut(self, number: int) -> list[PartInfo]:
        self._tell(ResultMarker(self._rank, number))
        return []

    def _tell(self, message: EpochEnd | ResultMarker) -> None:
        if self._query == 0:
            self._send(encode_message(message))

    def sync(self) -> None:
        pass

    def close(self) -> list[PartInfo]:
        return []

    def abandon(self) -> None:
        pass


class Writer(Protocol):
    """Where the results of one query go: part files, tables that are kept, or a queue from which another thread takes
    them."""

    @property
    def is_full(self) -> bool:
        """Whether slaves should keep what they have for now. What comes all the same is written, too."""

    def write(self, table: pa.Table) -> None: ...

    def cut(self) -> list[PartInfo]:
        """Closes the part file that is open; all parts so far."""

    def sync(self) -> None:
        """Brings all parts to the disk. Raises OutputError."""

    def close(self) -> list[PartInfo]:
        """Nothing more comes; all parts."""

    def abandon(self) -> None:
        """Lets go of everything, in whatever state it is."""


class WithoutParts:
    """The end of a `Writer` that makes no part files."""

    def cut(self) -> list[PartInfo]:
        return []

    def sync(self) -> None:
        pass

    def close(self) -> list[PartInfo]:
        return []


class Writers:
    """The writers of all queries."""

    def __init__(self, each: Sequence[Writer]):
        self._each = each

    @property
    def is_full(self) -> bool:
        """Whether slaves should keep what they have for now."""
        return any(writer.is_full for writer in self._each)

    def write(self, query: int, table: pa.Table) -> None:
        self._each[query].write(table)

    def cut(self) -> list[PartInfo]:
        return [part for writer in self._each for part in writer.cut()]

    def sync(self) -> None:
        for writer in self._each:
            writer.sync()

    def close(self) -> list[PartInfo]:
        return [part for writer in self._each for part in writer.close()]

    def abandon(self) -> None:
        for writer in self._each:
            writer.abandon()


class Collector:
    """Merges the slaves' results by epoch.

    The oldest open epoch is the first that some slave has not ended. Its rows are written as they come; rows of later
    epochs wait, up to `held_bytes_max`. Beyond that, `refuse` names the slaves that are ahead. A slave that is not
    ahead is never refused, so the oldest epoch always ends, and no slave waits for ever. Slaves without groups are not
    waited for. While a writer is full, all slaves are refused. The collector itself never waits for a writer,
    because it must be heard by the other ranks, and hear when the run stops.

    A checkpoint's mark comes from every slave in order with its results. What came before all marks is written,
    whatever its epoch. What a slave sends after its own mark waits until the last mark has come and the writer has been
    cut (`cut_number`).
    """

    def __init__(
        self,
        slaves: tuple[int, ...],
        schemas: Sequence[pa.Schema],
        writers: Writers,
        held_bytes_max: int = HELD_BYTES_MAX,
        *,
        idle: Collection[int] = (),
    ):
        """schemas: of each query · idle: slaves that begin without groups."""
        self._ended = dict.fromkeys(slaves, -1)  # slave -> last epoch it has ended
        self._idle = set(idle)
        self._unfinished = set(slaves)
        self._held: dict[int, deque[ResultRows]] = {slave: deque() for slave in slaves}
        self._held_bytes = 0
        self._held_bytes_max = held_bytes_max
        self._schemas = schemas
        self.writers = writers
        self._marked: dict[int, deque[ResultRows | EpochEnd]] = {}  # slave whose mark has come -> what came after it
        # of the checkpoint for which all results are written: `go_on` once it is noted
        self.cut_number: int | None = None
        self.rows = 0

    @property
    def finished(self) -> bool:
        return not self._unfinished

    @property
    def refuse(self) -> set[int]:
        """The slaves whose messages should wait where they are."""
        if self.writers.is_full:
            return set(self._ended)
        if self._held_bytes <= self._held_bytes_max:
            return set(self._marked)
        oldest = self._oldest_ended()
        return set(self._marked) | {slave for slave in self._unfinished - self._idle if self._ended[slave] > oldest}

    def take(self, message: ResultRows | EpochEnd | ResultMarker) -> None:
        """Takes one message of a slave. Raises ProtocolError when it contradicts an earlier one, OutputError."""
        slave = message.slave
        if isinstance(message, ResultMarker):
            self._mark(message)
        elif slave in self._marked:
            self._marked[slave].append(message)
        else:
            self._take(message)

    def _mark(self, message: ResultMarker) -> None:
        if message.slave in self._marked:
            raise ProtocolError(
                f"collector got the mark of checkpoint {message.number} from slave {message.slave} twice"
            )
        self._marked[message.slave] = deque()
        if len(self._marked) == len(self._ended):
            for held in self._held.values():
                while held:
                    self._write(held.popleft())
            self.cut_number = message.number

    def go_on(self) -> None:
        """The cut has been noted: takes what came after the marks."""
        self.cut_number = None
        after, self._marked = self._marked, {}
        for messages in after.values():
            for message in messages:
                self._take(message)

    def _take(self, message: ResultRows | EpochEnd) -> None:
        slave = message.slave
        if slave in self._idle:
            self._idle.discard(slave)
            self._ended[slave] = max(self._ended[slave], message.epoch - 1)
        if slave not in self._unfinished or message.epoch < self._ended[slave]:
            raise ProtocolError(
                f"collector got {type(message).__name__} of epoch {message.epoch} from slave {slave} late"
            )
        if isinstance(message, ResultRows):
            self._held[slave].append(message)
            self._held_bytes += message.batch.nbytes
        else:
            self._ended[slave] = message.epoch
            if message.last:
                self._unfinished.discard(slave)
            elif message.idle:
                self._idle.add(slave)
        self._write_open()

    def _oldest_ended(self) -> int:
        return min((self._ended[slave] for slave in self._unfinished - self._idle), default=1 << 62)

    def _write_open(self) -> None:
        """Writes what belongs to the oldest open epoch or one before it."""
        oldest = self._oldest_ended()
        for held in self._held.values():
            while held and held[0].epoch <= oldest + 1:
                self._write(held.popleft())

    def _write(self, message: ResultRows) -> None:
        self._held_bytes -= message.batch.nbytes
        batch = pa.ipc.read_record_batch(pa.py_buffer(message.batch), self._schemas[message.query])
        self.rows += batch.num_rows
        self.writers.write(message.query, pa.Table.from_batches([batch]))
