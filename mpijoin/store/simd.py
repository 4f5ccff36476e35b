"""Machine instructions that the compiler does not make of plain loops.

The functions below are their plain twins, for runs without the compiler. instructions.py says how they are compiled.
"""

from __future__ import annotations

from typing import Callable

from mpijoin.compiled import instruction

# A cache line holds this many tags of 16 bits.
LINE_TAGS = 32
# This many tags are compared at once: the answers fill a mask of 64 bits.
LANES = 2 * LINE_TAGS

# The kernel that is called from another one takes so many words.
CALL_ARGUMENTS = 7
PLAIN_ENTRIES: list[Callable[[int, int], int]] = []

machine_instruction = instruction("mpijoin.store.instructions")


@machine_instruction
def match_tags(tags, start, tag):
    """Returns an int64 mask: bit i is set if and only if tags[start + i] == tag, for i in 0..63.

    tags: uint16[] · start: int64 · tag: uint16.
    """
    mask = 0
    for lane in range(LANES):
        mask |= int(tags[start + lane] == tag) << lane
    # The highest bit is the sign of an int64.
    return mask - (mask >> (LANES - 1) << LANES)


@machine_instruction
def lowest_bit(mask):
    """Returns the index of the lowest set bit of a mask, and 64 for a mask of 0."""
    return (int(mask) & -int(mask)).bit_length() - 1 if mask else LANES


@machine_instruction
def unsigned(index):
    """Returns an index that is known not to be negative, as uint64: no test for a negative index is compiled for it."""
    return index


@machine_instruction
def call_entry(words, at):
    """Calls the kernel whose address is words[0], with the CALL_ARGUMENTS words from words[at] on as its arguments, and
    returns what it returns, which is also written behind them.

    Without the compiler, words[0] is the number of an entry of PLAIN_ENTRIES, which is called with the last argument.
    """
    return PLAIN_ENTRIES[int(words[0]) - 1](at, int(words[at + CALL_ARGUMENTS - 1]))


@machine_instruction
def prefetch(array, index):
    """Asks for the cache line of array[index] before it is needed. It never changes a result, whatever the index is."""
