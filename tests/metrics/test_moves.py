"""metrics/moves.parquet: rows as they were added, few of them held, nothing where nothing moved."""

import random

import pyarrow.parquet as pq
import pytest

from mpijoin.config.moves import MOVES
from mpijoin.errors import OutputError
from mpijoin.metrics.moves import NUMBERS, ROWS_HELD, SCHEMA, MovesFile


def row_of(chance, move):
    numbers = {name: chance.randrange(1 << 50) for name in NUMBERS}
    words = {"kind": chance.choice(MOVES), "outcome": chance.choice(["moved", "refused", "cancelled"])}
    gains = {"gain_predicted": chance.random(), "gain_realised": chance.choice([None, chance.random() - 0.5])}
    return {**numbers, "move": move, **words, **gains}


@pytest.mark.parametrize("count", [1, 5, ROWS_HELD, ROWS_HELD + 1, 3 * ROWS_HELD + 7])
def test_rows_come_back_as_they_were_added(tmp_path, count):
    chance = random.Random(count)
    rows = [row_of(chance, move) for move in range(count)]
    file = MovesFile(tmp_path)
    for row in rows:
        file.add(row)
    file.close()
    found = pq.ParquetFile(tmp_path / "moves.parquet")
    assert found.schema_arrow.equals(SCHEMA) and found.read().to_pylist() == rows
    sizes = [found.metadata.row_group(index).num_rows for index in range(found.metadata.num_row_groups)]
    assert max(sizes) <= ROWS_HELD and sum(sizes) == count
    assert [path.name for path in tmp_path.iterdir()] == ["moves.parquet"]


def test_the_file_has_its_name_only_when_it_is_whole(tmp_path):
    chance, file = random.Random(1), MovesFile(tmp_path)
    for move in range(ROWS_HELD):
        file.add(row_of(chance, move))
    assert [path.name for path in tmp_path.iterdir()] == ["moves.parquet.open"]
    file.close()
    assert pq.read_metadata(tmp_path / "moves.parquet").num_rows == ROWS_HELD


def test_without_rows_there_is_no_file(tmp_path):
    MovesFile(tmp_path).close()
    assert list(tmp_path.iterdir()) == []


def test_only_the_realised_gain_may_be_unknown():
    assert [field.name for field in SCHEMA if field.nullable] == ["gain_predicted", "gain_realised"]
    assert SCHEMA.names == [*NUMBERS, "kind", "outcome", "gain_predicted", "gain_realised"]


def test_a_folder_that_is_not_there_is_an_output_error(tmp_path):
    file = MovesFile(tmp_path / "none")
    file.add(row_of(random.Random(2), 0))
    with pytest.raises(OutputError, match="moves.parquet.open: cannot be written"):
        file.close()
