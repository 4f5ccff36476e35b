"""Runs of frames on disk: they come back as they were, give their space back, and damage or refusal is named."""

import errno
import os
import random
import resource
import subprocess

import numpy as np
import pytest

from mpijoin.data.codec import ALIGNMENT, decode, encode
from mpijoin.data.room import Room
from mpijoin.errors import EXIT_FAILED, CodecError, ScratchError
from mpijoin.spill import runs as runs_module
from mpijoin.spill.runs import PIECE_BYTES, SMALL_BYTES, WAITING_BYTES, Runs
from mpijoin.spill.scratch import open_scratch
from small_files import file_size_limit


def frame(octets, seed=0):
    """A sealed frame with about so many random bytes."""
    content = np.random.default_rng(seed).integers(0, 256, octets, np.uint8)
    return encode(18, {"seed": seed}, [content], checksum=True)


SMALL, LARGE = frame(1000, 1), frame(200_000, 2)
assert len(SMALL) < SMALL_BYTES < len(LARGE)


@pytest.fixture
def scratch(tmp_path):
    with open_scratch(str(tmp_path), "rank-1") as scratch:
        yield scratch


@pytest.fixture
def runs(scratch):
    return Runs(scratch, file_bytes=1 << 20)


def files_of(scratch):
    return sorted(scratch.folder.glob("*.run"))


def spares_of(scratch):
    return sorted(scratch.folder.glob("*.spare"))


def content(run, **how):
    return [one.tobytes() for one in run.frames(**how)]


def run_of(runs, *frames):
    run = runs.new_run()
    for one in frames:
        run.append(one)
    return run


def test_frames_come_back_in_order_aligned_and_whole(runs):
    frames = [frame(octets, octets) for octets in (0, 1, 63, 64, 100, 70_000, 5, 5_000_000, 300_000, 0, 1_000_000)]
    run, room = run_of(runs, *frames), Room()
    assert len(run) == len(frames) and run.octets >= sum(map(len, frames))
    for _ in range(2):
        found = []
        for one in run.frames(room):
            assert one.ctypes.data % ALIGNMENT == 0 and decode(one).kind == 18
            found.append(one.tobytes())
        assert found == [one.tobytes() for one in frames]


def test_no_file_grows_beyond_its_bound_but_for_a_frame_that_is_larger(runs, scratch):
    run_of(runs, *[LARGE] * 12, frame(3_000_000), SMALL).close()
    sizes = [path.stat().st_size for path in files_of(scratch)]
    assert len(sizes) == 5 and sum(size > runs.file_bytes for size in sizes) == 1
    assert sum(sizes) == runs.held_bytes == runs.written_bytes


@pytest.mark.parametrize("given", [SMALL, LARGE], ids=["small", "large"])
def test_the_caller_may_use_the_memory_of_a_frame_again(runs, given):
    mine, run = given.copy(), runs.new_run()
    run.append(mine)
    mine[:] = 0
    assert content(run) == [given.tobytes()]


def test_a_frame_without_checksum_is_refused(runs, scratch):
    with pytest.raises(CodecError, match="without checksum"):
        runs.new_run().append(encode(18, {}, [np.arange(3)]))
    assert files_of(scratch) == [] and runs.held_bytes == 0


def test_small_frames_wait_for_others_but_never_too_many(runs, scratch):
    several, waits = [runs.new_run() for _ in range(10)], []
    while not files_of(scratch):
        for run in several:
            run.append(SMALL)
        waits.append(runs.held_bytes - runs.written_bytes)
    assert max(waits) <= WAITING_BYTES < sum(run.octets for run in several)
    assert len(files_of(scratch)) == 10
    written = runs.written_bytes
    several[0].append(SMALL)
    assert runs.written_bytes == written
    assert all(content(run) == [SMALL.tobytes()] * len(run) for run in several)


def test_a_large_frame_comes_behind_the_small_ones_before_it(runs):
    order = [SMALL, LARGE, SMALL, SMALL, LARGE, LARGE, SMALL]
    assert content(run_of(runs, *order)) == [one.tobytes() for one in order]


def test_thousands_of_runs_need_few_open_files(runs):
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 4, most))
    try:
        several = [runs.new_run() for _ in range(2000)]
        for given in (SMALL, frame(SMALL_BYTES, 3), SMALL):
            for run in several:
                run.append(given)
        lengths = {len(content(run, last=True)) for run in several}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))
    assert lengths == {3} and runs.held_bytes == 0


def test_the_space_of_a_run_is_given_back_with_it(runs, scratch):
    kept, gone = run_of(runs, LARGE, SMALL), run_of(runs, *[LARGE] * 20, SMALL)
    before = runs.held_bytes
    gone.remove()
    gone.remove()
    assert runs.held_bytes == kept.octets < before and len(gone) == gone.octets == 0
    assert [path.name[:6] for path in files_of(scratch)] == ["000001"]
    assert content(kept) == [LARGE.tobytes(), SMALL.tobytes()]
    gone.append(LARGE)
    assert content(gone) == [LARGE.tobytes()]


def test_reading_for_the_last_time_gives_space_back_file_by_file(runs, scratch):
    run = run_of(runs, *[LARGE] * 20)
    files = files_of(scratch)
    assert len(files) == 4
    left = []
    for _ in run.frames(last=True):
        held = [path.stat().st_size for path in files_of(scratch)]
        assert runs.held_bytes == run.octets == sum(held)
        left.append(len(held))
    assert left == [4] * 5 + [3] * 5 + [2] * 5 + [1] * 5
    assert files_of(scratch) == [] and runs.held_bytes == len(run) == 0


def test_what_was_not_read_to_the_end_stays_until_it_is_removed(runs, scratch):
    run = run_of(runs, *[LARGE] * 20)
    reading = run.frames(last=True)
    assert next(reading).tobytes() == LARGE.tobytes()
    del reading
    assert len(files_of(scratch)) == 4 and content(run) == [LARGE.tobytes()] * 20
    run.remove()
    assert files_of(scratch) == []


def test_what_is_appended_while_others_read_is_for_the_next_reader(runs):
    run = run_of(runs, SMALL, LARGE)
    found = []
    for one in run.frames(last=True):
        found.append(len(one))
        run.append(frame(500, len(found)))
    assert found == [len(SMALL), len(LARGE)]
    assert content(run, last=True) == [frame(500, 1).tobytes(), frame(500, 2).tobytes()]


def test_counters_and_seconds_grow_with_what_was_done(runs):
    run = run_of(runs, *[LARGE] * 10)
    run.close()
    assert runs.written_bytes == run.octets and runs.read_bytes == 0 < runs.write_s
    before = runs.write_s
    content(run), content(run)
    assert runs.written_bytes == run.octets and runs.write_s == before
    assert 2 * sum([len(LARGE)] * 10) <= runs.read_bytes <= 2 * run.octets


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_calls_on_several_runs_gives_what_lists_would(tmp_path, seed):
    rng = random.Random(seed)
    with open_scratch(str(tmp_path), "rank-1") as scratch:
        spare_bytes = rng.choice([0, 300_000, 1 << 20])
        runs = Runs(scratch, file_bytes=rng.choice([1, 100_000, 1 << 20]), spare_bytes=spare_bytes)
        known = {runs.new_run(): [] for _ in range(5)}
        for turn in range(150):
            run = rng.choice([*known])
            what = rng.random()
            if what < 0.7:
                given = frame(rng.choice([0, 10, 1000, 66_000, 150_000]), turn)
                run.append(given)
                known[run].append(given.tobytes())
            elif what < 0.8:
                run.close()
            elif what < 0.95:
                last = rng.random() < 0.5
                assert content(run, last=last) == known[run]
                known[run] = [] if last else known[run]
            else:
                run.remove()
                known[run] = []
            assert runs.held_bytes == sum(one.octets for one in known)
            assert all(len(one) == len(frames) for one, frames in known.items())
            assert sum(path.stat().st_size for path in spares_of(scratch)) <= spare_bytes
        if not spare_bytes:
            assert sum(path.stat().st_size for path in files_of(scratch)) <= runs.held_bytes


def inodes(paths):
    return {path.stat().st_ino for path in paths}


def test_a_removed_file_is_written_again_the_smallest_that_is_large_enough(runs, scratch):
    sizes = (300_000, 100_000, 200_000)
    several = [run_of(runs, frame(size, size)) for size in sizes]
    files = dict(zip(sizes, (path.stat().st_ino for path in files_of(scratch))))
    for run in several:
        run.remove()
    assert files_of(scratch) == [] and inodes(spares_of(scratch)) == {*files.values()}
    for wanted, taken in ((150_000, 200_000), (250_000, 300_000), (900_000, 100_000)):
        before = inodes(files_of(scratch))
        given = frame(wanted, wanted)
        assert content(run_of(runs, given)) == [given.tobytes()]
        assert inodes(files_of(scratch)) - before == {files[taken]}
    assert spares_of(scratch) == []


def test_what_a_file_held_before_is_never_given_out(runs, scratch):
    run_of(runs, *[LARGE] * 4).remove()
    run = run_of(runs, SMALL)
    run.close()
    assert files_of(scratch)[0].stat().st_size >= 4 * len(LARGE) > run.octets
    assert content(run) == [SMALL.tobytes()]
    run.remove()
    assert spares_of(scratch)[0].stat().st_size >= 4 * len(LARGE)  # it can take as much as before


def test_no_more_is_kept_of_removed_files_than_may_be(scratch):
    runs = Runs(scratch, spare_bytes=500_000)
    several = [run_of(runs, LARGE) for _ in range(5)]
    for run in several:
        run.remove()
    assert len(spares_of(scratch)) == 2 and files_of(scratch) == [] and runs.held_bytes == 0


def test_a_spare_file_that_somebody_removed_is_not_missed(runs, scratch):
    for run in (run_of(runs, LARGE), run_of(runs, SMALL, LARGE)):
        run.remove()
    for path in spares_of(scratch):
        path.unlink()
    assert content(run_of(runs, LARGE)) == content(run_of(runs, LARGE)) == [LARGE.tobytes()]


def damage_of(run):
    reading = run.frames()
    for one in reading:
        with reading.decoding():
            decode(one)


def test_any_byte_that_changes_in_a_frame_is_found_with_file_and_offset(runs, scratch):
    run = run_of(runs, frame(10, 1), frame(75, 2), frame(130, 3))
    run.close()
    (path,) = files_of(scratch)
    whole = path.read_bytes()
    starts = [whole.index(b"MPJF"), *(whole.index(b"MPJF", at) for at in (1, 200))]
    gaps = sum(-end % ALIGNMENT for end in map(len, (frame(10, 1), frame(75, 2))))
    unnoticed = 0
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        start = max(start for start in starts if start <= at)
        try:
            damage_of(run)
            unnoticed += 1
        except ScratchError as error:
            assert f"{path}: damaged at byte {start}: " in str(error) and "[memory] path" in str(error)
            assert isinstance(error.__cause__, CodecError)
    assert unnoticed == gaps > 0  # what lies between frames means nothing


def test_a_file_that_is_cut_short_is_found_wherever_it_ends(runs, scratch):
    run = run_of(runs, frame(10, 1), frame(75, 2))
    run.close()
    (path,) = files_of(scratch)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ScratchError, match=f"{path}: damaged at byte {length}: the file ends there"):
            damage_of(run)


def test_files_that_vanish_are_named_whether_they_are_read_or_grow(runs, scratch):
    run, other = run_of(runs, LARGE), run_of(runs, LARGE)
    for path in files_of(scratch):
        path.unlink()
    with pytest.raises(ScratchError, match="000001-0000.run: cannot be read: No such file"):
        content(run)
    other.append(LARGE)  # to a file that is still open, which Linux allows
    with pytest.raises(ScratchError, match="000002-0000.run: cannot be read: No such file"):
        content(other)
    run.remove(), other.remove()
    assert runs.held_bytes == 0


def test_a_file_that_vanished_is_not_begun_anew(runs, scratch):
    run, other = run_of(runs, LARGE), run_of(runs, LARGE)
    files_of(scratch)[0].unlink()
    with pytest.raises(ScratchError, match="000001-0000.run: cannot be written: No such file"):
        run.append(LARGE)
    assert content(other) == [LARGE.tobytes()]


def test_a_scratch_folder_that_vanishes_is_named(tmp_path):
    scratch = open_scratch(str(tmp_path / "root"), "rank-1")
    run = run_of(Runs(scratch), SMALL)
    scratch.folder.rmdir(), scratch.folder.parent.rmdir()
    with pytest.raises(ScratchError, match=f"{scratch.folder}.*No such file.*/root is not there any more") as caught:
        run.close()
    assert caught.value.exit_code == EXIT_FAILED
    scratch.close()


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a file system of 1 MiB."""
    how = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if os.geteuid() or subprocess.run(how, capture_output=True, timeout=10).returncode:
        pytest.skip("only root can mount a small file system")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], capture_output=True, timeout=10)


@pytest.mark.parametrize("given", [SMALL, LARGE], ids=["small", "large"])
def test_a_full_disk_is_told_with_what_was_wanted_what_is_free_and_what_to_do(small_disk, given):
    with open_scratch(str(small_disk), "rank-1") as scratch:
        runs = Runs(scratch)
        run = runs.new_run()
        with pytest.raises(ScratchError) as caught:
            for _ in range(2_000_000 // len(given)):
                run.append(given)
            run.close()
        told = str(caught.value)
        assert f"{scratch.folder}/000001-0000.run: cannot be written: No space left on device: " in told
        assert "bytes were to be written, 0 bytes are free in " in told
        assert "choose another folder with [memory] path, or raise [memory] limit" in told
        run.remove()
        assert content(run_of(runs, LARGE)) == [LARGE.tobytes()]
    assert list(small_disk.iterdir()) == []


def test_spare_files_make_room_before_a_disk_counts_as_full(small_disk):
    with open_scratch(str(small_disk), "rank-1") as scratch:
        runs = Runs(scratch)
        several = [run_of(runs, LARGE) for _ in range(4)]
        for run in several[:3]:
            run.remove()
        assert len(spares_of(scratch)) == 3
        whole = run_of(runs, frame(700_000))
        assert spares_of(scratch) == [] and content(whole) == [frame(700_000).tobytes()]
        assert content(several[3]) == [LARGE.tobytes()]


def test_a_disk_that_turns_read_only_is_told(small_disk):
    with open_scratch(str(small_disk), "rank-1") as scratch:
        run = run_of(Runs(scratch), LARGE)
        run.close(), run._disk.close()  # the system lets nobody turn a disk while files on it are open to write
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True, timeout=10)
        for refused in (lambda: run.append(LARGE), run.remove):
            with pytest.raises(ScratchError, match="cannot be written: Read-only file system"):
                refused()


def test_a_quota_is_told_as_the_system_says_it(runs):
    with file_size_limit(300_000), pytest.raises(ScratchError, match="File too large: .*bytes were to be written"):
        run_of(runs, LARGE, LARGE)


@pytest.mark.parametrize("number", [errno.EIO, errno.EDQUOT, errno.ENOSPC])
def test_whatever_the_system_refuses_is_told_with_the_file(runs, monkeypatch, number):
    def refuse(*given):
        raise OSError(number, os.strerror(number))

    run = run_of(runs, LARGE)
    with monkeypatch.context() as patch:
        patch.setattr(runs_module, "write_all", refuse)
        with pytest.raises(ScratchError, match=f"000001-0000.run: cannot be written: {os.strerror(number)}: "):
            run.append(LARGE)
    with monkeypatch.context() as patch:
        patch.setattr(runs_module, "read_all", refuse)
        with pytest.raises(ScratchError, match=f"000001-0000.run: cannot be read: {os.strerror(number)}: "):
            content(run)


def test_reading_takes_memory_for_a_piece_not_for_a_file(scratch):
    run, room = run_of(Runs(scratch), *[LARGE] * 60), Room()
    assert run.octets > 2 * PIECE_BYTES
    assert len(content(run, room=room)) == 60 and len(room._memory) <= PIECE_BYTES
