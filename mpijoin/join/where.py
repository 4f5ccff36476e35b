"""Makes the kernel that keeps the pairs for which a condition is true. The probe calls it."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

import numpy as np

from mpijoin.compiled import KernelPart, kernel, part
from mpijoin.conditions.code import source_of
from mpijoin.conditions.kinds import kinds_of_schema, place_in
from mpijoin.conditions.tree import parse
from mpijoin.data.schema import UNIT_NS, JoinSchema
from mpijoin.join.state import Call, JoinState
from mpijoin.store.simd import unsigned
from mpijoin.store.state import stored_in
from mpijoin.store.texts import is_among_given, order_of_given, order_of_stored, same_given, same_stored


@part
def is_among(values, value):
    """Returns whether a value is one of int64[n > 0], which are in ascending order. A processor could not foresee a
    branch here, so there is none."""
    low, count = 0, len(values)
    while count > 1:
        half = count // 2
        low += half * (values[unsigned(low + half)] <= value)
        count -= half
    return values[unsigned(low)] == value


# What the source of a condition needs to compare strings, and to look values up.
_PARTS = (same_stored, same_given, order_of_stored, order_of_given, is_among, is_among_given)
CONDITION_PARTS = {one.__name__: one for one in _PARTS}
KEEP = '''
def {name}(s, left, right, count):
    kept = 0
    for i in range(count):
        one, other = left[unsigned(i)], right[unsigned(i)]
        left[unsigned(kept)] = one
        right[unsigned(kept)] = other
        kept += holds(s, one, other)
    return kept
'''


def kernel_of(text: str, schema: JoinSchema) -> Any:
    """Returns a kernel that takes what is stored (`Stored`), the slot ids of pairs, int64[at least count] of each
    stream, and their number. It moves the pairs that hold to the front, and returns how many they are.

    Its name is a hash of all that it is made of, so that its machine code is kept for later runs.
    """
    return _kernel_of(*holds_of(text, schema))


class Where:
    """Asks a condition of pairs, by a kernel as of `kernel_of`."""

    def __init__(self, holding: KernelPart):
        self._kernel = holding

    def __call__(self, state: JoinState, left: np.ndarray, right: np.ndarray) -> Call:
        return self._kernel, (stored_in(state), left, right)


def holds_of(text: str, schema: JoinSchema) -> tuple[str, KernelPart]:
    """Returns a hash of all that a condition is made of, and a part of kernels that takes what is stored (`Stored`) and
    the slot ids of a pair, and returns whether the condition is true for it."""
    tree = parse(text, [stream.name for stream in schema.streams], kinds_of_schema(schema))
    return part_of(source_of(tree, "holds", lambda *column: place_in(schema, *column), UNIT_NS[schema.unit]))


@cache
def part_of(source: str) -> tuple[str, KernelPart]:
    """Returns the same for a condition as `source_of` writes it, as a function `holds`."""
    space: dict[str, Any] = {"np": np, "unsigned": unsigned, "__name__": __name__, **CONDITION_PARTS}
    # The source is made of a checked tree: of names of variables, operators and numbers.
    exec(source, space)
    return hashlib.sha256(source.encode()).hexdigest()[:16], part(space["holds"])


@cache
def _kernel_of(digest: str, holds: KernelPart) -> Any:
    name = f"keep_where_{digest}"
    space: dict[str, Any] = {"unsigned": unsigned, "holds": holds, "__name__": __name__}
    exec(KEEP.format(name=name), space)
    return kernel(space[name])
