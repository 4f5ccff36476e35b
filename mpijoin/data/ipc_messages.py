"""Reads Arrow IPC message by message: the library gets the headers from here, and the values of a batch are read block
by block.

A file is not mapped: if it is cut while it is read, a map kills the process without a word. The library reads a batch
as a whole, so it is given a hollow body instead: pages of zeros of the same length that nobody touches. Where the
buffers of its arrays lie in it is where their bytes lie in the file.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import Any, Sequence

import numpy as np
import pyarrow as pa
from pyarrow import types

from mpijoin.data.arrow import bits_of, fixed_bits, has_offsets, offset_dtype
from mpijoin.data.ipc_footer import CONTINUATION, Footer, Table
from mpijoin.named import NamedTuple

RECORD_BATCH = 3  # in a message's header: what it is
VIEW_INLINE_BYTES = 12  # a longer value of a string or binary view lies in a buffer
# So many bytes are read at once where a message begins. The library asks for its header in four pieces.
FRONT_BYTES = 1 << 12


class Cut(Exception):
    """The file ends before it should."""


class Header(NamedTuple):
    """A message: what it is, bytes of its body, rows of a record batch, and whether its buffers are compressed."""

    kind: int
    body_bytes: int
    rows: int
    is_compressed: bool


def header_of(metadata: bytes) -> Header:
    """What a message's metadata says (Message.fbs). Raises struct.error where they are damaged."""
    message = Table(metadata, struct.unpack_from("<I", metadata)[0])
    kind, body_bytes = message.number(1, "<B"), message.number(3, "<q")
    if kind != RECORD_BATCH:
        return Header(kind, body_bytes, 0, False)
    batch = message.table(2)
    return Header(kind, body_bytes, batch.number(0, "<q"), batch.place(3) > 0)


class Messages:
    """The messages of a file as a stream of them, as pa.PythonFile wants it. Bodies of record batches are hollow unless
    they are compressed.

    `batch_at`: where in the file the body of the last batch lies · `hollow`: what stood for it, None if it is whole ·
    `batches`, `rows`: so far. `Cut` is raised where the file ends before the stream says that it does.
    """

    def __init__(self, path: str, footer: Footer | None):
        """footer: None if the file itself is a stream."""
        self._file = open(path, "rb", buffering=0)
        self._at = self._message = 0
        self._lead = pa.py_buffer(footer.schema if footer else b"")  # is read before the file
        self._starts = iter(footer.messages) if footer else None
        self._front, self._front_at = pa.py_buffer(b""), 0  # the first bytes of the message, and where they lie
        self._pages = pa.py_buffer(b"")  # what all hollow bodies are made of
        self._body = range(0)
        self._header: Header | None = None
        self.hollow: Any = None
        self.batch_at, self.batches, self.rows = 0, 0, 0

    @property
    def closed(self) -> bool:
        return self._file.closed

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def read(self, size: int) -> pa.Buffer:
        if self._lead.size:
            lead, self._lead = self._lead.slice(0, size), self._lead.slice(size)
            return lead
        if self._at == self._message:
            self._enter()
        at, self._at = self._at, self._at + size
        if at == self._body.start and size == len(self._body) and self._is_hollow:
            return self._hollow_body()
        return self._near(at, size)

    read_buffer = read

    def read_at(self, at: int, size: int) -> pa.Buffer:
        """Bytes of the file. Raises Cut."""
        buffer = pa.allocate_buffer(size)
        view, done = memoryview(buffer), 0
        while done < size:
            got = os.preadv(self._file.fileno(), [view[done:]], at + done)
            if not got:
                raise Cut
            done += got
        return buffer

    def _near(self, at: int, size: int) -> pa.Buffer:
        """The same as `read_at`, without a call of the system if these are some of the message's first bytes."""
        start = at - self._front_at
        return self._front.slice(start, size) if start + size <= self._front.size else self.read_at(at, size)

    def close(self) -> None:
        self._file.close()

    @property
    def _is_hollow(self) -> bool:
        return self._header is not None and self._header.kind == RECORD_BATCH and not self._header.is_compressed

    def _enter(self) -> None:
        """Looks at the message that begins here, or at the next one that the footer names. Raises Cut if there is none.
        """
        if self._starts is not None:
            if (start := next(self._starts, None)) is None:
                raise Cut
            self._at = self._message = start
        buffer, self._front_at = pa.allocate_buffer(FRONT_BYTES), self._message
        self._front = buffer.slice(0, os.preadv(self._file.fileno(), [memoryview(buffer)], self._message))
        start = self._message + 4
        word = bytes(self._near(self._message, 4))
        if word == CONTINUATION:
            word, start = bytes(self._near(start, 4)), start + 4
        (size,) = struct.unpack("<i", word)
        if size == 0:
            self._body, self._header, self._message = range(0), None, -1
            return
        try:
            header = header_of(bytes(self._near(start, size)))
        except (struct.error, ValueError) as error:
            raise pa.ArrowInvalid(f"the message at byte {self._message} is damaged") from error
        self._header, self._body = header, range(start + size, start + size + header.body_bytes)
        self._message = self._body.stop
        if header.kind == RECORD_BATCH:
            self.batch_at, self.hollow = self._body.start, None
            self.batches, self.rows = self.batches + 1, self.rows + header.rows

    def _hollow_body(self) -> pa.Buffer:
        if self._body.stop > os.fstat(self._file.fileno()).st_size:
            raise Cut
        if self._pages.size < len(self._body):
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            self._pages = pa.py_buffer(mmap.mmap(-1, len(self._body), flags=flags, prot=mmap.PROT_READ))
        self.hollow = self._pages.slice(0, len(self._body))
        return self.hollow


class HollowBatch:
    """A record batch that has not been read; it only knows where its values lie."""

    def __init__(self, batch: pa.RecordBatch, messages: Messages):
        self._batch, self._messages = batch, messages
        self._shift = messages.batch_at - messages.hollow.address  # from an address to a place in the file

    @property
    def num_rows(self) -> int:
        return self._batch.num_rows

    def read(self, start: int, rows: int) -> pa.RecordBatch:
        """Reads that many rows from `start` on. Raises Cut, or ArrowInvalid where the batch is damaged."""
        # Bitmaps are read by whole bytes.
        skip = start % 8
        arrays = [self._rows(column, start - skip, rows + skip) for column in self._batch.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._batch.schema).slice(skip)

    def _rows(self, array: pa.Array, start: int, rows: int) -> pa.Array:
        kind = array.type
        if types.is_dictionary(kind):
            indices = self._rows(array.indices, start, rows)
            return pa.DictionaryArray.from_arrays(indices, array.dictionary, ordered=kind.ordered, safe=False)
        valid, values, *data = array.buffers()
        valid = valid and self._bits(valid, 1, start, rows)
        if has_offsets(kind):
            return pa.Array.from_buffers(kind, rows, [valid, *self._values(kind, values, data[0], start, rows)])
        if types.is_string_view(kind) or types.is_binary_view(kind):
            return pa.Array.from_buffers(kind, rows, [valid, *self._views(valid, values, data, start, rows)])
        return pa.Array.from_buffers(kind, rows, [valid, self._bits(values, fixed_bits(kind), start, rows)])

    def _bits(self, buffer: pa.Buffer, width: int, start: int, rows: int) -> pa.Buffer:
        """The items from `start` on, a multiple of 8, each of this number of bits."""
        return self._part(buffer, start * width // 8, -(-rows * width // 8))

    def _part(self, buffer: pa.Buffer | None, at: int, size: int) -> pa.Buffer:
        if size == 0:
            return pa.py_buffer(b"")
        if buffer is None or at < 0 or size < 0 or at + size > buffer.size:
            raise pa.ArrowInvalid("a value lies outside of its buffer")
        return self._messages.read_at(buffer.address + self._shift + at, size)

    def _values(self, kind: pa.DataType, offsets: pa.Buffer, data: pa.Buffer, start: int, rows: int) -> list[pa.Buffer]:
        item = offset_dtype(kind)
        own = np.frombuffer(self._part(offsets, start * item.itemsize, (rows + 1) * item.itemsize), item)
        first = own[0]
        return [pa.py_buffer(own - first if first else own), self._part(data, int(first), int(own[-1]) - int(first))]

    def _views(
        self, valid: pa.Buffer | None, views: pa.Buffer, data: Sequence[pa.Buffer], start: int, rows: int
    ) -> list[pa.Buffer]:
        """The views, and of each buffer what they show."""
        # length, 4 bytes, buffer, offset
        own = np.frombuffer(self._bits(views, 128, start, rows), np.int32).reshape(-1, 4).copy()
        if valid is not None:
            own[~bits_of(valid, rows)] = 0
        is_long = own[:, 0] > VIEW_INLINE_BYTES
        if own[is_long, 2].max(initial=-1) >= len(data) or own[is_long, 2].min(initial=0) < 0:
            raise pa.ArrowInvalid("a value lies outside of its buffer")
        parts = []
        for number, buffer in enumerate(data):
            shown = is_long & (own[:, 2] == number)
            first = int(own[shown, 3].min(initial=np.iinfo(np.int32).max)) if shown.any() else 0
            last = int((own[shown, 3].astype(np.int64) + own[shown, 0]).max(initial=first))
            own[shown, 3] -= first
            parts.append(self._part(buffer, first, last - first))
        return [pa.py_buffer(own), *parts]
