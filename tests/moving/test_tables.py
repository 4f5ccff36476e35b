"""The hand-over of a group.

Every event in every state of each party is legal, or refused by name. The tests also follow the three tables through
every order in which messages can arrive.
"""

from collections import deque
from itertools import product
from typing import NamedTuple

import pytest

from mpijoin.config.moves import MOVES, PTLB
from mpijoin.errors import ProtocolError
from mpijoin.moving import consumer, coordinator, steps, supplier

STATES = [
    "begun", "shipping", "frozen", "dropping", "restoring", "refusing", "cancelling", "moved", "refused", "cancelled",
    "doubled", "deleting", "keeping", "undoing", "discarding",
]  # fmt: skip
EVENTS = [
    "precopy", "mslb", "ptlb", "shipped", "installed", "refused", "dropped", "restored", "all old purged", "discarded",
    "cancel",
]  # fmt: skip

LEGAL = {
    ("begun", "precopy"): ("shipping", ("ship",)),
    ("begun", "mslb"): ("frozen", ("pause",)),
    ("shipping", "shipped"): ("frozen", ("pause",)),
    ("shipping", "refused"): ("refusing", ("restore",)),
    ("shipping", "cancel"): ("cancelling", ("restore",)),
    ("frozen", "installed"): ("dropping", ("deliver to consumer", "drop")),
    ("frozen", "refused"): ("restoring", ("restore",)),
    ("dropping", "dropped"): ("moved", ("close",)),
    ("restoring", "restored"): ("refused", ("deliver to supplier", "close")),
    ("refusing", "shipped"): ("refusing", ()),
    ("refusing", "restored"): ("refused", ("close",)),
    ("cancelling", "shipped"): ("cancelling", ()),
    ("cancelling", "refused"): ("cancelling", ()),
    ("cancelling", "restored"): ("cancelled", ("close",)),
    ("cancelled", "refused"): ("cancelled", ()),
    ("begun", "ptlb"): ("doubled", ("duplicate",)),
    ("doubled", "all old purged"): ("deleting", ("consumer keeps",)),
    ("doubled", "refused"): ("undoing", ("supplier keeps",)),
    ("doubled", "cancel"): ("undoing", ("supplier keeps",)),
    ("deleting", "refused"): ("deleting", ()),
    ("deleting", "installed"): ("dropping", ()),
    ("deleting", "dropped"): ("keeping", ()),
    ("keeping", "refused"): ("keeping", ()),
    ("keeping", "installed"): ("moved", ("close",)),
    ("undoing", "all old purged"): ("undoing", ()),
    ("undoing", "refused"): ("undoing", ()),
    ("undoing", "discarded"): ("cancelling", ()),
    ("undoing", "restored"): ("discarding", ()),
    ("cancelling", "all old purged"): ("cancelling", ()),
    ("discarding", "refused"): ("discarding", ()),
    ("discarding", "discarded"): ("cancelled", ("close",)),
}
SUPPLIER = {
    ("unknown", "ship"): "shipping",
    ("unknown", "freeze"): "sending",
    ("shipping", "ready"): "shipped",
    ("shipping", "restore"): "kept",
    ("shipped", "freeze"): "frozen",
    ("shipped", "restore"): "kept",
    ("sending", "ready"): "frozen",
    ("sending", "restore"): "kept",
    ("frozen", "drop"): "gone",
    ("frozen", "restore"): "kept",
    ("unknown", "duplicate"): "doubled",
    ("doubled", "purge"): "purged",
    ("doubled", "keep"): "kept",
    ("purged", "keep"): "kept",
    ("purged", "leave"): "gone",
}
CONSUMER = {
    ("unknown", "portion"): "staging",
    ("unknown", "rest"): "whole",
    ("unknown", "cancel"): "cancelled",
    ("staging", "portion"): "staging",
    ("staging", "rest"): "whole",
    ("staging", "no room"): "refused",
    ("staging", "cancel"): "cancelled",
    ("whole", "install"): "installed",
    ("whole", "no room"): "refused",
    ("refused", "portion"): "refused",
    ("refused", "rest"): "refused",
    ("refused", "cancel"): "cancelled",
    ("unknown", "copy"): "doubled",
    ("doubled", "no room"): "refused",
    ("doubled", "keep"): "installed",
    ("doubled", "leave"): "cancelled",
    ("refused", "keep"): "installed",
    ("refused", "leave"): "cancelled",
}
# What each producer says to the supplier and to the consumer, behind all rows for which it did not hold yet.
SAID = {
    "duplicate": ("duplicate", "copy"), "consumer keeps": ("leave", "keep"), "supplier keeps": ("keep", "leave"),
}  # fmt: skip
PARTIES = {"": (coordinator, LEGAL), " at its supplier": (supplier, SUPPLIER), " at its consumer": (consumer, CONSUMER)}


def after(outcome):
    """Returns the state that follows. Only the coordinator's table says more than that."""
    return outcome if isinstance(outcome, str) else outcome[0]


def every_pair():
    for at, (_, legal) in PARTIES.items():
        states = {state for state, _ in legal} | {after(outcome) for outcome in legal.values()}
        yield from ((at, *pair) for pair in product(sorted(states), sorted({event for _, event in legal})))


@pytest.mark.parametrize("at, state, event", list(every_pair()))
def test_every_event_in_every_state_is_carried_out_or_refused_by_name(at, state, event):
    party, legal = PARTIES[at]
    if (state, event) in legal:
        assert party.advance(7, state, event) == legal[state, event]
        return
    with pytest.raises(ProtocolError) as error:
        party.advance(7, state, event)
    wanted = " or ".join(repr(other) for own, other in party.TRANSITIONS if own == state) or "nothing more"
    assert str(error.value) == f"move 7 is {state}{at} and got {event!r}, wanted {wanted}"


@pytest.mark.parametrize("at", PARTIES)
def test_the_tables_have_no_other_states_or_events(at):
    party, legal = PARTIES[at]
    assert dict(party.TRANSITIONS) == legal


def test_the_coordinator_knows_who_says_what():
    assert {state for pair, outcome in LEGAL.items() for state in (pair[0], outcome[0])} == set(STATES)
    said = {*steps.BY_SUPPLIER, *steps.BY_CONSUMER} - {steps.DEALT}  # It is said of groups that are spread.
    assert {*MOVES, *said, coordinator.CANCEL} == set(EVENTS)
    assert steps.FIRST.keys() == set(MOVES) - {PTLB}, "by PTLB, nobody orders anything beside the slots"
    said = {steps.SHIP, steps.FREEZE, *(act for _, acts in LEGAL.values() for act in acts)}
    said |= {step for act in said & SAID.keys() for step in SAID[act]}
    assert said >= {order for _, order in SUPPLIER} - {supplier.READY, supplier.PURGE}


def paths(state, seen=()):
    """Yields every way from a state to an end that does not go in circles."""
    onward = [(event, then) for (own, event), (then, _) in LEGAL.items() if own == state and then != state]
    if not onward:
        yield (*seen, state)
    for event, then in onward:
        yield from paths(then, (*seen, state, event))


def test_every_way_ends_and_delivers_what_it_held():
    ways = list(paths("begun"))
    assert len(ways) == 12 and all(way[-1] in coordinator.CLOSED for way in ways)
    for way in ways:
        acts = [act for at in range(0, len(way) - 1, 2) for act in LEGAL[way[at], way[at + 1]][1]]
        assert acts.count("pause") == sum(act.startswith("deliver") for act in acts)
        assert acts.count("close") == 1 and acts[-1] == "close"
        if "doubled" in way:  # One of the two keeps it.
            keeps = {"moved": "consumer keeps", "cancelled": "supplier keeps"}
            assert acts == ["duplicate", keeps[way[-1]], "close"]
            continue
        ends = {"moved": ["drop"], "refused": ["restore"], "cancelled": ["restore"]}
        assert [act for act in acts if act in ("drop", "restore")][-1] == ends[way[-1]][-1]


def test_the_group_is_joined_by_one_side_at_most():
    """The state tells who joins it. Between the freeze and the delivery that follows, nobody does. By PTLB both do."""
    doubled = {"doubled", "deleting", "keeping", "undoing", "discarding"}
    joins = dict.fromkeys(STATES, "supplier") | {
        "frozen": None,
        "restoring": None,
        "dropping": "consumer",
        "moved": "consumer",
    }
    for (state, _), (then, acts) in LEGAL.items():
        if not doubled & {state, then} and joins[state] != joins[then]:
            assert None in (joins[state], joins[then]), f"from {state} to {then} at once"
            assert ("pause" in acts) == (joins[then] is None)
            assert (f"deliver to {joins[then]}" in acts) == (joins[then] is not None)


class Move(NamedTuple):
    """A move as all three parties see it, and what is under way between them. Each pair of ranks keeps the order."""

    # These are the states of the coordinator, the supplier and the consumer.
    states: tuple[str, str, str] = ("begun", "unknown", "unknown")
    orders: tuple[str, ...] = ()
    reports: tuple[str, ...] = ()  # The supplier sends these.
    answers: tuple[str, ...] = ()  # The consumer sends these.
    parts: tuple[str, ...] = ()  # These go from the supplier to the consumer.
    told: tuple[str, ...] = ()  # A producer says these to the consumer.
    portions: int = 2  # There may still be so many.

    def enters(self, party, state, **changes):
        states = [state if at == party else own for at, own in enumerate(self.states)]
        return self._replace(states=tuple(states), **changes)


def coordinated(move, event, **changes):
    state, acts = coordinator.advance(7, move.states[0], event)
    acts = ["freeze" if act == "pause" else act for act in acts]  # Each producer says it then.
    orders = tuple(act for act in acts if act not in SAID and any(order == act for _, order in SUPPLIER))
    said = [SAID[act] for act in acts if act in SAID]
    orders, told = move.orders + orders + tuple(one for one, _ in said), move.told + tuple(one for _, one in said)
    return move.enters(0, state, **{"orders": orders, "told": told, **changes})


def supplied(move, event, **changes):
    before, state = move.states[1], supplier.advance(7, move.states[1], event)
    parts = ("rest",) if state == "frozen" else {"restore": ("cancel",)}.get(event, ())
    shipped = ("shipped",) * (before == "shipping")
    reports = {"ready": shipped, "drop": ("dropped",), "restore": ("restored",)}.get(event, ())
    reports += {"purge": ("all old purged",), "keep": ("restored",), "leave": ("dropped",)}.get(event, ())
    return move.enters(1, state, **{**changes, "parts": move.parts + parts, "reports": move.reports + reports})


def consumed(move, event, **changes):
    answers = {"install": ("installed",), "no room": ("refused",)}.get(event, ())
    answers += {"keep": ("installed",), "leave": ("discarded",)}.get(event, ())
    return move.enters(2, consumer.advance(7, move.states[2], event), **{**changes, "answers": move.answers + answers})


def what_may_follow(move):
    """Yields every move that one event makes of this one.

    The event is that something under way arrives, or that a party acts of its own accord.
    """
    if move.orders:
        yield supplied(move, move.orders[0], orders=move.orders[1:])
    if move.reports:
        yield coordinated(move, move.reports[0], reports=move.reports[1:])
    if move.answers:
        yield coordinated(move, move.answers[0], answers=move.answers[1:])
    if move.parts:
        yield consumed(move, move.parts[0], parts=move.parts[1:])
    if move.told:
        yield consumed(move, move.told[0], told=move.told[1:])
    own, shipping, staging = move.states
    if own == "begun":
        yield from (coordinated(move, kind) for kind in MOVES)
    if own in ("shipping", "doubled"):
        yield coordinated(move, "cancel")
    if shipping in ("shipping", "sending") and move.portions:
        yield move._replace(parts=(*move.parts, "portion"), portions=move.portions - 1)
    if shipping in ("shipping", "sending"):
        yield supplied(move, "ready")
    if shipping == "doubled":
        yield supplied(move, "purge")
    if staging in ("staging", "whole", "doubled"):
        yield consumed(move, "no room")
    if staging == "whole":
        yield consumed(move, "install")


def every_move():
    """Returns all that a move can become, in whatever order messages come. Raises ProtocolError if a table refuses."""
    seen, ahead = {Move()}, deque([Move()])
    while ahead:
        ahead.extend(new := set(what_may_follow(ahead.popleft())) - seen)
        seen |= new
    return seen


def test_in_whatever_order_messages_arrive_no_party_is_told_what_it_does_not_expect():
    seen = every_move()
    ends = {move.states for move in seen if not any(True for _ in what_may_follow(move))}
    refused, cancelled = (("refused", "kept", "cancelled"), ("cancelled", "kept", "cancelled"))
    assert ends == {("moved", "gone", "installed"), refused, cancelled}
    for at, (_, legal) in enumerate(PARTIES.values()):
        states = {state for state, _ in legal} | {after(outcome) for outcome in legal.values()}
        assert {move.states[at] for move in seen} == states


def test_in_whatever_order_messages_arrive_at_most_one_slave_joins_the_group():
    """The supplier joins it until it has frozen it, and again if it keeps it. The consumer joins it once installed. By
    PTLB the supplier is "purged" when the consumer may be the only one."""
    for move in every_move():
        _, shipping, staging = move.states
        assert not (shipping in ("shipping", "shipped", "kept", "doubled") and staging == "installed"), move


@pytest.mark.parametrize("party, pair", [(party, pair) for party, _ in PARTIES.values() for pair in party.TRANSITIONS])
def test_no_line_of_a_table_is_there_in_vain(party, pair, monkeypatch):
    monkeypatch.delitem(party.TRANSITIONS, pair)
    with pytest.raises(ProtocolError):
        every_move()
