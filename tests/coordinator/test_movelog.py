"""The master's log of moves.

It has one row for each move that ended, with moments in order, and with the gain that it was to bring and brought.
"""

import pyarrow.parquet as pq
import pytest

from mpijoin.config.moves import MSLB, PRECOPY
from mpijoin.coordinator.events import Moved
from mpijoin.coordinator.movelog import MoveLog, Shared, decision_text
from mpijoin.metrics.moves import SCHEMA, MovesFile
from mpijoin.orders import Step
from mpijoin.policy.plan import Gather, Plan, Spread
from mpijoin.policy.view import ClusterView, SlaveView
from mpijoin.producer.events import Command, Deliver, Hold, Redeal, TellCopy
from mpijoin.records import MoveTotals, Transfer
from mpijoin.simulate.engine import SimulatedClock


class Story:
    """A log whose clock advances by a second with every event. Groups move from slave 1 to slave 2."""

    def __init__(self, folder=None, kind=PRECOPY):
        self.clock = SimulatedClock()
        self.folder = folder
        self.log = MoveLog(MovesFile(folder) if folder else None, self.clock, kind)

    def decided(self, period, *loads, plan=()):
        slaves = tuple(SlaveView(slave, True, 0.0, load, 0.0, ()) for slave, load in enumerate(loads, 1))
        self.log.decided(ClusterView(period, slaves, 1), Plan(plan))

    def then(self, act, *words):
        self.clock.charge(1.0)
        act(*words)

    def order(self, move, step):
        self.then(self.log.note, Command(move, step, 1, 10 + move, 2))

    def step(self, move, slave, step, **figures):
        self.then(self.log.stepped, Step(move, slave, step, "", Transfer(**figures)))

    def close(self, move, outcome, gain=0.25):
        self.then(self.log.closed, Moved(move, 10 + move, 1, 2, outcome, gain))

    def moved(self, move, octets=1000):
        self.order(move, "ship")
        self.step(move, 1, "shipped")
        self.then(self.log.note, Hold(move, 10 + move, 1))
        self.order(move, "freeze")
        self.step(move, 2, "installed", blocks=5.0)
        self.then(self.log.note, Deliver(move, 10 + move, 2))
        self.order(move, "drop")
        self.step(move, 1, "dropped", octets=float(octets), transfer_s=0.125)
        self.close(move, "moved")

    def refused(self, move, frozen):
        self.order(move, "ship")
        if frozen:
            self.step(move, 1, "shipped")
            self.then(self.log.note, Hold(move, 10 + move, 1))
            self.order(move, "freeze")
        self.step(move, 2, "refused")
        self.order(move, "restore")
        self.step(move, 1, "restored")
        if frozen:
            self.then(self.log.note, Deliver(move, 10 + move, 2))
        self.close(move, "refused")

    def cancelled(self, move):
        self.order(move, "ship")
        self.order(move, "restore")
        self.step(move, 1, "restored")
        self.close(move, "cancelled")

    def rows(self):
        """Closes the file. Returns its rows by move."""
        self.log.close()
        return {row["move"]: row for row in pq.read_table(self.folder / "moves.parquet").to_pylist()}


@pytest.fixture
def story(tmp_path):
    return Story(tmp_path)


def test_a_move_that_went_well_has_all_its_moments_and_costs(story):
    story.decided(3, 0.9, 0.1)
    story.moved(0)
    story.decided(4, 0.6, 0.4)
    (row,) = story.rows().values()
    assert row == {
        "move": 0, "period": 3, "group": 10, "supplier": 1, "consumer": 2, "bytes": 1000, "blocks": 5,
        "begun_us": 1_000_000, "frozen_us": 3_000_000, "delivered_us": 6_000_000, "closed_us": 9_000_000,
        "transfer_us": 125_000, "kind": "precopy", "outcome": "moved", "gain_predicted": 0.25,
        "gain_realised": pytest.approx(0.3),
    }  # fmt: skip
    assert story.log.totals == MoveTotals(moved=1, moved_bytes=1000)
    assert story.log.pause_us_max == 3_000_000


def test_a_move_by_two_tracks_begins_with_the_first_word_to_its_supplier_and_never_pauses(story):
    for slave, step in ((1, "duplicate"), (2, "copy"), (2, "keep"), (1, "leave")):
        story.then(story.log.note, TellCopy(10, slave, 0, step))
    story.step(0, 1, "dropped", octets=500.0, transfer_s=0.0)
    story.close(0, "moved")
    (row,) = story.rows().values()
    assert [row[name] for name in ("begun_us", "frozen_us", "delivered_us", "closed_us")] == [
        1_000_000, 1_000_000, 1_000_000, 6_000_000,
    ]  # fmt: skip
    assert row["bytes"] == 500 and story.log.pause_us_max == 0


def test_moments_follow_each_other_and_those_that_never_came_are_zero(story):
    story.decided(0, 0.9, 0.1)
    story.moved(0)
    story.refused(1, frozen=True)
    story.refused(2, frozen=False)
    story.cancelled(3)
    rows = story.rows()
    for row in (rows[0], rows[1]):
        assert 0 < row["begun_us"] < row["frozen_us"] < row["delivered_us"] < row["closed_us"]
    for row in (rows[2], rows[3]):
        assert row["frozen_us"] == row["delivered_us"] == 0 < row["begun_us"] < row["closed_us"]
    assert [rows[move]["outcome"] for move in range(4)] == ["moved", "refused", "refused", "cancelled"]
    assert story.log.totals[:3] == (1, 2, 1)


def test_only_what_moved_counts_as_moved(story):
    story.decided(0, 0.9, 0.1)
    story.moved(0, 700)
    story.refused(1, frozen=True)
    story.moved(2, 30)
    story.cancelled(3)
    story.order(4, "ship")
    story.step(4, 1, "restored", octets=50.0)
    story.close(4, "cancelled")
    assert story.log.totals.moved_bytes == 730
    rows = story.rows()
    assert [rows[move]["bytes"] for move in range(4)] == [700, 0, 30, 0]
    assert [rows[move]["blocks"] for move in range(4)] == [5, 0, 5, 0]


def test_the_gain_is_what_the_supplier_was_relieved_of_by_the_next_decision(story):
    story.decided(0, 0.9, 0.1)
    story.moved(0)
    story.refused(1, frozen=False)
    story.decided(1, 0.5, 0.45)
    story.moved(2)
    story.decided(2, 0.7, 0.6)  # The load has grown after all.
    story.decided(3, 0.1, 0.1)  # This is too late to count.
    rows = story.rows()
    assert [rows[move]["gain_realised"] for move in range(3)] == pytest.approx([0.4, 0.4, -0.2])
    assert [rows[move]["period"] for move in range(3)] == [0, 0, 1]


def test_without_a_later_decision_nobody_knows_the_gain(story):
    story.decided(0, 0.9, 0.1)
    story.moved(0)
    story.decided(1, 0.8, 0.2)
    story.moved(1)
    rows = story.rows()
    assert rows[0]["gain_realised"] == pytest.approx(0.1) and rows[1]["gain_realised"] is None
    assert rows[1]["gain_predicted"] == 0.25


def test_the_longest_pause_is_kept(story):
    story.decided(0, 0.9, 0.1)
    story.moved(0)
    story.order(1, "ship")
    story.then(story.log.note, Hold(1, 11, 1))
    story.clock.charge(20.0)
    story.then(story.log.note, Deliver(1, 11, 2))
    story.close(1, "moved")
    story.moved(2)
    assert story.log.pause_us_max == 21_000_000
    rows = story.rows()
    assert max(row["delivered_us"] - row["frozen_us"] for row in rows.values()) == 21_000_000


def test_rows_say_of_which_kind_the_moves_were_and_those_that_moved_how_long_they_took(tmp_path):
    story = Story(tmp_path, MSLB)
    story.decided(0, 0.9, 0.1)
    story.then(story.log.note, Hold(0, 10, 1))
    story.clock.charge(1.0)
    story.then(story.log.note, Deliver(0, 10, 2))
    story.close(0, "moved")
    story.refused(1, frozen=True)
    assert [row["kind"] for row in story.rows().values()] == ["mslb", "mslb"]
    assert story.log.took_us == [3_000_000]


def test_moves_side_by_side_do_not_mix(story):
    story.decided(0, 0.9, 0.1)
    story.order(0, "ship")
    story.order(1, "ship")
    story.then(story.log.note, Hold(1, 11, 1))
    story.then(story.log.note, Hold(0, 10, 1))
    story.step(0, 2, "installed", blocks=3.0)
    story.then(story.log.note, Deliver(0, 10, 2))
    story.step(1, 2, "installed", blocks=8.0)
    story.then(story.log.note, Deliver(1, 11, 2))
    story.step(1, 1, "dropped", octets=80.0, transfer_s=0.5)
    story.step(0, 1, "dropped", octets=30.0, transfer_s=0.25)
    story.close(1, "moved")
    story.close(0, "moved")
    rows = story.rows()
    names = ("blocks", "bytes", "transfer_us", "begun_us", "frozen_us")
    assert [rows[0][name] for name in names] == [3, 30, 250_000, 1_000_000, 4_000_000]
    assert [rows[1][name] for name in names] == [8, 80, 500_000, 2_000_000, 3_000_000]


def test_a_move_that_is_still_open_at_the_end_leaves_no_row(story):
    """A run ends only when all moves are closed. One that fails before that has only those rows that are certain."""
    story.decided(0, 0.9, 0.1)
    story.moved(0)
    story.order(1, "ship")
    story.then(story.log.note, Hold(1, 11, 1))
    assert list(story.rows()) == [0]
    assert story.log.totals.moved == 1


def test_what_a_slave_says_of_a_move_that_has_ended_changes_nothing(story):
    story.decided(0, 0.9, 0.1)
    story.cancelled(0)
    story.step(0, 2, "refused", octets=99.0)
    (row,) = story.rows().values()
    assert row["outcome"] == "cancelled" and row["bytes"] == 0


def test_a_run_without_moves_leaves_no_file(story, tmp_path):
    story.decided(0, 0.9, 0.1)
    story.decided(1, 0.9, 0.1)
    story.log.close()
    assert list(tmp_path.iterdir()) == []


def test_without_a_directory_it_counts_all_the_same():
    story = Story()
    story.decided(0, 0.9, 0.1)
    story.moved(0, 60)
    story.decided(1, 0.5, 0.1)
    story.log.close()
    assert story.log.totals == MoveTotals(moved=1, moved_bytes=60)
    assert story.log.pause_us_max == 3_000_000


def test_the_file_has_the_schema_that_is_documented(story, tmp_path):
    story.decided(0, 0.9, 0.1)
    story.moved(0)
    story.log.close()
    assert pq.read_schema(tmp_path / "moves.parquet").equals(SCHEMA)


def test_who_came_to_share_a_group_and_who_left_is_no_move_of_a_whole_group(tmp_path):
    story, why = Story(tmp_path), "it asks for 0.95 of slave 1's time"

    def part(move, step, *parties, outcome="moved", octets=500.0):
        story.then(story.log.note, TellCopy(4, parties[0], move, step, parties[1], 0))
        story.step(move, parties[0], "dealt", octets=octets, transfer_s=0.0)
        story.then(story.log.note, Redeal(move, 4))
        story.then(story.log.closed, Moved(move, 4, *parties, outcome, 0.0))

    wanted = (Spread(4, 1, (2, 3), why), Gather(5, 3, "cool"))
    story.decided(0, 0.9, 0.1, 0.1, 0.1, plan=wanted)
    assert "4:1+2,3 (it asks for 0.95 of slave 1's time) 5:-3 (cool)" in decision_text(
        ClusterView(0, (), 1), Plan(wanted)
    )
    part(0, "spread", 1, 2)
    part(1, "spread", 1, 3)
    part(2, "give", 3, 1)
    part(3, "spread", 1, 4)
    part(4, "spread", 1, 5, outcome="refused")
    story.moved(5)
    story.decided(1, 0.5, 0.5, 0.3, 0.3)
    assert story.log.totals == MoveTotals(1, 1, 0, 1000, spread=3, gathered=1)
    assert story.log.shared == [Shared(4, 3, why)] and len(story.log.took_us) == 1
    story.log.close()
    rows = pq.read_table(tmp_path / "moves.parquet").to_pylist()
    assert [row["kind"] for row in rows] == ["spread", "spread", "gather", "spread", "spread", "precopy"]
    assert all(row["begun_us"] == row["frozen_us"] == row["delivered_us"] - 2_000_000 for row in rows[:5])
