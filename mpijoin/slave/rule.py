"""When a slave spills."""

from __future__ import annotations

from mpijoin.named import NamedTuple


class SpillRule(NamedTuple):
    """When state goes to disk, and how much of it (LAD, section 3).

    threshold: the share of the memory above which spilling begins · share: so much of what is held goes at once ·
    ranking: which groups go first · page_bytes: of a page · idle: whether a slave takes up what is owed before the
    input has ended, if it has nothing else to do · rotates: groups on disk are activated in turn (Flux, section 6.1),
    and nothing is cleaned up.
    """

    threshold: float
    share: float
    ranking: str
    page_bytes: int
    idle: bool
    rotates: bool = False
