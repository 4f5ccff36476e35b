"""Makes the kernel that a matching join needs."""

from __future__ import annotations

from functools import cache
from typing import Any

from mpijoin.compiled import kernel, part
from mpijoin.data.schema import JoinSchema
from mpijoin.join.where import holds_of
from mpijoin.matching.due import find_due
from mpijoin.matching.partners import match_one

FIND = '''
def answer(s, rule, bucket, one, tag, table, count):
    return match_one(s, rule, bucket, one, tag, table, count, holds)
def {name}(s, rule, cursor, groups, watermarks, table, count):
    return find_due(s, rule, cursor, groups, watermarks, table, count, answer)
'''


def kernel_of(where: str, schema: JoinSchema) -> Any:
    """Returns the kernel that finds results: `find_due`, but without its last argument. where: a condition, which has
    been checked against the schema; "": there is none."""
    if not where:
        return find_matches
    return _made_of(*holds_of(where, schema))


@cache
def _made_of(digest: str, holds: Any) -> Any:
    space: dict[str, Any] = {"match_one": match_one, "find_due": find_due, "holds": holds, "__name__": __name__}
    name = f"find_matches_{digest}"
    exec(FIND.format(name=name), space)
    space["answer"] = part(space["answer"])
    return kernel(space[name])


@part
def always(words, left, right):
    """A condition that all pairs fulfil."""
    return True


@part
def answer_always(s, rule, bucket, one, tag, table, count):
    """Writes the result of one tuple."""
    return match_one(s, rule, bucket, one, tag, table, count, always)


@kernel
def find_matches(s, rule, cursor, groups, watermarks, table, count):
    """Finds the results of a join without a condition: `find_due`, whose arguments these are."""
    return find_due(s, rule, cursor, groups, watermarks, table, count, answer_always)
