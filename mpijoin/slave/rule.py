"""When a slave spills."""

from __future__ import annotations

from typing import NamedTuple


class SpillRule(NamedTuple):
    """When state goes to disk, and how much of it (LAD, section 3).

    threshold: the share of the memory above which spilling begins · share: so much of what is held goes at once ·
    ranking: which groups go first · page_bytes: of a page · idle: whether clean-ups begin before the input has ended ·
    rotates: groups on disk are activated in turn (Flux, section 6.1), and nothing is cleaned up.
    """

    threshold: float
    share: float
    ranking: str
    page_bytes: int
    idle: bool
    rotates: bool = False
