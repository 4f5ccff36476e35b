"""Machine instructions that the compiler does not make of plain loops.

The functions below are their plain twins, for runs without the compiler. instructions.py says how they are compiled.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Sequence

import numpy as np

from mpijoin.compiled import Kernel, KernelPart, argument_words, instruction

# A cache line holds this many tags of 16 bits.
LINE_TAGS = 32
# This many tags are compared at once: the answers fill a mask of 64 bits.
LANES = 2 * LINE_TAGS

# A call from one kernel to another: where the other one is, how many words its arguments have, these words, the last of
# which is a count, and room for the count that it returns. CALL_WORDS are those besides the arguments.
CALLED, CALL_SIZE, CALL_FIRST, CALL_WORDS = 0, 1, 2, 3
PLAIN_ENTRIES: list[Callable[[int], int]] = []

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
    """Makes the call that begins at words[at], as of `call_words`, and returns what the kernel returns, which is also
    written behind the arguments."""
    return PLAIN_ENTRIES[int(words[at + CALLED]) - 1](int(words[at + CALL_SIZE + words[at + CALL_SIZE]]))


@machine_instruction
def prefetch(array, index):
    """Asks for the cache line of array[index] before it is needed. It never changes a result, whatever the index is."""


def call_words(called: KernelPart, first: Sequence[Any]) -> list[int]:
    """Returns the words of a call of a kernel that takes `first` and then a count, and returns a count.

    The words of arrays are their addresses, so somebody else has to keep these alive. Without the compiler, CALLED is
    the number of an entry of PLAIN_ENTRIES, which is called with the count.
    """
    if isinstance(called, Kernel):
        entry, words = called.address(*first, 0), argument_words(first)
    else:
        PLAIN_ENTRIES.append(partial(called, *first))
        entry, words = len(PLAIN_ENTRIES), []
    return [entry, len(words) + 1, *words, 0, 0]


def calls_of(*chains: Sequence[tuple[KernelPart, Sequence[Any]]]) -> np.ndarray:
    """Returns the words of chains of calls, int64[]: first where each chain begins, then the chains, each with a 0
    behind it. A call is a kernel and its arguments, as of `call_words`."""
    starts: list[int] = []
    words: list[int] = []
    for chain in chains:
        starts.append(len(chains) + len(words))
        words += [word for call in chain for word in call_words(*call)] + [0]
    return np.array([*starts, *words], np.int64)
