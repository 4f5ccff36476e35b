"""Synthetic streams: Poisson arrivals with b-model keys, every tuple a pure function of (seed, stream, number).

Random bits come from counters, not from a state: draw(base, i) = mix(base + i * GOLDEN), one base for each purpose.
"""

from __future__ import annotations

from typing import Iterator, Sequence

import numpy as np
import pyarrow as pa

from mpijoin.compiled import compiled
from mpijoin.config.job import SyntheticSource
from mpijoin.config.rules import SYNTHETIC_KEY, SYNTHETIC_PAYLOAD, SYNTHETIC_TIME
from mpijoin.data.arrow import fixed_array
from mpijoin.data.schema import Column
from mpijoin.errors import InputError
from mpijoin.partitioning.hashing import GOLDEN, mix, pair_hash
from mpijoin.sources.base import BLOCK_ROWS, TIME_MAX

GAP, KEY, PAYLOAD = 0, 1, 2  # purposes
PURPOSES = 4
SECOND_NS = 1e9
_ONE, _S11, _S32 = np.uint64(1), np.uint64(11), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ALL = (1 << 64) - 1


@compiled()
def draw(base, index):
    """64 random bits: the uint64 `index`-th of the sequence that `base`, uint64, stands for."""
    return mix(base + (index + _ONE) * GOLDEN)


@compiled()
def fill_times(base, first, mean_ns, start_ns, out):
    """out[i] = time of tuple first + i in ns, int64[n], given that of the one before; gaps are exponential, rounded.

    Returns how many were filled: fewer than n when the next one would not fit an int64.
    """
    time = start_ns
    for i in range(len(out)):
        # 53 random bits as a double in (0, 1]: its logarithm is finite.
        share = np.float64((draw(base, np.uint64(first + i)) >> _S11) + _ONE) * 2.0**-53
        gap = np.rint(-np.log(share) * mean_ns)
        if gap >= np.float64(TIME_MAX - time):
            return i
        time += np.int64(gap)
        out[i] = time
    return len(out)


@compiled()
def fill_keys(base, first, threshold, bits, domain, out):
    """out[i] = b-model key of tuple first + i, int64[n]: a bit is 1 where 32 random bits are >= threshold."""
    words = np.uint64((bits + 1) // 2)
    for i in range(len(out)):
        number = np.uint64(first + i) * words
        key = np.uint64(0)
        random = np.uint64(0)
        for bit in range(bits):
            if bit % 2 == 0:
                random = draw(base, number + np.uint64(bit // 2))
            else:
                random >>= _S32
            key = (key << _ONE) | np.uint64(random & _LOW >= threshold)
        out[i] = np.int64(scaled(key, domain, np.uint64(bits)))


@compiled()
def scaled(key, domain, bits):
    """(key * domain) >> bits for uint64 of up to 63 bits each, 0 <= bits < 64: the product has up to 126 bits."""
    if bits == np.uint64(0):
        return np.uint64(0)
    key_high, key_low = key >> _S32, key & _LOW
    domain_high, domain_low = domain >> _S32, domain & _LOW
    low = key_low * domain_low
    middle = key_high * domain_low + (low >> _S32)
    other = key_low * domain_high + (middle & _LOW)
    high = key_high * domain_high + (middle >> _S32) + (other >> _S32)
    low = (other << _S32) | (low & _LOW)
    return (high << (np.uint64(64) - bits)) | (low >> bits)


@compiled()
def fill_payload(base, first, out):
    """out[i] = random bytes of tuple first + i, uint8[n, width]."""
    rows, width = out.shape
    words = (width + 7) // 8
    for i in range(rows):
        for word in range(words):
            random = draw(base, np.uint64(first + i) * np.uint64(words) + np.uint64(word))
            for at in range(8 * word, min(width, 8 * word + 8)):
                out[i, at] = np.uint8((random >> np.uint64(8 * (at % 8))) & np.uint64(255))


class SyntheticReader:
    """A `Reader` that makes its rows: the first `tuples` of the stream, or those before `duration_ns`."""

    def __init__(
        self,
        source: SyntheticSource,
        seed: int,
        stream: int,
        columns: Sequence[Column],
        block_rows: int = BLOCK_ROWS,
    ):
        self._source, self._block_rows = source, block_rows
        self._names = [column.name for column in columns]
        self._seed = seed & _ALL
        self._stream = stream
        self._bits = (source.domain - 1).bit_length()
        self._count = 0
        self._time_ns = 0

    def blocks(self) -> Iterator[pa.RecordBatch]:
        """Raises InputError when times leave the range of 64-bit nanoseconds."""
        while (rows := self._rows_left()) > 0:
            time = self._times(rows)
            if len(time) == 0:
                return
            yield self._block(time)
            if len(time) < rows:
                return

    def _rows_left(self) -> int:
        tuples = self._source.tuples
        return self._block_rows if tuples is None else min(self._block_rows, tuples - self._count)

    def _times(self, rows: int) -> np.ndarray:
        """Times of the next `rows` tuples, of fewer if the stream's duration ends among them."""
        time, end = np.empty(rows, np.int64), self._source.duration_ns
        with np.errstate(over="ignore"):
            mean_ns = SECOND_NS / self._source.rate
            filled = fill_times(self._base(GAP), self._count, mean_ns, self._time_ns, time)
        time = time[:filled]
        inside = filled if end is None else int(np.searchsorted(time, end, "left"))
        if filled < rows and inside == filled and end is None:
            raise InputError(
                f"synthetic stream: tuple {self._count + filled} lies beyond {TIME_MAX} ns; "
                f"wanted a higher rate or fewer tuples"
            )
        return time[:inside]

    def _block(self, time: np.ndarray) -> pa.RecordBatch:
        first, rows = self._count, len(time)
        self._count += rows
        self._time_ns = int(time[-1])
        make = {
            SYNTHETIC_TIME: lambda: fixed_array(pa.timestamp("ns"), time, None),
            SYNTHETIC_KEY: lambda: fixed_array(pa.int64(), self._keys(first, rows), None),
            SYNTHETIC_PAYLOAD: lambda: self._payload(first, rows),
        }
        with np.errstate(over="ignore"):
            return pa.RecordBatch.from_arrays([make[name]() for name in self._names], self._names)

    def _base(self, purpose: int) -> np.uint64:
        return np.uint64(pair_hash(np.uint64(self._seed), np.uint64(self._stream * PURPOSES + purpose)))

    def _keys(self, first: int, rows: int) -> np.ndarray:
        key = np.empty(rows, np.int64)
        threshold = np.uint64(round(self._source.bias * 2**32))
        fill_keys(self._base(KEY), first, threshold, self._bits, np.uint64(self._source.domain), key)
        return key

    def _payload(self, first: int, rows: int) -> pa.Array:
        width = self._source.payload_bytes
        payload = np.empty((rows, width), np.uint8)
        fill_payload(self._base(PAYLOAD), first, payload)
        return fixed_array(pa.binary(width), payload.reshape(-1).view(f"V{width}"), None)

    def fraction(self) -> float:
        if self._source.tuples is not None:
            return self._count / max(1, self._source.tuples)
        return min(1.0, self._time_ns / max(1, self._source.duration_ns))

    def close(self) -> None:
        """Nothing is held open."""
