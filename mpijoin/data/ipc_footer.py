"""The footer of an Arrow IPC file (File.fbs). It says where the messages lie; what is between them has no meaning."""

from __future__ import annotations

import os
import struct

from mpijoin.named import NamedTuple

CONTINUATION = b"\xff\xff\xff\xff"  # begins a message since format 0.15
END = struct.Struct("<i6s")  # the bytes of the footer, and the magic
BLOCK = struct.Struct("<qi4xq")  # where a message begins, bytes of its metadata and of its body
# A Message (Message.fbs) in front of a copy of the footer: where the root is, the vtable with the places of version,
# header type, header and length of the body, and the table with the way to the vtable, the header, the length of the
# body, the version and the header type.
MESSAGE = struct.Struct("<I 6H iIqhB5x")
VTABLE_AT, TABLE_AT, HEADER_AT = 4, 16, 20
VERSION, HEADER_TYPE, HEADER, BODY_BYTES, TABLE_BYTES = 16, 18, 4, 8, 19  # counted from the table
SCHEMA = 1  # in a message's header: what it is


class Table:
    """A flatbuffers table in `data`: its fields by number."""

    def __init__(self, data: bytes, at: int):
        self._data, self.at = data, at
        self._fields = at - struct.unpack_from("<i", data, at)[0]
        self._end = struct.unpack_from("<H", data, self._fields)[0]

    def place(self, field: int) -> int:
        """Where the field lies, 0 if it is left out."""
        entry = 4 + 2 * field
        offset = struct.unpack_from("<H", self._data, self._fields + entry)[0] if entry < self._end else 0
        return self.at + offset if offset else 0

    def number(self, field: int, form: str) -> int:
        place = self.place(field)
        return struct.unpack_from(form, self._data, place)[0] if place else 0

    def table(self, field: int) -> Table:
        place = self.place(field)
        return Table(self._data, place + struct.unpack_from("<I", self._data, place)[0])

    def vector(self, field: int) -> tuple[int, int]:
        """Where the first item of a vector lies, and how many there are."""
        place = self.place(field)
        if not place:
            return 0, 0
        at = place + struct.unpack_from("<I", self._data, place)[0]
        return at + 4, struct.unpack_from("<I", self._data, at)[0]


class Footer(NamedTuple):
    """schema: a message with the schema, as it begins a stream · messages: where those of the dictionaries begin, then
    those of the record batches."""

    schema: bytes
    messages: tuple[int, ...]


def read_footer(path: str) -> Footer:
    """Reads the footer of a file that the library has opened, so that it is known to be whole."""
    with open(path, "rb") as file:
        end = file.seek(0, os.SEEK_END) - END.size
        file.seek(end)
        size, _ = END.unpack(file.read(END.size))
        file.seek(end - size)
        data = file.read(size)
    root = Table(data, struct.unpack_from("<I", data)[0])
    blocks = [
        BLOCK.unpack_from(data, first + at * BLOCK.size)[0]
        for first, count in (root.vector(2), root.vector(3))
        for at in range(count)
    ]
    return Footer(_schema_message(data, root), tuple(blocks))


def _schema_message(data: bytes, root: Table) -> bytes:
    """The schema as it stands in the footer, and so with the numbers by which dictionaries are known."""
    places = (TABLE_AT - VTABLE_AT, TABLE_BYTES, VERSION, HEADER_TYPE, HEADER, BODY_BYTES)
    header = MESSAGE.size + root.table(1).at - HEADER_AT
    front = MESSAGE.pack(TABLE_AT, *places, TABLE_AT - VTABLE_AT, header, 0, root.number(0, "<h"), SCHEMA)
    metadata = front + data + bytes(-len(data) % 8)
    return CONTINUATION + struct.pack("<i", len(metadata)) + metadata
