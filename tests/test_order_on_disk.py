"""What a checkpoint counts on is on disk before the checkpoint is, as a power failure at any moment demands.

All writes, fsyncs and renames of a real run are recorded in order, as ALICE does it for file systems. Until a file is
synced its bytes may be lost, and until its folder is synced its name; nothing may depend on either before.
"""

import json
import os
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

import mpijoin.checkpoint.files
import mpijoin.disk
from checkpoint_harness import Manner, Work, lay_out, run
from engine_harness import Stream
from mpijoin.checkpoint.saver import Saver
from mpijoin.rundir import RunDirectory
from mpijoin.sinks.parts import PartWriter
from mpijoin.sources.late import LateWriter

ROWS = [(time * 2, (f"key {time % 5}",), (time,)) for time in range(200)]
ROWS[3] = (1, ("key 0",), (0,))  # late
SECTIONS = {
    "cluster": {"distribution_epoch": "10 ms", "reorganization_epoch": "150 ms"},
    "memory": {"limit": "16 MiB"},
    "checkpoint": {"epochs": 1},  # at 150 and 300 of 400 ms: the rest of the results is in no checkpoint
    "output": {"part": "1 KB"},
    "run": {},
}
MADE = Manner(2, SECTIONS, 20, 0)
left_out = threading.local()  # here: whether this thread's syncs are


class Disk:
    """What would be left after a power failure: names and bytes that were synced. faults: what was counted on
    before."""

    def __init__(self, root):
        self.root = Path(root).resolve()
        self.bytes, self.names = set(), set()  # inodes of files, and paths, that may be lost
        self.manifests, self.faults = 0, []
        self._lock = threading.RLock()

    def wrote(self, file):
        with self._lock:
            self.bytes.add(os.fstat(file.fileno()).st_ino)

    def named(self, path):
        """A folder has a new name."""
        with self._lock:
            self.names.add(Path(os.path.abspath(path)))

    def synced(self, handle):
        with self._lock:
            self.bytes.discard(os.fstat(handle).st_ino)
            folder = Path(os.readlink(f"/proc/self/fd/{handle}"))
            self.names = {path for path in self.names if path.parent != folder}

    def expect(self, path, why):
        """The file is there for good, and so are the folders above it."""
        path = Path(path)
        if path.stat().st_ino in self.bytes:
            self.faults.append(f"bytes of {path.relative_to(self.root)}: {why}")
        for name in self.names & {path, *path.parents}:
            self.faults.append(f"name of {name.relative_to(self.root.parent)}: {why}")

    def renames(self, source, target):
        """Before it happens."""
        source, target = Path(source), Path(target)
        if source.stat().st_ino in self.bytes and target.suffix != ".parquet":
            self.faults.append(f"bytes of {source.relative_to(self.root)}: it gets its name")
        if target.name == "summary.json":
            for file in (*self.root.glob("results/*.parquet"), *self.root.glob("late/*.parquet")):
                self.expect(file, "summary.json counts on it")
        if target.parent.name == "checkpoint" and target.suffix == ".json":
            self._counts_on(json.loads(source.read_text().split("\n")[1]), target)

    def _counts_on(self, manifest, path):
        self.manifests += 1
        of_groups = (span for group in manifest["groups"] for span in group["spans"])
        spans = [*manifest["positions"], *manifest["waiting"], *of_groups]
        needed = {path.parent / file for file, *_ in spans}
        needed |= {self.root / "results/.open" / name for name, *_ in manifest["results"]}
        needed |= {self.root / "late/.open" / name for name, *_ in manifest["run"]["late"]}
        for file in needed:
            self.expect(file, f"{path.name} counts on it")

    def removes(self, path):
        """Before it happens: a checkpoint goes only when a newer one, or the whole run, is there for good."""
        path = Path(path)
        if path.parent.name == "checkpoint" and path.suffix == ".json":
            newer = [one for one in sorted(path.parent.glob("0*.json")) if one > path]
            self.expect(newer[-1] if newer else self.root / "summary.json", f"{path.name} is removed")


def watching(disk):
    """Inside, all of a run's files are watched."""
    rename, replace_, unlink, mkdir, fsync = os.rename, os.replace, os.unlink, os.mkdir, os.fsync

    def inside(path):
        return disk.root in Path(os.path.abspath(path)).parents

    def renamed(act):
        def watched(source, target):
            if inside(target):
                disk.renames(source, target)
            act(source, target)
            if inside(target):
                disk.names.discard(Path(source))
                disk.named(target)

        return watched

    def unlinked(path, *args, **options):
        if inside(path):
            disk.removes(path)
        unlink(path, *args, **options)

    def made(path, *args, **options):
        mkdir(path, *args, **options)
        if inside(path) or Path(path).absolute() == disk.root:
            disk.named(path)

    def synced(handle):
        if not getattr(left_out, "here", False):
            fsync(handle)
            disk.synced(handle)

    def created(path):
        file = create(path)
        disk.named(path)
        return file

    def written(file, data):
        write_all(file, data)
        disk.wrote(file)

    create, write_all = mpijoin.disk._created, mpijoin.disk.write_all
    stack = ExitStack()
    for target, name, watched in (
        (os, "rename", renamed(rename)),
        (os, "replace", renamed(replace_)),
        (os, "unlink", unlinked),
        (os, "mkdir", made),
        (os, "fsync", synced),
        (mpijoin.disk, "_created", created),
        (mpijoin.disk, "write_all", written),
        (mpijoin.checkpoint.files, "write_all", written),
    ):
        stack.enter_context(mock.patch.object(target, name, watched))
    return stack


@pytest.fixture(autouse=True, scope="module")
def compiled_once():
    with mock.patch("mpijoin.launch.warmup.warm_up", return_value=0.0):
        yield


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    sides = tuple(
        Stream(name, (ROWS,), "ms", pa.int64(), (pa.string(),), (pa.int64(),), 50 * 10**6, 0, "ipc")
        for name in ("left", "right")
    )
    return lay_out(
        Work(sides, {"cluster": {"partitions": 4}, "output": {"results": "parquet"}}), tmp_path_factory.mktemp("inputs")
    )


def watched_run(prepared, path, results="parquet"):
    disk = Disk(path)
    kept = {**prepared.work.kept, "output": {"results": results}}
    with watching(disk):
        run(replace(prepared, work=replace(prepared.work, kept=kept)), MADE, path)
    return disk


@pytest.mark.parametrize("results", ["parquet", "collect"])
def test_nothing_is_counted_on_before_it_is_on_disk(prepared, tmp_path, results):
    disk = watched_run(prepared, tmp_path / "run", results)
    assert disk.faults == [] and disk.manifests


def unsynced(method):
    """The method, but its files and folders are left to the system."""

    def mutant(*args):
        left_out.here = True
        try:
            return method(*args)
        finally:
            left_out.here = False

    return mutant


@pytest.mark.parametrize(
    ("target", "name", "told"),
    [
        (
            mpijoin.checkpoint.files.StateFile,
            "finish",
            ["state.new: it gets its name", "state: 00001.json counts on it"],
        ),
        (
            PartWriter,
            "sync",
            [f"{what} results/.open/rank-1-00000.parquet: 00001" for what in ("bytes of", "name of run/")],
        ),
        (LateWriter, "cut", [f"{what} late/.open/left-00000.parquet: 00001" for what in ("bytes of", "name of run/")]),
        (mpijoin.disk, "write_whole", ["bytes of checkpoint/00001.json.new: it gets its name"]),
        (RunDirectory, "sync", ["name of run/results/.open: 00001.json counts on it"]),
        (RunDirectory, "sync_results", [".parquet: summary.json counts on it"]),
        (Saver, "_sync", ["bytes of results/.open/rank-1-00000.parquet: 00001.json counts on it"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_sync_that_is_left_out_is_noticed(prepared, tmp_path, target, name, told):
    """One at a time: that the test above notices nothing would else say nothing."""
    mutant = unsynced(getattr(target, name))
    write = mutant if name == "write_whole" else mpijoin.disk.write_whole
    with mock.patch.object(target, name, mutant), mock.patch("mpijoin.checkpoint.manifest.write_whole", write):
        faults = watched_run(prepared, tmp_path / "run").faults
    for one in told:
        assert any(one.replace("/ ", "/") in fault for fault in faults), (one, faults)
