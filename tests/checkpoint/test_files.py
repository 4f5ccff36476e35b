"""State files and manifests: whole under their name or not there, and damage is named."""

import errno
import json
import zlib
from contextlib import suppress

import numpy as np
import pytest

from mpijoin.checkpoint.fields import SECTIONS
from mpijoin.checkpoint.files import StateFile, read_frames
from mpijoin.checkpoint.identity import check_identity
from mpijoin.checkpoint.manifest import (
    Group,
    Manifest,
    RunState,
    forget_after,
    last_number_in,
    manifest_name,
    numbers_in,
    prune,
    read_manifest,
    remove,
    state_name,
    write_manifest,
)
from mpijoin.checkpoint.restore import check_frames, waiting_in
from mpijoin.config.load import load_job
from mpijoin.data.codec import ALIGNMENT, MAGIC, encode
from mpijoin.disk import ASIDE
from mpijoin.errors import CheckpointError, JobError
from mpijoin.records import Counts, MoveTotals, PartInfo, Span
from small_files import file_size_limit

NAME = "rank-1-00001.state"


def frame(*values):
    return encode(32, {"some": "frame"}, [np.array(values, np.int64)], checksum=True)


FRAMES = [frame(*range(count)) for count in (1, 1000, 0, 77)]


def written(folder, name=NAME, frames=FRAMES):
    file = StateFile(folder, name)
    spans = [file.write(one) for one in frames]
    file.finish()
    return spans


def test_frames_come_back_as_they_were_written_each_at_an_aligned_place(tmp_path):
    spans = written(tmp_path)
    assert [frame.tobytes() for frame in read_frames(tmp_path, spans)] == [frame.tobytes() for frame in FRAMES]
    assert all(span.offset % ALIGNMENT == 0 for span in spans)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    assert (tmp_path / NAME).stat().st_size == spans[-1].offset + spans[-1].octets


def test_it_has_its_name_only_when_it_is_finished_and_none_when_it_is_abandoned(tmp_path):
    file = StateFile(tmp_path, NAME)
    file.write(FRAMES[0])
    assert [path.name for path in tmp_path.iterdir()] == [NAME + ASIDE]
    file.abandon()
    assert list(tmp_path.iterdir()) == []
    file.abandon()


def test_what_the_system_takes_only_in_part_is_written_to_the_end(tmp_path):
    file = StateFile(tmp_path, NAME)
    whole = file._file
    file._file = type(
        "Short", (), {"write": lambda self, data: whole.write(data[:5]), "fileno": whole.fileno, "close": whole.close}
    )()
    span = file.write(FRAMES[1])
    file.finish()
    assert read_frames(tmp_path, [span])[0].tobytes() == FRAMES[1].tobytes()


def test_a_file_that_cannot_grow_is_named(tmp_path):
    file = StateFile(tmp_path, NAME)
    with file_size_limit(3), pytest.raises(CheckpointError, match=rf"{NAME}: cannot be written: File too large"):
        file.write(FRAMES[0])
    file.abandon()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_gone_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="nowhere/.*: cannot be written: No such file or directory"):
        StateFile(tmp_path / "nowhere", NAME)


def test_a_missing_and_a_short_file_are_named(tmp_path):
    spans = written(tmp_path)
    with pytest.raises(CheckpointError, match="rank-9.state: cannot be read: No such file"):
        read_frames(tmp_path, [Span("rank-9.state", 0, 10)])
    with open(tmp_path / NAME, "r+b") as file:
        file.truncate(spans[-1].offset + 3)
    assert len(read_frames(tmp_path, spans[:-1])) == 3
    with pytest.raises(
        CheckpointError, match=rf"{NAME}: ends {spans[-1].octets - 3} bytes too soon: wanted {sum(spans[-1][1:])}"
    ):
        read_frames(tmp_path, spans)


def test_any_flipped_byte_of_a_frame_is_found(tmp_path):
    (span,) = written(tmp_path, frames=[frame(1, 2, 3)])
    whole = (tmp_path / NAME).read_bytes()
    for at in range(span.octets):
        (tmp_path / NAME).write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(CheckpointError, match=rf"{NAME}: damaged at byte 0: "):
            check_frames(tmp_path, [span], read_frames(tmp_path, [span]))


STREAMS = ("left", "right", "third")
FIELDS = {"window": "1 s", "partitions": 5}


def manifest(number=7, positions=(), waiting=(), groups=()):
    return Manifest(
        number=number,
        identity=dict.fromkeys(SECTIONS, FIELDS) | {"streams": {name: {} for name in STREAMS}},
        groups=tuple(groups),
        positions=tuple(positions),
        waiting=tuple(waiting),
        results=(PartInfo("rank-1-00000.parquet", 12, 700, "0123456789abcdef"),),
        before=Counts.nothing(3),
        restarts=1,
        run=RunState(
            late=(PartInfo("left-00000.parquet", 3, 500, "fedcba9876543210"),),
            slots=11,
            complete=(-5, (1 << 63) - 1, 0),
            sent=(100, 200, 0),
            elapsed_s=1.5,
            active=2,
            slaves=(1, 2),
            ticks=12,
            moves=MoveTotals(2, 1, 0, 700),
        ),
    )


@pytest.fixture
def folder(tmp_path):
    """With two checkpoints, of which the second needs a file of the first."""
    old, new = written(tmp_path, state_name(1, 6)), written(tmp_path, state_name(1, 7))
    own = [written(tmp_path, state_name(0, number), FRAMES[:1]) for number in (6, 7)]
    write_manifest(tmp_path, manifest(6, own[0], (), [Group(3, 1, 99, tuple(old))]))
    write_manifest(tmp_path, manifest(7, own[1], (), [Group(3, 1, 55, (old[1], *new)), Group(4, 2, 0, (new[0],))]))
    return tmp_path


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_a_manifest_comes_back_as_it_was(folder):
    found = read_manifest(folder, 7)
    spans = found.positions + found.waiting + found.groups[0].spans + found.groups[1].spans
    assert found == manifest(7, found.positions, found.waiting, found.groups)
    assert all(isinstance(span, Span) for span in spans) and found.octets == sum(span.octets for span in spans)
    ends = {
        span.file: span.offset + span.octets
        for span in (found.groups[0].spans[0], found.groups[0].spans[-1], *found.positions)
    }
    assert found.files == ends
    assert numbers_in(folder) == [7, 6]


@pytest.mark.parametrize("at", [0, 3, 8, 9, 40, 200, -3, -1])
def test_a_flipped_byte_in_a_manifest_is_found(folder, at):
    path = folder / manifest_name(7)
    octets = bytearray(path.read_bytes())
    octets[at] ^= 4
    path.write_bytes(octets)
    with pytest.raises(CheckpointError, match="00007.json: "):
        read_manifest(folder, 7)


@pytest.mark.parametrize("octets", [0, 5, 9, 100, -1])
def test_a_cut_manifest_is_found(folder, octets):
    path = folder / manifest_name(7)
    path.write_bytes(path.read_bytes()[:octets])
    with pytest.raises(CheckpointError, match="00007.json: its checksum does not hold|00007.json: cannot be read"):
        read_manifest(folder, 7)


def test_a_manifest_that_is_no_text_or_not_there_is_named(folder):
    (folder / manifest_name(7)).write_bytes(b"\xff\xfe\n\xff\n")
    for number in (7, 8):
        with pytest.raises(CheckpointError, match=f"{manifest_name(number)}: cannot be read"):
            read_manifest(folder, number)


def content(folder):
    """Of manifest 7."""
    return json.loads((folder / manifest_name(7)).read_text().split("\n")[1])


def craft(folder, text):
    """Writes a manifest 7 with a right checksum."""
    (folder / manifest_name(7)).write_text(f"{zlib.crc32(text.encode()):08x}\n{text}\n")


NOTHINGS = (None, -1, 1 << 70, 1e300, "../../x", [], [[1, 2, 3, 4]], {}, {"x": 1}, [{}])


def nested(value, path=()):
    """Where there is something in a JSON value, all levels."""
    yield path
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield from nested(inner, (*path, step))


def changed(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(copy[path[0]], path[1:], new)
    return copy


def test_a_crafted_manifest_is_refused_by_name_or_means_what_it_says(folder):
    """Whatever stands wherever in it."""
    whole, refused = content(folder), 0
    for path in nested(whole):
        for new in NOTHINGS:
            craft(folder, json.dumps(changed(whole, path, new)))
            try:
                found = read_manifest(folder, 7)
            except CheckpointError as error:
                assert str(error).startswith(f"{folder}/"), (path, new, str(error))
                refused += 1
            else:
                assert all(name.startswith("rank-") and (folder / name).is_file() for name in found.files)
                check_identity_runs(found)
    assert refused > 500


def check_identity_runs(found):
    """What it says of the job is compared, or found wrong."""
    own = load_job({name: {"kind": "synthetic", "rate": 1, "tuples": 1} for name in ("left", "right")})
    with suppress(JobError):
        check_identity(own, found.identity)


@pytest.mark.parametrize("name", Manifest._fields)
def test_a_manifest_without_a_field_is_refused_by_name(folder, name):
    value = content(folder)
    del value[name]
    craft(folder, json.dumps(value))
    with pytest.raises(CheckpointError, match=f"00007.json: is no manifest of mpijoin's: {name}: is missing"):
        read_manifest(folder, 7)


@pytest.mark.parametrize("name", RunState._fields)
def test_where_the_run_stood_is_known_whole_or_refused_by_name(folder, name):
    value = content(folder)
    kept = value["run"].pop(name)
    craft(folder, json.dumps(value))
    with pytest.raises(CheckpointError, match=f"00007.json: is no manifest of mpijoin's: run: {name}: is missing"):
        read_manifest(folder, 7)
    value["run"] |= {name: kept, "more": 1}
    craft(folder, json.dumps(value))
    with pytest.raises(CheckpointError, match="00007.json: is no manifest of mpijoin's: run: more: is not known"):
        read_manifest(folder, 7)


@pytest.mark.parametrize("moves", [{"moved": 2}, [2, 1, 0], [2, 1, 0, 700, 1], [2, 1, 0, None], [2, 1, -1, 700]])
def test_moves_that_cannot_be_are_refused_by_name(folder, moves):
    craft(folder, json.dumps(changed(content(folder), ("run", "moves"), moves)))
    with pytest.raises(CheckpointError, match="00007.json: is no manifest of mpijoin's: run: moves: got "):
        read_manifest(folder, 7)


@pytest.mark.parametrize(
    "path",
    [
        *(("run", "slots"), ("run", "active"), ("run", "sent", 1)),
        *(("groups", 0, "group"), ("positions", 0, 1), ("restarts",)),
    ],
)
@pytest.mark.parametrize("number", [-1, 1 << 63, 1 << 70])
def test_a_number_that_cannot_be_is_refused_by_name(folder, path, number):
    craft(folder, json.dumps(changed(content(folder), path, number)))
    with pytest.raises(
        CheckpointError, match=f"00007.json: is no manifest of mpijoin's: {path[0]}: .*got {number}, wanted"
    ):
        read_manifest(folder, 7)


@pytest.mark.parametrize("text", ["", "7", "[]", "null", '"x"', "{}", "{", "[" * 100_000, "9" * 10_000])
def test_what_is_no_manifest_at_all_is_refused_by_name(folder, text):
    craft(folder, text)
    with pytest.raises(CheckpointError, match="00007.json: is no manifest of mpijoin's: "):
        read_manifest(folder, 7)


@pytest.mark.parametrize(
    "file", ["/etc/passwd", "../rank-1-00007.state", "rank-1-00007.state/..", "notes.state", "rank-1-7.state"]
)
def test_a_manifest_names_only_files_of_checkpoints(folder, file):
    value = content(folder)
    value["positions"][0][0] = file
    craft(folder, json.dumps(value))
    with pytest.raises(CheckpointError, match="00007.json: is no manifest of mpijoin's: positions: got "):
        read_manifest(folder, 7)


@pytest.mark.parametrize("name", ["../job.toml", "/etc/passwd", "left-00000.parquet", "rank-1.parquet"])
def test_a_manifest_names_only_files_of_results(folder, name):
    value = content(folder)
    value["results"][0][0] = name
    craft(folder, json.dumps(value))
    with pytest.raises(CheckpointError, match="00007.json: is no manifest of mpijoin's: results: got "):
        read_manifest(folder, 7)


def test_a_frame_that_is_no_slot_does_not_wait_for_a_slave(folder):
    frames = read_frames(folder, read_manifest(folder, 7).positions)
    with pytest.raises(CheckpointError, match="rank-0-00007.state: no rows for a slave at byte 0: ValueError"):
        waiting_in(folder, read_manifest(folder, 7).positions, frames)


def test_a_manifest_of_another_version_is_refused(folder):
    craft(folder, json.dumps({**content(folder), "version": 1}))
    with pytest.raises(CheckpointError, match="another version of mpijoin"):
        read_manifest(folder, 7)


def test_a_state_file_that_is_missing_or_short_is_named_before_anything_is_read(folder):
    needed = read_manifest(folder, 7).files[state_name(1, 6)]
    path = folder / state_name(1, 6)
    with open(path, "r+b") as file:
        file.truncate(needed - 1)
    with pytest.raises(CheckpointError, match=f"rank-1-00006.state: got {needed - 1} bytes, wanted {needed}"):
        read_manifest(folder, 7)
    path.unlink()
    with pytest.raises(CheckpointError, match="rank-1-00006.state: is missing"):
        read_manifest(folder, 7)


def test_a_manifest_that_cannot_be_written_leaves_the_one_before(folder, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda handle: refuse())

    def refuse():
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(CheckpointError, match="00008.json: cannot be written: No space left on device"):
        write_manifest(folder, manifest(8))
    assert numbers_in(folder) == [7, 6] and read_manifest(folder, 7)


def test_pruning_keeps_what_the_kept_need_and_nothing_else(folder):
    (folder / ("rank-2-00008.state" + ASIDE)).write_bytes(MAGIC[:2])
    (folder / ("00008.json" + ASIDE)).write_text('01234567\n{"version":5,"num')
    (folder / "rank-3-00005.state").write_bytes(FRAMES[0].tobytes())
    (folder / "00005.json").write_text("")
    (folder / "mine.txt").write_text("")
    assert last_number_in(folder) == 8
    prune(folder, [read_manifest(folder, 7), read_manifest(folder, 6)])
    kept = {"00006.json", "00007.json", *(state_name(rank, number) for rank in (0, 1) for number in (6, 7)), "mine.txt"}
    assert names(folder) == kept
    prune(folder, [read_manifest(folder, 7)])
    assert names(folder) == kept - {"00006.json", state_name(0, 6)} and read_manifest(folder, 7)
    remove(folder)
    assert names(folder) == {"mine.txt"}


def test_pruning_removes_manifests_before_their_files(folder, monkeypatch):
    """A kill on the way leaves no checkpoint that lacks something."""
    order = []
    unlink = type(folder).unlink
    monkeypatch.setattr(type(folder), "unlink", lambda path, *args: (order.append(path.name), unlink(path, *args))[1])
    remove(folder)
    first_state = next(at for at, name in enumerate(order) if name.startswith("rank-"))
    assert set(order[:first_state]) == {"00006.json", "00007.json"} and not folder.exists()


def test_the_next_number_is_above_all_that_was_ever_begun(tmp_path):
    assert last_number_in(tmp_path) == 0 == last_number_in(tmp_path / "nowhere")
    for name, highest in (
        ("00003.json", 3),
        ("rank-2-00004.state", 4),
        ("rank-1-00005.state.new", 5),
        ("00012.json.new", 12),
    ):
        (tmp_path / name).write_text("")
        assert last_number_in(tmp_path) == highest


FOREIGN = {
    "2024-notes.json": "{}",
    "20241122.json": '{"version": 5}',
    "20241123.json": "",
    "notes.txt": "",
    "rank-notes.state": "MPJF",
    "rank-1-00007.state.bak": "MPJF",
    "rank-1-00009.state": "mine",
}


def test_files_of_others_do_not_matter_and_stay(folder):
    for name, text in FOREIGN.items():
        (folder / name).write_text(text)
    (folder / "rank-3-00009.state").symlink_to(folder / "rank-1-00007.state")
    left = {*FOREIGN, "rank-3-00009.state"}
    assert numbers_in(folder) == [7, 6] and last_number_in(folder) == 7
    prune(folder, [read_manifest(folder, 6)])
    forget_after(folder, 5)
    remove(folder)
    assert names(folder) == left
