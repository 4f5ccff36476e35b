"""The named hash: published values, modulo arithmetic, avalanche and what must differ."""

import numpy as np
import pytest

from mpijoin.partitioning import hashing

MASK = (1 << 64) - 1


def mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def pair_hash(left: int, right: int) -> int:
    return mix((mix((left + 0x9E3779B97F4A7C15) & MASK) + right) & MASK)


def strings(*values: bytes) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0] + [len(value) for value in values]).astype(np.int64)
    return offsets, np.frombuffer(b"".join(values), np.uint8)


@pytest.mark.parametrize(
    "left, right, wanted", [(0, 0, 0x48218226FF3CD4BF), (1, 2, 0x081A5C1377856B73), (2, 1, 0xF2826F98653E9E57)]
)
def test_the_certificate_of_one_pair_is_as_published(left, right, wanted):
    assert hashing.certificate(np.array([left]), np.array([right])) == wanted == pair_hash(left, right)
    with np.errstate(over="ignore"):
        assert int(hashing.pair_hash(np.int64(left), np.int64(right))) == wanted


def test_the_certificate_is_a_sum_that_ignores_order_and_wraps():
    rng = np.random.default_rng(1)
    left, right = rng.integers(0, 1 << 50, (2, 500))
    wanted = sum(pair_hash(int(a), int(b)) for a, b in zip(left, right)) & MASK
    order = rng.permutation(500)
    assert hashing.certificate(left, right) == wanted == hashing.certificate(left[order], right[order])
    assert hashing.certificate(left[:0], right[:0]) == 0


def test_key_hashes_equal_the_slow_twin_also_for_negative_keys():
    keys = np.array([0, 1, -1, 2**63 - 1, -(2**63)])
    assert [int(value) for value in hashing.hash_keys(keys)] == [
        mix((int(key) + 0x9E3779B97F4A7C15) & MASK) for key in keys
    ]


def test_partitions_are_even_and_in_range():
    hashes = hashing.hash_keys(np.arange(60_000))
    shares = np.bincount([hashing.partition_of(value, 60) for value in hashes], minlength=60)
    assert len(shares) == 60 and shares.min() > 850 and shares.max() < 1150
    assert hashing.partition_of(np.uint64(MASK), 60) == 59 and hashing.partition_of(np.uint64(0), 60) == 0


def test_strings_that_differ_in_length_zero_bytes_or_order_hash_differently():
    values = [
        b"",
        b"\0",
        b"\0\0",
        b"\0" * 8,
        b"\0" * 9,
        b"ab",
        b"ba",
        b"abcdefgh",
        b"abcdefghi",
        b"abcdefg",
        b"hgfedcba",
    ]
    assert len(set(hashing.hash_bytes(*strings(*values)).tolist())) == len(values)


def test_a_string_hashes_the_same_wherever_it_lies():
    offsets, data = strings(b"xyz", b"station-042", b"station-042")
    hashes = hashing.hash_bytes(offsets, data)
    assert hashes[1] == hashes[2] == hashing.hash_bytes(*strings(b"station-042"))[0]


def test_one_flipped_bit_flips_about_half_of_the_hash():
    base = np.random.default_rng(2).integers(0, 256, 13, dtype=np.uint8)
    values = [base.tobytes()]
    for bit in range(13 * 8):
        other = base.copy()
        other[bit // 8] ^= 1 << (bit % 8)
        values.append(other.tobytes())
    hashes = hashing.hash_bytes(*strings(*values))
    flipped = [int(hashes[0] ^ value).bit_count() for value in hashes[1:]]
    assert 12 < min(flipped) and max(flipped) < 52 and 30 < np.mean(flipped) < 34


def test_composite_hashes_depend_on_the_order_of_their_parts():
    one, two = np.zeros(1, np.uint64), np.zeros(1, np.uint64)
    for hashed, values in ((one, (7, 9)), (two, (9, 7))):
        for value in values:
            hashing.combine_words(np.array([value]), hashed)
    assert one[0] != two[0]


def test_few_bits_force_collisions():
    hashes = hashing.hash_keys(np.arange(1000))
    kept = hashing.keep_bits(hashes, 3)
    assert kept.dtype == np.int64 and set(kept.tolist()) == set(range(8))
    assert (hashing.keep_bits(hashes, 64).view(np.uint64) == hashes).all()
