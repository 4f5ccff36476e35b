"""Pending input is joined in larger parts than it came in, in its order."""

from contextlib import contextmanager

import numpy as np
import pytest

from mpijoin.errors import ScratchError
from mpijoin.messages import Columns, Piece, Slot
from mpijoin.spill.pending import PendingInput
from mpijoin.spill.runs import Runs
from mpijoin.spill.scratch import open_scratch

WIDTHS = [3, 6]


def piece_of(rows):
    """Rows of these numbers, of both streams. That of stream 1 has a blob of as many bytes as the last digit says."""
    plain = np.array([(7, row, row) for row in rows], np.int64).reshape(-1, 3)
    sizes = [row % 10 for row in rows]
    starts = np.cumsum([0, *sizes])[: len(rows)]
    wide = [(7, row, row, start, size, row) for row, start, size in zip(rows, starts, sizes)]
    blob = b"".join(bytes([row % 251]) * size for row, size in zip(rows, sizes))
    columns = Columns(plain, np.empty(0, np.uint8)), Columns(
        np.array(wide, np.int64).reshape(-1, 6), np.frombuffer(blob, np.uint8)
    )
    return Piece(np.full((2, 1), len(rows)), columns)


def slot_of(epoch, *pieces):
    return Slot(0, epoch, (epoch, epoch + 1), np.array([5]), tuple(map(piece_of, pieces)), last=True)


@contextmanager
def written(folder, slots):
    with open_scratch(str(folder), "rank-1") as scratch:
        pending, run = PendingInput(WIDTHS), Runs(scratch).new_run()
        for slot in slots:
            run.append(pending.frame_of(slot))
        yield pending, run


def rows_in(part):
    """The numbers of the rows of a part, and checks on the way that each has its blob."""
    (piece,) = part.pieces
    plain, wide = piece.columns
    assert plain.tuples[:, 2].tolist() == wide.tuples[:, 2].tolist()
    for _, _, row, start, size, _ in wide.tuples.tolist():
        assert wide.blob[start : start + size].tolist() == [row % 251] * (row % 10)
    assert piece.counts.tolist() == [[len(plain.tuples)], [len(wide.tuples)]]
    return plain.tuples[:, 2].tolist()


@pytest.mark.parametrize("octets_max", [1, 300, 1 << 20])
def test_parts_have_all_rows_in_their_order_and_the_newest_watermarks(tmp_path, octets_max):
    lengths = [2, 1, 30, 3, 200, 4]
    ends = np.cumsum(lengths).tolist()
    slots = [slot_of(epoch, range(end - length, end)) for epoch, (end, length) in enumerate(zip(ends, lengths))]
    slots.append(slot_of(len(slots), range(ends[-1], ends[-1] + 9), range(ends[-1] + 9, ends[-1] + 12)))
    found, marks = [], []
    with written(tmp_path, slots) as (pending, run):
        reading = run.frames()
        while (part := pending.next_part(reading, octets_max)) is not None:
            assert part.groups.tolist() == [5] and not part.last
            found.append(rows_in(part))
            marks.append(part.watermarks)
    assert [row for rows in found for row in rows] == list(range(ends[-1] + 12))
    assert marks[-1] == (6, 7) and marks == sorted(marks)
    assert len(found) == (7 if octets_max == 1 else 1 if octets_max > 1 << 19 else len(found))


def test_rows_of_one_stream_only_are_a_part(tmp_path):
    left, _ = piece_of(range(3)).columns
    none = Columns(np.empty((0, 6), np.int64), np.empty(0, np.uint8))
    slot = slot_of(1)._replace(pieces=(Piece(np.array([[3], [0]]), (left, none)),))
    with written(tmp_path, [slot, slot]) as (pending, run):
        part = pending.next_part(run.frames(), 1 << 20)
    assert part.rows_per_stream.tolist() == [6, 0]


def test_damage_names_the_file(tmp_path):
    with written(tmp_path, [slot_of(1, range(9))]) as (pending, run):
        run.close()
        (file,) = tmp_path.rglob("*.run")
        file.write_bytes(file.read_bytes()[:-1] + b"\0")
        with pytest.raises(ScratchError, match=r"\.run: damaged at byte 0: .*checksum"):
            pending.next_part(run.frames(), 1)
