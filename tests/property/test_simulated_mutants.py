"""The seeds of the simulated engine notice what they are for: each of these faults is caught by one of a few of
them."""

import itertools
import tempfile

import numpy as np
import pytest

import mpijoin.producer.feed
from mpijoin.join.window_join import WindowJoin
from mpijoin.messages import Slot
from mpijoin.moving import steps
from mpijoin.operators.base import Progress
from mpijoin.partitioning.buffers import MiniBuffers
from mpijoin.slave.inputs import Inputs
from mpijoin.slave.moving import Mover
from mpijoin.store.state import GROUP_STREAM_WORDS, WATERMARK
from simulated_engine import run_scenario, scenario

# Each fault is caught by one of them. Only the first sees watermarks that are forgotten.
SEEDS = (158, 55, *range(60))
EARLY_MS = 3


def reordered_held_rows(monkeypatch):
    deliver = MiniBuffers.deliver

    def reversed_first(buffers, group, slave):
        buffers._held.get(group, []).reverse()
        return deliver(buffers, group, slave)

    monkeypatch.setattr(MiniBuffers, "deliver", reversed_first)


def noted(join, groups, watermarks):
    """The groups' watermarks after this call, as they should be."""
    return np.maximum(join._table.groups[groups, WATERMARK :: GROUP_STREAM_WORDS], watermarks)


def early_expiry(monkeypatch):
    expire = WindowJoin.expire

    def too_far(join, groups, watermarks, out):
        should = noted(join, groups, watermarks)
        progress = expire(join, groups, np.minimum(watermarks, (1 << 63) - 1 - EARLY_MS) + EARLY_MS, out)
        join._table.groups[groups, WATERMARK :: GROUP_STREAM_WORDS] = should
        return progress

    monkeypatch.setattr(WindowJoin, "expire", too_far)


def skipped_expiry(monkeypatch):
    expire, turns = WindowJoin.expire, itertools.count()

    def every_second(join, groups, watermarks, out):
        if next(turns) % 2:
            return expire(join, groups, watermarks, out)
        join._table.groups[groups, WATERMARK :: GROUP_STREAM_WORDS] = noted(join, groups, watermarks)
        return Progress.DONE

    monkeypatch.setattr(WindowJoin, "expire", every_second)


def watermarks_that_go_back(monkeypatch):
    turns = itertools.count()

    def slot(producer, epoch, watermarks, *rest, **fields):
        back = 50 if next(turns) % 3 == 2 else 0
        return Slot(producer, epoch, tuple(max(one - back, -(1 << 63)) for one in watermarks), *rest, **fields)

    monkeypatch.setattr(mpijoin.producer.feed, "Slot", slot)


def watermarks_that_are_forgotten(monkeypatch):
    expire = WindowJoin.expire

    def without_maximum(join, groups, watermarks, out):
        join._table.groups[groups, WATERMARK :: GROUP_STREAM_WORDS] = watermarks
        return expire(join, groups, watermarks, out)

    monkeypatch.setattr(WindowJoin, "expire", without_maximum)


def a_consumer_that_never_refuses(monkeypatch):
    monkeypatch.setattr(Mover, "_refuse", lambda mover, move, reason: None)


def the_watermark_of_one_producer(monkeypatch):
    monkeypatch.setattr(Inputs, "joined", lambda inputs, slots, groups: slots[-1].watermarks)


def a_pause_that_one_producer_acknowledges(monkeypatch):
    order = Inputs.order

    def at_once(inputs, producer, order_):
        if order_.step != steps.FREEZE:
            return order(inputs, producer, order_)
        inputs._paused.setdefault(order_.move, set()).add(producer)
        return [order_] if len(inputs._paused[order_.move]) == 1 else []

    monkeypatch.setattr(Inputs, "order", at_once)


def fault_of(seed):
    """What the seed finds wrong, "" if nothing."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            run_scenario(scenario(seed), folder)
    except Exception as error:  # of whatever kind
        return f"{type(error).__name__}: {error}"
    return ""


MUTANTS = {
    reordered_held_rows: "a group's rows come in their order",
    early_expiry: "what may find partners is held",
    skipped_expiry: "what cannot find partners is let go",
    watermarks_that_go_back: "a group's watermarks never go back",
    watermarks_that_are_forgotten: "a group keeps the furthest watermarks that it was told",
    a_consumer_that_never_refuses: "who has no room for a group refuses it",
    the_watermark_of_one_producer: "a group's watermarks never go back",
    a_pause_that_one_producer_acknowledges: "the run had not ended",
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_fault_is_caught_within_some_seeds(monkeypatch, mutant):
    mutant(monkeypatch)
    # A wrong answer may be noticed first, but what is wrong must be, too.
    assert any(MUTANTS[mutant] in fault for fault in map(fault_of, SEEDS))
