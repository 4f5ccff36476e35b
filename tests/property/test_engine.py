"""Any job through the whole engine: its results, late rows, counts and certificate are the oracle's."""

import datetime
import tempfile
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import mpijoin
import mpijoin.coordinator.start
import mpijoin.producer.intake
import mpijoin.producer.pacing
import mpijoin.slave.rotating
import oracle
from engine_harness import (
    Stream,
    check_counts,
    check_late,
    compiled_once,
    expect,
    expected_rows,
    expected_schema,
    section,
    table_rows,
)
from mpijoin.slave.core import SlaveCore
from random_policy import random_policy

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
LONG = "more than eight letters"


class KeyKind(NamedTuple):
    """left, right: types that compare with each other · pool: values to draw from."""

    left: pa.DataType
    right: pa.DataType
    pool: tuple


KEY_KINDS = (
    KeyKind(pa.int64(), pa.int64(), (0, 1, -1, 7, LOWEST, HIGHEST)),
    KeyKind(pa.int32(), pa.int64(), (0, 1, -1, -(1 << 31), 5)),
    KeyKind(pa.uint64(), pa.uint64(), (0, 1, (1 << 64) - 1)),
    KeyKind(pa.bool_(), pa.bool_(), (False, True)),
    KeyKind(pa.date32(), pa.date32(), tuple(datetime.date(2016, 10, day) for day in (13, 14, 15))),
    KeyKind(pa.timestamp("us"), pa.timestamp("us"), (0, 1, 10**9)),
    KeyKind(pa.string(), pa.string(), ("", "a", "b", "ab", LONG)),
    KeyKind(pa.dictionary(pa.int8(), pa.string()), pa.large_string(), ("a", "b", LONG)),
    KeyKind(pa.binary(), pa.binary(3), (b"abc", b"abd", b"\0\0\0")),
)
CSV_KEY_KINDS = (KEY_KINDS[0], KeyKind(pa.string(), pa.string(), ("a", "b", "ab", LONG)))
PAYLOADS = {
    pa.int64(): some.sampled_from((0, -5, HIGHEST)),
    pa.int8(): some.integers(-128, 127),
    pa.float64(): some.sampled_from((0.0, -1.5, 1e300)),
    pa.bool_(): some.booleans(),
    pa.string(): some.sampled_from(("", "x", LONG, "y" * 3000)),
    pa.binary(5): some.sampled_from((b"12345", b"\0" * 5)),
    pa.binary(): some.sampled_from((b"", b"z" * 70)),
    pa.time32("ms"): some.sampled_from((datetime.time(1, 2, 3), datetime.time(0))),
}


NAMES = ("left", "right", "third", "stream_4", "p5")
ROWS_MAX = {1: 40, 2: 40, 3: 8, 4: 8, 5: 5}  # of a file, by how many streams there are


class Shape(NamedTuple):
    """What the streams of a job have in common. step_ns: of which gaps and windows are multiples."""

    units: tuple
    step_ns: int
    start: int  # in steps
    is_csv: bool
    keys: tuple
    pools: tuple
    timestamps: bool


@some.composite
def shapes(draw, keys_max=some.sampled_from([1, 1, 2])):
    units = draw(some.sampled_from([("us", "us"), ("ns", "ns"), ("s", "s"), ("ms", "us"), ("ms", "s"), ("ns", "us")]))
    is_csv = draw(some.sampled_from([False, False, False, True]))
    kinds = some.sampled_from(CSV_KEY_KINDS if is_csv else KEY_KINDS)
    keys = tuple(draw(some.lists(kinds, min_size=1, max_size=draw(keys_max))))
    pools = tuple(kind.pool[: draw(some.integers(1, len(kind.pool)))] for kind in keys)
    unit_ns = max(10**9 if unit == "s" else {"ms": 10**6, "us": 10**3, "ns": 1}[unit] for unit in units)
    timestamps = draw(some.booleans()) and not is_csv
    starts = [0, -50, 1_476_403_200]
    if units == ("ns", "ns") and not timestamps:
        starts += [LOWEST, LOWEST + 20, HIGHEST - 60]
    return Shape(units, unit_ns, draw(some.sampled_from(starts)), is_csv, keys, pools, timestamps)


@some.composite
def streams(draw, shape, side, count=2):
    """Stream number `side` of `count`: the more there are, the fewer rows, since all may have one key."""
    unit = shape.units[side % 2]
    nulls = [] if shape.is_csv else [some.none()]
    keys = some.tuples(*(some.one_of(*[some.sampled_from(pool)] * 3, *nulls) for pool in shape.pools))
    kinds = [pa.int64()] if shape.is_csv else list(PAYLOADS)
    payload = tuple(draw(some.lists(some.sampled_from(kinds), max_size=3)))
    payloads = some.tuples(*(some.one_of(PAYLOADS[kind], PAYLOADS[kind], *nulls) for kind in payload))
    gaps = some.one_of(some.integers(0, 3), some.integers(-4, 8))
    no_time = some.sampled_from([False] * 12 + [not shape.is_csv])
    row = some.tuples(gaps, no_time, keys, payloads)
    rows = some.lists(row, min_size=1 if shape.is_csv else 0, max_size=ROWS_MAX[count])
    lists = draw(some.lists(rows, min_size=1, max_size=3 if count < 4 else 1))
    files = tuple(clocked(shape, unit, file) for file in lists)
    parquet = [] if shape.timestamps and unit == "s" else ["parquet"]
    forms = ["csv"] if shape.is_csv else ["ipc", *parquet, *["table"] * (len(files) == 1)]
    return Stream(
        name=NAMES[side],
        files=files,
        unit=unit,
        time_type=pa.timestamp(unit) if shape.timestamps else pa.int64(),
        key_types=tuple(kind[side % 2] for kind in shape.keys),
        payload_types=payload,
        window_ns=draw(some.one_of(durations(shape), durations(shape), some.none())),
        lateness_ns=draw(durations(shape)),
        form=draw(some.sampled_from(forms)),
    )


def durations(shape):
    """Also such that are no whole number of the time columns' units, where nothing is near the end of time."""
    whole = some.one_of(some.integers(0, 12), some.sampled_from([0, 1000])).map(lambda count: count * shape.step_ns)
    return whole if abs(shape.start) > 1 << 40 else some.tuples(whole, some.sampled_from([0, 0, 1, 499])).map(sum)


def clocked(shape, unit, rows):
    """Gaps between rows become times in the stream's unit."""
    unit_ns = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
    at, found = shape.start, []
    for gap, has_no_time, key, payload in rows:
        at += gap
        time = min(max(at * shape.step_ns // unit_ns, LOWEST), HIGHEST)
        found.append((None if has_no_time else time, key, payload))
    return found


@some.composite
def settings_of_runs(draw):
    """Everything that must not matter."""
    epoch = draw(
        some.one_of(some.just("auto"), some.sampled_from(["1 ns", "3 ns", "1 us", "700 us", "5 ms", "4 s", "9 h"]))
    )
    return {
        "balance": {"policy": draw(some.sampled_from(["none", "balance"]))},  # which stands for random moves here
        "cluster": {
            "partitions": draw(some.integers(1, 8)),
            "distribution_epoch": epoch,
            "reorganization_epoch": "20 s" if epoch == "auto" else epoch,
            "subgroups": draw(some.integers(1, 4)),
            "buffer": draw(some.sampled_from(["64 KiB", "64 MiB"])),
            "master_buffer": draw(some.sampled_from(["64 KiB", "256 MiB"])),
        },
        "memory": {"limit": "16 MiB"},
        "tuning": {
            "theta": draw(some.sampled_from(["auto", "off", "1 B", "100 B", "1 KB"])),
            "block": draw(some.sampled_from(["64 B", "200 B", "4 KiB"])),
            "result_buffer": draw(some.sampled_from([1, 2, 7, 8192])),
        },
        "inject": {"hash_bits": draw(some.sampled_from([1, 2, 4, 64, 64]))},
    }


@contextmanager
def inner_sizes(rows, seed=0):
    """Cuts everything the engine cuts by size after so few rows, that tests need no millions; None: as it is. Policies
    other than "none" move groups at random at every epoch."""

    def policies(balance, memory):
        return None if balance.policy == "none" else random_policy(seed)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(mpijoin.coordinator.start, "make_policy", policies))
        stack.enter_context(mock.patch.object(mpijoin.producer.pacing, "EPOCHS_PER_REORGANIZATION", 1))
        if rows:
            core = partial(SlaveCore, slice_rows=rows, budget=rows)
            for target, name, value in (
                (mpijoin.producer.intake, "PART_BYTES", 64 * rows),
                (mpijoin.producer.ticks, "READ_ROWS", rows),
                (mpijoin.slave.rotating, "SlaveCore", core),
                (mpijoin.sources.base, "BLOCK_ROWS", rows),
            ):
                stack.enter_context(mock.patch.object(target, name, value))
        yield


@pytest.fixture(autouse=True, scope="module")
def kernels():
    with compiled_once():
        yield


def run(job, sides, slaves, folder):
    sections = {stream.name: section(stream, folder) for stream in sides}
    if sections.keys() != {"left", "right"}:  # which need no more than their names
        sections = {"streams": sections}
    return mpijoin.run({**sections, **job}, slaves=slaves)


@some.composite
def jobs_of_streams(draw):
    """(their shape, one to five streams)."""
    shape, count = draw(shapes()), draw(some.sampled_from([2, 2, 1, 3, 3, 4, 5]))
    return shape, [draw(streams(shape, side, count)) for side in range(count)]


SLAVES, INNER_SIZES, SEEDS = some.integers(1, 4), some.sampled_from([None, 1, 3, 10]), some.integers(0, 99)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    jobs_of_streams(),
    settings_of_runs(),
    SLAVES,
    INNER_SIZES,
    SEEDS,
    some.sampled_from(["memory", "parquet", "collect"]),
)
def test_rows_payload_late_set_and_counts_are_the_oracles(inputs, job, slaves, rows, seed, output):
    shape, sides = inputs
    wanted = expect(*sides)
    with tempfile.TemporaryDirectory() as folder, inner_sizes(rows, seed):
        path = Path(folder) / "run"
        if shape.timestamps and "s" in shape.units:
            output = "memory"  # Parquet has no timestamps in seconds: it gives back milliseconds
        if output != "memory":
            job["output"] = {"path": str(path), "results": output, "part": "1 KB"}
        done = run(job, sides, slaves, folder)
        check_counts(done.summary, wanted)
        table = done.table() if done.results or output == "memory" else None
        if output != "memory" and abs(shape.start) < 1 << 40:  # else the watermark itself is beyond the column's type
            for stream in sides:
                check_late(path, stream, wanted)
    if table is not None:
        assert [(field.name, field.type) for field in table.schema] == expected_schema(sides)
        assert table_rows(table) == expected_rows(sides, wanted)


@some.composite
def typed_jobs(draw):
    """(the type, what is asked of partners, two streams) of a join whose results show rows without partner. Where they
    show keys of the second stream, these have the types of the first one's."""
    shape, kind = draw(shapes(some.sampled_from([1, 2, 3, 9]))), draw(some.sampled_from([*oracle.ALONE]))
    left, right = (draw(streams(shape, side)) for side in range(2))
    if 1 in oracle.ALONE[kind]:
        right = replace(right, key_types=left.key_types)
    return kind, draw(some.sampled_from(["all", "last", "count"])) if kind == "left" else "all", (left, right)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(typed_jobs(), settings_of_runs(), SLAVES, INNER_SIZES, SEEDS)
def test_rows_without_partner_show_what_their_key_columns_hold(inputs, job, slaves, rows, seed):
    kind, match, sides = inputs
    job["join"] = {"type": kind, **({"reduce": {"n": "count()"}} if match == "count" else {"match": match})}
    wanted = expect(*sides, kind=kind, match=match)
    with tempfile.TemporaryDirectory() as folder, inner_sizes(rows, seed):
        done = run(job, sides, slaves, folder)
        check_counts(done.summary, wanted)
        assert table_rows(done.table()) == expected_rows(sides, wanted, kind)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(jobs_of_streams(), settings_of_runs(), SLAVES, INNER_SIZES, SEEDS)
def test_counting_needs_no_payload_and_counts_the_same(inputs, job, slaves, rows, seed):
    _, sides = inputs
    with tempfile.TemporaryDirectory() as folder, inner_sizes(rows, seed):
        job["output"] = {"path": str(Path(folder) / "run"), "results": "count"}
        done = run(job, sides, slaves, folder)
        check_counts(done.summary, expect(*sides))
        assert list((Path(folder) / "run" / "results").iterdir()) == []


@settings(max_examples=25, deadline=None, derandomize=True)
@given(some.data(), shapes(), settings_of_runs(), SLAVES)
def test_chosen_columns_come_in_the_order_asked_for(data, shape, job, slaves):
    sides = [data.draw(streams(shape, side)) for side in range(2)]
    names = [name for name, _ in expected_schema(sides)]
    chosen = data.draw(some.lists(some.sampled_from(names), min_size=1, unique=True))
    job["output"] = {"columns": chosen}
    with tempfile.TemporaryDirectory() as folder, inner_sizes(None):
        table = run(job, sides, slaves, folder).table()
    wanted = Counter()
    for row, times in expected_rows(sides, expect(*sides)).items():
        wanted[tuple(row[names.index(name)] for name in chosen)] += times
    assert table.column_names == chosen
    assert table_rows(table) == wanted


def test_part_files_are_many_and_hold_each_pair_once(tmp_path):
    rows = [[(time, (time % 5,), (time,)) for time in range(400)]]
    sides = [
        Stream(name, tuple(rows), "us", pa.int64(), (pa.int64(),), (pa.int64(),), 200_000) for name in ("left", "right")
    ]
    job = {
        "output": {"path": str(tmp_path / "run"), "part": "1 B"},
        "cluster": {"distribution_epoch": "50 us"},
        "memory": {"limit": "16 MiB"},
    }
    with mock.patch("mpijoin.sinks.parts.ROW_GROUP_ROWS", 100):
        done = run(job, sides, 2, tmp_path)
    files = sorted((tmp_path / "run" / "results").iterdir())
    assert {file.name.rsplit("-", 1)[0] for file in files} == {"rank-1", "rank-2"}
    assert sum(pq.read_metadata(file).num_rows for file in files) == done.results
    assert table_rows(done.table()) == expected_rows(sides, expect(*sides))


@pytest.mark.parametrize(
    "sides", [((), (pa.string(),)), ((pa.string(),), ()), ((pa.int64(),), (pa.binary(), pa.int8()))]
)
def test_a_hashed_key_of_fixed_size_with_variable_payload_on_one_side_only(sides, tmp_path):
    """The records of the two streams then begin at different words, where the keys' own values are compared."""
    values = {pa.string(): "text", pa.int64(): 5, pa.binary(): b"bytes", pa.int8(): 3}
    both = []
    for name, payload in zip(("left", "right"), sides):
        rows = [(time, (time % 2, time % 3), tuple(values[kind] for kind in payload)) for time in range(30)]
        both.append(Stream(name, (rows,), "us", pa.int64(), (pa.int64(), pa.int64()), payload, 7000, 0, "ipc"))
    wanted = expect(*both)
    done = run({"inject": {"hash_bits": 1}, "memory": {"limit": "16 MiB"}}, both, 2, tmp_path)
    assert wanted.pairs.total() > 50
    check_counts(done.summary, wanted)
    assert table_rows(done.table()) == expected_rows(both, wanted)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_keys_whose_hashes_alone_are_equal_do_not_join(count, tmp_path):
    """Five texts, of whose hashes one bit is left."""
    rows = [(time, (f"a key, number {time % 5}",), (time,)) for time in range(10)]
    sides = [
        Stream(name, (rows,), "us", pa.int64(), (pa.string(),), (pa.int64(),), None, 0, "table")
        for name in NAMES[:count]
    ]
    wanted = expect(*sides)
    assert wanted.pairs.total() == 5 * 2**count
    done = run({"inject": {"hash_bits": 1}, "memory": {"limit": "16 MiB"}}, sides, 2, tmp_path)
    check_counts(done.summary, wanted)
    assert table_rows(done.table()) == expected_rows(sides, wanted)
