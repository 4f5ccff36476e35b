"""Members of a group that is spread come and go: the transition tables, in whatever order messages come."""

from collections import deque
from itertools import product
from typing import NamedTuple

import pytest

from mpijoin.errors import ProtocolError
from mpijoin.moving import consumer, coordinator, spreading, steps

LEGAL = {
    ("begun", "spread"): ("aligning", ("align",)),
    ("aligning", "installed"): ("dealing", ("deal",)),
    ("aligning", "refused"): ("restoring", ("restore",)),
    ("dealing", "dealt"): ("moved", ("deliver to members", "close")),
    ("restoring", "restored"): ("refused", ("deliver to members", "close")),
    ("begun", "gather"): ("gathering", ("align both",)),
    ("gathering", "dropped"): ("taking", ()),
    ("gathering", "installed"): ("dropping", ()),
    ("taking", "installed"): ("moved", ("deliver to members", "close")),
    ("dropping", "dropped"): ("moved", ("deliver to members", "close")),
}
SLAVE = {
    "spread": {
        ("unknown", "aligned"): "sending",
        ("sending", "whole sent"): "sent",
        ("sending", "restore"): "done",
        ("sent", "deal"): "done",
        ("sent", "restore"): "done",
    },
    "give": {("unknown", "aligned"): "done"},
    "take": {
        ("unknown", "aligned"): "ready",
        ("unknown", "arrived"): "came",
        ("ready", "arrived"): "whole",
        ("came", "aligned"): "whole",
        ("whole", "taken"): "done",
    },
}
PARTIES = {"": LEGAL} | {f" at its slave of {step!r}": legal for step, legal in SLAVE.items()}


def advance(at, state, event):
    step = next((step for step in SLAVE if repr(step) in at), None)
    return spreading.advance_slave(step, 7, state, event) if step else spreading.advance(7, state, event)


def every_pair():
    for at, legal in PARTIES.items():
        states = {state for state, _ in legal} | {then if isinstance(then, str) else then[0] for then in legal.values()}
        yield from ((at, *pair) for pair in product(sorted(states), sorted({event for _, event in legal})))


@pytest.mark.parametrize("at, state, event", list(every_pair()))
def test_every_event_in_every_state_is_carried_out_or_refused_by_name(at, state, event):
    legal = PARTIES[at]
    if (state, event) in legal:
        assert advance(at, state, event) == legal[state, event]
        return
    with pytest.raises(ProtocolError) as error:
        advance(at, state, event)
    wanted = " or ".join(repr(other) for own, other in legal if own == state) or "nothing more"
    assert str(error.value) == f"move 7 is {state}{at} and got {event!r}, wanted {wanted}"


def test_the_tables_have_no_other_states_or_events():
    assert dict(spreading.TRANSITIONS) == LEGAL and spreading.SLAVE == SLAVE


def test_whatever_is_held_back_is_delivered_once_and_then_the_move_is_closed():
    held = {"align", "align both"}
    for start in ("spread", "gather"):
        state, acts = LEGAL["begun", start]
        ways = [(state, acts)]
        while ways:
            state, acts = ways.pop()
            onward = [LEGAL[pair] for pair in LEGAL if pair[0] == state]
            if not onward:
                assert state in coordinator.CLOSED and acts[-2:] == ("deliver to members", "close")
                assert sum(act in held for act in acts) == acts.count("deliver to members") == 1
            ways += [(then, acts + more) for then, more in onward]


class Change(NamedTuple):
    """A change as all parties see it, with what is under way. Each pair of ranks keeps the order, and there are two
    producers."""

    kind: str = ""
    state: str = "begun"
    supplier: str = "unknown"
    consumer: str = "unknown"
    to_supplier: tuple[int, int] = (0, 0)  # For each producer, 1: its slot is under way, 2: it is joined.
    to_consumer: tuple[int, int] = (0, 0)
    orders: tuple[str, ...] = ()
    reports: tuple[str, ...] = ()  # of the supplier
    answers: tuple[str, ...] = ()  # of the consumer
    parts: tuple[str, ...] = ()  # from supplier to consumer
    delivered: bool = False


def coordinated(change, event, **changes):
    state, acts = spreading.advance(7, change.state, event)
    orders = tuple(act for act in acts if act in ("deal", "restore"))
    changes = {"state": state, "orders": change.orders + orders} | changes
    for act in acts:
        if act in spreading.SAID:
            both = spreading.SAID[act][1]
            changes |= {"to_supplier": (1, 1), "to_consumer": (1, 1) if both else (0, 0)}
        changes |= {"delivered": True} if act == "deliver to members" else {}
    return change._replace(**changes)


def joined(change, side):
    """Yields what follows when a slave joins the slot of one of the producers."""
    slots = getattr(change, f"to_{side}")
    for producer in range(2):
        if slots[producer] != 1:
            continue
        now = tuple(2 if at == producer else slot for at, slot in enumerate(slots))
        after = change._replace(**{f"to_{side}": now})
        yield aligned(after, side) if now == (2, 2) else after


def aligned(change, side):
    if side == "consumer":
        state = spreading.advance_slave("take", 7, change.consumer, "aligned")
        return change._replace(consumer=state)
    step = {"spread": "spread", "gather": "give"}[change.kind]
    state = spreading.advance_slave(step, 7, change.supplier, "aligned")
    if change.kind == "spread":
        return change._replace(supplier=state)
    return change._replace(supplier=state, parts=("portion", "rest"), reports=(*change.reports, "dropped"))


def sent(change):
    """Yields what follows when the supplier sends one more portion of the group, and when this is the last one."""
    if "portion" not in change.parts:
        yield change._replace(parts=(*change.parts, "portion"))
    state = spreading.advance_slave("spread", 7, change.supplier, "whole sent")
    yield change._replace(supplier=state, parts=(*change.parts, "rest"))


def ordered(change):
    order, *rest = change.orders
    state = spreading.advance_slave("spread", 7, change.supplier, order)
    parts = change.parts + (("cancel",) if order == "restore" else ())
    report = {"deal": "dealt", "restore": "restored"}[order]
    return change._replace(supplier=state, orders=tuple(rest), parts=parts, reports=(*change.reports, report))


def arrived(change):
    part, rest = change.parts[0], change.parts[1:]
    if change.kind == "spread":
        return change._replace(consumer=consumer.advance(7, change.consumer, part), parts=rest)
    state = change.consumer if part == "portion" else spreading.advance_slave("take", 7, change.consumer, "arrived")
    return change._replace(consumer=state, parts=rest)


def what_may_follow(change):
    if change.state == "begun":
        for kind in ("spread", "gather"):
            yield coordinated(change._replace(kind=kind), kind)
        return
    yield from joined(change, "supplier")
    yield from joined(change, "consumer")
    if change.supplier == "sending":
        yield from sent(change)
    if change.orders:
        yield ordered(change)
    if change.reports:
        yield coordinated(change, change.reports[0], reports=change.reports[1:])
    if change.answers:
        yield coordinated(change, change.answers[0], answers=change.answers[1:])
    if change.parts:
        yield arrived(change)
    if change.consumer == "whole":
        event = {"spread": "install", "gather": "taken"}[change.kind]
        yield change._replace(consumer=took(change, event), answers=(*change.answers, "installed"))
    if change.kind == "spread" and change.consumer in ("staging", "whole"):
        yield change._replace(consumer=took(change, "no room"), answers=(*change.answers, "refused"))


def took(change, event):
    if change.kind == "spread":
        return consumer.advance(7, change.consumer, event)
    return spreading.advance_slave("take", 7, change.consumer, event)


def every_change():
    seen, ahead = {Change()}, deque([Change()])
    while ahead:
        ahead.extend(new := set(what_may_follow(ahead.popleft())) - seen)
        seen |= new
    return seen


def test_in_whatever_order_messages_arrive_no_party_is_told_what_it_does_not_expect():
    seen = every_change()
    ends = {(one.kind, one.state, one.supplier, one.consumer) for one in seen if not list(what_may_follow(one))}
    assert ends == {
        ("spread", "moved", "done", "installed"),
        ("spread", "refused", "done", "cancelled"),
        ("gather", "moved", "done", "done"),
    }


def test_nothing_that_was_held_back_is_delivered_before_each_slave_has_joined_what_was_not():
    """And before each holds what it is to hold."""
    for one in every_change():
        if one.delivered:
            assert one.to_supplier == (2, 2) and one.to_consumer in ((0, 0), (2, 2)) and one.supplier == "done", one
            assert one.consumer in ("installed", "done") or one.state == "refused", one


PAIRS = [(spreading.TRANSITIONS, pair) for pair in spreading.TRANSITIONS]
PAIRS += [(table, pair) for table in spreading.SLAVE.values() for pair in table]


@pytest.mark.parametrize("table, pair", PAIRS)
def test_no_line_of_a_table_is_there_in_vain(table, pair, monkeypatch):
    monkeypatch.delitem(table, pair)
    with pytest.raises(ProtocolError):
        every_change()


def test_who_says_what():
    assert {steps.DEALT, steps.DROPPED, steps.RESTORED} <= {*steps.BY_SUPPLIER}
    assert {steps.INSTALLED, steps.REFUSED} <= {*steps.BY_CONSUMER}
