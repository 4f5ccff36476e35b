"""What the tests of the whole engine share: streams as plain Python rows, their files, and what a run must give."""

import csv
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

import mpijoin
import oracle

UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
FORMATS = {"parquet": ".parquet", "ipc": ".arrow", "csv": ".csv"}


@dataclass(frozen=True)
class Stream:
    """One stream. files: lists of rows (time in its own unit or None, key values, payload values)."""

    name: str
    files: tuple
    unit: str
    time_type: pa.DataType
    key_types: tuple
    payload_types: tuple = ()
    window_ns: int | None = 0  # None means unbounded.
    lateness_ns: int = 0
    # It is "parquet", "ipc", "csv", or "table", which is handed over in memory if there is only one file.
    form: str = "parquet"

    @property
    def names(self):
        keys = [f"k{i}" for i in range(len(self.key_types))]
        return ["ts", *keys, *(f"p{i}" for i in range(len(self.payload_types)))]

    @property
    def rows(self):
        """{row number: (time, key, payload)} of all files."""
        return {
            index * oracle.FILE_ROWS + at: row for index, rows in enumerate(self.files) for at, row in enumerate(rows)
        }


@contextmanager
def compiled_once():
    """Compiles the kernels first, while nobody waits for a rank.

    They stay loaded from one run to the next, so runs within this context need not warm up.
    """
    stream = {"kind": "synthetic", "tuples": 10}
    for count in (2, 3):
        streams = {f"s{number}": stream for number in range(count)}
        with TemporaryDirectory() as folder:
            output, checkpoint = {"path": f"{folder}/run"}, {"epochs": 1}
            mpijoin.run({"streams": streams, "output": output, "checkpoint": checkpoint}, slaves=2)
    with mock.patch("mpijoin.launch.warmup.warm_up", return_value=0.0):
        yield


def table_of(stream, rows):
    columns = list(zip(*((time, *key, *payload) for time, key, payload in rows))) or [()] * len(stream.names)
    types = (stream.time_type, *stream.key_types, *stream.payload_types)
    return pa.table([pa.array(list(column), kind) for column, kind in zip(columns, types)], names=stream.names)


def write_file(stream, rows, folder, index):
    path = folder / f"part-{index:02d}{FORMATS[stream.form]}"
    table = table_of(stream, rows)
    if stream.form == "parquet":
        pq.write_table(table, path, row_group_size=7)
    elif stream.form == "ipc":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=5)
    else:
        with open(path, "w", newline="") as file:
            csv.writer(file).writerows([stream.names, *((time, *key, *payload) for time, key, payload in rows)])


def section(stream, folder):
    """Writes the stream's files into `folder`. Returns the stream's section of the job."""
    keys = stream.names[1 : 1 + len(stream.key_types)]
    window = "unbounded" if stream.window_ns is None else f"{stream.window_ns} ns"
    common = {"time": "ts", "key": keys, "window": window, "lateness": f"{stream.lateness_ns} ns"}
    if pa.types.is_integer(stream.time_type):
        common["time_unit"] = stream.unit
    if stream.form == "table":
        return {**common, "table": table_of(stream, stream.files[0])}
    own = Path(folder) / stream.name
    own.mkdir()
    for index, rows in enumerate(stream.files):
        write_file(stream, rows, own, index)
    return {**common, "path": str(own)}


@dataclass(frozen=True)
class Expected:
    """What a run must give. pairs: a Counter of the rows of each result · counts, late: by stream, where late is
    {row: (reason, watermark)}."""

    pairs: Counter
    counts: dict
    late: dict
    partners: dict | None = None  # {left row: how many it has}, where this is what is asked for

    @property
    def certificate(self):
        return oracle.certificate(self.pairs.elements())


def expect(*streams, kind="inner", holds=None, match="all"):
    """Returns what the definition of the join says, computed in nanoseconds with integers that never overflow. kind:
    the type of the join · holds, match: as for `oracle.typed`, of times in ns; "count" wants the number of partners of
    left rows."""
    kept, counts, late = [], {}, {}
    for number, stream in enumerate(streams):
        keeps_keyless = number in oracle.ALONE.get(kind, ())
        sides = [screen(stream, index, rows, keeps_keyless) for index, rows in enumerate(stream.files)]
        kept.append([row for side in sides for row in side[0]])
        late[stream.name] = {row: fate for side in sides for row, fate in side[1].items()}
        nulls = sum(side[2] for side in sides)
        read = len(kept[-1]) + len(late[stream.name]) + nulls
        counts[stream.name] = {"read": read, "joined": len(kept[-1]), "late": len(late[stream.name]), "null_key": nulls}
    windows = [stream.window_ns for stream in streams]
    if match == "count":
        partners = oracle.counted(kind, kept, windows, holds)
        return Expected(Counter((row, None) for row in partners), counts, late, partners)
    return Expected(Counter(oracle.typed(kind, kept, windows, holds, match)), counts, late)


def screen(stream, index, rows, keeps_keyless=False):
    """Screens one file's rows by the late rule.

    Returns (kept rows as (ns, key, row), {late row: (reason, watermark in its unit)}, number of null keys).
    """
    unit_ns = UNIT_NS[stream.unit]
    numbered = [
        (None if time is None else time * unit_ns, None if None in key else key, index * oracle.FILE_ROWS + at)
        for at, (time, key, _) in enumerate(rows)
    ]
    kept, lost, null_keys = oracle.late(numbered, stream.lateness_ns, keeps_keyless)
    marks, latest = {}, None
    for time, _, row in numbered:
        marks[row] = None if latest is None else -((stream.lateness_ns - latest) // unit_ns)
        latest = max((one for one in (latest, time) if one is not None), default=None)
    return kept, {row: (reason, marks[row]) for row, reason in lost}, null_keys


def expected_rows(streams, wanted, kind="inner"):
    """Returns a Counter of whole result rows: keys, times, rows, and the payload of one stream after the other. The
    number of partners comes last if it is wanted."""
    pairs, partners = wanted.pairs, wanted.partners
    shown, found = streams[:1] if partners is not None or kind in ("semi", "anti") else streams, Counter()
    rows = [stream.rows for stream in shown]
    for result, count in pairs.items():
        taken = [
            (None, None, (None,) * len(stream.payload_types)) if row is None else own[row]
            for stream, own, row in zip(shown, rows, result)
        ]
        times, keys, payloads = zip(*taken)
        key = next(key for key in keys if key is not None)
        answers = () if partners is None else (partners[result[0]],)
        values = (value for payload in payloads for value in payload)
        found[(*key, *times, *result[: len(shown)], *values, *answers)] += count
    return found


def expected_schema(streams):
    def plain(kind):
        return kind.value_type if pa.types.is_dictionary(kind) else kind

    one_key = len(streams[0].key_types) == 1
    named = [("key" if one_key else f"key_k{i}", plain(kind)) for i, kind in enumerate(streams[0].key_types)]
    named += [(f"{stream.name}_time", stream.time_type) for stream in streams]
    named += [(f"{stream.name}_row", pa.int64()) for stream in streams]
    for stream in streams:
        named += [(f"{stream.name}_p{i}", plain(kind)) for i, kind in enumerate(stream.payload_types)]
    return named


def values(column):
    """Returns plain Python values. Timestamps are integers of their unit, since Python's own have no nanoseconds."""
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()


def table_rows(table):
    columns = [values(column) for column in table.columns]
    return Counter(zip(*columns)) if columns else Counter()


def check_counts(summary, wanted):
    """Checks results, certificate and ledger in the summary of a run that was not resumed."""
    check_answer(summary, wanted)
    assert sum(slave["results"] for slave in summary["per_slave"].values()) == wanted.pairs.total()


def check_answer(summary, wanted):
    """Checks the same as `check_counts`, for any run."""
    assert summary["results"] == wanted.pairs.total()
    check_streams(summary, wanted)
    assert summary["certificate"] == wanted.certificate


def check_streams(summary, wanted):
    """Checks the counts of the streams in the summary of a run."""
    for name, counts in wanted.counts.items():
        assert {field: summary["streams"][name][field] for field in counts} == counts


def check_late(path, stream, wanted):
    """Checks the late file: which rows are late, why, and below which watermark."""
    table = pq.read_table(Path(path) / "late" / f"{stream.name}.parquet")
    found = zip(*(values(table[name]) for name in ("row", "reason", "watermark")))
    assert {row: (reason, mark) for row, reason, mark in found} == wanted.late[stream.name]
    assert table.num_rows == len(wanted.late[stream.name])
