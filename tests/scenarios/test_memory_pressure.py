"""Memory that is taken from a slave amid a run: it spills and gives the same answer, or says what it lacks."""

import pytest

import mpijoin
from mpijoin.errors import MpijoinError

LIMITS = {"limit": "64 MB", "spill": "generations"}
PRESSURE = [{"rank": 1, "limit": "4 MB", "from": "50 ms"}]


def job(**sections):
    """The windows of each slave hold about 13 MB."""
    common = {"kind": "synthetic", "rate": 100_000, "tuples": 600_000, "domain": 100_000, "bias": 0.5, "window": "3 s"}
    streams = {name: {**common, "payload_bytes": 8, "seed": seed} for seed, name in enumerate(("left", "right"), 1)}
    return {**streams, "cluster": {"distribution_epoch": "100 ms"}, "output": {"results": "count"}, **sections}


def test_a_slave_that_loses_memory_spills_and_the_answer_is_the_same():
    plain = mpijoin.run(job(), slaves=2).summary
    pressed = mpijoin.run(job(memory=LIMITS, inject={"memory": PRESSURE}), slaves=2).summary
    assert plain["results"] > 10**6 and plain["memory"]["spills"] == 0
    assert (pressed["results"], pressed["certificate"]) == (plain["results"], plain["certificate"])
    assert [pressed["per_slave"][rank]["spills"] > 0 for rank in ("1", "2")] == [True, False]


def test_a_slave_that_loses_memory_and_may_not_spill_says_so():
    with pytest.raises(MpijoinError) as raised:
        mpijoin.run(job(inject={"memory": PRESSURE}), slaves=2)
    assert raised.value.exit_code == 3
    assert 'rank 1: the window state needs more than [memory] limit allows: budget 4 MB' in str(raised.value)
