"""Runs that are killed: jobs from seeds, and a camera that copies a run directory at a chosen moment.

A kill leaves what the file system has at that moment, so a copy taken then stands for a run that was killed, while the
run itself goes on to its end. No file name changes while the copy is taken. Files that are being written may be torn,
as after a kill.
"""

import os
import random
import shutil
import signal
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

import mpijoin.checkpoint.files
import mpijoin.coordinator.start
import mpijoin.producer.intake
import mpijoin.producer.pacing
import mpijoin.producer.ticks
import mpijoin.simulate.cluster as simulated
import mpijoin.slave.rotating
import mpijoin.slave.runtime
import mpijoin.sources.base
import mpijoin.spill.spiller
import mpijoin.spill.work
from asked_queries import CONDITION, AskedQuery, check_each, expect_each, holds, random_queries, rows_of_each
from engine_harness import Stream, check_late, expect, expected_rows, section, table_rows
from mpijoin.api import Silent
from mpijoin.checkpoint.manifest import numbers_in
from mpijoin.checkpoint.saver import Saver
from mpijoin.config.check import resolve
from mpijoin.config.load import load_job
from mpijoin.config.moves import MOVES
from mpijoin.coordinator.runtime import Master
from mpijoin.errors import EXIT_CHECKPOINTED, AlreadyDone, Checkpointed, Interrupted
from mpijoin.join.marks import MARKS
from mpijoin.launch.embedded import run_local
from mpijoin.launch.roles import merged_schemas
from mpijoin.launch.setup import prepare
from mpijoin.launch.sizes import size_for
from mpijoin.rundir import RunDirectory, read_summary
from mpijoin.signals import SignalFlag
from mpijoin.sinks.collector import Writers
from mpijoin.sinks.parts import PartWriter, part_prefix
from mpijoin.slave.core import SlaveCore
from mpijoin.slave.moving import Mover
from mpijoin.slave.runtime import Slave
from oracle import RANKS
from random_plans import plans_change, random_plan
from random_policy import random_policy
from simulated_engine import LIMIT_S, costs, disturbance

KEYS = ((pa.int64(), (0, 1, -1, 7, 1 << 40)), (pa.string(), ("", "a", "b", "ab", "more than eight letters")))
PAYLOADS = ((pa.int64(), (1, -5)), (pa.string(), ("x", "y" * 90, None)))
CHECKPOINTS = (
    {"epochs": 1},
    {"epochs": 4},
    {"every": "1 ns", "keep": 1},
    {"every": "10 ms"},
    {"every": "20 ms", "keep": 3},
)
NAMES = ("probe", "S_2", "left", "p4")
# The possible numbers of rows of a file, by the number of streams.
ROWS = {1: (0, 100, 200), 2: (0, 50, 100, 200), 3: (0, 25, 50), 4: (0, 10, 20)}
SPILLS = ("generations", "rotate")
TYPED_SHARE = 0.4  # Of the joins of two streams so many are no inner joins.
QUERIES_SHARE = 0.2  # Of the joins of two streams so many ask several queries.
# These checkpoints leave time for moves.
RARE_CHECKPOINTS = ({"epochs": 6}, {"epochs": 20, "keep": 1}, {"every": "50 ms"})


@dataclass(frozen=True)
class Work:
    """What is to be joined, which no restart may change. kept: the sections that a checkpoint insists on."""

    sides: tuple
    kept: dict
    queries: tuple[AskedQuery, ...] = ()

    @property
    def kind(self):
        """The type of the join."""
        return self.kept.get("join", {}).get("type", "inner")

    @property
    def holds(self):
        """Whether two times meet the condition; None: there is none."""
        return holds if "where" in self.kept.get("join", {}) else None

    @property
    def match(self):
        """Which partners of a left row count."""
        join = self.kept.get("join", {})
        return "count" if "reduce" in join else join.get("match", "all")

    @property
    def results(self):
        return self.kept["output"]["results"]


@dataclass(frozen=True)
class Manner:
    """How it is joined, which may change at each restart. rows: whatever is cut by size is cut after so few rows."""

    slaves: int
    sections: dict
    rows: int | None
    seed: int


def work(chance):
    key, payload, count = chance.choice(KEYS), chance.choice(PAYLOADS), chance.choice([2, 2, 2, 1, 3, 3, 4])
    names = ("left", "right") if count == 2 else NAMES[:count]
    sides = tuple(_stream(chance, name, key, payload, ROWS[count]) for name in names)
    if count == 2 and key is KEYS[0]:
        sides = tuple(map(_with_two_keys, sides))
    kept = {
        "cluster": {"partitions": chance.randint(1, 8)},
        "tuning": {"block": chance.choice(["64 B", "200 B", "4 KiB"])},
        "output": {"results": chance.choice(["collect", "parquet", "parquet", "count"])},
        "inject": {"hash_bits": chance.choice([2, 64])},
        "memory": {"spill": chance.choice(SPILLS)},
    }
    if count > 2:  # Each restart may have another plan.
        kept["join"] = {"plan": chance.choice(["mway", "auto", random_plan(chance, names)])}
    if count == 2 and chance.random() < QUERIES_SHARE:
        queries = random_queries(chance, sides)
        tables = [one.table(sides) for one in queries]
        return Work(sides, {**kept, "memory": {"spill": chance.choice(["off", "rotate"])}, "query": tables}, queries)
    if count == 2 and chance.random() < TYPED_SHARE:
        kept |= {"join": {"type": chance.choice(list(MARKS))}, "memory": {"spill": chance.choice(["off", *SPILLS])}}
        kept["join"] |= {"where": CONDITION} if chance.random() < 0.5 else {}
        if kept["join"]["type"] == "left":
            match = {"match": chance.choice(["all", *RANKS])}
            kept["join"] |= chance.choice([{"reduce": {"n": "count()"}}, match, match, match])
            kept["memory"]["spill"] = chance.choice(["off", "rotate"])
            kept["join"]["type"] = chance.choice(["inner", "left"])
    return Work(sides, kept)


def _stream(chance, name, key, payload, rows_of_files):
    files = []
    for _ in range(chance.choice([1, 1, 2, 3])):
        at, rows = chance.choice([0, -300, 500]), []
        for _ in range(chance.choice(rows_of_files)):
            at += chance.choice([0, 1, 3, 5, -8, 20])
            null_key = chance.random() < 0.05
            time = None if chance.random() < 0.02 else at
            rows.append((time, (None if null_key else chance.choice(key[1]),), (chance.choice(payload[1]),)))
        files.append(rows)
    form = "table" if len(files) == 1 and chance.random() < 0.5 else "ipc"
    window_ns = None if chance.random() < 0.1 else chance.choice([0, 30, 100, 400]) * 10**6
    lateness_ns = chance.choice([0, 10, 1000]) * 10**6
    return Stream(name, tuple(files), "ms", pa.int64(), (key[0],), (payload[0],), window_ns, lateness_ns, form)


def _with_two_keys(side):
    """Returns the stream with a second key column. Where its key is null, that is now one of the columns, by turns."""
    files = tuple(
        [(time, (at % 2 and None, "x" if at % 2 else None) if key is None else (key, "x"), payload)
         for at, (time, (key,), payload) in enumerate(rows)]
        for rows in side.files
    )  # fmt: skip
    return replace(side, files=files, key_types=(*side.key_types, pa.string()))


def manner(chance, work):
    epoch = chance.choice([5, 20, 50])
    policy = chance.choice(["none", "balance", "threshold"])
    sections = {
        "balance": {"policy": policy, "move": MOVES[epoch == 20]},
        "cluster": {
            "distribution_epoch": f"{epoch} ms",
            "reorganization_epoch": f"{epoch} ms",
            "subgroups": chance.randint(1, 3),
            "buffer": chance.choice(["64 KiB", "64 MiB"]),
        },
        "memory": memory(chance, work.kept["memory"]["spill"]),
        "tuning": {
            "theta": chance.choice(["off", "1 B", "100 B", "1 KB"]),
            "result_buffer": chance.choice([1, 7, 8192]),
        },
        "run": {"speed": chance.choice(["max", "max", "max", 100])},
        "output": {"part": chance.choice(["1 KB", "64 KB"])},
        "checkpoint": chance.choice(CHECKPOINTS if policy == "none" else (*CHECKPOINTS, *RARE_CHECKPOINTS * 3)),
    }
    return Manner(chance.randint(1, 5), sections, chance.choice([None, 10, 20, 40]), chance.randrange(1 << 30))


def memory(chance, spill):
    """Enough of it, or so little that slaves spill all the time. A group that rotates must fit into it."""
    if spill == "off":
        return {"limit": "16 MiB"}
    if chance.random() < (0.5 if spill == "generations" else 0.2):
        return {"limit": "16 MiB"}
    return {
        "limit": chance.choice(["64 KiB", "100 KiB"] if spill == "generations" else ["256 KiB", "1 MiB"]),
        "threshold": chance.choice([0.005, 0.02, 0.1, 0.5]),
        "share": chance.choice([0.1, 1.0]),
        "rank": chance.choice(["least productive", "most productive", "largest", "random"]),
        "cleanup": chance.choice(["idle", "end"]),
        "gap": chance.choice(["auto", "0 s", "10 ms"]),
    }


def merged(*documents):
    """Returns the sections of several job documents together."""
    together = {}
    for document in documents:
        for name, fields in document.items():
            together[name] = fields if isinstance(fields, list) else {**together.get(name, {}), **fields}
    return together


@dataclass(frozen=True)
class Prepared:
    """Work whose inputs lie in a folder, and the answer of the oracle. each: its answer to each query."""

    work: Work
    inputs: dict
    wanted: object
    each: dict

    def job(self, made, path):
        return load_job(merged(self.inputs, self.work.kept, made.sections, {"output": {"path": str(path)}}))


def lay_out(made, folder):
    streams = {side.name: section(side, folder) for side in made.sides}
    short = streams.keys() == {"left", "right"}
    each, wanted = {}, expect(*made.sides, kind=made.kind, holds=made.holds, match=made.match)
    if made.queries:
        each, wanted = expect_each(made.sides, made.queries)
    return Prepared(made, streams if short else {"streams": streams}, wanted, each)


@contextmanager
def inner_sizes(made):
    """Cuts everything after few rows, so that small buffers fill. Policies other than "none" move groups at random."""

    def policies(balance, memory):
        return None if balance.policy == "none" else random_policy(made.seed)

    core = partial(SlaveCore, slice_rows=made.rows, budget=made.rows)
    patches = [
        (mpijoin.coordinator.start, "make_policy", policies),
        (mpijoin.producer.pacing, "EPOCHS_PER_REORGANIZATION", 1),
    ]
    if made.rows:
        patches += [
            (mpijoin.producer.intake, "PART_BYTES", 64 * made.rows),
            (mpijoin.producer.ticks, "READ_ROWS", made.rows),
            (mpijoin.slave.rotating, "SlaveCore", core),
            (mpijoin.spill.work, "PIECE_BYTES", 64 * made.rows),
            (mpijoin.spill.spiller, "PIECE_BYTES", 64 * made.rows),
            (mpijoin.sources.base, "BLOCK_ROWS", made.rows),
        ]
    with ExitStack() as stack:
        for target, name, value in patches:
            stack.enter_context(mock.patch.object(target, name, value))
        stack.enter_context(plans_change())
        yield


def run(prepared, made, path, resume=False, signals=None):
    """Returns the run's summary. Raises what goes wrong, and AlreadyDone if a killed run had nothing left to do."""
    job = prepared.job(made, path)
    schema = resolve(job)
    # These are smaller than any job may ask for, so that a few rows fill them.
    if made.rows:
        job = job._replace(cluster=job.cluster._replace(buffer_bytes=2000, master_buffer_bytes=5000))
    with inner_sizes(made):
        setup = prepare(job, schema, ranks_of(job, made), resume=resume)
        outcome = run_local(setup, signals or SignalFlag(), Silent())
    if outcome.error is not None:
        raise outcome.error
    return outcome.summary


def ranks_of(job, made):
    """Where rank 0 merges the results of a single slave itself, it saves in two roles."""
    merges = made.slaves == 1 and job.output.results == "collect" and made.seed % 2
    return size_for(job, made.slaves) - merges


def resume(prepared, made, path, signals=None):
    """Goes on with what a kill has left. Returns the summary, also if the run had come to its end."""
    try:
        return run(prepared, made, path, resume=True, signals=signals)
    except AlreadyDone:
        return read_summary(path)


def check(prepared, path, summary):
    """Checks that rows, certificate, ledger and late files are the oracle's, and that nothing half done is left."""
    made, wanted, path = prepared.work, prepared.wanted, Path(path)
    found = {
        name: {field: summary["streams"][name][field] for field in counts} for name, counts in wanted.counts.items()
    }
    assert found == wanted.counts
    if made.queries:
        check_each(summary, prepared.each)
        all_rows = rows_of_each(made.sides, made.queries, prepared.each)
    else:
        assert (summary["results"], summary["certificate"]) == (wanted.pairs.total(), wanted.certificate)
        all_rows = {"": expected_rows(made.sides, wanted, made.kind)}
    for name, wanted_rows in all_rows.items():
        rows = Counter()
        for part in (path / "results" / name).glob("*.parquet"):
            rows += table_rows(pq.read_table(part))
        assert rows == (Counter() if made.results == "count" else wanted_rows)
    for side in made.sides:
        check_late(path, side, wanted)
    assert not (path / "failed.json").exists() and not (path / "results" / ".open").exists()


# The moments at which a picture may be taken, and about how often each comes in a small run.
MOMENTS = {
    "torn state": 30,
    "state written": 30,
    "before sync": 20,
    "group saved": 30,
    "before rename state": 20,
    "after rename state": 20,
    "before rename manifest": 6,
    "after rename manifest": 6,
    "before unlink manifest": 3,
    "before unlink state": 12,
    "cut": 6,
    "saved": 15,
    "part closed": 10,
    "rows written": 10,
    "move": 5,
    "move step": 5,
    "master's turn": 200,
    "slave's turn": 300,
    "before unlink result": 2,
    "before unlink late": 1,
    "before rename late": 2,
    "before rename result": 2,
    "after rename result": 3,
    "before commit": 1,
    "after commit": 1,
    "after summary": 1,
    "after clean": 1,
    "before reopen": 1,
    "after reopen": 1,
}


FOLDERS = ("checkpoint", "results", "late", "metrics")


def kind_of(path):
    """Returns what kind of file of a run directory this is, for the names of moments."""
    path = Path(os.fspath(path))
    folder = next((part for part in reversed(path.parent.parts) if part in FOLDERS), "")
    if folder == "checkpoint":
        return "manifest" if ".json" in path.name else "state"
    return {"results": "result", "late": "late", "metrics": "metrics"}.get(folder, "other")


class Camera:
    """Takes a picture when one of the chosen moments comes for the n-th time. pictures: {label: folder of the copy}."""

    def __init__(self, path, album, wanted):
        """path: the run directory · album: a folder for the copies · wanted: {label: n}."""
        self.path, self._album, self._wanted = Path(path).resolve(), Path(album), dict(wanted)
        self.pictures = {}
        self._come = Counter()
        self._gate = threading.RLock()  # Whoever holds it changes names, or copies.
        self._copying = False

    @contextmanager
    def watching(self):
        """Within this context, the engine's steps are moments."""
        with ExitStack() as stack:
            for target, name, wrapped in self._hooks():
                stack.enter_context(mock.patch.object(target, name, wrapped))
            yield self

    def passes(self, label):
        """Takes note that this moment has come, in the thread that calls."""
        with self._gate:
            self._come[label] += 1
            if not self._copying and self._wanted.get(label) == self._come[label]:
                self._copying = True
                self._copy(label)
                self._copying = False

    def _copy(self, label):
        # A run that was stopped by a signal goes on in the same folder, with another camera.
        before = len(list(self._album.iterdir())) if self._album.exists() else 0
        target = self._album / f"{before}-{label.replace(' ', '-')}".replace("'", "")
        if self.path.exists():
            # A file may have got its name since the folder was listed. No manifest knows it yet.
            with suppress(shutil.Error):
                shutil.copytree(self.path, target)
        else:
            target.mkdir()
        self.pictures[label] = target

    def _hooks(self):
        for name in ("rename", "replace"):
            yield os, name, self._gated(getattr(os, name), "rename", at=1)
        for name in ("unlink", "rmdir", "mkdir"):
            yield os, name, self._gated(getattr(os, name), name, at=0)
        yield os, "fsync", self._around(os.fsync, "before sync")
        yield mpijoin.checkpoint.files, "write_all", self._torn(mpijoin.checkpoint.files.write_all)
        yield Saver, "save_next", self._around(Saver.save_next, "group saved")
        yield Master, "_cut", self._around(Master._cut, "cut")
        yield Master, "_saved", self._around(Master._saved, "saved")
        yield Master, "turn", self._around(Master.turn, "master's turn")
        yield Slave, "turn", self._around(Slave.turn, "slave's turn")
        yield PartWriter, "_finish_part", self._around(PartWriter._finish_part, None, "part closed")
        yield PartWriter, "_write_group", self._around(PartWriter._write_group, None, "rows written")
        for step in ("carry_out", "install", "_freeze", "_ship"):
            yield Mover, step, self._around(getattr(Mover, step), "move step", "move")
        for step, before, after in (
            ("commit", "before commit", "after commit"),
            ("write_summary", None, "after summary"),
            ("clean", None, "after clean"),
            ("reopen", "before reopen", "after reopen"),
        ):
            yield RunDirectory, step, self._around(getattr(RunDirectory, step), before, after)

    def _around(self, act, before=None, after=None):
        def watched(*args, **kwargs):
            if before:
                self.passes(before)
            value = act(*args, **kwargs)
            if after:
                self.passes(after)
            return value

        return watched

    def _gated(self, act, verb, at):
        """Makes moments before and after an act on a file. at: which argument is the path."""

        def watched(*args, **kwargs):
            if self._copying or not self._is_own(args[at]):
                return act(*args, **kwargs)
            label = f"{verb} {kind_of(args[at])}"
            with self._gate:
                self.passes(f"before {label}")
                value = act(*args, **kwargs)
                self.passes(f"after {label}")
            return value

        return watched

    def _is_own(self, path):
        with suppress(TypeError):
            return self.path in Path(os.path.abspath(os.fspath(path))).parents
        return False

    def _torn(self, write_all):
        def watched(file, data):
            write_all(file, data[: len(data) // 2])
            if len(data):
                self.passes("torn state")
            write_all(file, data[len(data) // 2 :])
            self.passes("state written")

        return watched


def choose(chance, count):
    """Returns {label: n}: so many moments, each of which may come or not, and one moment of a move."""
    labels = {*chance.sample(sorted(MOMENTS), count), chance.choice(["move", "move step"])}
    return {label: chance.randint(1, MOMENTS[label]) for label in sorted(labels)}


def signs_of(image):
    """Returns what can be seen in a picture: a half-written checkpoint, whole ones, a commit under way, and so on."""
    folder = Path(image) / "checkpoint"
    names = {path.name for path in folder.glob("*")}
    numbers = {int(path.stem.rpartition("-")[2].partition(".")[0]) for path in folder.glob("rank-*")}
    whole = numbers_in(folder) if folder.exists() else []
    signs = Counter()
    signs["half-written"] = any(name.endswith(".new") for name in names) or (bool(numbers - set(whole)) and not whole)
    signs["half-written"] |= bool(numbers) and max(numbers) > max(whole, default=0)
    signs["whole"] = bool(whole)
    signs["late parts"] = any((Path(image) / "late" / ".open").glob("*-*.parquet"))
    signs["committing"] = (
        any((Path(image) / "results").glob("*.parquet")) and not (Path(image) / "summary.json").exists()
    )
    signs["done"] = (Path(image) / "summary.json").exists()
    return signs


class AsksFor(SignalFlag):
    """A flag that stands for a signal. It asks for a last checkpoint when the rank has looked so many times."""

    def __init__(self, looks):
        super().__init__()
        self._looks = looks

    def check(self):
        self._looks -= 1
        if self._looks <= 0:
            self.asked = signal.SIGUSR1


def live(prepared, made, path, chance, resumes, kills):
    """Runs among threads. Returns the summary and the pictures of `kills` moments.

    The summary is None if the run stopped at a checkpoint.
    """
    camera = Camera(path, path.with_name(f"{path.name}-album"), choose(chance, kills) if kills else {})
    signals = AsksFor(chance.randint(1, 100)) if kills and chance.random() < 0.25 else None
    with camera.watching():
        try:
            return (resume if resumes else run)(prepared, made, path, signals=signals), camera.pictures
        # It is Interrupted if it had not begun.
        except (Checkpointed, Interrupted) as error:
            assert error.exit_code == EXIT_CHECKPOINTED
            return None, camera.pictures


def live_simulated(prepared, made, path, chance, resumes, kills):
    """Does the same as `live` in virtual time."""
    moments = [chance.randint(1, chance.choice([10, 100, 500])) for _ in range(kills)]
    stop = chance.randint(1, 1000) if kills and chance.random() < 0.25 else None
    early = frozenset(moments[4:]) if kills > 1 else frozenset()
    return simulate(prepared, made, path, chance, resumes, Kills(early, frozenset(moments) - early), stop)


# How many kills are wanted in a run that begins, in one that goes on, in one that goes on again, and so on.
KILLS = (5, 2, 1, 0)


def course(seed, folder, live):
    """Runs a job, kills it at several moments, and goes on from each to kill it again. Returns what it saw."""
    chance, seen = random.Random(seed), Counter()
    prepared = lay_out(work(chance), folder)
    waiting = [(Path(folder) / "run", 0)]
    while waiting:
        path, generation = waiting.pop()
        made = manner(chance, prepared.work)
        summary, pictures = live(prepared, made, path, chance, generation > 0, KILLS[generation])
        if summary is None:
            waiting.append((path, min(generation + 1, len(KILLS) - 1)))
            seen["stopped by a signal"] += 1
        else:
            check(prepared, path, summary)
            seen += told_by(prepared, made, summary)
        for label, picture in pictures.items():
            seen += signs_of(picture)
            seen.update([label, "kills", "kills of a resumed run"] if generation else [label, "kills"])
            waiting.append((picture, generation + 1))
    return seen


def told_by(prepared, made, summary):
    """Counts what the summary of a run that has come to its end tells."""
    checkpoints = summary["checkpoints"]
    return Counter({
        "runs": 1,
        "checkpoints": checkpoints["written"],
        "failed checkpoints": checkpoints["failed"],
        "resumed": checkpoints["resumed_from"] is not None,
        "resumed again": checkpoints["restarts"] > 1,
        "moves": summary["moves"],
        "late": sum(stream["late"] for stream in summary["streams"].values()),
        f"{len(summary['streams'])} streams": 1,
        "results": summary["results"],
        "paced": made.sections["run"]["speed"] != "max",
        prepared.work.results: 1,
    })  # fmt: skip


class SavesAtOnce(Saver):
    """A Saver that saves at once, because in virtual time nothing can wait for what takes real time."""

    def finish(self, sync_results):
        if not self._fault and self._file is not None:
            self._sync(self._file, sync_results)


class Kills(NamedTuple):
    """When pictures are taken in virtual time.

    early: numbers of events since the run began · later: numbers of events since its first checkpoint.
    """

    early: frozenset = frozenset()
    later: frozenset = frozenset()


def simulate(prepared, made, path, chance, resumes=False, kills=Kills(), stop=None):
    """Does the same as `run` in virtual time. Returns the summary, and pictures like those of a camera.

    The summary is None if the run stopped at a checkpoint. chance: chooses costs and disturbances · stop: the event at
    which a signal asks for a last checkpoint.
    """
    job = prepared.job(made, path)
    schema = resolve(job)
    if made.rows:
        job = job._replace(cluster=job.cluster._replace(buffer_bytes=2000, master_buffer_bytes=5000))
    with inner_sizes(made), mock.patch.object(mpijoin.slave.runtime, "Saver", SavesAtOnce):
        setup = prepare(job, schema, ranks_of(job, made), resume=resumes)
        writers = None
        if job.output.results == "collect":
            folder, rank = setup.directory.open_results, setup.roles.collector
            own = zip(job.names or ("",), merged_schemas(setup))
            writers = Writers([PartWriter(folder, part_prefix(rank, name), schema, 1000) for name, schema in own])
        trouble = simulated.Manner(costs(chance), False, chance.random() < 0.3, disturbance(chance, made.seed), LIMIT_S)
        cluster = simulated.SimulatedCluster(setup, trouble, simulated.Quiet(), writers)
        pictures = watch_events(cluster, Path(path), kills, stop)
        try:
            return cluster.run().summary, pictures
        except Checkpointed:
            return None, pictures
        finally:
            setup.release()


def watch_events(cluster, path, kills, stop):
    """Takes pictures and sends the signal between two events. Returns the pictures, which come as the run goes on."""
    engine, run_engine, checkpointing, pictures = cluster.engine, cluster.engine.run, cluster.master.checkpointing, {}
    first = None  # This becomes the event after which there was a checkpoint.

    def looked(done):
        nonlocal first
        now = engine.events
        first = now if first is None and checkpointing.written else first
        for label, moments, since in (("early", kills.early, 0), ("later", kills.later, first)):
            if since is not None and now - since in moments:
                pictures[f"{label} event {now}"] = shutil.copytree(path, path.with_name(f"{path.name}-{label}-{now}"))
        if stop is not None and now >= stop:
            cluster.master.rank.asked = "SIGUSR1"
        return done()

    engine.run = lambda done, limit_s: run_engine(lambda: looked(done), limit_s)
    return pictures
