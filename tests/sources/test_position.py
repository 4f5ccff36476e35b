"""What an intake saves, and what it refuses to go on from."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mpijoin.config.check import resolve
from mpijoin.config.load import load_job
from mpijoin.data.codec import decode, encode
from mpijoin.errors import CodecError, InputError, OutputError, ProtocolError
from mpijoin.producer.intake import Intake
from mpijoin.producer.pacing import Pace
from mpijoin.rundir import RunDirectory
from mpijoin.sources.base import End
from mpijoin.sources.position import POSITION_KIND

PACE = Pace(10, 1, 1, 1)
# Row 30 of the second file is late; the files overlap, so that both are open at once.
TIMES = {"a": np.arange(60), "b": np.concatenate([np.arange(20, 50), [2], np.arange(50, 70)])}
END = r"a run goes on only on the inputs it began with$"


def table(times):
    return pa.table({"ts": times, "key": times % 5, "name": [f"n{i}" for i in times]})


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    for name, times in TIMES.items():
        pq.write_table(table(times), tmp_path / "in" / f"{name}.parquet")
    return tmp_path


def job_of(folder, right=None):
    common = {"time": "ts", "time_unit": "s", "key": "key"}
    right = right or {"table": table(TIMES["a"]), **common}
    return load_job(
        {"left": {"path": str(folder / "in"), **common}, "right": right, "output": {"path": str(folder / "run")}}
    )


def intake_of(folder, right=None, saved=None, job=None):
    job = job or job_of(folder, right)
    directory = (
        RunDirectory(folder / "run") if saved is not None else RunDirectory.create(folder / "run", "", overwrite=True)
    )
    return Intake(job, resolve(job), directory, PACE, saved)


def saved_after(folder, ticks, **options):
    intake = intake_of(folder, **options)
    for _ in range(ticks):
        intake.next()
    saved = intake.save()
    intake.close()
    return saved


def test_it_is_one_frame_with_a_checksum(folder):
    saved = saved_after(folder, 3)
    assert decode(saved).kind == POSITION_KIND == 32
    for place in (40, len(saved) // 2, len(saved) - 1):
        damaged = saved.copy()
        damaged[place] ^= 1
        with pytest.raises(CodecError, match="checksum"):
            intake_of(folder, saved=damaged)
    with pytest.raises(CodecError):
        intake_of(folder, saved=saved[:-1])


def test_another_frame_is_refused(folder):
    with pytest.raises(ProtocolError, match="got a frame of kind 16, wanted 32"):
        intake_of(folder, saved=encode(16, {}, [], checksum=True))
    with pytest.raises(CodecError, match="its parts do not fit each other: KeyError"):
        intake_of(folder, saved=encode(POSITION_KIND, {}, [], checksum=True))
    _, meta, buffers = decode(saved_after(folder, 3))
    with pytest.raises(CodecError, match="its parts do not fit each other: StopIteration"):
        intake_of(folder, saved=encode(POSITION_KIND, meta, buffers[:-7], checksum=True))
    with pytest.raises(CodecError, match="more buffers than it names"):
        intake_of(folder, saved=encode(POSITION_KIND, meta, [*buffers, buffers[0]], checksum=True))


def test_tuples_of_other_streams_are_refused(folder):
    saved = saved_after(folder, 3)
    with pytest.raises(ProtocolError, match=r"got records \[(\d+), 1\], wanted \[\1, 0\]: it is of other streams"):
        wide = {"table": table(TIMES["a"]).drop_columns(["name"]), "time": "ts", "time_unit": "s", "key": "key"}
        intake_of(folder, saved=saved, right=wide)


def changed_time(path):
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def changed_size(path):
    found = path.stat()
    pq.write_table(table(TIMES["a"][:-1]), path)
    os.utime(path, ns=(0, found.st_mtime_ns))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (changed_time, r"b.parquet: got (\d+) bytes changed at \S+, wanted \1 bytes changed at \S+: "),
        (changed_size, r"b.parquet: got \d+ bytes changed at (\S+), wanted \d+ bytes changed at \1: "),
        (os.unlink, r"b.parquet: got no such input, wanted \d+ bytes changed at \S+: "),
        (lambda path: pq.write_table(table(TIMES["a"]), path.with_name("c.parquet")),
         r"c.parquet: got \d+ bytes .*, wanted no such input: "),
    ],
)  # fmt: skip
def test_another_input_file_is_named(folder, change, told):
    saved = saved_after(folder, 3)
    change(folder / "in" / "b.parquet")
    with pytest.raises(InputError, match=told + END):
        intake_of(folder, saved=saved)


def test_an_input_that_is_gone_is_named(folder):
    job = job_of(folder)
    saved = saved_after(folder, 3, job=job)
    schema = resolve(job)
    for name in TIMES:
        (folder / "in" / f"{name}.parquet").unlink()
    with pytest.raises(InputError, match="in: no data files there.*; " + END):
        Intake(job, schema, None, PACE, saved)


def test_of_a_table_the_rows_are_counted(folder):
    saved = saved_after(folder, 3)
    longer = {"table": table(TIMES["b"]), "time": "ts", "time_unit": "s", "key": "key"}
    with pytest.raises(InputError, match=r"\[right\] table: got 51 rows, wanted 60 rows: " + END):
        intake_of(folder, saved=saved, right=longer)


def test_the_inputs_are_those_that_the_run_began_with_not_those_at_the_save(folder):
    intake = intake_of(folder)
    intake.next()
    changed_time(folder / "in" / "b.parquet")
    saved = intake.save()
    intake.close()
    with pytest.raises(InputError, match="b.parquet"):
        intake_of(folder, saved=saved)


def test_late_rows_are_told_once(folder):
    intake = intake_of(folder)
    assert intake.cut_late() == []
    while not isinstance(intake.next(), End):
        pass
    saved = intake.save()
    assert [(part.name, part.rows) for part in intake.late_parts] == [("left-00000.parquet", 1)]
    assert intake.cut_late() == intake.late_parts
    intake.close()
    again = intake_of(folder, saved=saved)
    assert again.next() == End() and again.sources[0].counts.late == 1
    assert again.late_parts == intake.late_parts
    again.close()
    (folder / "run/late/.open/left-00000.parquet").unlink()
    with pytest.raises(OutputError, match="left-00000.parquet: got no such file, wanted the"):
        intake_of(folder, saved=saved)


def test_the_pace_may_be_another_one_afterwards(folder):
    job, saved = job_of(folder), saved_after(folder, 2)
    again = Intake(job, resolve(job), RunDirectory(folder / "run"), Pace(25, 1, 1, 1), saved)
    assert [tick.border for tick in iter(again.next, End())] == [25, 50, 75]
    again.close()


def test_a_run_without_a_directory_has_no_late_parts(folder):
    job = job_of(folder)
    intake = Intake(job, resolve(job), None, PACE)
    while not isinstance(intake.next(), End):
        pass
    assert intake.cut_late() == []
    again = Intake(job, resolve(job), None, PACE, intake.save())
    assert again.next() == End() and again.sources[0].counts.late == 1
