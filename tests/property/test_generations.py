"""Groups that are spilled at any time: what is found at run time and what a clean-up finds are the oracle's results
together, and none is found twice."""

from itertools import cycle

from hypothesis import given, settings
from hypothesis import strategies as some

import oracle
from join_harness import NEVER, check_accounts, groups_of
from random_joins import CUTS, SETUPS, expected, joins, rounds
from spilling import PLACES, Spilling

# For each round, whether a group is spilled when it ends.
SPILLS = some.lists(some.booleans(), min_size=1, max_size=12)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    SETUPS, joins(some.just(2)), CUTS, SPILLS, some.one_of(some.just(PLACES), some.integers(0, PLACES)), some.booleans()
)
def test_run_time_and_clean_up_find_each_result_once(setup, join, cuts, spills, middle, settles):
    streams, rows = join
    spilling, spills = Spilling(streams, setup), cycle(spills)
    for parts, _ in rounds(rows, cuts):
        for group in range(setup.partitions):
            spilling.main.round_of(groups_of(group), parts, [NEVER] * len(streams), setup.budget, setup.pieces)
            if next(spills):
                spilling.spill(group)
            check_accounts(spilling.main, spilling.main.started())
    for group in range(setup.partitions):
        spilling.spill(group)
        spilling.clean_up(group, 0, middle, settles)
        spilling.clean_up(group, middle, PLACES, settles)
    check(spilling, streams, rows)


def check(spilling, streams, rows):
    wanted = expected(streams, rows)
    assert spilling.results() == wanted
    certificates = [holder.out.certificate for holder in (spilling.main, spilling.clean)]
    assert f"{sum(certificates) & oracle.MASK:016x}" == oracle.certificate(wanted.elements())
    for found in spilling.main.pairs + spilling.clean.pairs:
        assert all(one == rows[stream][one.row] for stream, one in enumerate(found)), "records and blobs are whole"
    main, clean = spilling.main.operator.totals, spilling.clean.operator.totals
    assert main.joined == main.spilled == tuple(map(len, rows)) and main.held == (0,) * len(rows)
    assert clean.joined == clean.spilled == (0,) * len(rows)
    assert clean.taken_back == clean.moved_out == main.spilled
    assert spilling.main.operator._pool.held_bytes == 0
