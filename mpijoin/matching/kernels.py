"""Makes the kernel that a matching join needs."""

from __future__ import annotations

from functools import cache
from typing import Any

from mpijoin.compiled import kernel, part
from mpijoin.data.schema import JoinSchema
from mpijoin.join.where import holds_of
from mpijoin.matching.best import match_due, take_best
from mpijoin.matching.due import find_due

MATCH = '''
def take(s, filled):
    take_best(s, filled, holds)
def answer(s, bucket, due, table, count):
    return match_due(s, bucket, due, table, count, take, holds)
def {name}(s, groups, watermarks, table, count):
    return find_due(s, groups, watermarks, table, count, answer)
'''


def kernel_of(where: str, schema: JoinSchema) -> Any:
    """Returns the kernel that finds results: `find_due`, but without its last argument. where: a condition, which has
    been checked against the schema; "": there is none."""
    return _made_of(*holds_of(where, schema)) if where else _made_of("any", always)


@cache
def _made_of(digest: str, holds: Any) -> Any:
    name = f"match_{digest}"
    space = {one.__name__: one for one in (take_best, match_due, find_due)} | {"holds": holds, "__name__": __name__}
    exec(MATCH.format(name=name), space)
    for one in ("take", "answer"):
        space[one] = part(space[one])
    return kernel(space[name])


@part
def always(words, left, right):
    """A condition that all pairs fulfil."""
    return True
