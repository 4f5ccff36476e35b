"""A sound job over real files, and the single faults that it can have, each with what `check` says of it.

A fault says what it touches, and what must be unchanged for it to be seen: nobody can tell the columns of a file that
is not there. A fault depends on nothing else, so it is found whatever else is wrong with the job.
"""

import copy
from typing import Callable, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from mpijoin.config.check import resolve
from mpijoin.config.load import read_job
from mpijoin.errors import JobError
from mpijoin.launch.setup import launch_faults

COLUMNS = {"ts": pa.timestamp("us"), "sta": pa.string(), "num": pa.int64(), "amp": pa.float64()}
FILES = ("b.parquet", "c.parquet")
# The tables of a job's streams.
TWO, THREE = ("left", "right"), ("streams.picks", "streams.S_2", "streams.left")


class World:
    """A job as tables by name, and the files that it reads, by table and file name.

    A file is given by its columns, or by None if it is damaged.
    """

    def __init__(self, folder, streams=TWO):
        self.folder = folder
        self.job = {stream: {"time": "ts", "key": ["sta", "num"]} for stream in streams}
        self.job["output"] = {"path": str(folder / "new")}
        self.files = {stream: {name: list(COLUMNS.items()) for name in FILES} for stream in streams}
        self.overrides = []

    def set(self, section, field, value):
        self.job.setdefault(section, {})[field] = value

    @property
    def document(self):
        """The job with its tables nested as in a job file."""
        document = {}
        for name, table in self.job.items():
            *above, own = name.split(".")
            (document.setdefault(above[0], {}) if above else document)[own] = table
        return document

    def retype(self, side, column, kind, files=FILES):
        for name in files:
            self.files[side][name] = [(each, kind if each == column else old) for each, old in self.files[side][name]]

    def add(self, side, column, kind):
        for name in FILES:
            self.files[side][name].append((column, kind))

    def drop(self, side, column, name):
        self.files[side][name] = [(each, kind) for each, kind in self.files[side][name] if each != column]

    def faults(self):
        """Returns what is wrong, as `mpijoin check` would list it."""
        for side, files in self.files.items():
            if isinstance(self.job[side], dict):
                self.job[side].setdefault("path", self._folder_of(files))
        job, faults = read_job(self.document, self.overrides)
        try:
            resolve(job, [*faults, *launch_faults(job)])
        except JobError as error:
            return error.faults
        return []

    def _folder_of(self, files):
        """Returns a folder with files that have these columns. It is made once for all jobs that read such files."""
        folder = self.folder / f"{hash(str(files)) % 2**64:x}"
        if not folder.exists():
            folder.mkdir()
            for name, columns in files.items():
                if columns is None:
                    (folder / name).write_bytes(b"no parquet")
                else:
                    pq.write_table(pa.schema(columns).empty_table(), folder / name)
        return str(folder)


class Single(NamedTuple):
    """One fault. said: what its messages must contain, in their order; most faults have one message."""

    name: str
    said: tuple[str, ...]
    change: Callable[[World], None]
    touches: frozenset[str]
    needs: frozenset[str]

    def goes_with(self, other):
        """Returns whether one job can have both faults, and both can be seen."""
        return not (_meet(self.touches, other.touches | other.needs) or _meet(other.touches, self.needs))


def _meet(some, others):
    return any(
        one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.") for one in some for other in others
    )


def single(name, said, change, touches, needs=()):
    texts = (said,) if isinstance(said, str) else said
    return Single(name, tuple(texts), change, frozenset(touches.split()), frozenset(" ".join(needs).split()))


def value(section, field, bad, said, *needs, touches=""):
    """Returns the fault that a field has a bad value."""

    def change(world):
        world.set(section, field, copy.deepcopy(bad))

    texts = [said] if isinstance(said, str) else said
    return single(
        f"{section}.{field} = {bad!r}",
        [f"[{said_of(section)}] {text}" for text in texts],
        change,
        f"{section}.{field} {touches}",
        needs,
    )


def said_of(section):
    """Returns what messages call a stream's table. They use `left` and `right` as in the short form of a job."""
    return section.removeprefix("streams.") if section.endswith((".left", ".right")) else section


def stream_faults(side, others):
    """Yields the faults that each stream can have. others: the tables of the other streams."""
    where, name = said_of(side), side.rpartition(".")[2]
    every = [one.format(other) for other in others for one in ("{}.key", "{}.path", "{}.column.sta")]
    zones = [one.format(other) for other in others for one in ("{}.path", "{}.time", "{}.column.ts")]
    path, payload = f"{side}.path", f"{side}.path {side}.columns output.columns output.results"

    def columns(name, said, change, touches, *needs):
        return single(f"{side}: {name}", said, change, touches, (path, *needs))

    yield value(side, "window", "2 parsecs", 'window: got "2 parsecs"')
    yield value(side, "lateness", -1, "lateness: got -1")
    yield value(side, "kye", "sta", "kye: no such field")
    yield value(side, "zzz", 1, "zzz: no such field")
    yield value(side, "bias", 0.7, 'bias: is for kind = "synthetic" only')
    yield value(side, "path", "/nowhere/at/all.parquet", "path: /nowhere/at/all.parquet: no such file")
    yield value(side, "path", 3, "path: got 3")
    yield value(side, "path", "a\0b", "path: got")
    yield value(side, "kind", "files", ["path, kind: got 2 of them", 'kind: got "files"'])
    yield value(side, "time", 3, "time: got 3")
    yield value(side, "time", "when", 'time: no column "when"', path)
    yield value(
        side, "time_unit", "ms", 'time_unit: got "ms", but "ts" is timestamp[us]', path, f"{side}.time {side}.column.ts"
    )
    yield value(side, "time_unit", 3, "time_unit: got 3")
    yield value(side, "key", 3, "key: got 3")
    yield value(side, "key", ["sta", "sta"], 'key: got "sta" 2 times')
    yield value(side, "key", ["sta", "ts"], 'key: got "ts", which is the time', f"{side}.time")
    yield value(side, "key", ["sta", "who"], 'key: no column "who"', path)
    yield single(
        f"{side}.key too short", "columns, wanted as many", lambda world: world.set(side, "key", "sta"), f"{side}.key",
        [f"{other}.key" for other in others],
    )  # fmt: skip
    yield value(side, "types", 3, "types: got 3")
    both = ['types: got "strng" for column "amp"', "types: is for CSV files; the input is Parquet"]
    yield value(side, "types", {"amp": "strng"}, both, path)
    yield value(side, "columns", 3, "columns: got 3")
    yield value(side, "columns", ["amp", "amp"], 'columns: got "amp" 2 times')
    yield value(side, "columns", ["num"], 'columns: got "num", which results have anyway', f"{side}.key")
    yield value(side, "columns", ["nope"], 'columns: no column "nope"', path)
    said = f"[{where}] time: column \"ts\" is double, wanted a timestamp"
    yield columns(
        "time of a wrong type",
        said,
        lambda world: world.retype(side, "ts", pa.float64()),
        f"{side}.column.ts",
        f"{side}.time",
    )
    said = f"[{where}] time: column \"ts\" is int64, wanted also time_unit"
    needs = f"{side}.time {side}.time_unit"
    yield columns(
        "time without unit", said, lambda world: world.retype(side, "ts", pa.int64()), f"{side}.column.ts", needs
    )
    needs = " ".join([f"{side}.time {side}.time_unit", *zones])
    kind = pa.timestamp("us", "UTC")
    yield columns(
        "one zone", "with a time zone or", lambda world: world.retype(side, "ts", kind), f"{side}.column.ts", needs
    )
    said = f"[{where}] key: column \"num\" is double, which cannot be a key"
    yield columns(
        "float key", said, lambda world: world.retype(side, "num", pa.float64()), f"{side}.column.num", f"{side}.key"
    )
    needs = " ".join([f"{side}.key", *every])
    said = '"sta" is'
    yield columns("key pair", said, lambda world: world.retype(side, "sta", pa.binary()), f"{side}.column.sta", needs)
    said = f'[{where}] columns: "deep" is struct'
    yield columns(
        "payload type",
        said,
        lambda world: world.add(side, "deep", pa.struct([("x", pa.int8())])),
        f"{side}.column.deep",
        payload,
    )
    said = f'[{where}] path: the input has 2 columns named "amp"'
    yield columns("a name twice", said, lambda world: world.add(side, "amp", pa.int8()), f"{side}.column.amp", payload)
    said = f'2 columns would be called "{name}_row"'
    yield columns("results clash", said, lambda world: world.add(side, "row", pa.int8()), f"{side}.column.row", payload)
    needs = f"{side}.time {side}.column.ts"
    said = 'c.parquet: got no column "ts"'
    yield columns(
        "no time in a later file", said, lambda world: world.drop(side, "ts", "c.parquet"), f"{side}.later.ts", needs
    )
    needs, said = f"{side}.key {side}.column.num", 'c.parquet: column "num" is int8'
    yield columns(
        "key of a later file",
        said,
        lambda world: world.retype(side, "num", pa.int8(), ["c.parquet"]),
        f"{side}.later.num",
        needs,
    )
    yield columns(
        "first file damaged",
        "a.parquet: cannot be read",
        lambda world: world.files[side].update({"a.parquet": None}),
        f"{side}.first",
    )
    yield columns(
        "last file damaged",
        "d.parquet: cannot be read",
        lambda world: world.files[side].update({"d.parquet": None}),
        f"{side}.last",
    )


def job_faults(folder, streams):
    """Yields the faults of the other sections and of the run's folder. folder: an empty one, where files are made."""
    (folder / "file").write_text("a file")
    (folder / "full").mkdir(exist_ok=True)
    (folder / "full" / "notes.txt").write_text("somebody's")
    (folder / "saved").mkdir(exist_ok=True)
    (folder / "saved" / "00001.json").write_text("{}")
    yield value("output", "path", str(folder / "file"), f"path: {folder}/file cannot be a folder, it is a file")
    yield value(
        "output", "path", str(folder / "file" / "x"), f"path: {folder}/file/x cannot be a folder, {folder}/file is"
    )
    yield value("output", "path", str(folder / "full"), f"path: {folder}/full is not empty")
    yield value("output", "path", [1], "path: got [1]")
    yield value("output", "results", "csv", 'results: got "csv"')
    yield value("output", "columns", "some", 'columns: got "some"')
    yield value(
        "output",
        "columns",
        ["nope"],
        'columns: no column "nope"',
        "output.results",
        " ".join(f"{stream}.column.row" for stream in streams),
    )
    yield value("output", "part", 0, "part: got")
    yield value("checkpoint", "path", str(folder / "file"), f"path: {folder}/file cannot be a folder, it is a file")
    yield value("checkpoint", "path", str(folder / "saved"), f"path: {folder}/saved holds another run's checkpoints")
    yield value("checkpoint", "signals", ["SIGKILL"], 'signals: got "SIGKILL"')
    yield value("checkpoint", "keep", 0, "keep: got 0")
    yield single(
        "margin longer than the walltime", '[checkpoint] margin, walltime: got "2 h" and "1 h"',
        lambda world: [world.set("checkpoint", "margin", "2 h"), world.set("checkpoint", "walltime", "1 h")],
        "checkpoint.margin checkpoint.walltime",
    )  # fmt: skip
    yield value("checkpoint", "evry", "1 min", "evry: no such field, did you mean every?")
    yield value("cluster", "partitions", 0, "partitions: got 0")
    yield value("cluster", "buffer", "1 B", "buffer: got")
    yield value("memory", "limit", "lots", 'limit: got "lots"')
    yield value("memory", "spill", "on", 'spill: got "on"')
    yield value("memory", "threshold", 0, "threshold: got 0.0, wanted more than 0 and at most 1")
    yield value("memory", "share", 1.5, "share: got 1.5, wanted more than 0 and at most 1")
    yield value("memory", "rank", "smallest", 'rank: got "smallest"')
    yield value("memory", "cleanup", "never", 'cleanup: got "never"')
    yield value("memory", "gap", 5, "gap: got 5")
    yield value("cluster", "memory", "1 GB", "memory: no such field, did you mean the section [memory]?")
    yield value("cluster", "slaves_min", 0, "slaves_min: got 0")
    yield value("tuning", "theta", "big", 'theta: got "big"')
    yield value("tuning", "communication", 1, "communication: got 1.0")
    yield value("balance", "policy", "greedy", 'policy: got "greedy"')
    yield value("balance", "growth", 0, "growth: got 0.0")
    yield value("balance", "relocation_threshold", 0, "relocation_threshold: got 0.0")
    yield value("balance", "relocation_pause", 5, "relocation_pause: got 5")
    yield value("cluster", "skew_buffer", "none", 'skew_buffer: got "none"')
    yield value("balance", "productivity_ratio", 0.5, "productivity_ratio: got 0.5")
    yield value("balance", "imbalance_threshold", 0.5, "imbalance_threshold: got 0.5")
    yield value("balance", "utilization_threshold", 0, "utilization_threshold: got 0.0")
    yield value("balance", "collection_min", 5, "collection_min: got 5")
    yield value("balance", "consumer_threshold", 0.9, "consumer_threshold, supplier_threshold: got 0.9 and 0.5")
    yield value("run", "speed", -1, "speed: got -1.0")
    yield value("run", "speed", 1e300, "speed: got 1e+300")
    yield value("run", "late", "drop", 'late: got "drop"')
    yield value("inject", "slow", {"1": 2}, "slow: got 2.0 for rank 1")
    yield value("inject", "memory", {"0": "1 MB"}, "memory: got rank 0")
    yield value("inject", "kill", 3, "kill: got 3")
    yield single(
        "no such section",
        "[clutser]: no such section, did you mean cluster?",
        lambda world: world.set("clutser", "x", 1),
        "clutser",
    )
    yield single("no table", "[tuning]: got 3, wanted a table", lambda world: world.job.update(tuning=3), "tuning")
    yield single(
        "bad override",
        "--set what: wanted section.field=value",
        lambda world: world.overrides.append("what"),
        "override",
    )


def all_faults(folder, streams=TWO):
    own = [one for stream in streams for one in stream_faults(stream, [other for other in streams if other != stream])]
    return [*own, *job_faults(folder, streams)]
