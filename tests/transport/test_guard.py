"""What the environment tells about the launch, for the launchers that were seen."""

from __future__ import annotations

import importlib.util

import pytest

from mpijoin.errors import LaunchError
from mpijoin.transport.guard import check_launch, launched_by_mpi, launched_rank, launched_size

SRUN = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}


@pytest.mark.parametrize(
    "environ, size",
    [
        ({}, 1),
        ({"PMI_SIZE": "4", "PMI_RANK": "3"}, 4),
        ({"OMPI_COMM_WORLD_SIZE": "5"}, 5),
        (SRUN, 4),
        ({"SLURM_STEP_NUM_TASKS": "4"}, 1),  # the batch script itself
        ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"}, 1),  # inside salloc or sbatch, no step
        ({**SRUN, "PMI_SIZE": "1"}, 1),  # mpirun -n 1 whose daemons were started by srun
        ({"PMI_SIZE": ""}, 1),
        ({"SLURM_STEP_ID": "0"}, 1),
    ],
)
def test_size_as_the_launcher_says(environ, size):
    assert launched_size(environ) == size
    assert launched_by_mpi(environ) == (size > 1)


@pytest.mark.parametrize("environ, world", [({}, 1), ({"PMI_SIZE": "4"}, 4), (SRUN, 4), ({"PMI_SIZE": "1"}, 1)])
def test_a_right_launch_passes(environ, world):
    check_launch(world, environ)


def test_ranks_that_do_not_see_each_other_are_refused():
    with pytest.raises(LaunchError, match="launcher started 4 processes.*mpirun.*srun --mpi=pmi2") as caught:
        check_launch(1, SRUN)
    assert caught.value.exit_code == 2


def test_missing_mpi4py_is_named_only_where_it_is_needed(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert not launched_by_mpi({})
    with pytest.raises(LaunchError, match=r"pip install mpijoin\[mpi\]"):
        launched_by_mpi({"PMI_SIZE": "2"})


def test_rank_as_the_launcher_says():
    ranks = [{}, {"PMI_RANK": "3"}, {"OMPI_COMM_WORLD_RANK": "2"}, {"SLURM_PROCID": "1"}, {"PMI_RANK": ""}]
    assert [launched_rank(environ) for environ in ranks] == [0, 3, 2, 1, 0]
