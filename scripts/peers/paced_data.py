"""Workload A, repeated in time for as long as a replay takes, in the formats that systems read; the right answer at any
time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from benching.data import WINDOW_US, make_data

PIECE_US = 300_000_000
PIECE_S = PIECE_US // 1_000_000
REACH = WINDOW_US // PIECE_US  # so many pieces before its own hold partners of a tuple
SIDES = ("left", "right")


@dataclass(frozen=True)
class Streams:
    """In a folder: SIDE/NUMBER.arrow, a piece of event time each. The first `period` pieces are of workload A, the
    others are those, shifted, and made when they are asked for. answers: pairs by the second of their later tuple, of
    the first pieces, up to where they repeat."""

    folder: Path
    period: int
    answers: np.ndarray

    def piece(self, side: str, number: int) -> Path:
        file = self.folder / side / f"{number:05d}.arrow"
        if not file.exists():
            periods, same = divmod(number, self.period)
            table = _mapped(self.piece(side, same))
            times_us = table["ts"].to_numpy() + periods * self.period * PIECE_US
            _write(table.set_column(0, "ts", pa.array(times_us)), file)
        return file

    def table(self, side: str, until_us: int, from_us: int = 0) -> pa.Table:
        """The tuples of [from_us, until_us), mapped from the files as far as they are whole pieces."""
        numbers = range(from_us // PIECE_US, -(-until_us // PIECE_US))
        whole = pa.concat_tables(_mapped(self.piece(side, number)) for number in numbers)
        low, high = (np.searchsorted(whole["ts"].to_numpy(), time_us) for time_us in (from_us, until_us))
        return whole.slice(low, high - low)

    def tuples(self, until_us: int) -> int:
        """Of both streams, before this time."""
        return sum(len(self.table(side, until_us)) for side in SIDES)

    def results(self, until_us: int) -> int:
        """Pairs of which both tuples come before this time: what a replay up to it must find."""
        second, rest_us = divmod(until_us, 1_000_000)
        seconds, full_s, period_s = np.arange(second), REACH * PIECE_S, self.period * PIECE_S
        # Of a period answers repeat once windows are full, which those of its first seconds are only from the second
        # one on.
        whole = int(
            self.answers[np.where(seconds < len(self.answers), seconds, full_s + (seconds - full_s) % period_s)].sum()
        )
        return whole + (int(later_seconds(self, second * 1_000_000, until_us).sum()) if rest_us else 0)

    def arrow(self, folder: Path, until_us: int) -> None:
        """SIDE/*.arrow with the tuples before this time: whole pieces are linked, the last one is cut."""
        last = (until_us - 1) // PIECE_US
        for side in SIDES:
            (folder / side).mkdir(parents=True)
            for number in range(last):
                (folder / side / f"{number:05d}.arrow").symlink_to(self.piece(side, number))
            _write(self.table(side, until_us, last * PIECE_US), folder / side / f"{last:05d}.arrow")
            read_through(sorted((folder / side).iterdir()))

    def binary(self, folder: Path, until_us: int) -> None:
        """SIDE.bin: little-endian int64 time, key, id of each tuple."""
        folder.mkdir(parents=True, exist_ok=True)
        for side in SIDES:
            table = self.table(side, until_us)
            columns = [table[name].to_numpy() for name in ("ts", "key", "id")]
            np.stack(columns, axis=1).astype("<i8").tofile(folder / f"{side}.bin")

    def csv(self, until_us: int) -> None:
        """SIDE/NUMBER.csv beside each piece, without a header; kept for later replays."""
        options = pyarrow.csv.WriteOptions(include_header=False)
        for side in SIDES:
            for number in range(-(-until_us // PIECE_US)):
                file = self.piece(side, number).with_suffix(".csv")
                if not file.exists():
                    part = file.with_suffix(".part")
                    pyarrow.csv.write_csv(_mapped(self.piece(side, number)), part, options)
                    part.rename(file)
                read_through([file])

    def slices(self, folder: Path, borders_us: list[int]) -> None:
        """SIDE/NUMBER.parquet: the tuples from one border to the next, with times as timestamps."""
        for side in SIDES:
            (folder / side).mkdir(parents=True)
            for number, (from_us, until_us) in enumerate(itertools.pairwise(borders_us)):
                table = self.table(side, until_us, from_us)
                table = table.set_column(0, "ts", table["ts"].cast(pa.timestamp("us", "UTC")))
                pyarrow.parquet.write_table(table, folder / side / f"{number:05d}.parquet")


def read_through(files: Iterable[Path]) -> None:
    """Has them in the page cache: thousands of times the streams' pace is more than a disk gives, and no system is to
    wait."""
    octets = bytearray(1 << 20)
    for file in files:
        with open(file, "rb", buffering=0) as source:
            while source.readinto(octets):
                pass


def make_streams(folder: Path, tuples: int) -> Streams:
    """In folder/paced-TUPLES, made of workload A with so many tuples a stream if they are not there yet."""
    data, home = make_data(folder, tuples), folder / f"paced-{tuples}"
    tables = [pq.read_table(file) for file in (data.left, data.right)]
    period = min(table["ts"][-1].as_py() for table in tables) // PIECE_US  # whole pieces
    answers = home / "answers.npy"  # written last: with it, all is there
    if not answers.exists():
        for side, table in zip(SIDES, tables):
            (home / side).mkdir(parents=True, exist_ok=True)
            borders = np.searchsorted(table["ts"].to_numpy(), np.arange(period + 1) * PIECE_US)
            for number, (low, high) in enumerate(itertools.pairwise(borders)):
                _write(table.slice(low, high - low), home / side / f"{number:05d}.arrow")
        np.save(answers, find_answers(Streams(home, period, np.zeros(0, np.int64))))
    return Streams(home, period, np.load(answers))


def find_answers(streams: Streams) -> np.ndarray:
    """int64[seconds]: pairs by the second of their later tuple, of one period and of the pieces after it that repeat
    none."""
    found = np.zeros((streams.period + REACH) * PIECE_S, np.int64)
    for from_us in range(0, len(found) * 1_000_000, PIECE_US):
        counts = later_seconds(streams, from_us, from_us + PIECE_US)
        found[from_us // 1_000_000 :][: len(counts)] = counts
    return found


def later_seconds(streams: Streams, from_us: int, until_us: int) -> np.ndarray:
    """int64[n], from DuckDB: pairs whose later tuple comes in this span, by its second, counted from from_us."""
    import duckdb

    from peers.sql import join

    connection = duckdb.connect(config={"threads": 2})
    for side in SIDES:
        connection.register(f"{side}_rows", streams.table(side, until_us, max(0, from_us - WINDOW_US)))
    pairs = join("bucketed", "duckdb", "left_rows", "right_rows", WINDOW_US, "greatest(l.ts, r.ts) as later")
    second = f"(later - {from_us}) // 1000000 as second"
    query = f"select {second}, count(*) as pairs from ({pairs}) where later >= {from_us} group by all"
    rows = connection.execute(query).fetchnumpy()
    return np.bincount(rows["second"].astype(np.int64), rows["pairs"]).astype(np.int64)


def _mapped(file: Path) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(file))).read_all()


def _write(table: pa.Table, file: Path) -> None:
    part = file.with_suffix(".part")
    with pa.ipc.new_file(part, table.schema) as writer:
        writer.write_table(table, max_chunksize=1 << 16)
    part.rename(file)
