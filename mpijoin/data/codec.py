"""The one encoding for wire, spill and checkpoint: a few facts (meta) and columns of numbers in one buffer.

    prefix 32 B | table 32 B per buffer | meta, compact JSON | buffer | buffer | ...

Everything is little-endian. Each buffer starts at the next multiple of 64 bytes from the start of the frame, and the
frame ends with the last buffer, so offsets and total length follow from the shapes and any other value is damage.
What lies between buffers is zero, but for messages that were sent in parts. The checksum (the lower half of XXH3 over
all other bytes: some 6 GB/s, where CRC-32 does 2) is for frames that rest on a disk.
"""

from __future__ import annotations

import json
import math
import struct
from bisect import bisect
from typing import Any, Callable, Iterable, Mapping, Sequence

import numpy as np
import xxhash

from mpijoin.errors import CodecError
from mpijoin.named import NamedTuple

MAGIC = b"MPJF"
VERSION = 1
ALIGNMENT = 64  # a cache line, and the widest SIMD register
FLAG_CHECKSUM = 1
PART_BYTES = 1 << 16  # a buffer of so many is a part of its own: less is copied sooner than sent on its own
ROWS_MAX = 1 << 48  # keeps every product of a damaged shape far inside int64

_PREFIX = struct.Struct("<4sHHIIIQ")  # magic, version, flags, kind, buffers, meta bytes, frame bytes
_FLAGS, _FLAGS_OFFSET = struct.Struct("<H"), 6
_CHECKSUM = struct.Struct("<I")  # ends the prefix; 0 without FLAG_CHECKSUM, so that a lost flag is noticed
_ENTRY = struct.Struct("<BBHIQQQ")  # dtype code, dimensions, zero, columns, rows, offset, bytes
_PREFIX_BYTES = _PREFIX.size + _CHECKSUM.size
_DTYPES = tuple(np.dtype(name) for name in ("<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f4", "<f8", "?"))
_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}


class Segments(NamedTuple):
    """One buffer given as several arrays (at least one; same dtype and columns), joined while they are copied."""

    arrays: Sequence[np.ndarray]


class Place(NamedTuple):
    """Where in a frame a buffer lies, from byte `offset` to before `end`, and what it is."""

    offset: int
    end: int
    dtype: np.dtype
    shape: tuple[int, ...]


class Layout(NamedTuple):
    """A frame that is to be made: what comes before its buffers, and where these lie."""

    header: bytes
    places: list[Place]

    @property
    def octets(self) -> int:
        """Bytes of the whole frame."""
        return self.places[-1].end if self.places else len(self.header)


class Frame(NamedTuple):
    """A decoded frame. buffers: read-only views of the bytes that were decoded, 1-D or 2-D (C order)."""

    kind: int
    meta: dict[str, Any]
    buffers: list[np.ndarray]


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"meta holds {value!r}: wanted int, float, str, bool, None or a list of them")


_NO_META = b"{}"
_META_ENCODER = json.JSONEncoder(separators=(",", ":"), default=_plain)


def aligned_empty(size_bytes: int) -> np.ndarray:
    """Uninitialised uint8[size_bytes] that starts at a multiple of 64: aligned offsets are aligned addresses."""
    raw = np.empty(size_bytes + ALIGNMENT, dtype=np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size_bytes]


def encode(
    kind: int, meta: Mapping[str, Any], buffers: Sequence[np.ndarray | Segments] = (), checksum: bool = False
) -> np.ndarray:
    """One frame as uint8[n]; every byte of `buffers` is copied exactly once.

    kind: 0 to 2**32 - 1. meta: names to int, float, str, bool, None or lists of them. buffers: 1-D or 2-D arrays of
    bool, integers or floats up to 64 bits. CodecError names the buffer that is none of these.

    >>> decode(encode(7, {"epoch": 3}, [np.arange(3)])).meta
    {'epoch': 3}
    """
    parts = [_segments(index, buffer) for index, buffer in enumerate(buffers)]
    frame, places = reserve(kind, meta, [(arrays[0].dtype, _shape(arrays)) for arrays in parts])
    for arrays, place in zip(parts, places):
        row = 0
        for array in arrays:
            np.copyto(place[row : row + len(array)], array)
            row += len(array)
    return seal(frame) if checksum else frame


def encode_parts(kind: int, meta: Mapping[str, Any], buffers: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """One frame in parts, contiguous uint8[n] each: from the first large buffer on each is a part of its own, where it
    lies.

    Each part begins at the next multiple of 64 bytes of the frame. As for `encode`, but that nobody may write to the
    buffers while the parts are in use.

    >>> [len(part) for part in encode_parts(7, {}, [np.arange(3), np.arange(10_000), np.arange(2)])]
    [216, 80000, 16]
    """
    arrays = [_segments(index, buffer)[0] for index, buffer in enumerate(buffers)]
    header, places = lay_out(kind, meta, [(array.dtype, array.shape) for array in arrays])
    copied = next((index for index, array in enumerate(arrays) if array.nbytes >= PART_BYTES), len(arrays))
    head, views = begin(Layout(header, places[:copied]))
    for view, array in zip(views, arrays):
        np.copyto(view, array)
    return head, *(np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays[copied:])


def part_starts(sizes: Iterable[int]) -> list[int]:
    """Where in a frame its parts of these sizes begin, and where the last of them ends."""
    starts, end = [], 0
    for size in sizes:
        starts.append(_align(end))
        end = starts[-1] + size
    return [*starts, end]


def reserve(
    kind: int,
    meta: Mapping[str, Any],
    buffers: Sequence[tuple[np.dtype, tuple[int, ...]]],
    memory: Callable[[int], np.ndarray] = aligned_empty,
) -> tuple[np.ndarray, list[np.ndarray]]:
    """(frame, its buffers): one as `encode` makes it, but for the buffers' content, which is the caller's to write.

    buffers: dtype and shape of each, as for `encode` · memory: returns aligned uint8[n]. Saves the copy where the
    content is gathered from many places.
    """
    return begin(lay_out(kind, meta, buffers), memory)


def lay_out(kind: int, meta: Mapping[str, Any], buffers: Sequence[tuple[np.dtype, tuple[int, ...]]]) -> Layout:
    """Makes what comes before a frame's buffers, and says where these lie. Arguments are those of `reserve`."""
    meta_bytes = _META_ENCODER.encode(meta).encode() if meta else _NO_META
    position = _PREFIX_BYTES + _ENTRY.size * len(buffers) + len(meta_bytes)
    table, places = [], []
    for dtype, shape in buffers:
        offset, size_bytes = _align(position), dtype.itemsize * math.prod(shape)
        position = offset + size_bytes
        places.append(Place(offset, position, dtype, shape))
        columns = shape[1] if len(shape) == 2 else 1
        table.append(_ENTRY.pack(_CODES[dtype], len(shape), 0, columns, shape[0], offset, size_bytes))
    prefix = _PREFIX.pack(MAGIC, VERSION, 0, kind, len(buffers), len(meta_bytes), position)
    return Layout(b"".join((prefix, bytes(_CHECKSUM.size), *table, meta_bytes)), places)


class Mould:
    """Makes the headers of frames that are alike but for the lengths of all buffers behind the first one.

    A frame of a few KB is made sooner than its layout by `lay_out`.

    >>> mould = Mould(7, (np.dtype("<i8"), (2, 3)), [np.dtype("<i8"), np.dtype("<u1")])
    >>> header, offsets, octets = mould.header((10, 5))
    >>> len(header), offsets, octets
    (192, [256, 384], 389)
    """

    def __init__(self, kind: int, first: tuple[np.dtype, tuple[int, ...]], others: Sequence[np.dtype]):
        """first: dtype and shape of the first buffer · others: dtypes of the others, which have one dimension."""
        header, (place,) = lay_out(kind, {}, [first])
        count = 1 + len(others)
        octets = _PREFIX_BYTES + _ENTRY.size * count + len(_NO_META)
        self.head_bytes = _align(octets)  # where the first buffer begins
        self._end = self.head_bytes + place.end - place.offset
        entries = _ENTRY.format[1:] * count
        self._header = struct.Struct(f"{_PREFIX.format}I{entries}{len(_NO_META)}s{self.head_bytes - octets}x")
        self._prefix = MAGIC, VERSION, 0, kind, count, len(_NO_META)
        code, dimensions, _, columns, rows, _, size_bytes = _ENTRY.unpack_from(header, _PREFIX_BYTES)
        self._first = 0, code, dimensions, 0, columns, rows, self.head_bytes, size_bytes  # after an empty checksum
        self._others = [(_CODES[dtype], dtype.itemsize) for dtype in others]

    def header(self, lengths: Sequence[int]) -> tuple[bytes, list[int], int]:
        """Returns what comes before the first buffer, where the others begin, and the bytes of the frame. lengths: of
        the others."""
        end, offsets, fields = self._end, [], list[int]()
        for (code, item_bytes), length in zip(self._others, lengths):
            offset, size_bytes = _align(end), item_bytes * length
            fields += code, 1, 0, 1, length, offset, size_bytes
            offsets.append(offset)
            end = offset + size_bytes
        return self._header.pack(*self._prefix, end, *self._first, *fields, _NO_META), offsets, end


def begin(
    layout: Layout, memory: Callable[[int], np.ndarray] = aligned_empty
) -> tuple[np.ndarray, list[np.ndarray]]:
    """(frame, its buffers): one that is laid out so, whose buffers the caller writes. memory: returns aligned
    uint8[n]."""
    header, places = layout
    frame = memory(layout.octets)
    octets = memoryview(frame)
    octets[: len(header)] = header
    position = len(header)
    for place in places:
        octets[position : place.offset] = bytes(place.offset - position)
        position = place.end
    return frame, [np.ndarray(place.shape, place.dtype, frame, place.offset) for place in places]


def seal(frame: np.ndarray) -> np.ndarray:
    """Returns the frame, whose content is now complete, with its checksum."""
    _FLAGS.pack_into(frame, _FLAGS_OFFSET, FLAG_CHECKSUM)
    _CHECKSUM.pack_into(frame, _PREFIX.size, _checksum(frame))
    return frame


def is_sealed(data: np.ndarray, start: int = 0) -> bool:
    """Whether the frame that begins there has a checksum, so that any damage to it will be noticed."""
    return bool(_FLAGS.unpack_from(data, start + _FLAGS_OFFSET)[0] & FLAG_CHECKSUM)


def kind_of(prefix: bytes) -> int | None:
    """Returns the kind of the frame that begins so, or None if no frame does. It is wrong if the frame is damaged."""
    if len(prefix) < _PREFIX_BYTES or not prefix.startswith(MAGIC):
        return None
    return int(_PREFIX.unpack_from(prefix)[3])


def decode(data: np.ndarray | Sequence[np.ndarray] | bytes | memoryview, trusted: bool = False) -> Frame:
    """The frame that `encode` made, or in parts `encode_parts`, without copying its buffers, which stay valid as long
    as anyone holds them.

    trusted: made by this process just now, so that its checksum need not be looked at. CodecError says what is damaged.
    Without a checksum a flipped bit inside meta or a buffer can go unnoticed; lengths, types and offsets never do.
    """
    if isinstance(data, (bytes, memoryview)):
        data = np.frombuffer(data, dtype=np.uint8)
    parts = (data,) if isinstance(data, np.ndarray) else data
    *starts, end = part_starts(map(len, parts))
    kind, count, meta_bytes = _check_prefix(parts[0], end, trusted)
    header_bytes = _PREFIX_BYTES + _ENTRY.size * count + meta_bytes
    if header_bytes > len(parts[0]):
        raise CodecError(f"frame of {end} bytes: its header of {count} buffers claims {header_bytes}")
    parts = [_aligned(part) for part in parts]
    buffers, position = [], header_bytes
    for index in range(count):
        buffer, position = _view(parts, starts, index, position)
        buffers.append(buffer)
    if position != end:
        raise CodecError(f"frame of {end} bytes: its buffers end at {position}")
    return Frame(kind, _decode_meta(parts[0][header_bytes - meta_bytes : header_bytes].tobytes()), buffers)


def _align(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT


def _segments(index: int, buffer: np.ndarray | Segments) -> Sequence[np.ndarray]:
    """The arrays of one buffer, checked to fit together."""
    arrays = buffer.arrays if isinstance(buffer, Segments) else (buffer,)
    if len(arrays) == 0:
        raise CodecError(f"buffer {index}: Segments of no array, wanted at least one")
    first = arrays[0]
    if first.dtype not in _CODES or first.ndim not in (1, 2):
        raise CodecError(f"buffer {index}: {first.dtype}{list(first.shape)}, wanted 1-D or 2-D numbers or bool")
    for other in arrays[1:]:
        if other.dtype != first.dtype or other.ndim != first.ndim or other.shape[1:] != first.shape[1:]:
            raise CodecError(
                f"buffer {index}: segments {first.dtype}{list(first.shape)} and {other.dtype}{list(other.shape)} differ"
            )
    return arrays


def _shape(arrays: Sequence[np.ndarray]) -> tuple[int, ...]:
    return (sum(map(len, arrays)), *arrays[0].shape[1:])


def _checksum(frame: np.ndarray) -> int:
    """The checksum of everything but its own field; never 0, which means none."""
    digest = xxhash.xxh3_64(frame[: _PREFIX.size])
    digest.update(frame[_PREFIX_BYTES:])
    return digest.intdigest() & 0xFFFFFFFF or 1


def _check_prefix(data: np.ndarray, size_bytes: int, trusted: bool) -> tuple[int, int, int]:
    """(kind, buffer count, meta bytes) of a frame of `size_bytes`, whose magic, version, length and checksum are right.
    data: the frame, or its first part; only a whole one has a checksum."""
    if data.dtype != np.uint8 or data.ndim != 1 or not data.flags.c_contiguous:
        raise CodecError(f"frame is {data.dtype}{list(data.shape)}, wanted contiguous uint8[n]")
    if len(data) < _PREFIX_BYTES:
        raise CodecError(f"frame of {len(data)} bytes: shorter than its prefix of {_PREFIX_BYTES}")
    magic, version, flags, kind, count, meta_bytes, frame_bytes = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise CodecError(f"frame begins with {magic!r}, wanted {MAGIC!r}")
    if version != VERSION:
        raise CodecError(f"frame of version {version}, wanted {VERSION}")
    if flags & ~FLAG_CHECKSUM:
        raise CodecError(f"frame with flags {flags:#x}, wanted 0 or {FLAG_CHECKSUM}")
    if frame_bytes != size_bytes:
        raise CodecError(f"frame of {size_bytes} bytes, but it says {frame_bytes}")
    (found,) = _CHECKSUM.unpack_from(data, _PREFIX.size)
    if trusted and flags & FLAG_CHECKSUM:
        return kind, count, meta_bytes
    wanted = _checksum(data) if flags & FLAG_CHECKSUM else 0
    if found != wanted:
        raise CodecError(f"frame with checksum {found:08x}, its bytes give {wanted:08x}")
    return kind, count, meta_bytes


def _aligned(data: np.ndarray) -> np.ndarray:
    """Returns the same bytes where every number is aligned; that is a copy only if they begin at an odd address of a
    file."""
    if data.ctypes.data % 8 == 0:
        return data
    copy = aligned_empty(len(data))
    copy[:] = data
    return copy


def _view(parts: Sequence[np.ndarray], starts: Sequence[int], index: int, position: int) -> tuple[np.ndarray, int]:
    """Buffer `index`, which must start at the next aligned byte from `position`, and the byte behind it. starts: of the
    parts."""
    entry = _ENTRY.unpack_from(parts[0], _PREFIX_BYTES + _ENTRY.size * index)
    code, dimensions, zero, columns, rows, offset, size_bytes = entry
    plausible = dimensions == 2 or (dimensions == 1 and columns == 1)
    if code >= len(_DTYPES) or not plausible or zero or rows > ROWS_MAX:
        raise CodecError(f"buffer {index}: no such type or shape: {entry}")
    dtype, wanted_offset = _DTYPES[code], _align(position)
    if size_bytes != rows * columns * dtype.itemsize or offset != wanted_offset:
        raise CodecError(
            f"buffer {index}: {size_bytes} bytes at {offset}, wanted {dtype}[{rows}, {columns}] at {wanted_offset}"
        )
    part = bisect(starts, offset) - 1
    start, size = starts[part], len(parts[part])
    if offset + size_bytes > start + size:
        raise CodecError(f"buffer {index}: ends at {offset + size_bytes}, the frame at {start + size}")
    shape = (rows,) if dimensions == 1 else (rows, columns)
    view = np.ndarray(shape, dtype, parts[part], offset - start)
    view.flags.writeable = False
    return view, offset + size_bytes


def _decode_meta(text: bytes) -> dict[str, Any]:
    try:
        meta = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise CodecError(f"meta is no JSON: {error}") from error
    if not isinstance(meta, dict):
        raise CodecError(f"meta is a {type(meta).__name__}, wanted an object")
    return meta
