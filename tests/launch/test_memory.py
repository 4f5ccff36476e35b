"""What `mpijoin check` and a slave's log say of memory, and why."""

import logging
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

import mpijoin
from mpijoin.cli import main
from mpijoin.config.job import Cluster, Job, Memory
from mpijoin.launch.memory import memory_lines, memory_of_slave
from mpijoin.launch.roles import Roles, RunSetup
from mpijoin.node_memory import LEAST_BYTES, node_memory

MB = 1 << 20
BUFFERS = Cluster(buffer_bytes=MB, master_buffer_bytes=MB)
MOUNT = "41 31 0:38 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"


def lines(environ=None, **fields):
    return list(memory_lines(Job((), memory=Memory(**fields)), environ or {}))


def test_a_limit_of_the_job_is_told_as_it_is():
    assert lines(limit_bytes=64 * MB) == ["memory  64 MiB for the windows of each slave"]


def test_an_automatic_limit_names_what_allows_no_more():
    assert lines({"SLURM_MEM_PER_NODE": "128"}) == [
        "memory  auto: the ranks of a node like this one share 0.134 GB (SLURM_MEM_PER_NODE)"
    ]
    by_core = {"SLURM_MEM_PER_CPU": "32", "SLURM_CPUS_ON_NODE": "2", "SLURM_MEM_PER_NODE": "128"}
    assert lines(by_core)[0].endswith("share 0.0671 GB (SLURM_MEM_PER_CPU)")
    here = node_memory({})
    assert lines()[0].endswith(f"share {here.octets / 1e9:.3g} GB ({here.by})")


@pytest.mark.parametrize(
    "fields, said",
    [
        ({"spill": "generations"}, "clean-up when idle, and at the end"),
        ({"spill": "generations", "cleanup": "end"}, "clean-up at the end"),
        ({"spill": "rotate"}, "between two activations as long as the last one took"),
        ({"spill": "rotate", "gap_ns": 5 * 10**8}, "between two activations 500 ms"),
    ],
)
def test_spilling_is_told_with_its_folder_and_the_reason_for_it(fields, said, tmp_path):
    memory, first, second = lines({"SLURM_TMPDIR": str(tmp_path)}, limit_bytes=MB, **fields)
    assert memory == "memory  1 MiB for the windows of each slave"
    assert first.startswith(f"spill   {fields['spill']}, to ") and first.endswith(f"; {said}")
    assert str(tmp_path) in first and "SLURM_TMPDIR" in first
    assert second == "        from 90% of the memory on, 30% at once, least productive first"
    own = lines({"SLURM_TMPDIR": str(tmp_path)}, path=str(tmp_path / "own"), threshold=0.8, share=1, **fields)
    assert f"to {tmp_path}/own ([memory] path" in own[1]
    assert own[2] == "        from 80% of the memory on, 100% at once, least productive first"


def test_check_says_all_this(job_file, capsys, monkeypatch):
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "2048")
    assert main(["check", job_file, "--set", "memory.spill=rotate"]) == 0
    said = capsys.readouterr().out.splitlines()
    memory = said.index("memory  auto: the ranks of a node like this one share 2.15 GB (SLURM_MEM_PER_NODE)")
    assert said[memory + 1].startswith("spill   rotate, to ")


@pytest.mark.parametrize(
    "limit, said",
    [
        ("32 MiB", "memory for windows: 33.6 MB, as the job says"),
        ("auto", "the 2 ranks here may take 2.15e+03 MB (SLURM_MEM_PER_NODE), and "),
    ],
)
def test_a_slave_logs_its_memory_and_the_reason(job_file, monkeypatch, limit, said):
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "2048")
    assert mpijoin.run(job_file, [f"memory.limit={limit}"], slaves=1).results == 1
    log = Path(job_file).parent / "out" / "logs" / "rank-1.log"
    assert said in log.read_text(), os.listdir(log.parent)


def test_an_automatic_limit_follows_the_control_group_while_a_run_goes_on(tmp_path, caplog, monkeypatch):
    """Of three ranks on the node. The files are those of the kernel, below a folder."""
    monkeypatch.setattr("mpijoin.launch.memory.launched_by_mpi", lambda environ: True)
    monkeypatch.setattr("mpijoin.launch.memory.held_bytes", lambda: 100 * MB)
    for name in ("proc/self", "sys/fs/cgroup/job/step"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(MOUNT)
    (tmp_path / "proc/self/cgroup").write_text("0::/job/step\n")
    file = tmp_path / "sys/fs/cgroup/job/memory.max"
    file.write_text(f"{6000 * MB}\n")
    caplog.set_level(logging.INFO)
    rank = SimpleNamespace(log=logging.getLogger("a slave"), number=1)
    setup = RunSetup(Job((), cluster=BUFFERS), None, Roles(3, False), None)
    memory = memory_of_slave(setup, rank, tmp_path)
    fair = int(0.8 * 6000 * MB) // 3
    assert memory.octets == memory.allowed() == fair
    file.write_text(f"{3000 * MB}\n")
    assert memory.allowed() == memory.allowed() == fair // 2
    file.write_text("max\n")
    assert memory.allowed() > 0
    file.write_text(f"{10 * MB}\n")
    assert memory.allowed() == LEAST_BYTES
    told = [record.getMessage() for record in caplog.records if "memory for windows" in record.getMessage()]
    assert len(told) == 4, "once for each change"
    assert told[1].startswith(f"memory for windows: 839 MB; the 3 ranks here may take 3.15e+03 MB ({file})")
    assert "(the machine)" in told[2] and "too little" in caplog.records[-1].getMessage()


def test_a_limit_of_the_job_follows_nothing(tmp_path):
    rank = SimpleNamespace(log=logging.getLogger("a slave"), number=1)
    setup = RunSetup(Job((), memory=Memory(limit_bytes=5 * MB)), None, Roles(3, False), None)
    assert memory_of_slave(setup, rank, tmp_path) == (5 * MB, None)
