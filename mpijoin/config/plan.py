"""Plans of binary joins, as texts and as trees."""

from __future__ import annotations

import re
from typing import Iterator, Sequence, TypeAlias

from mpijoin.named import NamedTuple


class PlanError(ValueError):
    """What is wrong with a plan, and what was wanted."""


class Binary(NamedTuple):
    """A binary join of two plans."""

    left: Plan
    right: Plan


# The number of a stream, or a join.
Plan: TypeAlias = "int | Binary"


def parse_plan(text: str, names: Sequence[str]) -> Binary:
    """Returns the tree of a plan over all streams of these names, three or more. Raises PlanError.

    >>> parse_plan("((a b) c)", ["c", "a", "b"])
    Binary(left=Binary(left=1, right=2), right=0)
    """
    if len(names) < 3:
        raise PlanError("got fewer than three streams: two have only one plan")
    parser = _Parser(text, names)
    plan = parser.plan()
    if parser.rest:
        raise PlanError(f"got {parser.rest[0]!r} behind the whole plan: wanted one pair of brackets around it")
    found = list(members_of(plan))
    for number, name in enumerate(names):
        if found.count(number) != 1:
            times = "missing" if number not in found else "there more than once"
            raise PlanError(f"stream {name} is {times}: wanted each stream once")
    assert isinstance(plan, Binary)  # over three streams or more
    return plan


def members_of(plan: Plan) -> Iterator[int]:
    """Yields the numbers of a plan's streams from left to right."""
    if isinstance(plan, int):
        yield plan
    else:
        yield from members_of(plan.left)
        yield from members_of(plan.right)


def text_of(plan: Plan, names: Sequence[str]) -> str:
    """Returns a plan as it is written.

    >>> text_of(Binary(Binary(1, 2), 0), ["c", "a", "b"])
    '((a b) c)'
    """
    if isinstance(plan, int):
        return names[plan]
    return f"({text_of(plan.left, names)} {text_of(plan.right, names)})"


class _Parser:
    def __init__(self, text: str, names: Sequence[str]):
        self.rest: list[str] = re.findall(r"[()]|[^\s()]+", text)
        self._names = list(names)

    def plan(self) -> Plan:
        first = self._next()
        if first == ")":
            raise PlanError("got ')' where a stream or '(' was wanted")
        if first != "(":
            if first not in self._names:
                raise PlanError(f"got {first!r}, wanted one of the streams {' '.join(self._names)}")
            return self._names.index(first)
        both = self.plan(), self.plan()
        if (last := self._next()) != ")":
            raise PlanError(f"got {last!r} where ')' was wanted: each pair of brackets joins two, as in '((a b) c)'")
        return Binary(*both)

    def _next(self) -> str:
        if not self.rest:
            raise PlanError("it ends too early: wanted two streams or joins between each pair of brackets")
        return self.rest.pop(0)
