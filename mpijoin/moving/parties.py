"""A hand-over as its supplier sees it: which orders are legal when, as a transition table."""

from __future__ import annotations

from mpijoin.errors import ProtocolError
from mpijoin.moving.handover import DROP, FREEZE, RESTORE, SHIP

UNKNOWN, SHIPPING, SHIPPED, FROZEN, GONE, KEPT = "unknown", "shipping", "shipped", "frozen", "gone", "kept"
READY = "ready"  # the supplier's own: what is left fits one portion

TRANSITIONS = {
    (UNKNOWN, SHIP): SHIPPING,
    (SHIPPING, READY): SHIPPED,
    (SHIPPED, FREEZE): FROZEN,
    (FROZEN, DROP): GONE,
    (SHIPPING, RESTORE): KEPT,
    (SHIPPED, RESTORE): KEPT,
    (FROZEN, RESTORE): KEPT,
}


def advance(move: int, state: str, order: str) -> str:
    """The supplier's next state. ProtocolError names an order that is illegal in this one."""
    if (state, order) not in TRANSITIONS:
        wanted = " or ".join(repr(order) for own, order in TRANSITIONS if own == state) or "nothing more"
        raise ProtocolError(f"move {move} is {state} at its supplier and got {order!r}, wanted {wanted}")
    return TRANSITIONS[state, order]
