"""Kernels that read stored tuples, named by slot ids, out of the blocks: words of them, and their blobs."""

from __future__ import annotations

from mpijoin.compiled import kernel
from mpijoin.store.blocks import copy_blob
from mpijoin.store.simd import unsigned
from mpijoin.store.state import ADDRESS, SIZE


@kernel
def gather_columns(words, slots, chosen, out, at):
    """out[c, at + i] = word chosen[c] of tuple slots[i]. chosen: int64[k] · out: int64[k, capacity]."""
    for i in range(len(slots)):
        slot = slots[i]
        for c in range(len(chosen)):
            out[unsigned(c), unsigned(at + i)] = words[unsigned(slot + chosen[c])]


@kernel
def gather_blobs(s, slots, starts, out):
    """Copies the blobs of tuples slots[i] to out[starts[i]:]; out: uint8[]."""
    for i in range(len(slots)):
        copy_blob(s, s.words[slots[i] + ADDRESS], s.words[slots[i] + SIZE], out, starts[i])
