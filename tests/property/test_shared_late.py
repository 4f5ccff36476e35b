"""Intakes of several producers: however often a run is saved and goes on with other producers, the rows, the counts and
the parts of late files together are those of one producer."""

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mpijoin.config.check import resolve
from mpijoin.config.load import load_job
from mpijoin.data.record import RecordLayout
from mpijoin.producer.intake import Intake
from mpijoin.producer.pacing import Pace
from mpijoin.rundir import RunDirectory
from mpijoin.sources import shares
from mpijoin.sources.base import End
from mpijoin.sources.late import merge_late
from mpijoin.sources.position import decode_position, encode_position
from mpijoin.sources.shares import deal, deal_again

PHASES, TO_THE_END = 4, 1 << 30


def rows_of(chance, rows, first):
    steps = np.cumsum([chance.randrange(20) for _ in range(rows)]) + first
    times = steps - np.array([chance.choice([0, 0, 0, chance.randrange(400)]) for _ in range(rows)])
    nulls, others = (np.array([chance.random() < 0.05 for _ in range(rows)]) for _ in range(2))
    return pa.table({"ts": pa.array(times, mask=nulls), "key": pa.array(times % 7, mask=others), "id": range(rows)})


class Whole:
    """A run's intakes, one phase after the other."""

    def __init__(self, folder, out):
        common = {"time": "ts", "time_unit": "ms", "key": "key", "lateness": "100 ms"}
        sides = {side: {"path": str(folder / side), **common} for side in ("left", "right")}
        self.job = load_job({**sides, "output": {"path": str(out)}})
        self.schema, self.directory = resolve(self.job), RunDirectory.create(out, "", overwrite=True)
        self.rows, self.parts, self.counts = ([], []), [], []

    def phase(self, frames, ticks):
        """Each producer reads so many ticks. Returns what they save."""
        saved, self.parts, self.counts = [], [], []
        for producer, frame in enumerate(frames):
            which = {"producer": producer, "producers": len(frames)}
            intake = Intake(self.job, self.schema, self.directory, Pace(40, 1, 1, 1), frame, **which)
            self._read(intake, ticks())
            saved.append(intake.save())
            self.parts += [part.name for part in intake.late_parts]
            self.counts.append([(one.counts.read, one.counts.late, one.counts.null_key) for one in intake.sources])
            intake.close()
        return saved

    def _read(self, intake, ticks):
        while ticks and not isinstance(tick := intake.next(), End):
            for rows, batches in zip(self.rows, tick.batches):
                rows += [row for batch in batches for row in batch.row.tolist()]
            ticks -= tick.watermarks is not None

    def found(self):
        assert sorted(self.parts) == sorted(path.name for path in self.directory.open_late_parts.glob("*.parquet"))
        late = []
        for stream in self.schema.streams:
            folder = self.directory.open_late_parts
            target = folder / f"{stream.name}.parquet"
            merge_late([folder / name for name in self.parts if name.startswith(f"{stream.name}-")], target, stream)
            late.append(sorted(map(repr, pq.read_table(target).to_pylist())))
        return [sorted(rows) for rows in self.rows], late, np.sum(self.counts, axis=0).tolist()


@pytest.mark.parametrize("seed", range(6))
def test_other_producers_go_on_with_rows_counts_and_late_parts(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(shares, "UNIT_ROWS", 50)
    chance = random.Random(seed)
    for side in ("left", "right"):
        Path(tmp_path, side).mkdir()
        for number in range(chance.choice([1, 3])):
            rows = rows_of(chance, 400, 500 * chance.randrange(3))
            has_statistics = chance.random() < 0.5
            path = tmp_path / side / f"{number}.parquet"
            pq.write_table(rows, path, row_group_size=64, write_statistics=has_statistics)
    one, several = Whole(tmp_path, tmp_path / "one"), Whole(tmp_path, tmp_path / "several")
    one.phase([None], lambda: TO_THE_END)
    words = [RecordLayout(stream).record_words for stream in several.schema.streams]
    positions = deal(several.job, several.schema, chance.randint(2, 4), str)
    for _ in range(PHASES - 1):
        saved = several.phase(list(map(encode_position, positions)), lambda: chance.randrange(8))
        positions = deal_again([decode_position(frame, words) for frame in saved], chance.randint(1, 4))
    several.phase(list(map(encode_position, positions)), lambda: TO_THE_END)
    wanted = one.found()
    assert min(map(len, wanted[1])) > 5, "no late rows: the test proves nothing"
    assert several.found() == wanted
