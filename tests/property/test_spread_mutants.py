"""The seeds of the simulated engine notice what could go wrong with groups that are spread."""

import tempfile

import pytest

from mpijoin.operators.stored import TableOperator
from mpijoin.partitioning.buffers import MiniBuffers
from mpijoin.producer import queues as queues_file
from mpijoin.producer.queues import Queues
from mpijoin.slave.spreads import Spreads
from mpijoin.store.rows import rows_of
from simulated_engine import run_scenario, scenario

# The first ones see faults that few of the others see: parts given back that are forgotten, rows out of their order.
SEEDS = (216, 363, 963, *(seed for seed in range(100) if scenario(seed).spreads))


def rows_dealt_to_all(monkeypatch):
    monkeypatch.setattr(MiniBuffers, "_dealt", lambda buffers, group, piece, copies: [piece] * len(copies))


def rows_dealt_to_nobody(monkeypatch):
    """Each slave's rows of the dealt stream are those of the first one, but for its own, of which there are none."""
    dealt = MiniBuffers._dealt

    def twice(buffers, group, piece, copies):
        parts = dealt(buffers, group, piece, copies)
        return [*parts[:-1], parts[0]] if len(parts) > 1 else parts

    monkeypatch.setattr(MiniBuffers, "_dealt", twice)


def state_not_dealt(monkeypatch):
    def keep_all(operator, group, stream, deal, part):
        if part == 0:
            operator._replicas_out += operator.info([group]).tuples[0]

    monkeypatch.setattr(TableOperator, "deal", keep_all)


def state_dealt_to_neither(monkeypatch):
    deal = TableOperator.deal

    def other_part(operator, group, stream, number, part):
        deal(operator, group, stream, number, part)
        operator._discarded[stream] += operator.info([group]).tuples[0][stream]
        operator.clear(group, stream)

    monkeypatch.setattr(TableOperator, "deal", other_part)


def dealt_tuples_forgotten(monkeypatch):
    """The books are cooked, so that only the answer can tell."""

    def forget(operator, group, stream, frames):
        came = sum(len(rows_of(frame, operator.streams).fresh[stream].tuples) for frame in frames)
        operator._moved_in[stream] += came
        operator._discarded[stream] += came

    monkeypatch.setattr(TableOperator, "take_dealt", forget)


def dealt_tuples_met_again(monkeypatch):
    """What a member gives back is joined once more with all that it has met there."""
    monkeypatch.setattr(TableOperator, "settle", lambda operator, groups: None)


def one_producer_is_enough(monkeypatch):
    joined = Spreads.joined

    def at_once(spreads, slot):
        every, spreads._producers = spreads._producers, {slot.producer}
        left = joined(spreads, slot) if slot.producer == min(every) else None
        spreads._producers = every
        return left

    monkeypatch.setattr(Spreads, "joined", at_once)


def held_back_rows_go_first(monkeypatch):
    """Before what waits for a member, which belongs before them."""
    redeal, redeal_bytes = MiniBuffers.redeal, Queues.redeal

    def rotated(deque, before):
        deque.rotate(len(deque) - before)

    def first(buffers, group):
        before = {slave: len(waiting) for slave, waiting in buffers._waiting.items()}
        batches = redeal(buffers, group)
        for slave, waiting in buffers._waiting.items():
            rotated(waiting, before[slave])
        return batches

    def first_bytes(queues, *known):
        before = {slave: len(view.waiting) for slave, view in queues.slaves.items()}
        redeal_bytes(queues, *known)
        for slave, view in queues.slaves.items():
            rotated(view.waiting, before[slave])

    monkeypatch.setattr(MiniBuffers, "redeal", first)
    monkeypatch.setattr(Queues, "redeal", first_bytes)


def held_back_rows_with_the_last_watermarks(monkeypatch):
    monkeypatch.setattr(queues_file, "_reached", lambda one, complete: complete)


MUTANTS = [
    rows_dealt_to_all,
    rows_dealt_to_nobody,
    state_not_dealt,
    state_dealt_to_neither,
    dealt_tuples_forgotten,
    dealt_tuples_met_again,
    one_producer_is_enough,
    held_back_rows_go_first,
    held_back_rows_with_the_last_watermarks,
]


def fault_of(seed):
    """What the seed finds wrong, "" if nothing."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            run_scenario(scenario(seed), folder)
    except Exception as error:  # of whatever kind
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_fault_is_caught_within_some_seeds(monkeypatch, mutant):
    mutant(monkeypatch)
    assert any(map(fault_of, SEEDS))
