"""The tests of this folder run on a real Slurm: the one that answers here, else one of their own."""

import os
import shutil

import pytest

from mpijoin.compiled import cache_folder
from one_machine import answers, missing, one_machine_slurm


@pytest.fixture(scope="session", autouse=True)
def compiled_once(tmp_path_factory):
    """Jobs find what this user's tests have compiled already, as on a node where a job has run before."""
    local_disk = tmp_path_factory.mktemp("local_disk")
    to = local_disk / f"mpijoin-numba-{os.getuid()}" / cache_folder().name
    # Others may be compiling, and what they have not written to its end bears the number of their process.
    shutil.copytree(cache_folder(), to, ignore=shutil.ignore_patterns("*.[0-9]*"))
    before = os.environ.get("SLURM_TMPDIR")
    os.environ["SLURM_TMPDIR"] = str(local_disk)
    yield
    os.environ.pop("SLURM_TMPDIR") if before is None else os.environ.update(SLURM_TMPDIR=before)


@pytest.fixture(scope="session", autouse=True)
def slurm(tmp_path_factory):
    if answers():
        yield
        return
    if missing():
        pytest.skip(
            f"no Slurm here: {', '.join(missing())} not found (Debian: apt install slurmctld slurmd slurm-client munge)"
        )
    with one_machine_slurm(tmp_path_factory.mktemp("slurm")):
        yield
