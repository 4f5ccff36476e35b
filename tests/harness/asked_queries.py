"""Several queries over the same two streams: random ones, and the oracle's answer to each."""

from dataclasses import replace
from typing import NamedTuple

import oracle
from engine_harness import expect, expected_rows
from mpijoin.join.marks import MARKS

# A condition that `holds` knows, too. It is about times, which all streams have.
CONDITION = "right.time - left.time <= '3 ms'"
QUERIES_MAX = 6
ALONE = {(): "inner", (0,): "left", (1,): "right", (0, 1): "full"}


def holds(left_ns, right_ns):
    """Whether CONDITION does."""
    return right_ns - left_ns <= 3 * 10**6


class AskedQuery(NamedTuple):
    """One query. windows_ns: None where it has that of the stream."""

    name: str
    kind: str
    match: str
    has_condition: bool
    windows_ns: tuple
    counts: bool

    def table(self, sides):
        """The table of a job file."""
        windows = {side.name: f"{ns} ns" for side, ns in zip(sides, self.windows_ns) if ns is not None}
        chosen = {"reduce": {"n": "count()"}} if self.match == "count" else {"match": self.match}
        own = {"windows": windows, **({"where": CONDITION} if self.has_condition else {})}
        own |= {"results": "count"} if self.counts else {}
        return {"name": self.name, "type": self.kind, **chosen, **own}

    def narrowed(self, sides):
        """The streams as this query sees them."""
        return tuple(
            side if ns is None else replace(side, window_ns=ns) for side, ns in zip(sides, self.windows_ns)
        )


def random_queries(chance, sides):
    """Returns two or more queries, of any kinds."""
    return tuple(_random(chance, f"q{number}", sides) for number in range(chance.randint(2, QUERIES_MAX)))


def _random(chance, name, sides):
    kind = chance.choice(["inner", "left", *MARKS])
    match = chance.choice(["all", "all", "count", *oracle.RANKS]) if kind in ("inner", "left") else "all"
    windows = tuple(_narrower(chance, side.window_ns) for side in sides)
    return AskedQuery(name, kind, match, chance.random() < 0.4, windows, chance.random() < 0.3)


def _narrower(chance, window_ns):
    if chance.random() < 0.4:
        return None
    return chance.choice([0, 10**6 * 20]) if window_ns is None else int(window_ns * chance.choice([0, 0.1, 0.5, 1]))


def expect_each(sides, queries):
    """Returns {name: what is expected of this query}, and what is expected of the streams."""
    each = {}
    for one in queries:
        condition = holds if one.has_condition else None
        each[one.name] = expect(*one.narrowed(sides), kind=one.kind, holds=condition, match=one.match)
    alone = tuple(sorted({side for one in queries for side in oracle.ALONE.get(one.kind, ())}))
    return each, expect(*sides, kind=ALONE[alone])


def check_each(summary, each):
    """Checks results and certificate of each query in the summary of a run, and of all together."""
    wanted = {name: {"results": one.pairs.total(), "certificate": one.certificate} for name, one in each.items()}
    assert summary["queries"] == wanted
    assert summary["results"] == sum(one.pairs.total() for one in each.values())
    certificate = sum(int(one.certificate, 16) for one in each.values()) & oracle.MASK
    assert summary["certificate"] == f"{certificate:016x}"


def rows_of_each(sides, queries, each):
    """Returns {name: Counter of the whole result rows} of those queries whose results are written."""
    return {
        one.name: expected_rows(sides, each[one.name], one.kind)
        for one in queries
        if not one.counts
    }
