"""The keys of a b-model as probabilities.

They tell how many tuples each partition and each directory entry gets, and how many tuples match.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Sequence

import numpy as np

from mpijoin.config.job import SyntheticSource
from mpijoin.named import NamedTuple
from mpijoin.partitioning.hashing import GOLDEN

BITS_MAX = 26  # Keys of larger domains are drawn instead of counted.
DRAWN = 1 << 22
ENTRIES_MAX = 1 << 22  # All partitions together have at most so many directory entries.
DEPTH_LEAST, DEPTH_MOST = 4, 12
CHUNK = 1 << 20


class KeyModel(NamedTuple):
    """How the tuples of one stream are spread over partitions and directory entries."""

    weights: np.ndarray
    """float64[partitions]: shares of the tuples."""
    entries: np.ndarray
    """float64[partitions, 2**depth]: shares of a partition's tuples by the low `depth` bits of the key's hash."""
    depth: int

    def share(self, partition: int, prefix: int, depth: int) -> float:
        """Returns the share of a partition's tuples whose hash ends in the `depth` bits of `prefix`.

        Beyond the depth that was counted, each further bit halves it.
        """
        if depth <= self.depth:
            return float(self.entries[partition, prefix :: 1 << depth].sum())
        return float(self.entries[partition, prefix & ((1 << self.depth) - 1)]) / (1 << (depth - self.depth))


class Matches(NamedTuple):
    """How likely the tuples of different streams are to match."""

    models: tuple[KeyModel, ...]
    """The model of each stream's keys."""
    chance: np.ndarray
    """float64[partitions]: the chance that tuples of a partition, one of each stream, have equal keys."""


def match_model(sources: Sequence[SyntheticSource], partitions: int) -> Matches:
    """Returns how the tuples of these sources match.

    The result is exact if all domains can be counted. Where they cannot, keys are drawn, and the chance of a match is
    that of the b-model itself.
    """
    depth = min(DEPTH_MOST, max(DEPTH_LEAST, (ENTRIES_MAX // partitions).bit_length() - 1))
    models = tuple(_key_model(one.bias, one.domain, partitions, depth) for one in sources)
    return Matches(models, _chances(sources, models, partitions))


def _chances(sources: Sequence[SyntheticSource], models: Sequence[KeyModel], partitions: int) -> np.ndarray:
    widest = max(_bits(one.domain) for one in sources)
    if widest > BITS_MAX:
        of_a_bit = math.prod(one.bias for one in sources) + math.prod(1 - one.bias for one in sources)
        return np.full(partitions, float(partitions) ** (len(sources) - 1) * of_a_bit**widest)
    probabilities = [_probabilities(one.bias, one.domain) for one in sources]
    shared = min(map(len, probabilities))
    equal = np.zeros(partitions)
    for start in range(0, shared, CHUNK):
        own = slice(start, min(start + CHUNK, shared))
        hashed = _hashes(np.arange(own.start, own.stop, dtype=np.uint64))
        together = np.prod([one[own] for one in probabilities], axis=0)
        equal += np.bincount(_partitions(hashed, partitions), together, partitions)
    product = np.prod([one.weights for one in models], axis=0)
    return np.divide(equal, product, out=np.zeros(partitions), where=product > 0)


@cache
def _key_model(bias: float, domain: int, partitions: int, depth: int) -> KeyModel:
    counted = np.zeros(partitions << depth)
    counts = _bits(domain) <= BITS_MAX
    probabilities = _probabilities(bias, domain) if counts else np.full(DRAWN, 1 / DRAWN)
    keys = None if counts else _drawn_keys(bias, domain)
    for start in range(0, len(probabilities), CHUNK):
        stop = min(start + CHUNK, len(probabilities))
        hashed = _hashes(np.arange(start, stop, dtype=np.uint64) if keys is None else keys[start:stop])
        entry = _partitions(hashed, partitions) << depth | (hashed & np.uint64((1 << depth) - 1)).astype(np.int64)
        counted += np.bincount(entry, probabilities[start:stop], len(counted))
    entries = counted.reshape(partitions, 1 << depth)
    weights = entries.sum(axis=1)
    shares = np.divide(entries, weights[:, None], out=np.zeros_like(entries), where=weights[:, None] > 0)
    return KeyModel(weights / weights.sum(), shares, depth)


@cache
def _probabilities(bias: float, domain: int) -> np.ndarray:
    """Returns float64[domain], the probability of each key.

    A key is an integer of `bits` bits, each of which is 0 with probability `bias`, scaled to the domain.
    """
    bits = _bits(domain)
    # The index is the number of ones in the key.
    powers = bias ** np.arange(bits, -1, -1.0) * (1 - bias) ** np.arange(bits + 1)
    found = np.zeros(domain)
    for start in range(0, 1 << bits, CHUNK):
        drawn = np.arange(start, min(start + CHUNK, 1 << bits), dtype=np.uint64)
        keys = (drawn * np.uint64(domain) >> np.uint64(bits)).astype(np.int64)
        first = int(keys[0])
        counted = np.bincount(keys - first, powers[np.bitwise_count(drawn)])
        found[first : first + len(counted)] += counted
    return found


def _drawn_keys(bias: float, domain: int) -> np.ndarray:
    """Draws keys from a domain that is too large to count. Returns uint64[DRAWN]."""
    random = np.random.default_rng(domain)
    bits = _bits(domain)
    # The share of the domain has the leading bits of the key, as many as a double can hold.
    share = np.zeros(DRAWN)
    for bit in range(min(bits, 52)):
        share += (random.random(DRAWN) >= bias) * 0.5 ** (bit + 1)
    return (share * domain).astype(np.uint64)


def _bits(domain: int) -> int:
    return (domain - 1).bit_length()


def _hashes(keys: np.ndarray) -> np.ndarray:
    """Computes `hash64` of partitioning/hashing.py over an array, without compiling it."""
    x = keys + GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _partitions(hashed: np.ndarray, partitions: int) -> np.ndarray:
    return ((hashed >> np.uint64(32)) * np.uint64(partitions) >> np.uint64(32)).astype(np.int64)
