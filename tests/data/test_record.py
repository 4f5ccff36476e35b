"""The record form: what goes in comes out, in the source's own types, and equal keys are equal words."""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpijoin.data.arrow import byte_array, byte_values, one_array
from mpijoin.data.record import RecordLayout, _variable_values
from mpijoin.data.schema import Column, StreamSchema
from mpijoin.errors import InputError
from mpijoin.partitioning.keys import key_codes, key_nulls, key_values

TIME = Column("ts", pa.int64())
TYPES = [
    *(pa.int8(), pa.uint16(), pa.int32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_()),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("ns"), pa.timestamp("us", "UTC"), pa.duration("ms")),
    *(pa.decimal32(5, 2), pa.decimal64(12, 3), pa.decimal128(20, 2), pa.decimal256(50, 1), pa.binary(0), pa.binary(5)),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()),
    *(pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.int16())),
]
KEY_TYPES = [pa.int8(), pa.int64(), pa.uint64(), pa.bool_(), pa.date32(), pa.timestamp("ms"), pa.string(), pa.binary(3)]


def schema(keys=(), payload=(), hashed=True, null_keys=False) -> StreamSchema:
    def columns(prefix, kinds):
        return tuple(Column(f"{prefix}{i}", kind) for i, kind in enumerate(kinds))
    return StreamSchema("left", TIME, 1, columns("k", keys), hashed, columns("p", payload), null_keys)


def random_array(kind: pa.DataType, rows: int, null_share: float, seed: int) -> pa.Array:
    """An array with an offset, whose values are random bits of the right width or short random texts."""
    rng = np.random.default_rng(seed)
    if pa.types.is_dictionary(kind):
        return random_array(kind.value_type, rows, null_share, seed).dictionary_encode().cast(kind)
    nulls = rng.random(rows + 3) < null_share
    if pa.types.is_boolean(kind):
        return pa.array(rng.integers(0, 2, rows + 3).astype(bool), mask=nulls).slice(3)
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        bits = rng.integers(0, 4, (rows + 3) * kind.bit_width // 8, dtype=np.uint8)
        validity = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
        return pa.Array.from_buffers(kind, rows + 3, [validity, pa.py_buffer(bits)]).slice(3)
    texts = ["".join(rng.choice(list("aé\0z"), rng.integers(0, 12))) for _ in range(rows + 3)]
    return pa.array(texts, pa.string(), mask=nulls).cast(kind).slice(3)


def plain(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def choose(packed, rows):
    """The tuples `rows` of a packed batch, as the sink would gather them."""
    record, size, blob = packed
    starts = np.cumsum(size) - size
    parts = [blob[starts[row] : starts[row] + size[row]] for row in rows] if len(size) else []
    return record[rows], size[rows] if len(size) else size, np.concatenate([blob[:0], *parts])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_columns_survive_the_round_trip_and_any_choice_of_rows(data):
    kinds = data.draw(st.lists(st.sampled_from(TYPES), max_size=12))
    keys = data.draw(st.lists(st.sampled_from(KEY_TYPES), max_size=data.draw(st.sampled_from([3, 3, 10]))))
    rows, null_share, key_null_share, seed = data.draw(
        st.tuples(st.integers(0, 20), *[st.sampled_from([0.0, 0.3, 1.0])] * 2, st.integers(0, 99))
    )
    layout = RecordLayout(schema(keys, kinds, hashed=bool(keys), null_keys=bool(keys) and key_null_share > 0))
    columns = [random_array(kind, rows, key_null_share, seed + i) for i, kind in enumerate(keys)]
    columns += [random_array(kind, rows, null_share, seed + 50 + i) for i, kind in enumerate(kinds)]
    packed = layout.pack(columns, rows)
    assert packed[0].shape == (rows, layout.record_words) and packed[0].dtype == np.int64
    assert layout.has_blob == bool(layout.variable) and (not layout.has_blob or packed[1].sum() == len(packed[2]))
    chosen = np.random.default_rng(seed).integers(0, rows, 2 * rows) if rows else np.empty(0, np.int64)
    for taken in (np.arange(rows), chosen):
        unpacked = layout.unpack(*choose(packed, taken))
        assert len(unpacked) == len(columns)
        for got, source in zip(unpacked, columns):
            got.validate()
            assert got.type == plain(source).type
            wanted = one_array(source).take(pa.array(taken)).cast(got.type)
            # Bits, not values: NaN payloads count.
            assert got.equals(wanted) or same_bits(got, wanted)


def same_bits(one: pa.Array, other: pa.Array) -> bool:
    width = pa.binary(one.type.bit_width // 8)
    def recast(array):
        return pa.Array.from_buffers(width, len(array), array.buffers()[:2], offset=array.offset)
    return recast(one).equals(recast(other))


def test_a_nan_keeps_its_payload_bits():
    bits = np.array([0x7FF8000000000001, 0xFFF8DEADBEEF0000, 0x7FF0000000000001], np.uint64)
    layout = RecordLayout(schema((), [pa.float64()], hashed=False))
    (column,) = layout.unpack(*layout.pack([pa.array(bits.view(np.float64))]))
    assert (np.frombuffer(column.buffers()[1], np.uint64) == bits).all()


def test_chunked_columns_are_taken_in_one_piece():
    layout = RecordLayout(schema((), [pa.string(), pa.int32()], hashed=False))
    columns = [pa.chunked_array([["a", None], ["", "ccc"]]), pa.chunked_array([[1], [2, None, 4]], pa.int32())]
    unpacked = layout.unpack(*layout.pack(columns))
    assert [column.to_pylist() for column in unpacked] == [["a", None, "", "ccc"], [1, 2, None, 4]]


def test_what_a_null_hides_is_not_kept():
    hidden = pa.Array.from_buffers(
        pa.string(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([0, 3, 4], np.int32)), pa.py_buffer(b"abcd")]
    )
    _record, size, blob = RecordLayout(schema((), [pa.string()], hashed=False)).pack([hidden])
    assert size.tolist() == [0, 1] and blob.tobytes() == b"d"


def test_nothing_stored_takes_no_room():
    layout = RecordLayout(schema([pa.int64()], (), hashed=False))
    record, size, blob = layout.pack([], rows=3)
    assert record.shape == (3, 0) and len(size) == len(blob) == 0 and layout.unpack(record, size, blob) == []


def test_the_layout_is_aligned_and_counts_its_key_part():
    layout = RecordLayout(
        schema([pa.string(), pa.int8(), pa.binary(2), pa.string()], [pa.bool_(), pa.int64(), pa.string()])
    )
    assert (layout.key_fixed_words, layout.key_count_var, layout.key_words) == (1, 3, 3)
    assert [field.offset for field in layout.fields] == [8, 0, 12, 16, 32, 24, 33]
    assert layout.record_words == 5 and [field.column.name for field in layout.variable] == ["k0", "k2", "k3", "p2"]


def test_null_bits_of_keys_lie_behind_all_else_and_are_no_part_of_the_key():
    kinds = [pa.int32(), pa.string(), pa.bool_()], [pa.int64()] * 4 + [pa.int8(), pa.bool_()]
    plain, knowing = RecordLayout(schema(*kinds)), RecordLayout(schema(*kinds, null_keys=True))
    assert plain.fields == knowing.fields and plain.key_words == knowing.key_words
    assert [plain.null_bit(index) for index in range(3, 9)] == [knowing.null_bit(index) for index in range(3, 9)]
    assert [knowing.null_bit(index) for index in range(3)] == [(0, 6), (0, 7), (1, 0)]
    columns = [pa.array([5, None], pa.int32()), pa.array([None, "a"]), pa.array([None, True])]
    columns += [pa.array([1, 2], kind) for kind in kinds[1][:5]] + [pa.array([True, False])]
    (words, size, blob), (others, _, _) = knowing.pack(columns), plain.pack(columns)
    assert (words[:, : plain.key_words] == others[:, : plain.key_words]).all() and plain.key_words == 3
    keys = [column.to_pylist() for column in knowing.unpack(words, size, blob)[:3]]
    assert keys == [[5, None], [None, "a"], [None, True]]


EQUAL_KEYS = [
    (pa.array([1, -5], pa.int8()), pa.array([1, -5], pa.int64())),
    (pa.array([1, 200], pa.uint8()), pa.array([1, 200], pa.int32())),
    (pa.array([2**64 - 1], pa.uint64()), pa.array([2**64 - 1], pa.uint64())),
    (pa.array([datetime.date(1969, 3, 1)], pa.date32()), pa.array([datetime.date(1969, 3, 1)], pa.date64())),
    (pa.array(["a", "bé"]), pa.array(["a", "bé"], pa.string_view()).cast(pa.large_string()).dictionary_encode()),
    (pa.array([b"ab"], pa.binary(2)), pa.array([b"ab"], pa.binary_view())),
    (pa.array([True, False]), pa.array([True, False])),
]


def blobs(size, blob):
    """Each tuple's bytes."""
    ends = np.cumsum(size)
    return [blob[end - one : end] for one, end in zip(size, ends)]


@pytest.mark.parametrize("left, right", EQUAL_KEYS, ids=lambda array: str(array.type))
def test_keys_of_one_logical_type_have_equal_codes_and_equal_words(left, right):
    layouts = [RecordLayout(schema([array.type, pa.string()])) for array in (left, right)]
    packed = [layout.pack([array, pa.array(["x"] * len(array))]) for layout, array in zip(layouts, (left, right))]
    codes = [
        key_codes(layout.schema, [array, pa.array(["x"] * len(array))]) for layout, array in zip(layouts, (left, right))
    ]
    assert (codes[0] == codes[1]).all() and len(set(codes[0])) == len(left)
    words = layouts[0].key_words
    keys = [
        [(tuple(record[i, :words]), bytes(one)) for i, one in enumerate(blobs(size, blob))]
        for record, size, blob in packed
    ]
    assert keys[0] == keys[1] and len(set(keys[0])) == len(left)


def test_keys_whose_parts_split_otherwise_are_not_the_same():
    layout = RecordLayout(schema([pa.string(), pa.string()]))
    record, _size, blob = layout.pack([pa.array(["ab", "a"]), pa.array(["c", "bc"])])
    assert bytes(blob[:3]) == bytes(blob[3:]) == b"abc"
    assert tuple(record[0, : layout.key_words]) != tuple(record[1, : layout.key_words])
    codes = key_codes(layout.schema, [pa.array(["ab", "a"]), pa.array(["c", "bc"])])
    assert codes[0] != codes[1]


ONE_WORD_KEYS = [
    *(pa.array([-3, 0, 7], kind) for kind in (pa.int8(), pa.int64(), pa.timestamp("ms"), pa.date32())),
    pa.array([2**64 - 1, 0], pa.uint64()),
    pa.array([65535, 1], pa.uint16()),
    pa.array([True, False, False]),
    pa.array([-86_400_000, 0], pa.date64()),
    pa.array([5, 5, 9], pa.int32()).dictionary_encode(),
]


@pytest.mark.parametrize("source", ONE_WORD_KEYS, ids=lambda array: str(array.type))
def test_a_key_of_one_word_is_the_value_itself_and_comes_back(source):
    one_key = schema([source.type], hashed=False)
    assert key_values(one_key, key_codes(one_key, [source])).equals(plain(source))


def test_null_keys_are_told_over_all_key_columns():
    assert key_nulls([pa.array([1, 2])]) is None
    assert key_nulls([pa.array([1, None, 3]), pa.array(["a", "b", None]), pa.array([1, 1, 1])]).tolist() == [
        False,
        True,
        True,
    ]


def test_few_hash_bits_make_keys_collide_but_only_hashed_ones():
    names = pa.array([f"s{i}" for i in range(100)])
    assert len(set(key_codes(schema([pa.string()]), [names], hash_bits=2))) == 4
    numbers = pa.array(range(100))
    assert len(set(key_codes(schema([pa.int64()], hashed=False), [numbers], hash_bits=2))) == 100




def test_a_value_beyond_two_gibibytes_is_refused(monkeypatch):
    offsets = np.array([0, 1, 2**31 + 1], np.int64)
    monkeypatch.setattr("mpijoin.data.record.byte_values", lambda array: (offsets, np.empty(0, np.uint8)))
    field = RecordLayout(schema((), [pa.large_binary()], hashed=False)).fields[0]
    with pytest.raises(InputError, match=r"column 'p0': got a value of 2147483648 bytes, wanted at most 2147483647"):
        _variable_values(field, pa.array([b"", b""]), None)


def test_more_bytes_than_32_bit_offsets_can_say_are_refused():
    with pytest.raises(pa.ArrowCapacityError, match="2147483648 bytes of string"):
        byte_array(pa.string(), np.array([0, 2**31], np.int64), np.empty(0, np.uint8), None)


def test_bytes_of_an_empty_column():
    offsets, data = byte_values(pa.array([], pa.string()))
    assert offsets.tolist() == [0] and len(data) == 0


def test_a_binary_of_fixed_size_that_is_missing_is_null():
    offsets, data = np.array([0, 0, 3, 3]), np.frombuffer(b"abc", np.uint8)
    assert byte_array(pa.binary(3), offsets, data, None).to_pylist() == [None, b"abc", None]
    assert byte_array(pa.binary(0), np.zeros(3, np.int64), data[:0], None).to_pylist() == [b"", b""]


def test_decimals_come_back_exactly():
    layout = RecordLayout(schema((), [pa.decimal128(20, 2)], hashed=False))
    source = pa.array([decimal.Decimal("-123456789012345678.91"), None], pa.decimal128(20, 2))
    assert layout.unpack(*layout.pack([source]))[0].equals(source)
