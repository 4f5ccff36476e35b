"""A run goes on from the newest checkpoint that is whole; the ranks that there are now read it from its files.

The master names a checkpoint. Every slave takes its groups out of the files, and reads a share of the results and late
rows that were written before. If one of them finds damage, all begin again with the checkpoint before.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Sequence

import numpy as np

from mpijoin.checkpoint.assign import assign
from mpijoin.checkpoint.files import kinds_of, read_frames
from mpijoin.checkpoint.identity import LEFT_AS_IT_WAS, check_identity
from mpijoin.checkpoint.manifest import Manifest, numbers_in, read_manifest
from mpijoin.config.job import OFF, ROTATE, Job
from mpijoin.config.units import show
from mpijoin.data.codec import decode
from mpijoin.data.room import Room
from mpijoin.errors import CheckpointError, CodecError, JobError, MemoryBudgetError, ProtocolError
from mpijoin.messages import KINDS, Restore, Restored, Slot
from mpijoin.named import NamedTuple
from mpijoin.policy.choose import first_active
from mpijoin.rank import MASTER, Rank
from mpijoin.records import GroupSpans, PartInfo, Span
from mpijoin.rundir import RunDirectory
from mpijoin.sinks.parts import content_fault, size_fault
from mpijoin.spill.forms import AnySpiller, form_of, is_of_generations

if TYPE_CHECKING:
    from mpijoin.operators.base import GroupState
    from mpijoin.operators.stored import TableOperator


class Holder(NamedTuple):
    """What holds a slave's groups. spiller: what of them is on disk, if the job may spill."""

    operator: TableOperator
    spiller: AnySpiller | None = None


class Resumption(NamedTuple):
    """Where a run goes on. owners: the slave of each partition · positions: frames of `Intake.save`, of each producer ·
    waiting: rows that were not joined, as slots, first those that slaves had already got · seconds: how long the master
    took to read its part, plus how long the slowest slave took. The time that they waited for each other while kernels
    were compiled is not in it."""

    manifest: Manifest
    owners: tuple[int, ...]
    positions: tuple[np.ndarray, ...]
    waiting: tuple[Slot, ...]
    seconds: float = 0.0

    @property
    def active(self) -> tuple[int, ...]:
        """The slaves that have groups, ascending."""
        return tuple(sorted(set(self.owners)))


def find(folder: Path, number: int, job: Job, slaves: Sequence[int], directory: RunDirectory) -> Resumption:
    """Reads a checkpoint, and decides who gets what of it. directory: holds what was written before.

    Raises JobError if it belongs to another job, and CheckpointError if it is damaged, as far as can be told without
    reading everything.
    """
    manifest = read_manifest(folder, number)
    check_identity(job, manifest.identity)
    for part in parts_in(directory, manifest):
        if fault := size_fault(directory.path, part):
            raise CheckpointError(fault)
    spans, count = (*manifest.positions, *manifest.waiting), len(manifest.positions)
    frames = read_frames(folder, spans)
    check_frames(folder, spans, frames)
    active = active_slaves(job, tuple(slaves), manifest.run.active)
    owners = assign(manifest, job.cluster.partitions, slaves, active)
    return Resumption(manifest, tuple(owners), tuple(frames[:count]), waiting_in(folder, spans[count:], frames[count:]))


def check_spilled(job: Job, folder: Path) -> None:
    """Raises JobError if the newest whole checkpoint has rows on disk that the job, by its `[memory] spill`, has no use
    for. Any other is no better: to go on from one before would lose what has been done since."""
    for number in numbers_in(folder):
        with suppress(CheckpointError):
            for group in read_manifest(folder, number).groups:
                form = form_of(kinds_of(folder, group.spans))
                if form not in (OFF, job.memory.spill):
                    rows = f"rows of partition {group.group} on disk, as {show(form)} leaves them"
                    got = f"[memory] spill: got {show(job.memory.spill)}"
                    raise JobError([f"{got}, but the run to go on with has {rows}: {LEFT_AS_IT_WAS}"])
            return


def waiting_in(folder: Path, spans: Sequence[Span], frames: Sequence[np.ndarray]) -> tuple[Slot, ...]:
    """Reads the slots that were waiting. Raises CheckpointError if a frame is not that of a slot."""
    slots = []
    for span, frame in zip(spans, map(decode, frames)):
        try:
            if frame.kind != KINDS[Slot]:
                raise ValueError(f"kind {frame.kind}")
            slots.append(Slot.of(frame.meta, frame.buffers))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{folder / span.file}: no rows for a slave at byte {span.offset}: {error!r}"
            ) from error
    return tuple(slots)


def parts_in(directory: RunDirectory, manifest: Manifest) -> list[PartInfo]:
    """The part files of results and late rows that had been written, with their paths below the run directory."""
    listed = ((directory.open_results, manifest.results), (directory.open_late_parts, manifest.run.late))
    return [
        part._replace(name=(folder / part.name).relative_to(directory.path).as_posix())
        for folder, parts in listed
        for part in parts
    ]


def shared_out(parts: Sequence[PartInfo], slaves: Sequence[int]) -> dict[int, list[PartInfo]]:
    """Shares the files out so that all slaves have about as many bytes to read: the largest file goes first, each to
    the slave with the least so far."""
    shares: dict[int, list[PartInfo]] = {slave: [] for slave in slaves}
    octets = dict.fromkeys(slaves, 0)
    for part in sorted(parts, key=lambda part: (-part.bytes, part.name)):
        slave = min(slaves, key=lambda slave: (octets[slave], slave))
        shares[slave].append(part)
        octets[slave] += part.bytes
    return shares


def check_parts(folder: Path, parts: Sequence[PartInfo], between: Callable[[], None]) -> None:
    """Reads all parts. Raises CheckpointError if one has other bytes than those that were written. between: is called
    now and then."""
    for part in parts:
        if fault := content_fault(folder, part, between):
            raise CheckpointError(fault)


def drop_later(directory: RunDirectory, manifest: Manifest) -> None:
    """Removes what was written after the checkpoint. Raises OutputError."""
    results, late = ([part.name for part in parts] for parts in (manifest.results, manifest.run.late))
    directory.keep_only(results, late, manifest.number)


def active_slaves(job: Job, slaves: tuple[int, ...], before: int) -> tuple[int, ...]:
    """The slaves that have groups at first: as many as before, if a policy decides how many there are."""
    least = first_active(job.balance, job.cluster.slaves_min, slaves)
    return slaves[: max(len(least), min(before, len(slaves)))]


def check_frames(folder: Path, spans: Sequence[Span], frames: Sequence[np.ndarray]) -> None:
    """Raises CheckpointError for the first frame whose checksum does not hold, naming its file."""
    for span, frame in zip(spans, frames):
        try:
            decode(frame)
        except CodecError as error:
            raise CheckpointError(f"{folder / span.file}: damaged at byte {span.offset}: {error}") from error


def install(
    folder: Path, operator: GroupState, groups: Sequence[GroupSpans], spiller: AnySpiller | None = None
) -> None:
    """Takes groups out of their files. spiller: takes what they had on disk, and spills more if memory is short.

    Raises CheckpointError if one is damaged, and the operator is of no use any more; raises MemoryBudgetError.
    """
    room, rows_room = Room(), Room()
    for at, (group, _, spans) in enumerate(groups):
        kinds = kinds_of(folder, spans)
        form = form_of(kinds)
        if form not in (OFF, spiller.form if spiller else OFF):
            raise CheckpointError(
                f"{folder / spans[0].file}: partition {group} has rows on disk that this job has no use for: go on "
                f'with the job\'s former [memory] spill = "{form}"'
            )
        aside = [span for span, kind in zip(spans, kinds) if form == ROTATE or is_of_generations(kind)]
        own = [span for span in spans if span not in aside]
        frames: list[np.ndarray] = []
        try:
            for span in aside:
                frames = read_frames(folder, [span], rows_room)
                assert spiller  # of this form
                spiller.take_aside(group, frames[0])
            aside, frames = [], read_frames(folder, own, room)
            if frames:
                _install(operator, frames, spiller, [one.group for one in groups[:at]])
        except (CodecError, ProtocolError) as error:
            check_frames(folder, [span] if aside else own, frames)
            raise CheckpointError(f"{folder / spans[-1].file}: {error}") from error
        if spiller:
            spiller.adopt(group)


def _install(
    operator: GroupState, frames: Sequence[np.ndarray], spiller: AnySpiller | None, before: Sequence[int]
) -> None:
    """Takes over a group. before: groups that may be spilled for it."""
    while True:
        try:
            operator.install(frames)
            return
        except MemoryBudgetError:
            if spiller is None or not spiller.make_room(before):
                raise


def groups_of(resumption: Resumption, slave: int) -> tuple[GroupSpans, ...]:
    """The groups of a slave, as `install` takes them."""
    own = (group for group in resumption.manifest.groups if resumption.owners[group.group] == slave)
    return tuple(GroupSpans(group.group, group.alive, group.spans) for group in own)


def restore_all(
    rank: Rank, folder: Path, job: Job, slaves: Sequence[int], directory: RunDirectory, say: Callable[[str], None]
) -> Resumption:
    """The master's part. say: takes a warning for the user. Raises CheckpointError if no checkpoint can be used."""
    faults = []
    for number in numbers_in(folder):
        start_s = time.perf_counter()
        try:
            found = find(folder, number, job, slaves, directory)
            seconds = time.perf_counter() - start_s
            for slave, parts in shared_out(parts_in(directory, found.manifest), slaves).items():
                rank.send(slave, Restore(number, groups_of(found, slave), tuple(parts)))
            answers = rank.gather((Restored,), slaves)
            damaged = [answer.fault for answer in answers.values() if answer.fault]
            if damaged:
                raise CheckpointError(damaged[0])
        except CheckpointError as error:
            faults.append(str(error))
            say(f"checkpoint {number} cannot be used: {error}")
            continue
        for slave in slaves:
            rank.send(slave, Restored(MASTER, number))
        return found._replace(seconds=seconds + max(answer.seconds for answer in answers.values()))
    raise CheckpointError(f"{folder}: no checkpoint can be used; begin anew with --overwrite; {'; '.join(faults)}")


def restore_own(
    rank: Rank, folder: Path, directory: RunDirectory, make_holder: Callable[[], Holder]
) -> tuple[Holder, list[int], int]:
    """A slave's part. Returns what holds its groups, their numbers, and the number of the checkpoint."""
    holder: Holder | None = None
    groups: list[int] = []
    while True:
        message = rank.gather((Restore, Restored), (MASTER,))[MASTER]
        if isinstance(message, Restored):
            assert holder is not None  # the master has named a checkpoint before
            return holder, groups, message.number
        if holder and holder.spiller:
            holder.spiller.abandon()
        holder, groups, fault = make_holder(), [one.group for one in message.groups], ""
        start_s = time.perf_counter()
        try:
            install(folder, holder.operator, message.groups, holder.spiller)
            check_parts(directory.path, message.parts, rank.keep_in_touch)
        except CheckpointError as error:
            fault = str(error)
        rank.send(MASTER, Restored(rank.number, message.number, fault, time.perf_counter() - start_s))
