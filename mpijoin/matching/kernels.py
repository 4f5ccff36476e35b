"""Makes the kernel that a matching join needs."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any, Sequence

import numpy as np

from mpijoin.compiled import KernelPart, kernel, part
from mpijoin.conditions.calls import Call
from mpijoin.data.schema import JoinSchema
from mpijoin.join.where import TEXT_PARTS, holds_of
from mpijoin.matching import reduce
from mpijoin.matching.best import match_due, take_best
from mpijoin.matching.due import find_due
from mpijoin.matching.functions import source_of_add
from mpijoin.store.simd import unsigned

MATCH = '''
def take(s, filled):
    take_best(s, filled, holds)
def answer(s, bucket, due, table, count):
    return match_due(s, bucket, due, table, count, take, holds)
'''
REDUCE = '''
def take(s, filled):
    take_all(s, filled, holds, add)
def answer(s, bucket, due, table, count):
    return reduce_due(s, bucket, due, table, count, take)
'''
FIND = '''
def {name}(s, groups, watermarks, table, count):
    return find_due(s, groups, watermarks, table, count, answer)
'''
ADDS = ("add_count", "add_integer", "add_float", "add_extreme", "add_placed", "add_best", "bits_of", "word_of_real")


def kernel_of(where: str, calls: Sequence[Call], schema: JoinSchema) -> Any:
    """Returns the kernel that finds results: `find_due`, but without its last argument.

    where: a condition; "": there is none · calls: the functions that are worked out of all partners; none: one partner
    is chosen. All of it has been checked against the schema.
    """
    condition = holds_of(where, schema) if where else ("any", always)
    return _made_of(*condition, source_of_add(calls, schema) if calls else "")


@cache
def _made_of(digest: str, holds: KernelPart, add: str) -> Any:
    space: dict[str, Any] = {"np": np, "unsigned": unsigned, "holds": holds, "find_due": find_due, "__name__": __name__}
    space |= TEXT_PARTS
    space |= {one.__name__: one for one in (take_best, match_due, reduce.take_all, reduce.reduce_due)}
    space |= {name: getattr(reduce, name) for name in ADDS}
    name = f"match_{digest}"
    if add:
        # The source is made of a checked tree: of names of variables, operators and numbers.
        exec(add, space)
        space["add"] = part(space["add"])
        name = f"reduce_{digest}_{hashlib.sha256(add.encode()).hexdigest()[:16]}"
    exec(REDUCE if add else MATCH, space)
    for one in ("take", "answer"):
        space[one] = part(space[one])
    exec(FIND.format(name=name), space)
    return kernel(space[name])


@part
def always(s, left, right):
    """A condition that all pairs fulfil."""
    return True
