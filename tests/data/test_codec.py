"""The codec: what goes in comes out, and damage is always a CodecError."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mpijoin.data.codec import PART_BYTES, Segments, aligned_empty, decode, encode, encode_parts, part_starts
from mpijoin.errors import CodecError

NAMES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "bool")
facts = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20))
metas = st.dictionaries(st.text(max_size=8), st.one_of(facts, st.lists(facts, max_size=4)), max_size=5)
shapes = hnp.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=40)
arrays = hnp.arrays(st.sampled_from(NAMES), shapes)


def same(left: np.ndarray, right: np.ndarray) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


def a_frame(checksum: bool = False) -> np.ndarray:
    columns = [np.arange(20), np.ones((3, 4), dtype=np.float32), np.zeros(5, dtype=bool), np.zeros((6, 0))]
    return encode(9, {"epoch": 12, "name": "left"}, columns, checksum)


@given(st.integers(0, 2**32 - 1), metas, st.lists(arrays, max_size=5), st.booleans())
def test_round_trip(kind, meta, buffers, checksum):
    frame = decode(encode(kind, meta, buffers, checksum))
    assert (frame.kind, frame.meta) == (kind, meta)
    assert len(frame.buffers) == len(buffers)
    assert all(same(found, wanted) for found, wanted in zip(frame.buffers, buffers))


@given(st.lists(hnp.arrays(np.int32, st.tuples(st.integers(0, 9), st.just(3))), min_size=1, max_size=4))
def test_segments_are_one_buffer(parts):
    (found,) = decode(encode(1, {}, [Segments(parts)])).buffers
    assert same(found, np.concatenate(parts))


@pytest.mark.parametrize("checksum", [False, True])
def test_equal_content_gives_equal_bytes(checksum):
    aligned_empty(4096).fill(255)  # whatever the allocator hands out next, gaps are zero
    assert a_frame(checksum).tobytes() == a_frame(checksum).tobytes()


def test_buffers_are_read_only_aligned_views_without_a_copy():
    data = a_frame()
    for buffer in decode(data).buffers[:3]:
        assert np.shares_memory(buffer, data) and not buffer.flags.writeable and buffer.ctypes.data % 64 == 0
    data[-1:] = 0
    assert data.flags.writeable


def test_layout_is_fixed():
    data = encode(0x01020304, {"a": 1}, [np.array([1, 2], dtype=np.int16)])
    prefix = b"MPJF" + struct.pack("<HHIIIQI", 1, 0, 0x01020304, 1, 7, 128 + 4, 0)
    entry = struct.pack("<BBHIQQQ", 1, 1, 0, 1, 2, 128, 4)
    assert data.tobytes() == (prefix + entry + b'{"a":1}').ljust(128, b"\0") + b"\1\0\2\0"


def test_strided_and_sliced_arrays_are_gathered():
    table = np.arange(24).reshape(6, 4)
    found = decode(encode(0, {}, [table[:, 1], table[::2, ::2], table.T])).buffers
    assert all(same(f, np.ascontiguousarray(w)) for f, w in zip(found, (table[:, 1], table[::2, ::2], table.T)))


def test_bytes_at_an_odd_address_decode_to_aligned_arrays():
    shifted = np.empty(len(a_frame()) + 1, dtype=np.uint8)[1:]
    shifted[:] = a_frame()
    frame = decode(shifted)
    assert frame.buffers[0].flags.aligned and same(frame.buffers[0], np.arange(20))


def test_bytes_and_memoryviews_decode_too():
    data = a_frame(checksum=True).tobytes()
    assert decode(data).meta == decode(memoryview(data)).meta == {"epoch": 12, "name": "left"}


def test_numpy_scalars_in_meta_become_plain():
    meta = {"n": np.int64(3), "ok": np.bool_(True), "x": np.float32(0.5), "list": [np.uint8(1)]}
    assert decode(encode(0, meta)).meta == {"n": 3, "ok": True, "x": 0.5, "list": [1]}


def test_meta_of_other_things_is_refused():
    with pytest.raises(TypeError, match="meta holds .*wanted int, float"):
        encode(0, {"when": object()})


@pytest.mark.parametrize(
    "buffers, message",
    [
        ([np.zeros(2), np.zeros(2, dtype=np.float16)], r"buffer 1: float16\[2\]"),
        ([np.zeros((1, 1, 1))], r"buffer 0: float64\[1, 1, 1\]"),
        ([np.array(3)], r"buffer 0: int64\[\]"),
        ([np.zeros(2, dtype=">i4")], r"buffer 0: >i4\[2\]"),
        ([Segments([])], "buffer 0: Segments of no array"),
        ([Segments([np.zeros(2), np.zeros(2, dtype=np.int64)])], r"float64\[2\] and int64\[2\] differ"),
        ([Segments([np.zeros((2, 3)), np.zeros((2, 4))])], "differ"),
        ([Segments([np.zeros(2), np.zeros((2, 1))])], "differ"),
    ],
)
def test_what_cannot_be_encoded_is_named(buffers, message):
    with pytest.raises(CodecError, match=message):
        encode(0, {}, buffers)


def damaged(position: int, form: str, value, checksum: bool = False) -> np.ndarray:
    data = a_frame(checksum)
    struct.pack_into("<" + form, data, position, value)
    return data


ENTRY = 32  # where the table begins: code B, dimensions B, zero H, columns I, rows Q, offset Q, bytes Q


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "0 bytes: shorter than its prefix"),
        (a_frame()[:31], "31 bytes: shorter than its prefix"),
        (a_frame()[:-1], "bytes, but it says"),
        (np.append(a_frame(), np.uint8(0)), "bytes, but it says"),
        (np.zeros(10), r"frame is float64\[10\]"),
        (a_frame().reshape(1, -1), r"frame is uint8\[1, "),
        (np.repeat(a_frame(), 2)[::2], "wanted contiguous"),
        (damaged(0, "B", 0), "frame begins with"),
        (damaged(4, "H", 2), "frame of version 2, wanted 1"),
        (damaged(6, "H", 2), "flags 0x2"),
        (damaged(6, "H", 1), "checksum 00000000"),
        (damaged(6, "H", 0, checksum=True), "its bytes give 00000000"),
        (damaged(12, "I", 2**32 - 1), "header of 4294967295 buffers"),
        (damaged(12, "I", 3), "its buffers end at 453"),
        (damaged(16, "I", 2**32 - 1), "header of 4 buffers claims"),
        (damaged(ENTRY, "B", 11), "buffer 0: no such type"),
        (damaged(ENTRY + 1, "B", 3), "buffer 0: no such type"),
        (damaged(ENTRY + 2, "H", 1), "buffer 0: no such type"),
        (damaged(ENTRY + 4, "I", 2), "buffer 0: no such type"),
        (damaged(ENTRY + 8, "Q", 2**63), "buffer 0: no such type"),
        (damaged(ENTRY + 8, "Q", 21), "buffer 0: 160 bytes at"),
        (damaged(ENTRY + 16, "Q", 2**64 - 64), "buffer 0: 160 bytes at"),
        (damaged(ENTRY + 32 + 16, "Q", 0), "buffer 1: 48 bytes at 0"),
        (damaged(ENTRY + 3 * 32 + 8, "Q", 2**48 + 1), "buffer 3: no such type"),
        (damaged(ENTRY + 4 * 32, "B", 255), "meta is no JSON"),
        (damaged(ENTRY + 4 * 32, "B", ord("[")), "meta is no JSON"),
    ],
)
def test_damage_is_named(data, message):
    with pytest.raises(CodecError, match=message):
        decode(data)


def with_meta(text: bytes) -> bytes:
    return b"MPJF" + struct.pack("<HHIIIQI", 1, 0, 0, 0, len(text), 32 + len(text), 0) + text


HUGE_NUMBER = b'{"a":' + b"9" * 5000 + b"}"


@pytest.mark.parametrize("text", [b"", b"[1]", b"3", b"{", b"\xff\xfe{}", b"[" * 200_000, HUGE_NUMBER])
def test_meta_that_is_no_object_is_refused(text):
    with pytest.raises(CodecError, match="meta is"):
        decode(with_meta(text))


def test_a_buffer_beyond_the_end_is_refused():
    entry = struct.pack("<BBHIQQQ", 3, 1, 0, 1, 1 << 40, 128, 1 << 43)
    prefix = b"MPJF" + struct.pack("<HHIIIQI", 1, 0, 0, 1, 2, 66, 0)
    with pytest.raises(CodecError, match="buffer 0: ends at"):
        decode(prefix + entry + b"{}")


def test_bytes_behind_the_last_buffer_are_refused():
    data = bytearray(with_meta(b"{}") + b"\0")
    struct.pack_into("<Q", data, 20, len(data))
    with pytest.raises(CodecError, match="its buffers end at 34"):
        decode(bytes(data))


def test_every_flipped_bit_is_found_by_the_checksum():
    original = a_frame(checksum=True)
    for position in range(len(original)):
        data = original.copy()
        data[position] ^= np.uint8(1 << position % 8)
        with pytest.raises(CodecError):
            decode(data)


@settings(max_examples=400)
@given(st.data())
def test_random_damage_never_escapes_as_another_error(data):
    frame = bytearray(a_frame().tobytes())
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    frame = frame[: data.draw(st.integers(0, len(frame)))] if data.draw(st.booleans()) else frame
    try:
        decoded = decode(bytes(frame))
    except CodecError:
        return
    assert sum(buffer.nbytes for buffer in decoded.buffers) <= len(frame)


@given(st.binary(max_size=300))
def test_noise_is_refused(noise):
    with pytest.raises(CodecError):
        decode(noise)


def parts_cases():
    large, rng = PART_BYTES // 8, np.random.default_rng(3)
    yield []
    yield [np.arange(5)]
    yield [np.zeros(0), np.arange(large), np.zeros((0, 3), np.int64)]
    yield [
        rng.random((large, 2)),
        np.zeros(0, np.uint8),
        np.arange(3, dtype=np.int32),
        np.arange(2 * large + 1, dtype=np.uint16),
    ]
    yield [
        np.arange(3),
        rng.integers(0, 9, (large, 3))[::2],
        np.arange(PART_BYTES + 1).astype(np.uint8),
        np.ones(7, bool),
    ]


@pytest.mark.parametrize("buffers", list(parts_cases()))
def test_a_frame_in_parts_says_the_same_as_a_whole_one(buffers):
    parts, whole = encode_parts(9, {"epoch": 4}, buffers), encode(9, {"epoch": 4}, buffers)
    *starts, end = part_starts(map(len, parts))
    together = np.zeros(end, np.uint8)
    for start, part in zip(starts, parts):
        together[start : start + len(part)] = part
    assert together.tobytes() == whole.tobytes()
    found = decode(parts)
    assert (found.kind, found.meta) == (9, {"epoch": 4})
    for got, sent in zip(found.buffers, buffers, strict=True):
        assert got.dtype == sent.dtype and np.array_equal(got, sent) and not got.flags.writeable


def test_parts_of_large_buffers_are_not_copies():
    large = np.arange(PART_BYTES)
    _, part, _ = encode_parts(1, {}, [large, np.arange(3)])
    assert np.shares_memory(part, large) and np.shares_memory(decode(encode_parts(1, {}, [large])).buffers[0], large)


@pytest.mark.parametrize("damage", ["lacks the last", "lacks the middle", "cut", "longer", "swapped"])
def test_damaged_parts_are_codec_errors(damage):
    head, first, second = encode_parts(1, {}, [np.arange(10_000), np.arange(20_000)])
    damaged = {
        "lacks the last": (head, first),
        "lacks the middle": (head, second),
        "cut": (head, first[:-8], second),
        "longer": (head, first, np.append(second, second[:8])),
        "swapped": (head, second, first),
    }
    with pytest.raises(CodecError):
        decode(damaged[damage])
