"""What the parties of a hand-over say to each other, and how their transition tables are followed."""

from __future__ import annotations

from typing import Mapping, TypeVar

from mpijoin.config.moves import MSLB, PRECOPY
from mpijoin.errors import ProtocolError

After = TypeVar("After")

# What the coordinator orders the supplier to do. A move begins with the order that `FIRST` has for its kind.
SHIP, FREEZE, DROP, RESTORE = "ship", "freeze", "drop", "restore"
FIRST = {PRECOPY: SHIP, MSLB: FREEZE}
USUAL = PRECOPY

# What the slaves report to the coordinator, and which of them may say it.
SHIPPED, INSTALLED, DROPPED, RESTORED, REFUSED = "shipped", "installed", "dropped", "restored", "refused"
BY_SUPPLIER, BY_CONSUMER = (SHIPPED, DROPPED, RESTORED), (INSTALLED, REFUSED)


def follow(
    table: Mapping[tuple[str, str], After], number: int, state: str, event: str, party: str = "", what: str = "move"
) -> After:
    """What a table says of an event in a state. ProtocolError: nothing; it names what it is about, with its number, the
    party, the state and the event."""
    if (state, event) not in table:
        wanted = " or ".join(repr(legal) for own, legal in table if own == state) or "nothing more"
        at = f" at its {party}" if party else ""
        raise ProtocolError(f"{what} {number} is {state}{at} and got {event!r}, wanted {wanted}")
    return table[state, event]
