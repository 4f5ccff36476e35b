"""The hand-over of a group: every event in every state, legal or refused by name, and from whom it may come."""

from itertools import product

import pytest

from mpijoin.errors import ProtocolError
from mpijoin.moving import handover
from mpijoin.moving.handover import advance

STATES = ["shipping", "frozen", "dropping", "restoring", "refusing", "cancelling", "moved", "refused", "cancelled"]
EVENTS = ["shipped", "installed", "refused", "dropped", "restored", "cancel"]

LEGAL = {
    ("shipping", "shipped"): ("frozen", ("hold", "freeze")),
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
}


@pytest.mark.parametrize("state, event", list(product(STATES, EVENTS)))
def test_every_event_in_every_state_is_carried_out_or_refused_by_name(state, event):
    if (state, event) in LEGAL:
        assert advance(7, state, event) == LEGAL[state, event]
        return
    with pytest.raises(ProtocolError) as error:
        advance(7, state, event)
    legal = [f"'{other}'" for own, other in LEGAL if own == state]
    assert str(error.value) == f"move 7 is {state} and got {event!r}, wanted {' or '.join(legal) or 'nothing more'}"


def test_the_table_has_no_other_states_or_events():
    assert dict(handover.TRANSITIONS) == LEGAL
    assert {state for one in LEGAL.items() for state in (one[0][0], one[1][0])} == set(STATES)
    assert {*handover.BY_SUPPLIER, *handover.BY_CONSUMER, handover.CANCEL} == set(EVENTS)


def paths(state, seen=()):
    """Every way from a state to an end, without going round."""
    onward = [(event, after) for (own, event), (after, _) in LEGAL.items() if own == state and after != state]
    if not onward:
        yield (*seen, state)
    for event, after in onward:
        yield from paths(after, (*seen, state, event))


def test_every_way_ends_and_delivers_what_it_held():
    ways = list(paths("shipping"))
    assert len(ways) == 4 and all(way[-1] in handover.CLOSED for way in ways)
    for way in ways:
        acts = [act for at in range(0, len(way) - 1, 2) for act in LEGAL[way[at], way[at + 1]][1]]
        assert acts.count("hold") == sum(act.startswith("deliver") for act in acts)
        assert acts.count("close") == 1 and acts[-1] == "close"
        ends = {"moved": ["freeze", "drop"], "refused": ["restore"], "cancelled": ["restore"]}
        assert [act for act in acts if act in ("freeze", "drop", "restore")][-1] == ends[way[-1]][-1]


def test_the_group_is_joined_by_one_side_at_most():
    """Who joins it, by state: nobody between freeze and the delivery that follows."""
    joins = dict.fromkeys(STATES, "supplier") | {
        "frozen": None,
        "restoring": None,
        "dropping": "consumer",
        "moved": "consumer",
    }
    for (state, _), (after, acts) in LEGAL.items():
        if joins[state] != joins[after]:
            assert None in (joins[state], joins[after]), f"from {state} to {after} at once"
            assert ("hold" in acts) == (joins[after] is None)
            assert (f"deliver to {joins[after]}" in acts) == (joins[after] is not None)
