"""Whole runs on rows that nobody would wish for, with far less memory than these need. The answer is that of a run in
memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import mpijoin
from mpijoin.errors import MpijoinError

BOTH = pytest.mark.parametrize("form", ["generations", "rotate"])


def stream(times, keys, window, **columns):
    table = pa.table({"ts": pa.array(times, pa.int64()), "key": pa.array(keys), **columns})
    return {"table": table, "time": "ts", "time_unit": "ns", "key": "key", "window": window}


def run(streams, memory, tuning=None, partitions=20, results="count"):
    job = {
        "streams": {f"s{index}": one for index, one in enumerate(streams)},
        "memory": memory,
        "tuning": tuning or {"block": "200 B"},
        "cluster": {"partitions": partitions},
        "output": {"results": results},
    }
    return mpijoin.run(job, slaves=1).summary


def check_same_answer(folder, streams, limit="64 KiB", tuning=None, partitions=20, results="count", **memory):
    """A run in so little memory gives the same answer as one with plenty, and leaves nothing in `folder`."""
    wanted = run(streams, {"limit": "1 GiB"}, tuning, partitions, results)
    got = run(streams, {"limit": limit, "path": str(folder), **memory}, tuning, partitions, results)
    assert (got["results"], got["certificate"]) == (wanted["results"], wanted["certificate"])
    assert wanted["results"] and got["memory"]["spilled_bytes"]
    assert not list(folder.iterdir())


@BOTH
@pytest.mark.parametrize("time", [np.iinfo(np.int64).min, np.iinfo(np.int64).max])
@pytest.mark.parametrize("window", ["0 ns", "1 ns", "unbounded"])
def test_all_rows_may_have_the_first_or_the_last_time_of_all(tmp_path, form, time, window):
    keys = np.arange(3000)
    streams = [stream(np.full(3000, time), keys, window), stream(np.full(3000, time), keys[::-1], "0 ns")]
    check_same_answer(tmp_path, streams, spill=form)


def hot(rows, size, large, count=1):
    """Rows of one key, with text of so many bytes, and some side by side among them with much more."""
    text = ["x" * (large if 0 <= row - rows // 2 < count else size) for row in range(rows)]
    return stream(np.arange(rows), ["k"] * rows, "unbounded", text=pa.array(text))


@pytest.mark.parametrize("cleanup", ["idle", "end"])
def test_one_key_may_have_more_rows_than_fit_and_some_of_them_much_text(tmp_path, cleanup):
    streams = [hot(600, 100, 9_000, 30), hot(500, 100, 9_000, 20)]
    memory = {"spill": "generations", "cleanup": cleanup}
    check_same_answer(tmp_path, streams, tuning={"block": "1 KiB"}, results="collect", **memory)


def refusal(folder, streams, **memory):
    with pytest.raises(MpijoinError) as raised:
        run(streams, {"limit": "64 KiB", "path": str(folder), **memory}, results="collect")
    assert raised.value.exit_code == 3 and not list(folder.iterdir())
    return str(raised.value)


def test_a_row_that_fits_into_no_memory_is_told(tmp_path):
    streams = [hot(3, 10, 70_000), hot(3, 10, 10)]
    text = refusal(tmp_path, streams, spill="generations")
    assert "all else is on the disk, and the next row lacks" in text and "give each slave more memory" in text


def test_rows_that_fit_into_memory_one_by_one_but_not_together_are_told(tmp_path):
    text = refusal(tmp_path, [hot(3, 10, 40_000), hot(3, 10, 40_000)], spill="generations")
    assert "owes results of rows on the disk, of which too few fit into memory at once" in text


def test_a_group_that_does_not_fit_is_told_where_groups_rotate(tmp_path):
    text = refusal(tmp_path, [hot(600, 200, 200), hot(600, 200, 200)], spill="rotate")
    assert 'set more [cluster] partitions, or give each slave more memory' in text
