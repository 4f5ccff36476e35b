"""What all tests share: the same examples in every run, however slow the machine is just now, and a small job."""

import hypothesis
import pytest

from config_jobs import write_one_row_job
from small_disk import mounted

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
