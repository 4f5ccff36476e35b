"""Blocks that a thread decodes ahead: the same rows, faults and progress as without, few at a time, and no thread that
outlives its files."""

import random
import threading
import time
from functools import partial
from queue import SimpleQueue

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mpijoin.config.load import load_job
from mpijoin.data.schema import Column, StreamSchema
from mpijoin.errors import InputError
from mpijoin.sources import stream_parts
from mpijoin.sources.ahead import AheadReader, Decoded, Decoder
from mpijoin.sources.base import End
from mpijoin.sources.blocks import BlockLimit
from mpijoin.sources.files import open_file
from mpijoin.sources.merge import AHEAD_BYTES_MIN, MergedFiles, Part
from mpijoin.sources.screen import StreamRules

ROWS, BLOCK_ROWS = 40_000, 1000
TABLE = pa.table({"ts": np.arange(ROWS), "key": np.arange(ROWS) * 7919 % 1000})
COLUMNS = (Column("ts", pa.int64()), Column("key", pa.int64()))
SCHEMA = StreamSchema("left", COLUMNS[0], 1, (COLUMNS[1],), False, ())


class Counted:
    """A reader that knows how many of its blocks were decoded, by which threads, and whether it is closed."""

    def __init__(self, blocks, fails_at=None, pause_s=0.0):
        self.decoded, self.threads = 0, set()
        self.is_closed = self.was_read_closed = False
        self._blocks, self._fails_at, self._pause_s = blocks, fails_at, pause_s

    def blocks(self):
        for number in range(self._blocks):
            self.threads.add(threading.current_thread().name)
            time.sleep(self._pause_s)
            self.was_read_closed |= self.is_closed
            if number == self._fails_at:
                raise InputError("a damaged block")
            self.decoded += 1
            yield number

    def fraction(self):
        return self.decoded / self._blocks

    def close(self):
        self.is_closed = True


def threads():
    return {thread for thread in threading.enumerate() if thread.name == "mpijoin decoder"}


@pytest.fixture(autouse=True)
def decoders():
    """Returns the decoders' threads of this test, of which it leaves none. Other tests may not close their sources."""
    earlier = threads()
    yield lambda: threads() - earlier
    assert threads() <= earlier


@pytest.fixture
def decoder(decoders):
    one = Decoder()
    yield one
    one.close()


def settle(reader, decoded):
    end = time.monotonic() + 10
    while reader.decoded < decoded and time.monotonic() < end:
        time.sleep(0.001)
    time.sleep(0.01)  # for one too many
    assert reader.decoded == decoded


def test_so_many_blocks_as_asked_wait_decoded_by_another_thread(decoder):
    reader, limit = Counted(20), BlockLimit(ahead=3)
    ahead = AheadReader(reader, limit, decoder)
    taken = ahead.blocks()
    assert next(taken) == 0
    settle(reader, 4)
    assert next(taken) == 1
    settle(reader, 5)
    assert next(taken) == 2
    settle(reader, 6)
    limit.ahead = 1
    assert [next(taken), next(taken), next(taken)] == [3, 4, 5]
    settle(reader, 7)
    limit.ahead = 0
    assert [next(taken), next(taken), next(taken)] == [6, 7, 8]
    settle(reader, 9)
    assert reader.threads == {threading.current_thread().name, "mpijoin decoder"} and decoder.cpu_s > 0
    limit.ahead = 2
    assert list(taken) == list(range(9, 20))


def test_progress_is_that_of_the_blocks_taken(decoder):
    reader = Counted(8)
    ahead = AheadReader(reader, BlockLimit(ahead=5), decoder)
    seen = [ahead.fraction()]
    for number in ahead.blocks():
        settle(reader, min(8, number + 6))
        seen.append(ahead.fraction())
    assert seen == [number / 8 for number in range(9)]


@pytest.mark.parametrize("fails_at", [0, 1, 2, 7])
def test_a_fault_comes_behind_the_blocks_before_it(decoder, fails_at):
    blocks = AheadReader(Counted(9, fails_at), BlockLimit(ahead=3), decoder).blocks()
    assert [next(blocks) for _ in range(fails_at)] == list(range(fails_at))
    with pytest.raises(InputError, match="a damaged block"):
        next(blocks)


def test_a_file_is_closed_behind_the_block_that_is_being_decoded_and_nothing_is_decoded_later(decoder):
    for seed in range(40):
        rng = random.Random(seed)
        readers = [Counted(30, pause_s=0.0005) for _ in range(3)]
        limit = BlockLimit(ahead=rng.randint(1, 4))
        files = [AheadReader(one, limit, decoder) for one in readers]
        for file in files:
            blocks = file.blocks()
            assert [next(blocks) for _ in range(4)] == [0, 1, 2, 3]
        rng.shuffle(files)
        for file in files:
            time.sleep(rng.random() / 1000)
            file.close()
        decoded = [one.decoded for one in readers]
        time.sleep(0.003)
        assert decoded == [one.decoded for one in readers] and all(one.is_closed for one in readers)
        assert not any(one.was_read_closed for one in readers)


def parquet(path, start=0, rows=ROWS, group_rows=9000):
    pq.write_table(TABLE.slice(start, rows), path, row_group_size=group_rows, compression="none", use_dictionary=False)
    return str(path)


def merged(paths, block_rows=BLOCK_ROWS, octets=8 << 20):
    parts = [Part(path, 1, partial(open_file, path), True) for path in paths]
    return MergedFiles(StreamRules(SCHEMA, 0, None), parts, BlockLimit(block_rows, octets))


def rows_of(source):
    rows = []
    while not isinstance(chunk := source.read(1 << 20), End):
        rows += chunk.batch.time.tolist()
    return rows


@pytest.mark.parametrize("files", [1, 2, 3, 5, 40])
def test_files_that_overlap_share_what_may_wait(tmp_path, monkeypatch, decoders, files):
    """All blocks that wait, of all files of a stream, and the one that is taken take no more than one may, and there is
    one thread, however many files are open."""
    waiting, peak, most_threads = [0], [0], [0]

    class Measured(SimpleQueue):
        def put(self, item):
            if isinstance(item, Decoded) and item.block:
                waiting[0] += item.block.nbytes
                peak[0] = max(peak[0], waiting[0])
                most_threads[0] = max(most_threads[0], len(decoders()))
            super().put(item)

        def get(self):
            item = super().get()
            if isinstance(item, Decoded) and item.block:
                waiting[0] -= item.block.nbytes
            return item

    monkeypatch.setattr("mpijoin.sources.ahead.SimpleQueue", Measured)
    paths = [parquet(tmp_path / f"{number:02}.parquet", group_rows=ROWS) for number in range(files)]
    source = merged(paths, ROWS, octets=2 * AHEAD_BYTES_MIN)
    rows = rows_of(source)
    source.close()
    assert rows == sorted(np.tile(np.arange(ROWS), files).tolist())
    assert most_threads[0] == 1 and not decoders()
    with_nulls = AHEAD_BYTES_MIN * 65 // 64
    assert peak[0] == with_nulls if files == 1 else peak[0] <= 2 * with_nulls


def test_a_small_buffer_lets_nothing_wait(tmp_path, decoders):
    source = merged([parquet(tmp_path / "a.parquet")], octets=2 * AHEAD_BYTES_MIN - 1)
    source.read(1)
    assert not decoders()
    source.close()


def test_a_source_closes_while_its_thread_decodes(tmp_path, decoders):
    paths = [parquet(tmp_path / f"{number}.parquet", number * 100, ROWS - 200) for number in range(2)]
    for seed in range(60):
        rng = random.Random(seed)
        source = merged(paths, rng.choice((1, 10, 1000)))
        for _ in range(rng.randint(0, 5)):
            source.read(1000)
        source.close()
        source.close()
        assert not decoders()


def test_a_source_that_fails_leaves_no_thread(tmp_path):
    path = parquet(tmp_path / "a.parquet")
    source = merged([path])
    source.read(1000)
    pq.write_table(TABLE.slice(0, 10), path)
    with pytest.raises(InputError, match="changed while it was read"):
        rows_of(source)
    source.close()


@pytest.mark.parametrize("extension, is_decoded", [("parquet", True), ("csv.gz", True), ("arrow", False)])
def test_what_takes_work_is_decoded_ahead(tmp_path, extension, is_decoded):
    (tmp_path / f"a.{extension}").touch()
    stream = {"path": str(tmp_path), "time": "ts", "key": "key", "window": "1 s"}
    job = load_job({"left": stream, "right": stream, "output": {"results": "count"}})
    assert [part.is_decoded for part in stream_parts(job, 0)] == [is_decoded]


def test_without_a_thread_to_be_had_blocks_come_all_the_same(tmp_path, monkeypatch, decoders):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    source = merged([parquet(tmp_path / f"{number}.parquet") for number in range(2)])
    assert rows_of(source) == np.repeat(np.arange(ROWS), 2).tolist() and not decoders()
    source.close()
