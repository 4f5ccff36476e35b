"""Machine instructions that plain loops do not reach, each with a plain twin for runs without the compiler."""

from __future__ import annotations

from mpijoin.compiled import instruction

LINE_TAGS = 32  # tags of 16 bits in a cache line
LANES = 2 * LINE_TAGS  # tags compared at once: their results fill a 64-bit mask

machine_instruction = instruction("mpijoin.store.instructions")


@machine_instruction
def match_tags(tags, start, tag):
    """Bit i of the result is set iff tags[start + i] == tag, for i in 0..63. tags: uint16[], start: int64, tag:
    uint16."""
    mask = 0
    for lane in range(LANES):
        mask |= int(tags[start + lane] == tag) << lane
    return mask - (mask >> (LANES - 1) << LANES)  # as an int64


@machine_instruction
def lowest_bit(mask):
    """Index of the lowest set bit of a mask; of 0 it is 64."""
    return (int(mask) & -int(mask)).bit_length() - 1 if mask else LANES


@machine_instruction
def unsigned(index):
    """An index known not to be negative, as a type for which no test for that is compiled."""
    return index


@machine_instruction
def prefetch(array, index):
    """Asks for the cache line of array[index] before it is needed; no effect on results, whatever the index."""
