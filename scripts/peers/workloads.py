"""The workloads of bench_peers.py: both streams in every format that a peer reads, and the right answer; made once,
then kept.

Streams have ts (us), key and id (the row's number), all int64, in order of time. Answers come from DuckDB and numpy,
without a line of mpijoin.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from benching.data import KEY_BITS, WINDOW_US, Answer, find_answer, make_data, tables

REAL_TUPLES = 10_000_000  # of both streams; as many copies of the real ones as reach it
PAYLOAD = ("a", "b", "c", "d", "e")  # int64 columns: with time, key and id tuples of 64 bytes
PAYLOAD_SEED = {"left": 11, "right": 12}
SPLIT_ROWS = 500_000  # of a file of the "split" format, which Spark takes as one micro-batch
ARROW_ROWS = 1 << 16  # of a record batch of the "arrow" format, which has no codec, so that it can be mapped
SIDES = ("left", "right")
THREE = ("one", "two", "three")


@dataclass(frozen=True)
class Workload:
    """tuples: of all streams · window_us: to either side · columns: of a stream beyond ts, key and id · streams: their
    names · form: the format of the files that mpijoin, DuckDB and Polars read · writes: the results are written to
    Parquet, not counted."""

    name: str
    title: str
    home: Path
    tuples: int
    window_us: int
    answer: Answer
    columns: tuple[str, ...] = ()
    streams: tuple[str, ...] = SIDES
    form: str = "parquet"

    @property
    def writes(self) -> bool:
        return bool(self.columns)

    def files(self, form: str = "") -> list[Path]:
        """All streams in a format: parquet, packed.parquet, arrow, csv (with a header), binary (records of 24 bytes) or
        split (a folder of Parquet files, the oldest first); without one, in the workload's own. Made if not there."""
        return [self._file(side, form or self.form) for side in self.streams]

    def _file(self, side: str, form: str) -> Path:
        path = self.home / f"{side}.{form}"
        if not path.exists():
            unfinished = path.with_name(f"{path.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            columns = ["ts", "key", "id", *self.columns]
            WRITERS[form](pq.read_table(self.home / f"{side}.parquet", columns=columns), unfinished)
            unfinished.rename(path)
        return path


class Missing(Exception):
    """A workload cannot be made here; the message says why."""


def write_arrow(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table, ARROW_ROWS)


def write_packed(table: pa.Table, path: Path) -> None:
    """Packs differences of whole numbers, as the streams that `mpijoin prepare` and `generate` write."""
    packed = dict.fromkeys(table.column_names, "DELTA_BINARY_PACKED")
    pq.write_table(table, path, compression="zstd", use_dictionary=False, column_encoding=packed)


def write_csv(table: pa.Table, path: Path) -> None:
    pyarrow.csv.write_csv(table.rename_columns(["ts", "key", "row"]), path)  # Pathway has an id of its own


def write_binary(table: pa.Table, path: Path) -> None:
    np.column_stack([column.to_numpy() for column in table.columns]).astype("<i8").tofile(path)


def write_split(table: pa.Table, path: Path) -> None:
    path.mkdir()
    for start in range(0, table.num_rows, SPLIT_ROWS):
        pq.write_table(table.slice(start, SPLIT_ROWS), path / f"{start:012d}.parquet")


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "arrow": write_arrow,
    "packed.parquet": write_packed,
    "csv": write_csv,
    "binary": write_binary,
    "split": write_split,
}


@dataclass(frozen=True)
class Recipe:
    """Made-up streams of so many tuples each, or copies of a real set; and their window. bits: there are 2^bits
    keys."""

    title: str
    tuples: int = 0
    bias: float = 0.7
    payload: bool = False
    real: str = ""
    window_us: int = WINDOW_US
    streams: tuple[str, ...] = SIDES
    bits: int = KEY_BITS


RECIPES = {
    "A": Recipe("1500 tuples/s and stream, keys of bias 0.7, window 600 s", 5_000_000),
    "B": Recipe("as A, shorter", 1_000_000),
    "C": Recipe("as A, longer", 20_000_000),
    "D": Recipe("as A, uniform keys", 5_000_000, bias=0.5),
    "E": Recipe("as A, keys of bias 0.8", 5_000_000, bias=0.8),
    "F1": Recipe("mooncake_kv (real, bursts), repeated, window 10 s", real="mooncake_kv", window_us=10_000_000),
    "F2": Recipe("italy_picks (real), repeated, window 20 s", real="italy_picks", window_us=20_000_000),
    "G": Recipe("as A, tuples of 64 bytes, all results with all columns written to Parquet", 5_000_000, payload=True),
    "I5": Recipe(
        "three streams of 1500 tuples/s, uniform keys, window 87 s",
        2_000_000, bias=0.5, window_us=87_000_000, streams=THREE, bits=18,
    ),
    "I7": Recipe(
        "three streams of 1500 tuples/s, keys of bias 0.7, window 92 s",
        2_000_000, window_us=92_000_000, streams=THREE,
    ),
}
# What a state larger than memory is measured with.
LARGE = {
    "J": Recipe("as A, window longer than the streams: every row stays", 5_000_000, window_us=6_000_000_000),
    "K": Recipe(
        "three streams of 1500 tuples/s, uniform keys, window 450 s",
        2_000_000, bias=0.5, window_us=450_000_000, streams=THREE, bits=20,
    ),
}
QUICK = 50  # a quick run has so many times fewer tuples


def make(name: str, folder: Path, real: Path, scale: int = 1) -> Workload:
    """A workload in a folder below `folder`, made if it is not there. real: folder of the real sets · scale: so many
    times smaller. Missing: its real set is not here."""
    recipe = RECIPES.get(name) or LARGE[name]
    if recipe.real:
        return _kept(name, folder, REAL_TUPLES // scale, lambda size: real_streams(recipe, real, size))
    tuples = recipe.tuples // scale
    if recipe.payload:
        return _with_payload(name, make("A", folder, real, scale), folder / f"{name}-{2 * tuples}")
    if (recipe.bias, recipe.window_us, recipe.streams) == (RECIPES["A"].bias, WINDOW_US, SIDES):
        data = make_data(folder, tuples)
        return Workload(name, recipe.title, data.left.parent, 2 * tuples, recipe.window_us, data.answer)
    count = len(recipe.streams)
    return _kept(name, folder, count * tuples, lambda size: tables(size // count, recipe.bias, count, recipe.bits))


def _kept(name: str, folder: Path, size: int, streams: Callable[[int], Iterator[pa.Table]]) -> Workload:
    """size: about so many tuples of all streams."""
    recipe, home = RECIPES.get(name) or LARGE[name], folder / f"{name}-{size}"
    known = home / "answer.json"  # written last: with it, all is there
    files = [home / f"{side}.parquet" for side in recipe.streams]
    if not known.exists():
        home.mkdir(parents=True, exist_ok=True)
        for file, table in zip(files, streams(size)):
            pq.write_table(table, file)
        known.write_text(json.dumps(asdict(find_answer(files, recipe.window_us))))
    tuples, answer = sum(pq.read_metadata(file).num_rows for file in files), Answer(**json.loads(known.read_text()))
    return Workload(name, recipe.title, home, tuples, recipe.window_us, answer, streams=recipe.streams)


def _with_payload(name: str, plain: Workload, home: Path) -> Workload:
    """The streams of `plain` with further columns: the pairs are the same."""
    home.mkdir(parents=True, exist_ok=True)
    for side in SIDES:
        path = home / f"{side}.parquet"
        if not path.exists():
            table = pq.read_table(plain.home / path.name)
            random = np.random.default_rng(PAYLOAD_SEED[side])
            for column in PAYLOAD:  # of all 64 bits: no encoding makes them smaller
                table = table.append_column(column, pa.array(random.integers(-(2**63), 2**63, table.num_rows)))
            pq.write_table(table, path.with_suffix(".unfinished"))
            path.with_suffix(".unfinished").rename(path)
    return Workload(name, RECIPES[name].title, home, plain.tuples, plain.window_us, plain.answer, PAYLOAD)


def real_streams(recipe: Recipe, folder: Path, size: int) -> Iterator[pa.Table]:
    """Copies of a real set, one after another, so far apart that no pair is of two copies. Keys become numbers, the
    same ones in both streams: some peers' records hold nothing else."""
    streams = [pq.read_table(file, columns=["ts", "key"]) for file in real_files(recipe.real, folder)]
    times = [stream["ts"].to_numpy() for stream in streams]
    keys = pa.chunked_array([chunk for stream in streams for chunk in stream["key"].chunks]).unique()
    copies = max(1, -(-size // sum(map(len, times))))
    first, last = min(one[0] for one in times), max(one[-1] for one in times)
    step = last - first + recipe.window_us + 1
    for stream, ts in zip(streams, times):
        codes = pa.compute.index_in(stream["key"], value_set=keys).to_numpy().astype(np.int64)
        shifted = (ts[None, :] - first + step * np.arange(copies)[:, None]).ravel()
        yield pa.table({"ts": shifted, "key": np.tile(codes, copies), "id": np.arange(len(shifted))})


def real_files(name: str, folder: Path) -> list[Path]:
    """left.parquet and right.parquet of a real set in `folder` or among those of the tests. Missing: it is in
    neither."""
    tests = Path(__file__).resolve().parents[2] / "tests/data"
    for home in (folder / name, tests / name):
        if home.is_dir():
            return [home / f"{side}.parquet" for side in SIDES]
    raise Missing(f"no folder {name} in {folder}")


def read_back(folder: Path, workload: Workload) -> tuple[int, int]:
    """Results and sum of id * 31 + id of the Parquet files in a folder, in any order of rows. ValueError: a row's
    columns are not those of the tuples that its ids name."""
    sources = [pq.read_table(file).combine_chunks() for file in workload.files("parquet")]
    results = total = 0
    for file in sorted(folder.rglob("*.parquet")):
        for batch in pq.ParquetFile(file).iter_batches(1 << 20):
            ids = [batch[f"{side}_id"].to_numpy() for side in SIDES]
            results, total = results + len(batch), total + int((ids[0] * 31 + ids[1]).sum())
            for side, source, rows in zip(SIDES, sources, ids):
                for column in (workload.columns[0], workload.columns[-1]):
                    if not np.array_equal(batch[f"{side}_{column}"].to_numpy(), source[column].to_numpy()[rows]):
                        raise ValueError(f"{file.name}: {side}_{column} is not that of the rows it is said to be of")
    return results, total
