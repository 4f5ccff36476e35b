"""Choices that look random and are functions of their numbers, so that a run can be repeated."""

from __future__ import annotations

WORD = (1 << 64) - 1


def chance(*numbers: int) -> int:
    """A uniform number of 64 bits: splitmix64's finalizer over the numbers, one after the other.

    >>> chance(0, 1, 2) == chance(0, 1, 2), chance(0, 1, 2) == chance(0, 2, 1)
    (True, False)
    """
    word = 0
    for number in numbers:
        word = (word + number + 0x9E3779B97F4A7C15) & WORD
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & WORD
        word = (word ^ word >> 27) * 0x94D049BB133111EB & WORD
        word ^= word >> 31
    return word
