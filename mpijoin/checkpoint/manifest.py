"""The manifest of a checkpoint: one JSON file, written last, that says which files and which parts of them belong to
it.

    checkpoint/00007.json                 the manifest of checkpoint 7, with a checksum of itself
    checkpoint/rank-2-00007.state         what rank 2 wrote for it: frames (data/codec.py), each with its own checksum

Sealed blocks are written once: the manifest of checkpoint 7 may name frames in files of checkpoint 3.
"""

from __future__ import annotations

import json
import re
import zlib
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Sequence

from mpijoin.checkpoint import fields
from mpijoin.checkpoint.totals import plain_of
from mpijoin.data.codec import MAGIC
from mpijoin.disk import sync_path, write_whole
from mpijoin.errors import CheckpointError
from mpijoin.named import NamedTuple
from mpijoin.records import Counts, MoveTotals, PartInfo, Span
from mpijoin.refusals import reading, writing

VERSION = 14
DIGITS = 5  # of a number in a name, at least

# What files of checkpoints are called, and how they begin.
OWN = re.compile(r"((?P<state>rank-\d{1,9}-)?(?P<number>\d{5,9})\.(?(state)state|json))(\.new)?")
BEGINNING, BEGINNING_BYTES = rb'[0-9a-f]{8}\n\{"version":', 20  # of a manifest


class Group(NamedTuple):
    """A partition group as it was saved. alive: bytes of its live tuples · spans: its frames, the tail last."""

    group: int
    slave: int
    alive: int
    spans: tuple[Span, ...]


class RunState(NamedTuple):
    """Where the run stood when the checkpoint was cut.

    late: part files of late rows · slots, complete: how many slots had ended, and the watermarks then, one per stream ·
    sent: rows, per stream · active: how many slaves had groups · slaves: all there were · ticks: that were sent.
    """

    late: tuple[PartInfo, ...]
    slots: int
    complete: tuple[int, ...]
    sent: tuple[int, ...]
    elapsed_s: float
    active: int
    slaves: tuple[int, ...]
    ticks: int
    moves: MoveTotals


class Manifest(NamedTuple):
    """One whole checkpoint.

    identity: what a job must keep to go on from here · groups: all that had been begun · positions: where each producer
    stands in its input · waiting: rows that wait to be joined, of which those that slaves had already got come first ·
    results: part files · before: the sum of all slaves' counts · restarts: how often the run
    had gone on from a checkpoint.
    """

    number: int
    identity: dict[str, Any]
    groups: tuple[Group, ...]
    positions: tuple[Span, ...]
    waiting: tuple[Span, ...]
    results: tuple[PartInfo, ...]
    before: Counts
    restarts: int
    run: RunState

    @property
    def files(self) -> dict[str, int]:
        """The state files that it needs, and how long each must be at least."""
        ends: dict[str, int] = {}
        for span in self._spans:
            ends[span.file] = max(ends.get(span.file, 0), span.offset + span.octets)
        return ends

    @property
    def octets(self) -> int:
        """The bytes of all its frames together."""
        return sum(span.octets for span in self._spans)

    @property
    def _spans(self) -> tuple[Span, ...]:
        return (*self.positions, *self.waiting, *(span for group in self.groups for span in group.spans))


def state_name(rank: int, number: int) -> str:
    return f"rank-{rank}-{number:05d}.state"


def manifest_name(number: int) -> str:
    return f"{number:05d}.json"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes it under another name, syncs it and renames it. Raises CheckpointError if the file system refuses."""
    path = folder / manifest_name(manifest.number)
    values = {
        **manifest._asdict(),
        "groups": [group._asdict() for group in manifest.groups],
        "before": plain_of(manifest.before),
        "run": manifest.run._asdict(),
    }
    text = json.dumps({"version": VERSION, **values}, separators=(",", ":"))
    with writing(path, CheckpointError):
        write_whole(path, f"{zlib.crc32(text.encode()):08x}\n{text}\n")


def read_manifest(folder: Path, number: int) -> Manifest:
    """Raises CheckpointError if the manifest is damaged, or a file that it needs is missing or too short; says which
    and how."""
    path = folder / manifest_name(number)
    try:
        with reading(path, CheckpointError):
            checksum, text, *rest = path.read_text(encoding="utf-8").split("\n")
    except ValueError as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    if rest != [""] or checksum != f"{zlib.crc32(text.encode()):08x}":
        raise CheckpointError(f"{path}: its checksum does not hold")
    try:
        value = json.loads(text)
        if isinstance(value, dict) and value.pop("version", VERSION) != VERSION:
            raise CheckpointError(f"{path}: was written by another version of mpijoin")
        manifest = _manifest(value, number)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: is no manifest of mpijoin's: {error}") from error
    for name, octets in manifest.files.items():
        found = _octets_of(folder / name)
        if found < octets:
            raise CheckpointError(
                f"{folder / name}: " + (f"got {found} bytes, wanted {octets}" if found >= 0 else "is missing")
            )
    return manifest


def _octets_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _manifest(value: Any, number: int) -> Manifest:
    """Raises ValueError naming the field that is wrong."""
    names = fields.stream_names(value)
    checks: fields.Checks = {
        "number": partial(fields.whole, allowed=range(number, number + 1)),
        "identity": fields.identity,
        "groups": _groups,
        "positions": fields.spans,
        "waiting": partial(fields.spans, least=0),
        "results": partial(fields.parts, pattern=fields.RESULT),
        "before": partial(fields.before, streams=len(names)),
        "restarts": fields.whole,
        "run": partial(_run_state, names=names),
    }
    manifest = Manifest(**fields.each(value, checks, Manifest))
    partitions = range(fields.whole(manifest.identity["cluster"].get("partitions")))
    if beyond := [one.group for one in manifest.groups if one.group not in partitions]:
        raise ValueError(f"groups: got {beyond[0]}, but there are {len(partitions)} partitions")
    return manifest


def _run_state(value: Any, names: Sequence[str]) -> RunState:
    streams = len(names)
    checks: fields.Checks = {
        "late": partial(fields.parts, pattern=fields.late(names)),
        "slots": fields.whole,
        "complete": lambda found: tuple(fields.whole(one, fields.INT64) for one in fields.items(found, streams)),
        "sent": lambda found: tuple(fields.whole(one) for one in fields.items(found, streams)),
        "elapsed_s": fields.number,
        "active": fields.whole,
        "slaves": lambda found: fields.unique(tuple(fields.whole(one) for one in fields.items(found)), found),
        "ticks": fields.whole,
        "moves": lambda found: MoveTotals(*map(fields.whole, fields.items(found, len(MoveTotals._fields)))),
    }
    return RunState(**fields.each(value, checks, RunState))


def _groups(value: Any) -> tuple[Group, ...]:
    checks: fields.Checks = {"group": fields.whole, "slave": fields.whole, "alive": fields.whole, "spans": fields.spans}
    groups = tuple(Group(**fields.each(one, checks, Group)) for one in fields.items(value))
    return fields.unique(groups, [one.group for one in groups])


def numbers_in(folder: Path) -> list[int]:
    """The numbers of the checkpoints whose manifests lie there, damaged ones too, the newest first."""
    found = (
        path
        for path in folder.glob("*.json")
        if (len(path.stem) == DIGITS and path.stem.isdecimal()) or _own_file(path)
    )
    return sorted((int(path.stem) for path in found), reverse=True)


class _OwnFile(NamedTuple):
    """A file that belongs to checkpoints, whole or half written: a state file or a manifest."""

    path: Path
    number: int
    is_state: bool


def _own_file(path: Path) -> _OwnFile | None:
    """Returns None for a file that no checkpoint made. Such files stay where they are, whatever they are called."""
    known = OWN.fullmatch(path.name)
    if not known or path.is_symlink():
        return None
    try:
        with open(path, "rb") as file:
            beginning = file.read(BEGINNING_BYTES)
    except OSError:
        return None
    if known["state"]:
        is_own = MAGIC.startswith(beginning[: len(MAGIC)])
    elif beginning:
        is_own = re.fullmatch(BEGINNING, beginning) is not None
    else:
        is_own = len(known["number"]) == DIGITS
    return _OwnFile(path, int(known["number"]), known["state"] is not None) if is_own else None


def _own_files(folder: Path) -> list[_OwnFile]:
    return [own for path in folder.glob("*") if (own := _own_file(path))]


def newest_identity(folder: Path) -> dict[str, Any]:
    """What the job must keep, as the newest whole manifest says it; empty if none is whole."""
    for number in numbers_in(folder):
        with suppress(CheckpointError):
            return read_manifest(folder, number).identity
    return {}


def last_number_in(folder: Path) -> int:
    """The highest number that any file of checkpoints there has, whole or not; 0 if there is no such file."""
    return max((*numbers_in(folder), *(own.number for own in _own_files(folder))), default=0)


def prune(folder: Path, kept: list[Manifest]) -> None:
    """Removes all checkpoints but these. Manifests go first, so that none is left without its files. Never raises."""
    needed = {manifest_name(manifest.number) for manifest in kept} | {
        name for manifest in kept for name in manifest.files
    }
    for own in sorted(_own_files(folder), key=lambda own: own.is_state):
        if own.path.name not in needed:
            with suppress(OSError):
                own.path.unlink()


def forget_after(folder: Path, number: int) -> None:
    """Removes the manifests of later checkpoints. One that cannot be read now might be readable some day, and would
    then name files that have been written anew. Raises CheckpointError if the file system refuses."""
    with writing(folder, CheckpointError):
        for later in numbers_in(folder):
            if later > number and _own_file(folder / manifest_name(later)):
                (folder / manifest_name(later)).unlink()
        sync_path(folder)


def remove(folder: Path) -> None:
    """Removes all checkpoints, and the folder if nothing else is in it. Never raises."""
    prune(folder, [])
    with suppress(OSError):
        folder.rmdir()
