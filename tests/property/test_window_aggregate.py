"""The aggregate finds what the oracle finds, to the last bit, whatever the batches, partitions, theta, block size,
buffers, disorder and moves, and lets go of what nobody needs any more."""

import pytest

import aggregate_oracle as oracle
from aggregate_harness import EVER, Case, Holders, case, groups_of, rows_of, run, wanted
from mpijoin.errors import AggregateError


def assert_same(found, expected, seed):
    assert found.keys() == expected.keys(), seed
    for row, answers in expected.items():
        pairs = list(zip(found[row], answers))
        assert all(oracle.same(*pair) for pair in pairs), (seed, row, pairs)


@pytest.mark.parametrize("seed", range(60))
def test_the_answers_are_the_oracles_and_every_row_goes(seed):
    made = case(seed)
    holders, expected = run(made, seed, per_group=seed % 2 == 0), wanted(made)
    assert_same(holders.found, expected, seed)
    assert sum(out.found for out in holders.outs) == len(expected)
    assert sum(out.certificate for out in holders.outs) % 2**64 == sum(expected)  # The hash of a row is its number.
    totals = [operator.totals for operator in holders.operators]
    assert sum(one.joined[0] for one in totals) == len(made.rows) == sum(one.expired[0] for one in totals)
    assert all(operator.memory().held == 0 for operator in holders.operators)


def of_one_key(count, **changes):
    made = dict(
        rows=[oracle.Row(time, 1, time, {"i8": time, "f8": 0.1}) for time in range(count)],
        history=oracle.History(rows=10),
        functions=(("sum", "i8"), ("mean", "f8")),
        period=None,
        hashed=False,
        partitions=1,
        block=1024,
        theta=1 << 40,
        out=1000,
        holders=1,
        lateness=0,
    )
    for row in made["rows"]:
        row.values.update(f4=None, i1=None, u8=None)
    return Case(**(made | changes))


@pytest.mark.parametrize("history", [oracle.History(rows=10), oracle.History(span=9)])
def test_what_no_row_to_come_can_need_is_let_go_of(history):
    made = of_one_key(5000, history=history)
    holders, held = Holders(made), []
    for at in range(0, 5000, 50):
        holders.insert(made.rows[at : at + 50])
        holders.expire(at + 40)
        held.append(holders.operators[0].totals.held[0])
    assert max(held[5:]) < 300 and holders.operators[0].memory().held < 100_000
    assert_same({row: found for row, found in holders.found.items() if row < 3}, wanted(of_one_key(3)), 0)


def test_rows_wait_for_the_watermark_and_periods_for_their_end():
    for period, due in ((None, [0, 0, 10, 25]), (10, [0, 0, 1, 2])):
        made = of_one_key(30, period=period)
        holders = Holders(made)
        holders.insert(made.rows)
        counts = []
        for watermark in (-5, 0, 10, 25):
            holders.expire(watermark)
            counts.append(len(holders.found))
        assert counts == due


def test_a_watermark_never_goes_back_and_gives_no_result_twice():
    made = of_one_key(30)
    holders = Holders(made)
    holders.insert(made.rows)
    for watermark in (20, 5, 20, 21, EVER, EVER):
        holders.expire(watermark)
    assert len(holders.found) == 30
    assert holders.operators[0].info(groups_of(0)).watermarks.tolist() == [[EVER]]


def test_a_sum_of_integers_beyond_64_bits_is_an_error_that_names_the_row():
    made = of_one_key(9, functions=(("count", None), ("sum", "i8")))
    for row, large in ((5, 2**62), (6, 2**62 - 26), (7, 15)):  # With 0 to 4 it is 2**63 - 1 after two of them.
        made.rows[row].values["i8"] = large
    holders = Holders(made)
    holders.insert(made.rows)
    holders.expire(7)
    assert holders.found[6][1] == 2**63 - 1 - 15
    with pytest.raises(AggregateError, match=r"'sum', 'i8'.*beyond 64 bits at row [78], wanted an int64: shorten"):
        holders.expire(EVER)


def test_a_long_history_of_one_key_costs_as_much_as_a_short_one():
    work = []
    for span in (10, 400):
        made = of_one_key(500, history=oracle.History(rows=span), functions=(("sum", "i8"), ("min", "i8")))
        holders = Holders(made)
        holders.insert(made.rows)
        holders.expire(EVER)
        work.append(holders.operators[0].totals.comparisons)
        assert_same(holders.found, wanted(made), span)
    assert work[0] == work[1] == 500


def test_the_rows_of_the_random_streams_are_as_late_as_they_say():
    import random

    for lateness in (0, 7):
        newest, late = -(10**18), 0
        for row in rows_of(random.Random(3), 300, lateness):
            late, newest = max(late, newest - row.time), max(newest, row.time)
        assert late <= lateness and (late > 0) == (lateness > 0)
