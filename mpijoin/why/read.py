"""Tells how far a run that has not finished had read its inputs."""

from __future__ import annotations

from pathlib import Path

from mpijoin.checkpoint.files import read_frames
from mpijoin.checkpoint.manifest import numbers_in, read_manifest
from mpijoin.config.check import resolve
from mpijoin.config.job import Job
from mpijoin.data.record import RecordLayout
from mpijoin.errors import CheckpointError, CodecError, ProtocolError
from mpijoin.named import NamedTuple
from mpijoin.rundir import RunDirectory, read_failure
from mpijoin.sources.base import SourcePosition
from mpijoin.sources.position import decode_position
from mpijoin.verify.inputs import FILE_STRIDE


class Progress(NamedTuple):
    """How far the run had come. state: as a sentence; "" for a run that has finished · has_read: whether it had read
    the row that is asked about; None: nothing on disk tells."""

    state: str
    has_read: bool | None


def progress_of(run: RunDirectory, job: Job, stream: int, row: int) -> Progress:
    """Asks the newest checkpoint that is whole, if the run has not finished. Raises InputError if there is no run."""
    failure = read_failure(run.path)
    if failure is None and run.is_finished:
        return Progress("", True)
    ended = f"the run did not finish: {failure.get('reason')}" if failure else "the run still goes on, or was killed"
    folder = Path(job.checkpoint.path) if job.checkpoint.path else run.checkpoints
    for number in numbers_in(folder):
        try:
            has_read = _has_read(folder, number, job, stream, row)
        except (CheckpointError, CodecError, ProtocolError):
            continue
        return Progress(f"{ended}; checkpoint {number} is its last one", has_read)
    return Progress(ended, None)


def _has_read(folder: Path, number: int, job: Job, stream: int, row: int) -> bool:
    manifest = read_manifest(folder, number)
    words = [RecordLayout(one).record_words for one in resolve(job).streams]
    for frame in read_frames(folder, manifest.positions):
        source = decode_position(frame, words).streams[stream].source
        if source is not None and _is_unread(source, *divmod(row, FILE_STRIDE)):
            return False
    return True


def _is_unread(source: SourcePosition, file: int, position: int) -> bool:
    """Whether a producer that stands there has still to read this row."""
    ranges = [one for opened in source.open if opened.file == file for one in opened.ranges]
    ranges += [one for waiting in source.waiting if waiting.file == file for one in waiting.ranges]
    return any(one.start <= position and (one.stop is None or position < one.stop) for one in ranges)
