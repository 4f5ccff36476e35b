"""The one 64-bit hash of the package. It applies splitmix64's finalizer to integers, pairs of rows and bytes.

The scalar functions take and return `np.uint64`, and are inlined into other kernels. All other code uses the array
functions. All arithmetic is modulo 2**64 on purpose. Called without the compiler, the scalar functions need
`np.errstate(over="ignore")`.
"""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import kernel
from mpijoin.data.batch import read_only

# These are the constants of splitmix64 (Steele, Lea, Flood 2014). GOLDEN is 2**64 / golden ratio, and the other two are
# the multipliers of its finalizer.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)


@kernel
def mix(x):
    """Applies splitmix64's finalizer. It is a bijection of uint64 in which every input bit changes every output bit."""
    x = (x ^ (x >> _S30)) * _FIRST
    x = (x ^ (x >> _S27)) * _SECOND
    return x ^ (x >> _S31)


@kernel
def hash64(key):
    """Returns the uint64 hash of an int64 key. The high 32 bits choose the partition, and the low bits choose the
    directory entry."""
    return mix(np.uint64(key) + GOLDEN)


@kernel
def pair_hash(left_row, right_row):
    """Returns the uint64 hash of a result pair of int64 rows. The certificate of a run is the sum of these hashes
    modulo 2**64."""
    return mix(mix(np.uint64(left_row) + GOLDEN) + np.uint64(right_row))


@kernel
def partition_of(hashed, partitions):
    """Returns the partition of a uint64 hash, in [0, partitions). There must be fewer than 2**32 partitions."""
    return np.int64(((hashed >> _S32) * np.uint64(partitions)) >> _S32)


@kernel
def combine(hashed, value):
    """Returns the uint64 hash of what was hashed before, followed by one more uint64 value. The order matters."""
    return mix((hashed + GOLDEN) ^ value)


@kernel
def _hash_keys(key, out):
    for index in range(len(key)):
        out[index] = hash64(key[index])


@kernel
def _certificate(left_row, right_row):
    total = np.uint64(0)
    for index in range(len(left_row)):
        total += pair_hash(left_row[index], right_row[index])
    return total


@kernel
def _word(data, start, stop):
    """Returns the bytes data[start:stop], at most 8, as one little-endian uint64."""
    word = np.uint64(0)
    for offset in range(stop - start):
        word |= np.uint64(data[start + offset]) << np.uint64(8 * offset)
    return word


@kernel
def _combine_bytes(offsets, data, hashed):
    """Folds value i = data[offsets[i]:offsets[i + 1]] into hashed[i]. Its length comes first, then 8 bytes at a time.
    """
    for index in range(len(hashed)):
        at, stop = offsets[index], offsets[index + 1]
        folded = combine(hashed[index], np.uint64(stop - at))
        while stop - at >= 8:
            folded = combine(folded, _word(data, at, at + 8))
            at += 8
        if at < stop:
            folded = combine(folded, _word(data, at, stop))
        hashed[index] = folded


@kernel
def _combine_words(values, hashed):
    for index in range(len(hashed)):
        hashed[index] = combine(hashed[index], np.uint64(values[index]))


def hash_keys(key: np.ndarray) -> np.ndarray:
    """Returns `hash64` of each key as uint64[n]. The keys are int64[n].

    >>> f"{hash_keys(np.array([0]))[0]:016x}"
    'e220a8397b1dcdaf'
    """
    out = np.empty(len(key), np.uint64)
    with np.errstate(over="ignore"):
        _hash_keys(read_only(key), out)
    return out


def certificate(left_row: np.ndarray, right_row: np.ndarray) -> int:
    """Returns the sum of `pair_hash` over the pairs (left_row[i], right_row[i]) modulo 2**64. Both arrays are int64[n].

    >>> f"{certificate(np.array([0]), np.array([0])):016x}"
    '48218226ff3cd4bf'
    """
    with np.errstate(over="ignore"):
        return int(_certificate(read_only(left_row), read_only(right_row)))


def combine_words(values: np.ndarray, hashed: np.ndarray) -> None:
    """Folds one int64 value per tuple into `hashed`, uint64[n], in place."""
    with np.errstate(over="ignore"):
        _combine_words(read_only(values), hashed)


def combine_bytes(offsets: np.ndarray, data: np.ndarray, hashed: np.ndarray) -> None:
    """Folds one byte string per tuple into `hashed`, uint64[n], in place. `offsets` are int64[n + 1] into `data`,
    uint8[]."""
    with np.errstate(over="ignore"):
        _combine_bytes(read_only(offsets), read_only(data), hashed)


def hash_bytes(offsets: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Returns the uint64[n] hashes of the byte strings data[offsets[i]:offsets[i + 1]]. `offsets` are int64[n + 1] and
    `data` is uint8[].

    >>> len(set(hash_bytes(np.array([0, 0, 1, 3]), np.zeros(3, np.uint8))))
    3
    """
    hashed = np.zeros(len(offsets) - 1, np.uint64)
    combine_bytes(offsets, data, hashed)
    return hashed


def keep_bits(hashed: np.ndarray, bits: int) -> np.ndarray:
    """Returns the low `bits` bits of each hash as int64[n], 1 <= bits <= 64. Only tests use fewer than 64, to force
    collisions."""
    return (hashed & np.uint64((1 << bits) - 1)).view(np.int64)
