"""Results at a checkpoint: the collector's marks, parts that are closed there, and what a run that goes on finds and
keeps."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mpijoin.collector.runtime import cut_results
from mpijoin.disk import write_all
from mpijoin.errors import OutputError, ProtocolError
from mpijoin.messages import EpochEnd, ResultMarker, ResultRows
from mpijoin.rundir import RUN_MARK, RunDirectory
from mpijoin.sinks.collector import Collector, Writers
from mpijoin.sinks.parts import PartWriter

SCHEMA = pa.schema([pa.field("row", pa.int64(), False)])


def table(*values):
    return pa.table([pa.array(values, pa.int64())], schema=SCHEMA)


def rows(slave, epoch, *values):
    batch = table(*values).to_batches()[0]
    return ResultRows(slave, epoch, 0, np.frombuffer(batch.serialize(), np.uint8))


@pytest.fixture
def writer(tmp_path):
    return PartWriter(tmp_path, "rank-3", SCHEMA, part_bytes=1 << 20)


@pytest.fixture
def merged(writer):
    return Collector((1, 2), [SCHEMA], Writers([writer]))


def values_in(folder, parts):
    return [pq.read_table(Path(folder) / name)["row"].to_pylist() for name in parts]


def test_all_marks_write_what_came_before_whatever_its_epoch_and_nothing_after(merged, tmp_path):
    for message in (rows(1, 0, 1), EpochEnd(1, 0), rows(1, 5, 2), ResultMarker(1, 7), rows(1, 5, 90), rows(1, 6, 91)):
        merged.take(message)
    assert merged.refuse == {1} and merged.cut_number is None and merged.rows == 1
    for message in (rows(2, 0, 3), ResultMarker(2, 7), rows(2, 0, 92)):
        merged.take(message)
    assert merged.cut_number == 7 and merged.rows == 3 and merged.refuse == {1, 2}
    saved = cut_results(3, merged)
    assert (saved.rank, saved.number, saved.counts, saved.rows, saved.fault) == (3, 7, None, 3, "")
    assert values_in(tmp_path, [name for name, *_ in saved.parts]) == [[1, 3, 2]]
    assert merged.cut_number is None and merged.refuse == set()
    for slave in (1, 2):
        merged.take(EpochEnd(slave, 6, last=True))
    assert merged.finished and merged.rows == 6
    (late,) = values_in(tmp_path, [part.name for part in merged.writers.close()][1:])
    assert sorted(late) == [90, 91, 92]


def test_one_checkpoint_after_the_other(merged, tmp_path):
    for number in (1, 2, 3):
        for slave in (1, 2):
            merged.take(rows(slave, number, 10 * number + slave))
            merged.take(ResultMarker(slave, number))
        assert [rows for _, rows, *_ in cut_results(3, merged).parts] == [2] * number
    assert values_in(tmp_path, sorted(os.listdir(tmp_path))) == [[11, 12], [21, 22], [31, 32]]


def test_slaves_that_have_ended_and_those_without_groups_mark_as_well(writer):
    merged = Collector((1, 2, 3), SCHEMA, writer, idle={3})
    merged.take(EpochEnd(1, 4, last=True))
    for slave in (2, 3):
        merged.take(ResultMarker(slave, 1))
    assert merged.cut_number is None
    merged.take(ResultMarker(1, 1))
    assert merged.cut_number == 1


def test_an_end_after_the_mark_waits_too(merged):
    merged.take(ResultMarker(1, 1))
    merged.take(EpochEnd(1, 3, last=True))
    assert not merged.finished
    merged.take(ResultMarker(2, 1))
    cut_results(3, merged)
    merged.take(EpochEnd(2, 3, last=True))
    assert merged.finished


def test_a_mark_out_of_turn_is_refused(merged):
    merged.take(ResultMarker(1, 1))
    with pytest.raises(ProtocolError, match="mark of checkpoint 1 from slave 1 twice"):
        merged.take(ResultMarker(1, 1))


def test_a_part_that_cannot_be_synced_is_told_and_the_run_goes_on(merged, tmp_path, monkeypatch):
    monkeypatch.setattr("mpijoin.sinks.parts.sync_path", lambda path: os.stat(tmp_path / "gone"))
    for slave in (1, 2):
        merged.take(rows(slave, 0, slave))
        merged.take(ResultMarker(slave, 1))
    assert cut_results(3, merged).fault == f"{tmp_path}/gone: cannot be written: No such file or directory"
    merged.take(rows(1, 0, 5))
    assert merged.cut_number is None and merged.rows == 3


def test_parts_that_could_not_be_synced_are_synced_at_the_next_checkpoint(merged, tmp_path, monkeypatch):
    synced = []

    def at(number, sync):
        monkeypatch.setattr("mpijoin.sinks.parts.sync_path", sync)
        for slave in (1, 2):
            merged.take(rows(slave, number, slave))
            merged.take(ResultMarker(slave, number))
        return cut_results(3, merged)

    at(1, lambda path: os.stat(tmp_path / "gone"))
    assert at(2, lambda path: synced.append(path.name)).fault == ""
    assert synced == ["rank-3-00000.parquet", "rank-3-00001.parquet", tmp_path.name]


def test_a_cut_closes_the_part_and_what_follows_goes_to_another(writer, tmp_path):
    assert writer.cut() == []
    writer.write(table(1, 2))
    (first,) = writer.cut()
    assert first.rows == 2
    assert writer.cut() == [first]
    writer.write(table(3))
    first_again, second = writer.close()
    assert first_again == first and values_in(tmp_path, [first.name, second.name]) == [[1, 2], [3]]
    assert writer.rows == 3


def test_a_writer_numbers_on_after_what_lies_there(writer, tmp_path):
    (tmp_path / "rank-3-00007.parquet").write_bytes(b"of before")
    (tmp_path / "rank-33-00099.parquet").write_bytes(b"of another rank")
    again = PartWriter(tmp_path, "rank-3", SCHEMA, part_bytes=1)
    for value in (1, 2):
        again.write(table(value))
        again.cut()
    assert [part.name for part in again.close()] == ["rank-3-00008.parquet", "rank-3-00009.parquet"]
    assert (tmp_path / "rank-3-00007.parquet").read_bytes() == b"of before"


def put(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"part")


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_file())


@pytest.fixture
def broken_off(tmp_path):
    """A run that was killed in the middle of its commit."""
    directory = RunDirectory.create(tmp_path / "run", "[left]\n[right]\n[run]\n")
    put(directory.results, "rank-1-00000.parquet")
    put(directory.open_results, "rank-1-00001.parquet", "rank-2-00000.parquet", "manifest.json")
    put(directory.late, "left.parquet")
    put(directory.open_late_parts, "left-00000.parquet", "left-00001.parquet", "right.parquet")
    put(directory.metrics, "rank-0.parquet", "rank-0-00003.parquet", "rank-0-00004.parquet", "rank-1.parquet.open")
    directory.write_failed({"reason": "x"})
    return directory


def test_a_run_that_goes_on_withdraws_what_was_committed(broken_off):
    broken_off.reopen("[run]\nseed = 1\n")
    assert names(broken_off.path) == ["job.toml"] and broken_off.job.read_text() == RUN_MARK + "[run]\nseed = 1\n"
    assert names(broken_off.results) == [] == names(broken_off.late)
    assert names(broken_off.open_results) == ["rank-1-00000.parquet", "rank-1-00001.parquet", "rank-2-00000.parquet"]
    broken_off.reopen("[run]\nseed = 1\n")


def test_it_keeps_what_the_checkpoint_lists_and_nothing_else(broken_off):
    broken_off.reopen("")
    broken_off.keep_only({"rank-1-00000.parquet": 5}, {"left-00000.parquet": 1}, 4)
    assert names(broken_off.open_results) == ["rank-1-00000.parquet"]
    assert names(broken_off.open_late_parts) == ["left-00000.parquet"]
    assert names(broken_off.metrics) == ["rank-0-00003.parquet", "rank-0.parquet"]


def test_it_refuses_where_something_it_has_written_is_missing(broken_off):
    broken_off.reopen("")
    with pytest.raises(OutputError, match="rank-9-00000.parquet is missing, which the run has written before"):
        broken_off.keep_only({"rank-9-00000.parquet": 5}, {}, 4)
    with pytest.raises(OutputError, match="left-00009.parquet is missing"):
        broken_off.keep_only({"rank-1-00000.parquet": 5}, {"left-00009.parquet": 1}, 4)


def test_a_kill_while_it_is_made_ready_leaves_a_folder_known_as_a_run(broken_off, monkeypatch):
    """Whatever of job.toml is on disk at any moment, --overwrite and --resume still know whose folder it is."""
    seen = []

    def torn(file, data):
        file.write(data[:10])
        seen.append(broken_off.is_run)
        write_all(file, data[10:])

    monkeypatch.setattr("mpijoin.disk.write_all", torn)
    broken_off.reopen("[run]\n")
    assert seen == [True] and broken_off.is_run


def test_after_the_summary_the_late_parts_go(broken_off):
    broken_off.clean()
    assert not broken_off.open_late_parts.exists()
    broken_off.clean()
