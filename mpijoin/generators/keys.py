"""The keys of the tuples. They follow the b-model or Zipf's law over [0, domain). A permutation says where the hot keys
lie."""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import kernel
from mpijoin.config.job import ZIPF
from mpijoin.generators.draws import draw, share
from mpijoin.generators.schedule import Segment
from mpijoin.partitioning.hashing import GOLDEN, mix

# The Feistel network has so many rounds. They are enough for an order that looks random.
ROUNDS = 4
_ONE, _S32 = np.uint64(1), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


def keys_of(law: str, domain: int, segment: Segment, base: np.uint64, first: int, rows: int) -> np.ndarray:
    """Returns the keys of tuples first .. first + rows - 1 as int64[rows]. `segment` must hold for all of them.
    `law` is B_MODEL or ZIPF."""
    key = np.empty(rows, np.int64)
    bits = (domain - 1).bit_length()
    with np.errstate(over="ignore"):
        if law == ZIPF:
            fill_zipf(base, first, segment.exponent, domain, key)
        else:
            fill_keys(base, first, np.uint64(round(segment.bias * 2**32)), bits, np.uint64(domain), key)
        if segment.permute is not None:
            permute(key, np.uint64(domain), np.uint64(max(1, (bits + 1) // 2)), np.uint64(segment.permute))
    return key


@kernel
def fill_keys(base, first, threshold, bits, domain, out):
    """Sets out[i], int64[n], to the b-model key of tuple first + i. A bit is 1 where 32 random bits are >= threshold.
    """
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


@kernel
def scaled(key, domain, bits):
    """Returns (key * domain) >> bits, 0 <= bits < 64. Both factors are uint64 of up to 63 bits, so the product has
    up to 126 bits."""
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


@kernel
def _area(x, exponent):
    """Returns the integral of t ** -exponent from 1 to x. It is also accurate near exponent 1, and at it."""
    log_x = np.log(x)
    power = (1.0 - exponent) * log_x
    return log_x * (np.expm1(power) / power if abs(power) > 1e-8 else 1.0 + power / 2.0)


@kernel
def _of_area(area, exponent):
    """Returns the x at which `_area` has this value."""
    power = max(-1.0, (1.0 - exponent) * area)
    return np.exp(area * (np.log1p(power) / power if abs(power) > 1e-8 else 1.0 - power / 2.0))


@kernel
def fill_zipf(base, first, exponent, domain, out):
    """Sets out[i], int64[n], to the key of tuple first + i. The chance of key k is in proportion to
    (k + 1) ** -exponent, exponent > 0.

    This is rejection-inversion (Hormann and Derflinger 1996). It needs no table, and about 1.1 draws per key.
    """
    least, most = _area(1.5, exponent) - 1.0, _area(domain + 0.5, exponent)
    sure = 2.0 - _of_area(_area(2.5, exponent) - 2.0**-exponent, exponent)
    for i in range(len(out)):
        random = draw(base, np.uint64(first + i))
        while True:
            area = most + share(random) * (least - most)
            x = _of_area(area, exponent)
            rank = min(max(np.floor(x + 0.5), 1.0), np.float64(domain))
            if rank - x <= sure or area >= _area(rank + 0.5, exponent) - np.exp(-exponent * np.log(rank)):
                break
            random = mix(random + GOLDEN)
        out[i] = np.int64(rank) - 1


@kernel
def permute(key, domain, half, salt):
    """Replaces each int64 key in [0, domain) by its place in the order that `salt`, uint64, stands for.

    It applies a Feistel network over 2 * half bits, again and again until the value lies in the domain. So it is a
    bijection.
    """
    mask = (_ONE << half) - _ONE
    for i in range(len(key)):
        value = np.uint64(key[i])
        while True:
            left, right = value >> half, value & mask
            for number in range(ROUNDS):
                left, right = (
                    right,
                    left ^ (mix(mix(salt + GOLDEN) + right * np.uint64(ROUNDS) + np.uint64(number)) & mask),
                )
            value = left << half | right
            if value < domain:
                break
        key[i] = np.int64(value)
