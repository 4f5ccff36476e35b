"""Decoding ahead: a thread keeps a few chunks of a source ready, while the caller does something else with its core."""

from __future__ import annotations

import queue
import threading

from mpijoin.sources.base import BLOCK_ROWS, Chunk, Pieces, Source


class ReadAhead(Pieces):
    """A source like the one it wraps, which from now on belongs to its thread; at most `depth` chunks wait.

    What the source or its late sink raises is raised by `read`, in its place in the order. The late sink is called on
    the thread. `close` ends the thread, which finishes at most the chunk it is at.
    """

    def __init__(self, source: Source, rows: int = BLOCK_ROWS, depth: int = 4):
        self.counts = source.counts
        self._source, self._rows = source, rows
        self._chunks: queue.Queue[Chunk | None | BaseException] = queue.Queue(depth)
        self._stopped = threading.Event()
        self._ended: bool = False
        self._thread = threading.Thread(target=self._decode, name="mpijoin-read-ahead", daemon=True)
        self._thread.start()

    def _decode(self) -> None:
        item: Chunk | None | BaseException = None
        while not self._stopped.is_set():
            try:
                item = self._source.read(self._rows)
            except BaseException as error:  # whatever it is, it is the reader's to see
                item = error
            self._chunks.put(item)
            if not isinstance(item, Chunk):
                return

    def _next(self) -> Chunk | None:
        if self._ended:
            return None
        item = self._chunks.get()
        if isinstance(item, Chunk):
            return item
        self._ended = True
        if item is not None:
            raise item
        return None

    def progress(self) -> float:
        return self._source.progress()

    def close(self) -> None:
        self._stopped.set()
        self._ended = True
        while self._thread.is_alive():
            self._drain()
            self._thread.join(0.01)
        self._source.close()

    def _drain(self) -> None:
        """Makes room, so that a thread waiting to put a chunk goes on and sees that it is to stop."""
        while not self._chunks.empty():
            self._chunks.get()
