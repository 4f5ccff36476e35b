"""The tests of this folder run on a real Slurm: the one that answers here, else one of their own."""

import pytest

from slurm.one_machine import answers, missing, one_machine_slurm


@pytest.fixture(scope="session", autouse=True)
def slurm(tmp_path_factory):
    if answers():
        yield
        return
    if missing():
        pytest.skip(f"no Slurm here: {', '.join(missing())} not found (Debian: apt install slurmctld slurmd slurm-client munge)")
    with one_machine_slurm(tmp_path_factory.mktemp("slurm")):
        yield
