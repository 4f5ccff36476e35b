"""Files that a thread decodes while the producer screens, hashes and sends the blocks before. Decoding is up to half of
a producer's work and lets other threads run meanwhile, so that a core which nobody needs takes it over."""

from __future__ import annotations

import time
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Iterator

import pyarrow as pa

from mpijoin.named import NamedTuple
from mpijoin.sources.blocks import BlockLimit
from mpijoin.sources.files import Reader


class Decoder:
    """One thread, for all files of a stream. It begins with the first file that is asked to be ahead."""

    def __init__(self) -> None:
        self.cpu_s = 0.0  # of the thread
        self._asked: SimpleQueue[AheadReader | None] = SimpleQueue()
        self._thread: Thread | None = None

    def ask(self, reader: AheadReader) -> None:
        """The reader wants one more block; those asked for first are decoded first."""
        if self._thread or self._began():
            self._asked.put(reader)
        else:
            reader.decode()

    def _began(self) -> bool:
        """Begins the thread, unless the system lets this user have no more of them."""
        thread = Thread(target=self._work, name="mpijoin decoder", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._thread = thread
        return True

    def _work(self) -> None:
        while (reader := self._asked.get()) is not None:
            reader.decode()
            self.cpu_s = time.thread_time()

    def close(self) -> None:
        """Ends the thread. It may be called twice; nobody may ask any more."""
        if self._thread:
            self._asked.put(None)
            self._thread.join()
            self._thread = None


class Decoded(NamedTuple):
    """A block, None behind the last one · how much of the file has been decoded with it, as `Reader.fraction` · or why
    there is none."""

    block: pa.RecordBatch | None
    fraction: float
    error: BaseException | None


class AheadReader:
    """A `Reader` that has up to `limit.ahead` blocks decoded before they are taken.

    Its first block is decoded when it is taken: whoever only looks at that one needs no thread. What goes wrong is
    raised where the block would have come.
    """

    def __init__(self, reader: Reader, limit: BlockLimit, decoder: Decoder):
        self._reader, self._limit, self._decoder = reader, limit, decoder
        self._decoded: SimpleQueue[Decoded] = SimpleQueue()
        self._fraction = reader.fraction()
        self._coming = 0  # blocks that were asked for and not taken
        self._rest: Iterator[pa.RecordBatch] | None = None  # none once it is closed
        self._decoding = Lock()

    def blocks(self) -> Iterator[pa.RecordBatch]:
        self._rest = self._reader.blocks()
        while (block := self._next()) is not None:
            while self._coming < self._limit.ahead:
                self._coming += 1
                self._decoder.ask(self)
            yield block

    def _next(self) -> pa.RecordBatch | None:
        if not self._coming:
            self.decode()
            self._coming = 1
        block, self._fraction, error = self._decoded.get()
        self._coming -= 1
        if error:
            raise error
        return block

    def decode(self) -> None:
        """Decodes the next block; the decoder's thread calls this."""
        with self._decoding:
            if self._rest is None:
                return
            block, error = None, None
            try:
                block = next(self._rest, None)
            except BaseException as failure:
                error = failure
            self._decoded.put(Decoded(block, self._reader.fraction(), error))

    def fraction(self) -> float:
        """That of the blocks that were taken."""
        return self._fraction

    def close(self) -> None:
        """Waits for the block that is being decoded; nothing is decoded later."""
        with self._decoding:
            self._rest = None
            self._reader.close()
