"""A run that is to go on: damage is refused by name and the checkpoint before is used; what must not change is told."""

import os
import re
import shutil
from contextlib import suppress
from dataclasses import replace
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint_harness import Camera, Manner, Work, check, lay_out, merged, resume, run
from engine_harness import Stream
from mpijoin.checkpoint.manifest import manifest_name, numbers_in, read_manifest
from mpijoin.checkpoint.restore import shared_out
from mpijoin.errors import AlreadyDone, CheckpointError, InputError, JobError, MpijoinError
from mpijoin.records import PartInfo

ROWS = [(time * 2, (f"key {time % 5}",), (time,)) for time in range(600)]
ROWS[3] = (1, ("key 0",), (0,))  # late, before the first checkpoint
SECTIONS = {
    "cluster": {"distribution_epoch": "10 ms"},
    "memory": {"limit": "16 MiB"},
    "checkpoint": {"every": "1 ns"},
    "run": {},
}
NORMAL = Manner(2, SECTIONS, 20, 0)
OTHER = Manner(3, SECTIONS, 20, 0)


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
    kept = {"cluster": {"partitions": 4}, "output": {"results": "parquet"}}
    return lay_out(Work(sides, kept), tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def killed(prepared, tmp_path_factory):
    """A run that was killed after its third checkpoint."""
    folder = tmp_path_factory.mktemp("killed")
    camera = Camera(folder / "run", folder / "album", {"after unlink manifest": 1})
    with camera.watching():
        run(prepared, NORMAL, folder / "run")
    return camera.pictures["after unlink manifest"]


@pytest.fixture
def image(killed, tmp_path):
    """A copy of it, with exactly two checkpoints: the one before has everything it needs."""
    path = tmp_path / "run"
    shutil.copytree(killed, path)
    newest, before = numbers_in(path / "checkpoint")
    assert newest == before + 1 and read_manifest(path / "checkpoint", before)
    return path


@pytest.fixture(scope="module")
def spilled(tmp_path_factory):
    """Work, how it is run, and such a run that was killed when it had rows on disk."""
    folder, rows = tmp_path_factory.mktemp("spilled"), [(time, (f"key {time}",), (time,)) for time in range(2000)]
    sides = tuple(
        Stream(name, (rows,), "ms", pa.int64(), (pa.string(),), (pa.int64(),), 10**10, 0, "ipc")
        for name in ("left", "right")
    )
    work = Work(sides, {"cluster": {"partitions": 4}, "output": {"results": "parquet"}})
    memory = {"limit": "64 KiB", "spill": "generations", "cleanup": "end"}
    sections = {"cluster": {"distribution_epoch": "100 ms"}, "memory": memory, "tuning": {"block": "256 B"}}
    manner = Manner(2, {**SECTIONS, **sections}, 100, 0)
    camera = Camera(folder / "run", folder / "album", {"after unlink manifest": 3})
    prepared = lay_out(work, folder)
    with camera.watching():
        run(prepared, manner, folder / "run")
    return prepared, manner, camera.pictures["after unlink manifest"]


def checkpoints(path):
    return path / "checkpoint"


def contents(path):
    """What all files have, without those that lock a folder."""
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and "lock" not in file.name}


def flip(path, at):
    octets = bytearray(path.read_bytes())
    octets[at] ^= 1
    path.write_bytes(octets)


def spoil_manifest(path, number):
    flip(checkpoints(path) / manifest_name(number), 100)
    return manifest_name(number)


def cut_manifest(path, number):
    (checkpoints(path) / manifest_name(number)).write_bytes(b"")
    return manifest_name(number)


def own_span(path, number, which):
    """A frame that only this checkpoint has: of its master, or of a slave's group."""
    manifest = read_manifest(checkpoints(path), number)
    spans = manifest.positions if which == "master" else [span for group in manifest.groups for span in group.spans]
    return next(span for span in spans if span.file.endswith(f"-{number:05d}.state"))


def spoil_master(path, number):
    span = own_span(path, number, "master")
    flip(checkpoints(path) / span.file, span.offset + span.octets - 1)
    return span.file


def spoil_group(path, number):
    span = own_span(path, number, "slave")
    flip(checkpoints(path) / span.file, span.offset + span.octets // 2)
    return span.file


def remove_group(path, number):
    span = own_span(path, number, "slave")
    (checkpoints(path) / span.file).unlink()
    return span.file


def cut_group(path, number):
    span = own_span(path, number, "slave")
    with open(checkpoints(path) / span.file, "r+b") as file:
        file.truncate(span.offset + 1)
    return span.file


DAMAGES = (spoil_manifest, cut_manifest, spoil_master, spoil_group, remove_group, cut_group)


@pytest.mark.parametrize("made", [NORMAL, OTHER], ids=["same", "other"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_refused_by_name_and_the_one_before_is_used(prepared, image, capsys, damage, made):
    newest, before = numbers_in(checkpoints(image))
    named = damage(image, newest)
    summary = resume(prepared, made, image)
    assert summary["checkpoints"]["resumed_from"] == before
    assert f"checkpoint {newest} cannot be used: {checkpoints(image) / named}: " in capsys.readouterr().err
    check(prepared, image, summary)


def test_where_all_are_damaged_it_is_said_what_to_do(prepared, image):
    newest, before = numbers_in(checkpoints(image))
    named = [spoil_manifest(image, newest), spoil_group(image, before)]
    with pytest.raises(CheckpointError, match="no checkpoint can be used; begin anew with --overwrite") as caught:
        resume(prepared, NORMAL, image)
    assert all(name in str(caught.value) for name in named)
    assert numbers_in(checkpoints(image)) == [newest, before], "and nothing is taken away"


def test_a_damage_that_heals_after_the_one_before_was_used_does_no_harm(prepared, image, tmp_path):
    """A disk that could not be read for a while: results after the checkpoint before were written anew since, and the
    newer manifest, though its files are sound again, is gone."""
    newest, _ = numbers_in(checkpoints(image))
    whole = tmp_path / "whole"
    shutil.copytree(checkpoints(image), whole)
    spoil_group(image, newest)
    camera = Camera(image, tmp_path / "album", {"before commit": 1})
    with camera.watching():
        resume(prepared, replace(OTHER, sections={**SECTIONS, "checkpoint": {"epochs": 10_000}}), image)
    again = camera.pictures["before commit"]
    assert newest not in numbers_in(checkpoints(again))
    shutil.copytree(whole, checkpoints(again), ignore=shutil.ignore_patterns("*.json"), dirs_exist_ok=True)
    check(prepared, again, resume(prepared, NORMAL, again))


def cut_part(path):
    os.truncate(path, path.stat().st_size // 2)


def empty_part(path):
    os.truncate(path, 0)


def zero_part(path):
    path.write_bytes(bytes(path.stat().st_size))


def flip_part(path):
    flip(path, path.stat().st_size - 1)


PART_DAMAGES = {
    cut_part: r"got \d+ bytes, wanted",
    empty_part: "got 0 bytes, wanted",
    zero_part: "got checksum",
    flip_part: "got checksum",
    os.unlink: "got no such file, wanted",
}
PART_FOLDERS = {"results": "results/.open", "late": "late/.open"}


def parts_of(path, number, kind):
    """The files of results or late rows that a checkpoint counts on."""
    manifest = read_manifest(checkpoints(path), number)
    parts = manifest.results if kind == "results" else manifest.run.late
    return {path / PART_FOLDERS[kind] / part.name for part in parts}


@pytest.mark.parametrize("made", [NORMAL, OTHER], ids=["same", "other"])
@pytest.mark.parametrize("damage", PART_DAMAGES)
def test_a_part_damaged_that_only_the_newest_counts_on_sends_the_run_back_to_the_one_before(
    prepared, image, capsys, damage, made
):
    newest, before = numbers_in(checkpoints(image))
    part = min(parts_of(image, newest, "results") - parts_of(image, before, "results"))
    damage(part)
    summary = resume(prepared, made, image)
    assert summary["checkpoints"]["resumed_from"] == before
    told = capsys.readouterr().err
    assert re.search(f"checkpoint {newest} cannot be used: {re.escape(str(part))}: {PART_DAMAGES[damage]}", told), told
    check(prepared, image, summary)


@pytest.mark.parametrize("kind", PART_FOLDERS)
@pytest.mark.parametrize("damage", PART_DAMAGES)
def test_a_part_damaged_that_every_checkpoint_counts_on_ends_the_run_and_takes_nothing_away(
    prepared, image, damage, kind
):
    newest, before = numbers_in(checkpoints(image))
    part = min(parts_of(image, newest, kind))
    if part not in parts_of(image, before, kind):  # it was written before a row was late
        (checkpoints(image) / manifest_name(before)).unlink()
    numbers = numbers_in(checkpoints(image))
    damage(part)
    left = {path for path in image.rglob("*") if not path.name.startswith("lock-")}  # of the run that was killed
    with pytest.raises(
        CheckpointError, match=f"no checkpoint can be used.*{part.name}: {PART_DAMAGES[damage]}"
    ) as caught:
        resume(prepared, NORMAL, image)
    assert caught.value.exit_code == 3 and not (image / "summary.json").exists()
    assert left <= {*image.rglob("*")} and numbers_in(checkpoints(image)) == numbers


def test_parts_are_shared_out_by_size():
    parts = [PartInfo(f"{octets}", 1, octets, "") for octets in (5, 1, 9, 3, 4)]
    shares = shared_out(parts, (1, 2, 3))
    assert {slave: [part.bytes for part in share] for slave, share in shares.items()} == {1: [9], 2: [5, 1], 3: [4, 3]}


def test_a_job_that_is_another_is_refused_and_can_still_go_on_as_it_was(prepared, image):
    other = replace(NORMAL, sections={**SECTIONS, "run": {"seed": 5}})
    with pytest.raises(JobError, match=r"\[run\] seed: got 5, but the run to go on with has 0"):
        resume(prepared, other, image)
    check(prepared, image, resume(prepared, NORMAL, image))


def test_an_input_that_is_another_is_refused_and_named(prepared, image, tmp_path):
    inputs = prepared.inputs["left"]["path"]
    saved = tmp_path / "saved"
    shutil.copytree(inputs, saved)
    try:
        (path,) = saved.iterdir()
        table = pa.ipc.open_file(path).read_all().slice(0, 599)
        with pa.ipc.new_file(f"{inputs}/{path.name}", table.schema) as writer:
            writer.write_table(table)
        with pytest.raises(InputError, match=path.name):
            resume(prepared, NORMAL, image)
    finally:
        shutil.rmtree(inputs)
        shutil.copytree(saved, inputs)


def test_there_is_nothing_to_go_on_with_when_a_run_is_done(prepared, image):
    summary = resume(prepared, NORMAL, image)
    files = sorted(image.rglob("*"))
    with pytest.raises(AlreadyDone, match="this run is done"):
        run(prepared, NORMAL, image, resume=True)
    check(prepared, image, summary)
    assert sorted(image.rglob("*")) == files


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_summary_that_says_nothing_is_not_taken_for_the_end_of_a_run(prepared, image, text):
    resume(prepared, NORMAL, image)
    (image / "summary.json").write_text(text)
    with pytest.raises(InputError, match="summary.json: cannot be read.*nobody knows how this run ended: --overwrite"):
        run(prepared, NORMAL, image, resume=True)


def changed(sections):
    return replace(NORMAL, sections=merged(SECTIONS, sections))


@pytest.mark.parametrize(
    "section, name, value",
    [("left", "window", "3 s"), ("join", "type", "semi"), ("output", "columns", ["left_row"]), ("run", "late", "fail")],
)
def test_a_run_that_is_done_is_not_the_answer_to_another_question(prepared, image, section, name, value):
    resume(prepared, NORMAL, image)
    files = sorted(image.rglob("*"))
    with pytest.raises(JobError, match=rf"\[{section}\] {name}: got .*but the run to go on with has .*--overwrite"):
        run(prepared, changed({section: {name: value}}), image, resume=True)
    with pytest.raises(AlreadyDone, match="this run is done"):
        run(prepared, changed({"cluster": {"partitions": 7}, "tuning": {"block": "2 KiB"}}), image, resume=True)
    assert sorted(image.rglob("*")) == files


def test_nothing_to_go_on_with_is_a_run_that_begins(prepared, tmp_path):
    summary = run(prepared, NORMAL, tmp_path / "run", resume=True)
    assert summary["checkpoints"]["resumed_from"] is None and summary["checkpoints"]["restarts"] == 0
    check(prepared, tmp_path / "run", summary)


def test_a_folder_that_no_run_made_is_left_alone(prepared, tmp_path):
    """Even if there are checkpoints: those may lie elsewhere, of another run."""
    (tmp_path / "mine/checkpoint").mkdir(parents=True)
    (tmp_path / "mine/checkpoint/00001.json").write_text("{}")
    (tmp_path / "mine/job.toml").write_text("my own")
    with suppress(MpijoinError):
        run(prepared, NORMAL, tmp_path / "mine", resume=True)
    assert (tmp_path / "mine/job.toml").read_text() == "my own"


def test_a_paced_run_goes_on_with_what_waited(prepared, tmp_path):
    """Rows that were held at the cut are sent before event time passes again."""
    cluster = {**SECTIONS["cluster"], "subgroups": 3}  # of which two always wait for their turn
    paced = Manner(3, {**SECTIONS, "cluster": cluster, "run": {"speed": 5}}, 10, 0)
    camera = Camera(tmp_path / "run", tmp_path / "album", {"after rename manifest": 1})
    with camera.watching():
        run(prepared, paced, tmp_path / "run")
    image = camera.pictures["after rename manifest"]
    manifest = read_manifest(checkpoints(image), numbers_in(checkpoints(image))[0])
    assert manifest.waiting, "nothing waited: the test proves nothing"
    summary = resume(prepared, paced, image)
    assert summary["delay_s"]["max"] > 0
    check(prepared, image, summary)


def test_late_rows_are_counted_once_in_the_metrics(prepared, image):
    """Those of before the checkpoint are in the parts of the metrics that were cut then, or lost with the kill."""
    summary = resume(prepared, NORMAL, image)
    late = sum(sum(pq.read_table(path)["late"].to_pylist()) for path in (image / "metrics").glob("rank-0*.parquet"))
    assert late <= summary["streams"]["left"]["late"] + summary["streams"]["right"]["late"] == 2


def test_restarts_are_counted(prepared, image, tmp_path):
    camera = Camera(image, tmp_path / "album", {"after rename manifest": 1})
    with camera.watching():
        assert resume(prepared, OTHER, image)["checkpoints"]["restarts"] == 1
    again = camera.pictures["after rename manifest"]
    summary = resume(prepared, NORMAL, again)
    assert summary["checkpoints"]["restarts"] == 2
    check(prepared, again, summary)


def test_kills_on_purpose_do_not_come_again(prepared, tmp_path):
    wanted = {**SECTIONS, "inject": {"fail": {"1": 3}}}
    with pytest.raises(Exception, match="epoch 3 has come"):
        run(prepared, replace(NORMAL, sections=wanted), tmp_path / "run")
    check(prepared, tmp_path / "run", run(prepared, replace(NORMAL, sections=wanted), tmp_path / "run", resume=True))
    assert numbers_in(tmp_path / "run" / "checkpoint") == []


def test_a_job_that_has_no_use_for_rows_on_disk_is_refused_and_loses_no_checkpoint(spilled, tmp_path):
    prepared, manner, image = spilled
    path = tmp_path / "run"
    shutil.copytree(image, path)
    before = contents(path)
    for form, limit in (("off", "16 MiB"), ("rotate", "16 MiB")):
        sections = {**manner.sections, "memory": {"spill": form, "limit": limit}}
        with pytest.raises(JobError, match=rf'spill: got "{form}", but .* on disk, as "generations" leaves them'):
            resume(prepared, replace(manner, sections=sections), path)
    assert contents(path) == before
    check(prepared, path, resume(prepared, manner, path))
