"""Time as the cores of master and slave get it: an event that says how late it is, and what they may answer."""

from __future__ import annotations

from mpijoin.named import NamedTuple


class Ticked(NamedTuple):
    """The run has come to this second. A runtime says so before it asks what to do next."""

    now_s: float


class Rest(NamedTuple):
    """There is nothing to do for so many seconds, unless something arrives before; inf: until something arrives."""

    seconds: float
