"""What Spark's Python workers run, without Spark."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from mpijoin.pipeline.profile.results import Ranges

pd = pytest.importorskip("pandas")
worker = pytest.importorskip("mpijoin.pipeline.profile.worker")
segments, worst_disorder = worker.segments, worker.worst_disorder


def rows_of(parts, batch_rows):
    """Of one task: parts (file, first place, times), cut into batches."""
    columns = [
        np.concatenate(column) for column in zip(*((np.full(len(t), f), p + np.arange(len(t)), t) for f, p, t in parts))
    ]
    table = pa.table(dict(zip(("file", "place", "time"), (column.astype(np.int64) for column in columns))))
    return iter(table.to_batches(batch_rows))


def found_in(*tasks, batch_rows=7):
    rows = [batch.to_pylist() for parts in tasks for batch in segments(rows_of(parts, batch_rows))]
    return [list(row.values()) for batch in rows for row in batch]


@pytest.mark.parametrize("seed", range(5))
def test_disorder_is_that_of_each_file_wherever_tasks_and_batches_end(seed):
    generator = np.random.default_rng(seed)
    files = [np.arange(50) * 10 + generator.integers(-60, 60, 50) for _ in range(2)]
    wanted = max(int((np.maximum.accumulate(times) - times).max()) for times in files)
    one_task = [(file, 0, times) for file, times in enumerate(files)]
    halves = [[(0, 25, files[0][25:]), (1, 0, files[1][:10])], [(1, 10, files[1][10:])], [(0, 0, files[0][:25])]]
    for tasks in ([one_task], halves):
        for batch_rows in (1, 7, 1000):
            assert worst_disorder(found_in(*tasks, batch_rows=batch_rows)) == wanted


def test_a_task_gives_a_segment_for_each_file_and_none_without_rows():
    assert found_in([(5, 100, np.array([3, 1, 2])), (6, 0, np.array([9]))]) == [[5, 100, 1, 3, 2], [6, 0, 9, 9, 0]]
    empty = pa.RecordBatch.from_pylist([], pa.schema([(name, pa.int64()) for name in ("file", "place", "time")]))
    assert [batch.num_rows for batch in segments(iter([empty]))] == [0]
    assert [batch.num_rows for batch in segments(iter([]))] == [0]
    assert worst_disorder([]) == 0


def test_results_by_slot():
    """The tuple at 5 of the first stream is here for its window; it is counted with its partner's range."""
    ranges = Ranges(0, 10, 3, 5)
    columns = {"range": [2, 2, 0, 0, 1, 1], "hash": [1, 1, 1, 2, 3, 3], "time": [25, 26, 5, 5, 5, 11]}
    own = [True, True, True, True, False, True]
    rows = pd.DataFrame({**columns, "stream": [0, 1, 0, 1, 0, 1], "is_own": own})
    found = worker.result_counter(ranges, (6, 0))(rows)
    assert found.to_dict("list") == {"slot": [2, 5, 12, 13], "results": [0, 1, 0, 1]}
    assert len(worker.result_counter(ranges, (6, 0))(rows[~rows["is_own"]])) == 0


def test_workers_import_little():
    code = (
        "import sys, mpijoin.pipeline.profile.worker; "
        "print([name for name in ('numba', 'pyspark', 'matplotlib', 'duckdb') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
