"""Clean-ups of many small groups side by side find what each group owes, also where not all fit into memory after all.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import mpijoin
import mpijoin.spill.abreast
import mpijoin.spill.spiller
import mpijoin.spill.work
import mpijoin.store.row_reader
from mpijoin.spill.abreast import Abreast

ROWS, KEYS, PARTITIONS = 20_000, 2000, 24
CASES = {
    "two streams": (2, "300 us", False, "64 KiB"),
    "three streams": (3, "200 us", False, "64 KiB"),
    "two without windows": (2, "unbounded", False, "256 KiB"),
    "two with text": (2, "300 us", True, "64 KiB"),
}


@pytest.fixture
def seen(monkeypatch):
    """Counts the groups that were cleaned up side by side, and those of them for which there was no room."""
    seen = Counter()

    class Watched(Abreast):
        def step(self, out):
            progress = super().step(out)
            if progress is mpijoin.spill.spiller.Progress.DONE:
                seen["groups"] += len(self._courses)
                seen["most bytes"] = max(seen["most bytes"], sum(sum(course.octets) for course in self._courses))
                seen["without room"] += len(self.joined)
                seen["joined in part"] += sum(count > 1 for count in self.joined.values())
            return progress

    monkeypatch.setattr(mpijoin.spill.spiller, "Abreast", Watched)
    # Several frames are read at once, and several batches of them written for one spill.
    monkeypatch.setattr(mpijoin.spill.work, "PIECE_BYTES", 30_000)
    monkeypatch.setattr(mpijoin.store.row_reader, "FRAME_BYTES", 8000)
    return seen


def stream(seed, window, has_text):
    chance = np.random.default_rng(seed)
    times = np.sort(chance.integers(0, 3000, ROWS))
    columns = {"ts": pa.array(times), "key": pa.array(chance.integers(0, KEYS, ROWS))}
    if has_text:
        columns["text"] = pa.array([str(row) * count for row, count in enumerate(chance.integers(0, 9, ROWS))])
    return {"table": pa.table(columns), "time": "ts", "time_unit": "us", "key": "key", "window": window}


def answer(case, results, **memory):
    count, window, has_text, _ = CASES[case]
    job = {
        "streams": {f"s{number}": stream(number, window, has_text) for number in range(count)},
        "memory": memory,
        "tuning": {"block": "200 B"},
        "cluster": {"partitions": PARTITIONS, "distribution_epoch": "100 us"},
        "output": {"results": results},
    }
    done = mpijoin.run(job, slaves=1)
    rows = None
    if results == "collect":
        rows = done.table()
        rows = rows.sort_by([(name, "ascending") for name in rows.column_names])
    return (done.summary["results"], done.summary["certificate"], rows), done.summary


def check(case, folder):
    results = "collect" if CASES[case][2] else "count"
    wanted, _ = answer(case, results, limit="1 GiB")
    memory = {"limit": CASES[case][3], "spill": "generations", "cleanup": "end", "share": 0.2}
    got, summary = answer(case, results, **memory, path=str(folder))
    assert got == wanted and wanted[0] and summary["memory"]["spilled_bytes"]


@pytest.mark.parametrize("case", CASES)
def test_groups_side_by_side_find_what_each_of_them_owes(tmp_path, seen, case):
    check(case, tmp_path)
    assert seen["groups"] >= 2


def test_a_group_that_does_not_fit_beside_the_others_is_next_alone(tmp_path, monkeypatch, seen):
    """Rows in memory take so many times their bytes on disk. With too small a number, too many groups are taken."""
    monkeypatch.setattr(mpijoin.spill.work, "SPREAD", 0.2)
    for case in CASES:
        check(case, tmp_path)
    assert seen["without room"] > seen["joined in part"] > 0


def test_a_run_can_stop_again_after_so_many_bytes(tmp_path, monkeypatch, seen):
    monkeypatch.setattr(mpijoin.spill.abreast, "TOGETHER_BYTES", most := 150_000)
    check("two without windows", tmp_path)
    assert seen["groups"] >= 2 and seen["most bytes"] <= most
