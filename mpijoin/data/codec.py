"""The one encoding for wire, spill and checkpoint: a few facts (meta) and columns of numbers in one buffer.

    prefix 32 B | table 32 B per buffer | meta, compact JSON | buffer | buffer | ...

Everything is little-endian. Each buffer starts at the next multiple of 64 bytes from the start of the frame, and the
frame ends with the last buffer, so offsets and total length follow from the shapes and any other value is damage.
Bytes between the parts are zero. The checksum (the lower half of XXH3 over all other bytes: some 6 GB/s, where CRC-32 does 2)
is for frames that rest on a disk.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np
import xxhash

from mpijoin.errors import CodecError

MAGIC = b"MPJF"
VERSION = 1
ALIGNMENT = 64  # a cache line, and the widest SIMD register
FLAG_CHECKSUM = 1
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


class Frame(NamedTuple):
    """A decoded frame. buffers: read-only views of the bytes that were decoded, 1-D or 2-D (C order)."""

    kind: int
    meta: dict[str, Any]
    buffers: list[np.ndarray]


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"meta holds {value!r}: wanted int, float, str, bool, None or a list of them")


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


def reserve(
    kind: int, meta: Mapping[str, Any], buffers: Sequence[tuple[np.dtype, tuple[int, ...]]]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """(frame, its buffers): one as `encode` makes it, but for the buffers' content, which is the caller's to write.

    buffers: dtype and shape of each, as for `encode`. Saves the copy where the content is gathered from many places.
    """
    meta_bytes = _META_ENCODER.encode(meta).encode()
    header_bytes = position = _PREFIX_BYTES + _ENTRY.size * len(buffers) + len(meta_bytes)
    table, gaps, places = [], [], []
    for dtype, shape in buffers:
        size_bytes = dtype.itemsize * math.prod(shape)
        gaps.append((position, offset := _align(position)))
        position = offset + size_bytes
        places.append((slice(offset, position), dtype, shape))
        columns = shape[1] if len(shape) == 2 else 1
        table.append(_ENTRY.pack(_CODES[dtype], len(shape), 0, columns, shape[0], offset, size_bytes))
    prefix = _PREFIX.pack(MAGIC, VERSION, 0, kind, len(buffers), len(meta_bytes), position)
    frame = aligned_empty(position)
    memoryview(frame)[:header_bytes] = b"".join((prefix, bytes(_CHECKSUM.size), *table, meta_bytes))
    for start, end in gaps:
        frame[start:end] = 0
    return frame, [frame[where].view(dtype).reshape(shape) for where, dtype, shape in places]


def seal(frame: np.ndarray) -> np.ndarray:
    """The frame, whose content is now complete, with its checksum."""
    _FLAGS.pack_into(frame, _FLAGS_OFFSET, FLAG_CHECKSUM)
    _CHECKSUM.pack_into(frame, _PREFIX.size, _checksum(frame))
    return frame


def decode(data: np.ndarray | bytes | memoryview, trusted: bool = False) -> Frame:
    """The frame that `encode` made, without copying its buffers, which stay valid as long as anyone holds them.

    trusted: made by this process just now, so that its checksum need not be looked at. CodecError says what is damaged. Without
    a checksum a flipped bit inside meta or a buffer can go unnoticed; lengths, types and offsets never do.
    """
    if not isinstance(data, np.ndarray):
        data = np.frombuffer(data, dtype=np.uint8)
    kind, count, meta_bytes = _check_prefix(data, trusted)
    header_bytes = _PREFIX_BYTES + _ENTRY.size * count + meta_bytes
    if header_bytes > len(data):
        raise CodecError(f"frame of {len(data)} bytes: its header of {count} buffers claims {header_bytes}")
    data = _aligned(data)
    buffers, position = [], header_bytes
    for index in range(count):
        buffer, position = _view(data, index, position)
        buffers.append(buffer)
    if position != len(data):
        raise CodecError(f"frame of {len(data)} bytes: its buffers end at {position}")
    return Frame(kind, _decode_meta(data[header_bytes - meta_bytes : header_bytes].tobytes()), buffers)


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
    """Of everything but the checksum's own field; never 0, which means none."""
    digest = xxhash.xxh3_64(frame[: _PREFIX.size])
    digest.update(frame[_PREFIX_BYTES:])
    return digest.intdigest() & 0xFFFFFFFF or 1


def _check_prefix(data: np.ndarray, trusted: bool) -> tuple[int, int, int]:
    """(kind, buffer count, meta bytes) of a frame whose magic, version, length and checksum are right."""
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
    if frame_bytes != len(data):
        raise CodecError(f"frame of {len(data)} bytes, but it says {frame_bytes}")
    (found,) = _CHECKSUM.unpack_from(data, _PREFIX.size)
    if trusted and flags & FLAG_CHECKSUM:
        return kind, count, meta_bytes
    wanted = _checksum(data) if flags & FLAG_CHECKSUM else 0
    if found != wanted:
        raise CodecError(f"frame with checksum {found:08x}, its bytes give {wanted:08x}")
    return kind, count, meta_bytes


def _aligned(data: np.ndarray) -> np.ndarray:
    """The same bytes where every number is aligned: a copy only if they begin at an odd address of a file."""
    if data.ctypes.data % 8 == 0:
        return data
    copy = aligned_empty(len(data))
    copy[:] = data
    return copy


def _view(data: np.ndarray, index: int, position: int) -> tuple[np.ndarray, int]:
    """Buffer `index`, which must start at the next aligned byte from `position`, and the byte behind it."""
    entry = _ENTRY.unpack_from(data, _PREFIX_BYTES + _ENTRY.size * index)
    code, dimensions, zero, columns, rows, offset, size_bytes = entry
    plausible = dimensions == 2 or (dimensions == 1 and columns == 1)
    if code >= len(_DTYPES) or not plausible or zero or rows > ROWS_MAX:
        raise CodecError(f"buffer {index}: no such type or shape: {entry}")
    dtype, wanted_offset = _DTYPES[code], _align(position)
    if size_bytes != rows * columns * dtype.itemsize or offset != wanted_offset:
        raise CodecError(
            f"buffer {index}: {size_bytes} bytes at {offset}, wanted {dtype}[{rows}, {columns}] at {wanted_offset}"
        )
    if offset + size_bytes > len(data):
        raise CodecError(f"buffer {index}: ends at {offset + size_bytes}, the frame at {len(data)}")
    shape = (rows,) if dimensions == 1 else (rows, columns)
    view = np.ndarray(shape, dtype, data, offset)
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
