"""No fault of a job hides another: each alone is named, and of any two that can be seen at all both are, and nothing
else is."""

import random
from itertools import combinations

import pyarrow as pa
import pytest

from fault_table import THREE, TWO, World, all_faults


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("faults")


def found(folder, *singles, streams=TWO):
    world = World(folder, streams)
    for one in singles:
        one.change(world)
    return world.faults()


def unexplained(faults, singles):
    """What is said of nothing that is wrong, and what is wrong without being said."""
    rest, silent = list(faults), []
    for said in (text for one in singles for text in one.said):
        told = next((fault for fault in rest if said in fault), None)
        rest.remove(told) if told else silent.append(said)
    return rest, silent


def test_the_job_without_faults_has_none(folder):
    assert found(folder) == found(folder, streams=THREE) == []


@pytest.mark.parametrize("streams", [TWO, THREE], ids=["two", "three"])
def test_each_fault_alone_is_named(folder, streams):
    for one in all_faults(folder, streams):
        faults = found(folder, one, streams=streams)
        assert unexplained(faults, [one]) == ([], []), (one.name, faults)


@pytest.mark.parametrize("streams, tried", [(TWO, 1800), (THREE, 600)], ids=["two", "three"])
def test_of_two_faults_both_are_named(folder, streams, tried):
    pairs = [pair for pair in combinations(all_faults(folder, streams), 2) if pair[0].goes_with(pair[1])]
    assert len(pairs) > 3000
    hidden = {}
    for pair in random.Random(15).sample(pairs, tried):
        faults = found(folder, *pair, streams=streams)
        if unexplained(faults, pair) != ([], []):
            hidden[" + ".join(one.name for one in pair)] = faults
    assert not hidden, f"{len(hidden)} of {tried} pairs, such as {list(hidden.items())[:4]}"


def test_streams_with_other_keys_are_told_beside_one_whose_key_cannot_be_read(folder):
    """Of three streams two still show that something is wrong."""
    world = World(folder, THREE)
    world.set("streams.picks", "key", 3)
    world.set("streams.S_2", "key", "sta")
    assert [fault.partition(", wanted")[0] for fault in world.faults()] == [
        "[streams.picks] key: got 3", "[streams.S_2] key, [left] key: got 1 and 2 columns",
    ]  # fmt: skip
    world = World(folder, THREE)
    world.set("streams.picks", "key", 3)
    world.retype("streams.left", "num", pa.string())
    sides = '"num" is int64 and "num" is string'
    assert world.faults()[1:] == [f"[streams.S_2] key, [left] key: {sides}, wanted one type; cast one of them first"]
