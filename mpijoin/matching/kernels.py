"""The kernels of a matching join.

Those that find partners are the same for all jobs. What is of a job, its condition and its functions, is a small kernel
each, which these call by address. So a job with a new condition compiles that alone.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any, Sequence

import numpy as np

from mpijoin.compiled import KernelPart, kernel, part
from mpijoin.conditions.calls import Call
from mpijoin.data.schema import JoinSchema
from mpijoin.join.where import CONDITION_PARTS, holds_of
from mpijoin.matching import reduce
from mpijoin.matching.best import match_due
from mpijoin.matching.due import find_due
from mpijoin.matching.functions import source_of_add
from mpijoin.matching.reduce import reduce_due
from mpijoin.matching.state import OF, OTHER, OWN, PARTNERS
from mpijoin.store.simd import unsigned

KEEP = """
def {name}(s, count):
    kept = 0
    for i in range(count):
        at, own, other = s.pairs[OF, unsigned(i)], s.pairs[OWN, unsigned(i)], s.pairs[OTHER, unsigned(i)]
        s.pairs[OF, unsigned(kept)], s.pairs[OWN, unsigned(kept)], s.pairs[OTHER, unsigned(kept)] = at, own, other
        kept += holds(s, own, other)
    return kept
"""
ADD = """
def {name}(s, count):
    for i in range(count):
        at = s.pairs[OF, unsigned(i)]
        s.found[PARTNERS, unsigned(at)] += 1
        add(s, at, s.pairs[OWN, unsigned(i)], s.pairs[OTHER, unsigned(i)])
    return count
"""
ADDS = ("add_count", "add_integer", "add_float", "add_extreme", "add_placed", "add_best", "bits_of", "word_of_real")
NAMES = {"OF": OF, "OTHER": OTHER, "OWN": OWN, "PARTNERS": PARTNERS, "np": np, "unsigned": unsigned}


@kernel
def match_groups(s, groups, watermarks, table, count):
    """`find_due`, of which each tuple keeps its best partner."""
    return find_due(s, groups, watermarks, table, count, match_due)


@kernel
def reduce_groups(s, groups, watermarks, table, count):
    """`find_due`, of which functions are worked out of all partners of each tuple."""
    return find_due(s, groups, watermarks, table, count, reduce_due)


def asks_of(where: str, calls: Sequence[Call], schema: JoinSchema) -> tuple[KernelPart, ...]:
    """Returns the kernels that are asked about partners, as of `new_state`.

    where: a condition; "": there is none · calls: the functions that are worked out of all partners; none: one partner
    is chosen. All of it has been checked against the schema. The names of the kernels are hashes of all that they are
    made of, so that their machine code is kept for later runs.
    """
    condition = (_keeping(*holds_of(where, schema)),) if where else ()
    return (*condition, _adding(source_of_add(calls, schema))) if calls else condition


@cache
def _keeping(digest: str, holds: KernelPart) -> Any:
    return _made(KEEP, f"keep_partners_{digest}", {"holds": holds})


@cache
def _adding(add: str) -> Any:
    space = {**NAMES, **CONDITION_PARTS, **{name: getattr(reduce, name) for name in ADDS}, "__name__": __name__}
    # The source is made of a checked tree: of names of variables, operators and numbers.
    exec(add, space)
    return _made(ADD, f"add_partners_{hashlib.sha256(add.encode()).hexdigest()[:16]}", {"add": part(space["add"])})


def _made(template: str, name: str, parts: dict[str, KernelPart]) -> Any:
    space: dict[str, Any] = {**NAMES, **parts, "__name__": __name__}
    exec(template.format(name=name), space)
    return kernel(space[name])
