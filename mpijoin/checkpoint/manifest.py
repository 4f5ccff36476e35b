"""The manifest of a checkpoint: one JSON file, written last, that says which files and which parts of them belong to it.

    checkpoint/00007.json                 the manifest of checkpoint 7, with a checksum of itself
    checkpoint/rank-2-00007.state         what rank 2 wrote for it: frames (data/codec.py), each with its own checksum

Sealed blocks are written once: the manifest of checkpoint 7 may name frames in files of checkpoint 3.
"""

from __future__ import annotations

import json
import os
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Iterator

from mpijoin.checkpoint.files import ASIDE, Span, refusals
from mpijoin.errors import CheckpointError
from mpijoin.sinks.parts import PartInfo
from mpijoin.disk import sync_path

VERSION = 5


@dataclass(frozen=True)
class Group:
    """A partition group as it was saved. alive: bytes of its live tuples · spans: its frames, the tail last."""

    group: int
    slave: int
    alive: int
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Manifest:
    """One whole checkpoint.

    identity: what a job must keep to go on from here · groups: all that had been begun · master: frames of the master: where
    it stands in its sources, then what waited for slaves, one per mini-buffer · results, late: part files ·
    slot, complete: how many slots had ended, and the watermarks then · sent: rows per stream · active: how many slaves had
    groups · before: the sums of all slaves' counts · run: further counts of the master.
    """

    number: int
    identity: dict[str, Any]
    groups: tuple[Group, ...]
    master: tuple[Span, ...]
    results: tuple[PartInfo, ...]
    late: tuple[PartInfo, ...]
    slot: int
    complete: tuple[int, int]
    sent: tuple[int, int]
    elapsed_s: float
    active: int
    slaves: tuple[int, ...]
    before: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)

    @property
    def files(self) -> dict[str, int]:
        """State files it needs, and how long each is at least."""
        ends: dict[str, int] = {}
        for span in (*self.master, *(span for group in self.groups for span in group.spans)):
            ends[span.file] = max(ends.get(span.file, 0), span.offset + span.octets)
        return ends

    @property
    def octets(self) -> int:
        """Bytes of all its frames."""
        return sum(span.octets for span in (*self.master, *(span for group in self.groups for span in group.spans)))


def state_name(rank: int, number: int) -> str:
    return f"rank-{rank}-{number:05d}.state"


def manifest_name(number: int) -> str:
    return f"{number:05d}.json"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Aside, synced, renamed. CheckpointError: the file system refuses."""
    path = folder / manifest_name(manifest.number)
    text = json.dumps({"version": VERSION, **asdict(manifest)}, separators=(",", ":"))
    with refusals(path):
        aside = path.with_name(path.name + ASIDE)
        with open(aside, "w", encoding="utf-8") as file:
            file.write(f"{zlib.crc32(text.encode()):08x}\n{text}\n")
            file.flush()
            os.fsync(file.fileno())
        os.rename(aside, path)
        sync_path(folder)


def read_manifest(folder: Path, number: int) -> Manifest:
    """CheckpointError: it is damaged, or a file that it needs is not there or too short; says which and how."""
    path = folder / manifest_name(number)
    try:
        checksum, text, *rest = path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    if rest != [""] or checksum != f"{zlib.crc32(text.encode()):08x}":
        raise CheckpointError(f"{path}: its checksum does not hold")
    value = json.loads(text)
    if value.pop("version") != VERSION:
        raise CheckpointError(f"{path}: was written by another version of mpijoin")
    manifest = _manifest(value)
    for name, octets in manifest.files.items():
        found = _octets_of(folder / name)
        if found < octets:
            raise CheckpointError(f"{folder / name}: " + (f"got {found} bytes, wanted {octets}" if found >= 0 else "is missing"))
    return manifest


def _octets_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _manifest(value: dict[str, Any]) -> Manifest:
    groups = tuple(Group(**{**group, "spans": spans_of(group["spans"])}) for group in value.pop("groups"))
    tuples = {name: tuple(value.pop(name)) for name in ("complete", "sent", "slaves")}
    parts = {name: parts_of(value.pop(name)) for name in ("results", "late")}
    return Manifest(groups=groups, master=spans_of(value.pop("master")), **tuples, **parts, **value)


def spans_of(values: list) -> tuple[Span, ...]:
    """As they come out of JSON or a message."""
    return tuple(Span(*value) for value in values)


def parts_of(values: list) -> tuple[PartInfo, ...]:
    """Likewise."""
    return tuple(PartInfo(*value) for value in values)


def numbers_in(folder: Path) -> list[int]:
    """Of the checkpoints whose manifests lie there, the newest first."""
    return sorted((int(path.stem) for path in folder.glob("*.json") if path.stem.isdecimal()), reverse=True)


def newest_identity(folder: Path) -> dict[str, Any]:
    """What the job must keep, as the newest whole manifest says; empty where none is whole."""
    for number in numbers_in(folder):
        with suppress(CheckpointError):
            return read_manifest(folder, number).identity
    return {}


def last_number_in(folder: Path) -> int:
    """The highest number that any file there has, whole or not; 0 if there is none."""
    names = [path.name.removesuffix(ASIDE).partition(".")[0].rpartition("-")[2] for path in folder.glob("*")]
    return max((int(name) for name in names if name.isdecimal()), default=0)


def prune(folder: Path, kept: list[Manifest]) -> None:
    """Removes all but these checkpoints: manifests first, so that none is left without its files. Never raises."""
    numbers = {manifest.number for manifest in kept}
    needed = {name for manifest in kept for name in manifest.files}
    for path in [*_others(folder, numbers), *(path for path in folder.glob("rank-*.state*") if path.name not in needed)]:
        with suppress(OSError):
            path.unlink()


def forget_after(folder: Path, number: int) -> None:
    """Removes the manifests of later checkpoints: one that could not be read just now, and can be some day, would name files
    that are others by then. CheckpointError: the file system refuses."""
    with refusals(folder):
        for later in numbers_in(folder):
            if later > number:
                (folder / manifest_name(later)).unlink()
        sync_path(folder)


def remove(folder: Path) -> None:
    """All checkpoints, and the folder if nothing else is in it. Never raises."""
    prune(folder, [])
    with suppress(OSError):
        folder.rmdir()


def _others(folder: Path, numbers: set[int]) -> Iterator[Path]:
    yield from (folder / manifest_name(number) for number in numbers_in(folder) if number not in numbers)
    yield from folder.glob(f"*.json{ASIDE}")
