"""Frames of many owners in few files: each owner gets its own back, from whatever frame on, and no other is read."""

import numpy as np
import pytest

from mpijoin.data.codec import encode
from mpijoin.spill.packs import Packed, Packs
from mpijoin.spill.runs import Runs
from mpijoin.spill.scratch import open_scratch


@pytest.fixture
def scratch(tmp_path):
    with open_scratch(str(tmp_path), "rank-1") as scratch:
        yield scratch


def frame(chance):
    content = chance.integers(0, 256, int(chance.choice([10, 900, 90_000])), np.uint8)
    return encode(18, {}, [content], checksum=True)


@pytest.mark.parametrize("file_bytes", [100_000, 256 << 20])
@pytest.mark.parametrize("seed", range(5))
def test_each_owner_gets_its_frames_back_from_any_on_and_only_those_are_read(scratch, seed, file_bytes):
    chance, runs = np.random.default_rng(seed), Runs(scratch, file_bytes=file_bytes)
    packs = Packs(runs)
    owners = [Packed(packs) for _ in range(5)]
    wanted = [[] for _ in owners]
    for _ in range(400):
        number = int(chance.integers(len(owners)))
        match chance.integers(10):
            case 0:
                owners[number].remove()
                wanted[number] = []
            case 1 | 2:
                first, before = int(chance.integers(len(wanted[number]) + 2)), runs.read_bytes
                rest = wanted[number][first:]
                assert [one.tobytes() for one in owners[number].frames_from(first)] == rest
                gaps = 64 * len(rest)
                assert sum(map(len, rest)) <= runs.read_bytes - before <= sum(map(len, rest)) + gaps
            case _:
                made = frame(chance)
                owners[number].append(made)
                wanted[number].append(made.tobytes())
        assert len(owners[number]) == len(wanted[number])


def test_reading_begins_no_further_file(scratch):
    """The frames of a checkpoint are read while others come: a file for each reading would soon be thousands."""
    packs = Packs(Runs(scratch))
    owner = Packed(packs)
    for count in range(1, 30):
        owner.append(encode(18, {}, [np.arange(count)], checksum=True))
        assert len([*owner.frames_from(0)]) == count
    assert len([*scratch.folder.glob("*.run")]) == 1
