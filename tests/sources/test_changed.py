"""Inputs that change while they are read: told with file and rows, as a failure of the run, never a smaller answer."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from launching import Run
from mpijoin.data.schema import Column
from mpijoin.errors import EXIT_FAILED, ChangedInputError
from mpijoin.sources.files import open_file
from mpijoin.sources.inputs import input_file

ROWS = 300_000
TABLE = pa.table(
    {"ts": np.arange(ROWS), "key": np.arange(ROWS) * 7919 % 1000, "id": np.random.default_rng(1).random(ROWS)}
)
COLUMNS = tuple(Column(field.name, field.type) for field in TABLE.schema)


def write_stream(table, path):
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


WRITERS = {
    "parquet": lambda table, path: pq.write_table(table, path, compression="none", use_dictionary=False),
    "feather": lambda table, path: pa.feather.write_feather(table, path, compression="uncompressed", chunksize=ROWS),
    "arrow": write_stream,
    "csv": pa.csv.write_csv,
}


def cut(path):
    os.truncate(path, os.path.getsize(path) // 2)


def grow(path):
    with open(path, "ab") as file:
        file.write(b"300000,1,0.5\n")


def replace(path):
    other = path + ".new"
    WRITERS[path.rpartition(".")[2]](TABLE.slice(1), other)
    os.rename(other, path)


def remove(path):
    os.unlink(path)


CHANGES = {"cut": cut, "grow": grow, "replace": replace, "remove": remove}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("extension", WRITERS)
def test_a_change_in_the_middle_is_told_with_file_and_rows(tmp_path, extension, change):
    path = str(tmp_path / f"picks.{extension}")
    WRITERS[extension](TABLE, path)
    blocks = open_file(path, COLUMNS).blocks()
    read = next(blocks).num_rows
    CHANGES[change](path)
    with pytest.raises(ChangedInputError, match=f"picks.{extension}: ") as error:
        for block in blocks:
            read += block.num_rows
    told = str(error.value)
    assert f"got {read} rows" in told and error.value.exit_code == EXIT_FAILED
    assert ("it was there when the run began" if change == "remove" else "changed while it was read: it had") in told
    assert extension == "csv" or "wanted 300000" in told


@pytest.mark.parametrize("extension", WRITERS)
def test_a_change_between_the_start_of_the_run_and_the_files_turn_is_told(tmp_path, extension):
    path = str(tmp_path / f"picks.{extension}")
    WRITERS[extension](TABLE, path)
    begun = input_file(path)
    assert sum(block.num_rows for block in open_file(path, COLUMNS, file=begun).blocks()) == ROWS
    replace(path)
    with pytest.raises(ChangedInputError, match=f"picks.{extension}: changed while it was read"):
        list(open_file(path, COLUMNS, file=begun).blocks())
    remove(path)
    with pytest.raises(ChangedInputError, match=f"picks.{extension}: .*it was there when the run began"):
        open_file(path, COLUMNS, file=begun)


def test_a_parquet_file_with_fewer_rows_than_its_footer_says_is_told(tmp_path, monkeypatch):
    path = str(tmp_path / "picks.parquet")
    WRITERS["parquet"](TABLE, path)
    monkeypatch.setattr(
        pq.ParquetFile, "iter_batches", lambda file, *_, **options: iter(TABLE.slice(0, 5000).to_batches())
    )
    with pytest.raises(
        ChangedInputError, match="picks.parquet: .* to its end: got 5000 rows, wanted 300000 rows, or more"
    ):
        list(open_file(path, COLUMNS).blocks())


@pytest.mark.parametrize("extension", ["parquet", "feather"])
def test_a_run_whose_input_is_cut_under_it_fails_with_three(tmp_path, extension):
    for side in ("left", "right"):
        WRITERS[extension](TABLE, str(tmp_path / f"{side}.{extension}"))
    side = 'time = "ts"\ntime_unit = "ms"\nkey = "key"\nwindow = "1 s"\n'
    text = "".join(f'[{name}]\npath = "{name}.{extension}"\n{side}' for name in ("left", "right"))
    # with more memory for blocks all rows would have been decoded ahead
    cluster = '[cluster]\ndistribution_epoch = "200 ms"\nmaster_buffer = "32 MB"\n'
    text += f'[run]\nspeed = 50\n{cluster}[output]\npath = "out"\n'
    with Run(tmp_path, text) as run:
        # Results mean that rows of both files have been read. Kernels may have to be compiled before.
        run.wait_for(lambda: any(run.out.glob("results/.open/*.parquet")), "first results", 240)
        cut(str(tmp_path / f"left.{extension}"))
        run.finish()
    assert run.code == EXIT_FAILED and f"left.{extension}: changed while it was read" in run.failed["reason"]
    assert "wanted 300000" in run.failed["reason"] and "got 0 rows" not in run.failed["reason"]
