"""Faults on purpose, to see how a run copes with them."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Mapping

from mpijoin.named import NamedTuple

NOTHING: Mapping[Any, Any] = MappingProxyType({})


class Slowdown(NamedTuple):
    """A slave joins at `share` of its speed, 0 < share <= 1, from `start_ns` to `end_ns` (None: the end) of the run."""

    rank: int
    share: float
    start_ns: int = 0
    end_ns: int | None = None


class Delay(NamedTuple):
    """What a rank receives reaches it `by_ns` late, from `start_ns` to `end_ns` (None: the end) of the run."""

    rank: int
    by_ns: int
    start_ns: int = 0
    end_ns: int | None = None


class Pressure(NamedTuple):
    """A slave has `limit_bytes` of memory for its windows at most, from `start_ns` to `end_ns` (None: the end) of the
    run."""

    rank: int
    limit_bytes: int
    start_ns: int = 0
    end_ns: int | None = None


Injection = Slowdown | Delay | Pressure


def holds_at(injection: Injection, now_ns: float) -> bool:
    """Whether the injection is in force at this moment of the run."""
    return injection.start_ns <= now_ns and (injection.end_ns is None or now_ns < injection.end_ns)


class Inject(NamedTuple):
    """Faults on purpose, to see how a run copes with them."""

    slow: tuple[Slowdown, ...] = ()
    delay: tuple[Delay, ...] = ()
    memory: tuple[Pressure, ...] = ()
    hash_bits: int = 64  # key hashes keep this many bits: few of them force collisions
    fail: Mapping[int, int] = NOTHING  # rank -> first epoch whose message makes it raise an error
    kill: Mapping[int, int] = NOTHING  # the same, but it is killed (SIGKILL); not in a resumed run
