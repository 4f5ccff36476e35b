"""Epoch metrics: bounded memory, every row once, a file that is whole or not there."""

import gc
import warnings

import numpy as np
import pyarrow.parquet as pq
import pytest

from mpijoin.errors import OutputError
from mpijoin.metrics.record import EpochRecord, Recorder, columns_of
from mpijoin.metrics.write import MetricsFile, schema_of
from small_files import file_size_limit

STREAMS = ["p", "s", "x"]


def test_rows_arrive_once_and_in_order_in_bounded_pieces():
    pieces = []
    recorder = Recorder(pieces.append, STREAMS, rows_held=4)
    for epoch in range(10):
        recorder.add(rank=1, role="slave", epoch=epoch, wall_us=epoch * 7)
    recorder.close()
    recorder.close()
    assert [len(piece["epoch"]) for piece in pieces] == [4, 4, 2]
    assert np.concatenate([piece["epoch"] for piece in pieces]).tolist() == list(range(10))
    assert np.concatenate([piece["wall_us"] for piece in pieces]).tolist() == [7 * epoch for epoch in range(10)]


def test_a_field_left_out_is_zero_even_after_a_flush():
    pieces = []
    recorder = Recorder(pieces.append, STREAMS, rows_held=1)
    recorder.add(rank=1, role="slave", epoch=0, splits=5)
    recorder.add(rank=1, role="slave", epoch=1)
    assert [piece["splits"].tolist() for piece in pieces] == [[5], [0]]


@pytest.mark.parametrize("row", [{"rank": 1, "role": "slave"}, {"rank": 1, "role": "slave", "epoch": 0, "wall_ms": 1}])
def test_wrong_fields_are_named(row):
    with pytest.raises(TypeError, match="epoch|wall_ms"):
        Recorder(print, STREAMS).add(**row)


def test_an_unknown_role_is_refused():
    with pytest.raises(ValueError):
        Recorder(print, STREAMS).add(rank=1, role="boss", epoch=0)


def test_the_file_holds_all_rows_with_units_in_the_names(tmp_path):
    file = MetricsFile(tmp_path, 3, STREAMS, rows_held=8)
    for epoch in range(20):
        file.add(rank=3, role="slave", epoch=epoch, results=epoch, window_bytes=1 << 40, tuples=(epoch, 0, 7))
    assert [item.name for item in tmp_path.iterdir()] == ["rank-3.parquet.open"]
    file.close()
    file.close()
    assert [item.name for item in tmp_path.iterdir()] == ["rank-3.parquet"]
    table = pq.read_table(tmp_path / "rank-3.parquet")
    assert table.schema.equals(schema_of(STREAMS)) and table.column_names == list(columns_of(STREAMS))
    assert table["results"].to_pylist() == list(range(20))
    assert set(table["role"].to_pylist()) == {"slave"} and set(table["window_bytes"].to_pylist()) == {1 << 40}
    row = table.to_pylist()[5]
    tuples = tuple(row.pop(f"tuples_{name}") for name in STREAMS)
    wanted = EpochRecord(rank=3, role="slave", epoch=5, results=5, window_bytes=1 << 40, tuples=(5, 0, 7))
    assert EpochRecord(**row, tuples=tuples) == wanted


def test_a_rank_without_rows_leaves_an_empty_table(tmp_path):
    MetricsFile(tmp_path, 0, STREAMS).close()
    table = pq.read_table(tmp_path / "rank-0.parquet")
    assert table.num_rows == 0 and table.schema.equals(schema_of(STREAMS))


def test_a_file_that_cannot_grow_is_named_once_and_then_given_up(tmp_path):
    file = MetricsFile(tmp_path, 1, STREAMS, rows_held=2)
    file.add(rank=1, role="slave", epoch=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with (
            file_size_limit(100),
            pytest.raises(OutputError, match="rank-1.parquet: cannot be written: File too large"),
        ):
            file.add(rank=1, role="slave", epoch=1)
        for epoch in range(2, 9):
            file.add(rank=1, role="slave", epoch=epoch)
        file.close()
        del file
        gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_later_leaves_no_file(tmp_path, monkeypatch):
    file = MetricsFile(tmp_path, 1, STREAMS, rows_held=1)
    file.add(rank=1, role="slave", epoch=0)

    def refuse(table):
        raise OSError("disk on fire")

    monkeypatch.setattr(file._file._writer, "write_table", refuse)
    with pytest.raises(OutputError, match="disk on fire"):
        file.add(rank=1, role="slave", epoch=1)
    file.close()
    assert list(tmp_path.iterdir()) == []
