"""Which keys tuples have: b-model or Zipf over [0, domain), and a permutation that says where the hot ones lie."""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import kernel
from mpijoin.config.job import ZIPF
from mpijoin.generators.draws import draw, share
from mpijoin.generators.schedule import Segment
from mpijoin.partitioning.hashing import GOLDEN, mix

ROUNDS = 4  # of the Feistel network: enough for a random-looking order
_ONE, _S32 = np.uint64(1), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


def keys_of(law: str, domain: int, segment: Segment, base: np.uint64, first: int, rows: int) -> np.ndarray:
    """int64[rows]: keys of tuples first .. first + rows - 1 while `segment` holds. law: B_MODEL or ZIPF."""
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


@kernel
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


@kernel
def _area(x, exponent):
    """Integral of t ** -exponent from 1 to x; both near and at exponent 1."""
    log_x = np.log(x)
    power = (1.0 - exponent) * log_x
    return log_x * (np.expm1(power) / power if abs(power) > 1e-8 else 1.0 + power / 2.0)


@kernel
def _of_area(area, exponent):
    """The x of `_area`."""
    power = max(-1.0, (1.0 - exponent) * area)
    return np.exp(area * (np.log1p(power) / power if abs(power) > 1e-8 else 1.0 - power / 2.0))


@kernel
def fill_zipf(base, first, exponent, domain, out):
    """out[i] = key of tuple first + i, int64[n]: key k with a chance in proportion to (k + 1) ** -exponent, exponent >
    0.

    Rejection-inversion (Hormann and Derflinger 1996): no table, about 1.1 draws a key.
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
    """Replaces int64 keys in [0, domain) by their places in an order that uint64 `salt` stands for.

    A Feistel network over 2 * half bits, walked on until it lands in the domain: a bijection.
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
