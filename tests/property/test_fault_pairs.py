"""No fault of a job hides another: each alone is named, and of any two that can be seen at all both are, and nothing
else is."""

from itertools import combinations

import pytest

from fault_table import World, all_faults


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def table(folder):
    return all_faults(folder)


def found(folder, *singles):
    world = World(folder)
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
    assert found(folder) == []


def test_each_fault_alone_is_named(folder, table):
    for one in table:
        faults = found(folder, one)
        assert unexplained(faults, [one]) == ([], []), (one.name, faults)


def test_of_two_faults_both_are_named(folder, table):
    pairs = [pair for pair in combinations(table, 2) if pair[0].goes_with(pair[1])]
    hidden = {}
    for pair in pairs:
        faults = found(folder, *pair)
        if unexplained(faults, pair) != ([], []):
            hidden[" + ".join(one.name for one in pair)] = faults
    assert not hidden, f"{len(hidden)} of {len(pairs)} pairs, such as {list(hidden.items())[:4]}"
    assert len(pairs) > 3000
