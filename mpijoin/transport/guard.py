"""This module tells from the environment alone how this process was launched, so it works without mpi4py."""

from __future__ import annotations

import importlib.util
from typing import Mapping

from mpijoin.errors import LaunchError

# The first name is set by mpirun of Open MPI. The second is set by mpirun of MPICH and Intel MPI, and by
# srun --mpi=pmi2.
_MPIRUN_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def launched_size(environ: Mapping[str, str]) -> int:
    """Returns how many processes the launcher says that it started, or 1 if there is no launcher.

    >>> launched_size({"PMI_SIZE": "4", "PMI_RANK": "0"})
    4
    """
    names = [name for name in _MPIRUN_SIZES if name in environ]
    if not names and "SLURM_STEP_ID" in environ:
        # Slurm's number counts only if there is no other, because an mpirun inside a job may use srun for its daemons.
        names = ["SLURM_STEP_NUM_TASKS"]
    sizes = [environ.get(name, "") for name in names]
    return max((int(size) for size in sizes if size.isdecimal()), default=1)


def launched_rank(environ: Mapping[str, str]) -> int:
    """Returns the number of this process among those that the launcher started, or 0 if the launcher does not say.

    >>> launched_rank({"PMI_SIZE": "4", "PMI_RANK": "3"})
    3
    """
    ranks = [environ[name] for name in _RANKS if environ.get(name, "").isdecimal()]
    return int(ranks[0]) if ranks else 0


def launched_by_mpi(environ: Mapping[str, str]) -> bool:
    """Whether this is one of several processes that must meet through MPI.

    Raises LaunchError if this is so, but mpi4py is not installed.
    """
    size = launched_size(environ)
    if size > 1 and importlib.util.find_spec("mpi4py") is None:
        raise LaunchError(f"the launcher started {size} processes, but there is no mpi4py: pip install mpijoin[mpi]")
    return size > 1


def check_launch(world_size: int, environ: Mapping[str, str]) -> None:
    """Raises LaunchError if every process believes that it is rank 0 of 1, although several were started."""
    size = launched_size(environ)
    if world_size == 1 and size > 1:
        raise LaunchError(
            f"MPI world of 1 rank, but the launcher started {size} processes, each of which would run the whole job: "
            "use the mpirun that belongs to the MPI library mpi4py loads (python -m mpi4py --mpi-lib-version), "
            "or srun --mpi=pmi2 (MPICH, Intel MPI) or srun --mpi=pmix (Open MPI)"
        )
