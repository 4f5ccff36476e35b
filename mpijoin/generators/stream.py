"""One synthetic stream. It gives the columns of any range of tuples, and the order in which tuples out of order come.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np
import pyarrow as pa

from mpijoin.config.job import SyntheticSource
from mpijoin.config.rules import SYNTHETIC_KEY, SYNTHETIC_PAYLOAD, SYNTHETIC_TIME
from mpijoin.data.arrow import fixed_array
from mpijoin.generators.arrivals import arrivals_of
from mpijoin.generators.draws import ARRIVAL, DELAY, KEY, PAYLOAD, base_of, fill_delays, fill_payload
from mpijoin.generators.keys import keys_of
from mpijoin.generators.schedule import segments_of


class SyntheticStream:
    """A stream made of pure functions of (source, seed, stream). Nothing is remembered from call to call."""

    def __init__(self, source: SyntheticSource, seed: int, stream: int):
        self._source = source
        self._bases = {purpose: base_of(seed, stream, purpose) for purpose in (KEY, PAYLOAD, DELAY)}
        self._segments = segments_of(source)
        self.arrivals = arrivals_of(source, base_of(seed, stream, ARRIVAL))

    def batch(self, names: Sequence[str], first: int, time: np.ndarray) -> pa.RecordBatch:
        """Returns the named columns of tuples first .. first + n - 1. Their times in ns are `time`, int64[n]."""
        make = {
            SYNTHETIC_TIME: lambda: fixed_array(pa.timestamp("ns"), time, None),
            SYNTHETIC_KEY: lambda: fixed_array(pa.int64(), self.keys(first, time), None),
            SYNTHETIC_PAYLOAD: lambda: self._payload(first, len(time)),
        }
        with np.errstate(over="ignore"):
            return pa.RecordBatch.from_arrays([make[name]() for name in names], list(names))

    def keys(self, first: int, time: np.ndarray) -> np.ndarray:
        """Returns the keys of tuples first .. first + n - 1 as int64[n]. Each key follows the values that hold at its
        tuple's time."""
        source, base = self._source, self._bases[KEY]
        cuts = np.searchsorted(time, [segment.start_ns for segment in self._segments[1:]], "left").tolist()
        bounds = zip(self._segments, [0, *cuts], [*cuts, len(time)])
        parts = [
            keys_of(source.keys, source.domain, segment, base, first + low, high - low)
            for segment, low, high in bounds
            if high > low
        ]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def emitted(self, first: int, time: np.ndarray) -> np.ndarray:
        """Returns the times at which tuples first .. first + n - 1 come, as int64[n]. They are up to `disorder` after
        the tuples' own times. A stream with disorder is ordered by them."""
        if not self._source.disorder_ns:
            return time
        delay = np.empty(len(time), np.int64)
        fill_delays(self._bases[DELAY], first, self._source.disorder_ns, delay)
        return time + np.minimum(delay, np.iinfo(np.int64).max - time)

    def _payload(self, first: int, rows: int) -> pa.Array:
        width = self._source.payload_bytes
        payload = np.empty((rows, width), np.uint8)
        fill_payload(self._bases[PAYLOAD], first, payload)
        return fixed_array(pa.binary(width), payload.reshape(-1).view(f"V{width}"), None)
