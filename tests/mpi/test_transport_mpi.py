"""The transport over real MPI processes: the tests of the contract, and tests that only whole processes can show."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytest.importorskip("mpi4py")

ROOT = Path(__file__).parents[2]
MPIRUN = Path(sysconfig.get_path("scripts")) / "mpirun"  # It belongs to the MPI library that mpi4py loads.
OPEN = "from mpijoin.transport.mpi import MPI, MpiTransport; import sys, time; t = MpiTransport()\n"

pytestmark = pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun beside this Python")


def mpirun(ranks: int, *arguments: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess:
    environ = dict(os.environ, PYTHONPATH=str(ROOT), PYTHONUNBUFFERED="1")
    command = [str(MPIRUN), "-n", str(ranks), sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=timeout_s)


def test_the_contract_holds_over_mpi():
    suite = ["--capture=sys", "-x", "-q", "-p", "no:cacheprovider", "tests/contracts/test_transport.py"]
    done = mpirun(3, "-m", "mpi4py", "-m", "pytest", *suite, timeout_s=240.0)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" passed in ") == 3, done.stdout


def test_closed_ranks_end_with_their_own_exit_code():
    done = mpirun(2, "-c", OPEN + "t.close(); sys.stdout.write('rank left\\n'); sys.exit(0)")
    assert (done.returncode, done.stdout) == (0, "rank left\n" * 2), done.stderr


def test_a_rank_that_waits_for_the_others_to_close_sleeps():
    late = "t.rank == 0 and time.sleep(1.5)\n"
    cpu = "cpu = time.process_time(); t.close(); t.rank == 1 and print(time.process_time() - cpu)"
    done = mpirun(2, "-c", OPEN + late + cpu)
    assert done.returncode == 0 and float(done.stdout) < 0.3, done.stdout + done.stderr


def test_abort_takes_all_ranks_down_with_the_code():
    done = mpirun(3, "-c", OPEN + "t.abort(3) if t.rank == 2 else t.wait(50)\nprint('went on')", timeout_s=30.0)
    assert done.returncode == 3 and "went on" not in done.stdout, done.stdout + done.stderr


def test_a_rank_that_leaves_without_closing_does_not_hang_the_others():
    done = mpirun(3, "-c", OPEN + "t.rank == 1 and sys.exit(3)\nt.barrier(50)\nprint('went on')", timeout_s=30.0)
    assert done.returncode != 0 and "went on" not in done.stdout, done.stdout + done.stderr


def test_a_killed_rank_leaves_no_shared_memory():
    """MPICH's shared memory would otherwise stay there until the node boots."""
    mapped = (
        "sys.stdout.write(''.join(line.split(maxsplit=5)[-1] for line in open('/proc/self/maps') if '/dev/shm/' in"
        " line)); sys.stdout.flush()\n"
    )
    done = mpirun(3, "-c", OPEN + mapped + "import os\nt.barrier(50); os.kill(os.getpid(), 9)", timeout_s=30.0)
    segments = {line.split()[0] for line in done.stdout.splitlines() if "/mpich_shm_" in line}
    assert done.returncode != 0 and (segments or "mpich" not in mpi_library().lower())
    assert [name for name in segments if os.path.exists(name)] == []


def mpi_library():
    return mpirun(1, "-c", "from mpi4py import MPI; print(MPI.Get_library_version())").stdout


def test_what_mpi_refuses_is_a_peer_error():
    closed = (
        "import numpy; from mpijoin.errors import PeerError; from mpijoin.transport.mpi import MPI, MpiTransport\n"
        "t = MpiTransport(MPI.COMM_WORLD); t.close()\n"
        "try: t.send(0, 0, numpy.zeros(3, dtype='u1'))\n"
        "except PeerError as error: print(error)\n"
        "MPI.Finalize()"
    )
    done = mpirun(1, "-c", closed)
    assert done.returncode == 0 and "rank 0: MPI failed: " in done.stdout, done.stdout + done.stderr


def test_a_launch_of_singletons_is_refused():
    guard = "import os; from mpijoin.transport.guard import check_launch; check_launch(1, os.environ)"
    done = mpirun(2, "-c", guard)
    assert done.returncode != 0
    assert "MPI world of 1 rank, but the launcher started 2 processes" in done.stderr
