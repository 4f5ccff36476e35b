"""What all tests share: the same examples in every run, however slow the machine is just now, and a small job."""

from pathlib import PurePath

import hypothesis
import pytest
from xdist.scheduler import LoadFileScheduling

from config_jobs import write_one_row_job
from small_disk import mounted

SPARK = "tests/spark"
# The order in which several processes share the tests. What takes long comes first, because who begins with it at the
# end works on alone. Tests that start ranks come when most kernels are compiled, because their runs have time limits.
FIRST = [
    SPARK,
    "tests/paper/test_wsj_experiments.py",
    "tests/property",
    "tests/conditions",
    "tests/verify",
    "tests/report",
    "tests/sweep",
    "tests/checkpoint",
    "tests/queries",
    "tests/scripts",
    "tests/launch",
    "tests/mpi/test_streams_mpi.py",
    "tests/mpi/test_checkpoints_mpi.py",
    "tests/slurm",
    "tests/mpi",
    "tests/scenarios",
    "tests/spill",
]

hypothesis.settings.register_profile("steady", deadline=None, derandomize=True)
hypothesis.settings.load_profile("steady")


@pytest.fixture
def job_file(tmp_path):
    """The path of a job that joins a file of one row with itself."""
    return write_one_row_job(tmp_path)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB, in the folder "scratch" of the test."""
    with mounted(tmp_path / "scratch") as disk:
        yield disk


class Scheduling(LoadFileScheduling):
    """The tests of a file run in one process, and so do all that use the session of Spark."""

    def _split_scope(self, nodeid):
        file = super()._split_scope(nodeid)
        return SPARK if PurePath(file).is_relative_to(SPARK) else file


def pytest_xdist_make_scheduler(config, log):
    return Scheduling(config, log)


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: rank_of(item.path.relative_to(config.rootpath)))


def rank_of(file):
    return next((rank for rank, path in enumerate(FIRST) if file.is_relative_to(path)), len(FIRST))
