"""A file system that is soon full. The fixture `small_disk` mounts one for a test."""

import os
import subprocess
from contextlib import contextmanager

import pytest

TIMEOUT_S = 10


@contextmanager
def mounted(disk):
    """Mounts a file system of 1 MiB at the folder `disk`, which it makes."""
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, timeout=TIMEOUT_S).returncode:
        pytest.skip("only root can mount a small file system")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True, timeout=TIMEOUT_S)


def make_larger(disk):
    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True, timeout=TIMEOUT_S)
