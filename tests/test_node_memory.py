"""How much memory a node's ranks may take: control groups of both versions, all the way up, and what Slurm says."""

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from mpijoin.node_memory import (
    LEAST_BYTES,
    RESULT_BYTES,
    Needs,
    cgroup_limits,
    node_memory,
    ranks_on_node,
    slave_memory_bytes,
    slurm_limits,
)

ROOT = Path(__file__).parents[1]
MB = 1 << 20
V1 = "35 31 0:32 {root} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
V1_CPU = "36 31 0:33 / /sys/fs/cgroup/cpu rw,relatime shared:3 - cgroup cgroup rw,cpu,cpuacct\n"
V2 = "41 31 0:38 {root} {point} rw,relatime shared:9 master:2 - cgroup2 cgroup2 rw,nsdelegate\n"


MACHINE_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def octets(limits):
    return sorted(allowed.octets for allowed in limits)


def tree(folder, mountinfo, cgroup, **limits):
    """A made-up root folder. limits: by file, "/" written as "__"."""
    files = {"proc/self/mountinfo": mountinfo, "proc/self/cgroup": cgroup}
    for name, text in {**files, **{name.replace("__", "/"): text for name, text in limits.items()}}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_version_two_counts_the_own_group_and_all_above(tmp_path):
    limits = {
        "sys/fs/cgroup/job/memory.max": "700\n",
        "sys/fs/cgroup/job/memory.high": "600\n",
        "sys/fs/cgroup/job/step/memory.max": "max\n",
        "sys/fs/cgroup/job/step/memory.high": "max\n",
        "sys/fs/cgroup/other/memory.max": "1\n",
    }
    root = tree(tmp_path, V2.format(root="/", point="/sys/fs/cgroup"), "0::/job/step\n", **limits)
    assert octets(cgroup_limits(root)) == [600, 700]
    assert node_memory({}, root) == (600, f"{tmp_path}/sys/fs/cgroup/job/memory.high")


def test_version_one_counts_the_memory_controller_only(tmp_path):
    limits = {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/slurm/uid_7/memory.limit_in_bytes": "900\n",
        "sys/fs/cgroup/memory/slurm/uid_7/job_3/memory.limit_in_bytes": "5000\n",
        "sys/fs/cgroup/cpu/memory.limit_in_bytes": "1\n",
    }
    groups = "9:name=systemd:/\n4:memory:/slurm/uid_7/job_3\n1:cpu,cpuacct:/\n0::/\n"
    root = tree(tmp_path, V1_CPU + V1.format(root="/"), groups, **limits)
    assert octets(cgroup_limits(root)) == [900, 5000, 9223372036854771712]
    assert node_memory({}, root) == (900, f"{tmp_path}/sys/fs/cgroup/memory/slurm/uid_7/memory.limit_in_bytes")


def test_both_versions_side_by_side_count(tmp_path):
    limits = {"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "80\n", "sys/fs/cgroup/unified/b/memory.max": "70\n"}
    mounts = V1.format(root="/") + V2.format(root="/", point="/sys/fs/cgroup/unified")
    assert octets(cgroup_limits(tree(tmp_path, mounts, "4:memory:/a\n0::/b\n", **limits))) == [70, 80]


@pytest.mark.parametrize("group", ["/docker/abc", "/docker/abc/inner", "/../elsewhere"])
def test_in_a_container_the_mounted_part_of_the_hierarchy_counts(tmp_path, group):
    limits = {"sys/fs/cgroup/memory.max": "500\n", "sys/fs/cgroup/inner/memory.max": "400\n"}
    root = tree(tmp_path, V2.format(root="/docker/abc", point="/sys/fs/cgroup"), f"0::{group}\n", **limits)
    assert octets(cgroup_limits(root))[0] == (400 if group.endswith("inner") else 500)


def test_no_control_groups_no_limit(tmp_path):
    assert list(cgroup_limits(tmp_path)) == []
    assert node_memory({}, tmp_path) == (MACHINE_BYTES, "the machine")


@pytest.mark.parametrize(
    "environ, wanted",
    [
        ({"SLURM_MEM_PER_NODE": "64"}, [64]),
        ({"SLURM_MEM_PER_NODE": "0"}, []),
        ({"SLURM_MEM_PER_CPU": "100", "SLURM_CPUS_ON_NODE": "3"}, [300]),
        ({"SLURM_MEM_PER_CPU": "100"}, [100 * len(os.sched_getaffinity(0))]),
        ({"SLURM_MEM_PER_GPU": "50", "SLURM_GPUS_ON_NODE": "2"}, [100]),
        ({"SLURM_MEM_PER_GPU": "50"}, []),
        ({"SLURM_MEM_PER_NODE": "640", "SLURM_MEM_PER_CPU": "100", "SLURM_CPUS_ON_NODE": "4"}, [640, 400]),
        ({"SLURM_MEM_PER_CPU": "many"}, []),
    ],
)
def test_every_limit_of_slurm_counts(environ, wanted, tmp_path):
    assert [allowed.octets for allowed in slurm_limits(environ)] == [mib * MB for mib in wanted]
    least = node_memory(environ, tmp_path)
    assert least.octets == min([MACHINE_BYTES, *(mib * MB for mib in wanted)])
    assert environ.get(least.by, "").isdecimal() if wanted else least.by == "the machine"


def test_ranks_on_a_node_are_those_that_the_launcher_names():
    assert ranks_on_node({}, 4) == 4
    assert ranks_on_node({"MPI_LOCALNRANKS": "2"}, 4) == 2
    assert ranks_on_node({"SLURM_NTASKS_PER_NODE": "x"}, 3) == 3
    steps = {"SLURM_STEP_TASKS_PER_NODE": "4(x2),1", "SLURM_NTASKS_PER_NODE": "4"}
    assert [ranks_on_node({**steps, "SLURM_NODEID": str(node)}, 9) for node in range(4)] == [4, 4, 1, 4]


def test_what_is_left_for_windows_and_all_else_never_exceed_what_there_is():
    for node_mb in (600, 1000, 4000, 100_000):
        for slaves in (1, 3, 7):
            needs = Needs(120 * MB, slaves + 1, slaves, 64 * MB, 16 * MB)
            memory = slave_memory_bytes(node_mb * MB, slaves + 1, needs)
            fits = needs.total_bytes + slaves * memory <= node_mb * MB
            assert fits or memory == LEAST_BYTES
            assert memory <= 0.8 * node_mb * MB / (slaves + 1) or memory == LEAST_BYTES
    needs = Needs(100 * MB, 1, 2, 64 * MB, 16 * MB)  # threads of one process
    assert slave_memory_bytes(600 * MB, 3, needs) == (600 * MB - 164 * MB - 2 * (32 * MB + RESULT_BYTES)) // 2


HOLDS = """
import mmap
from mpijoin.node_memory import held_bytes
before = held_bytes()
with mmap.mmap(-1, 64 << 20) as kept:  # fresh pages: the allocator may have others that are held already
    kept.write(b"x" * len(kept))
    print(held_bytes() - before)
"""


def test_a_process_knows_what_it_holds():
    """A process of its own, since the allocator of this one may just give back what other tests have freed."""
    held = subprocess.run([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, timeout=60, check=True).stdout
    assert 0.8 * 64 * MB < int(held) < 3 * 64 * MB


@contextmanager
def memory_group(limit_bytes):
    """A real control group inside one that has a limit, as the path of its list of processes; skips where there can be
    none."""
    for top, name in ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "memory.max")):
        outer = top / f"mpijoin-test-{os.getpid()}"
        try:
            outer.mkdir()
        except OSError:
            continue
        try:
            (outer / "inner").mkdir()
            (outer / name).write_text(str(limit_bytes))
            yield outer / "inner/cgroup.procs"
            return
        except OSError as error:
            pytest.skip(f"no memory limit can be set here: {error}")
        finally:
            for folder in (outer / "inner", outer):
                if folder.exists():
                    folder.rmdir()
    pytest.skip("no control group can be made here")


GREEDY = """
[left]
kind = "synthetic"
rate = 100_000
tuples = 12_000_000
window = "1000 s"
[right]
kind = "synthetic"
rate = 100_000
tuples = 12_000_000
window = "1000 s"
[cluster]
master_buffer = "32 MB"
buffer = "8 MB"
[output]
path = "out"
results = "count"
"""


def test_a_run_in_a_control_group_ends_by_itself_before_the_kernel_ends_it(tmp_path):
    """Its windows want 700 MB, a group above its own allows 450 MB: the run says so, instead of being killed without a
    word."""
    (tmp_path / "job.toml").write_text(GREEDY)
    command = [sys.executable, "-m", "mpijoin", "run", "job.toml", "--ranks", "1", "--overwrite"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    few = ["--set", "left.tuples=10", "--set", "right.tuples=10"]
    subprocess.run([*command, *few], cwd=tmp_path, env=environ, check=True, capture_output=True)  # compiles
    with memory_group(450 * MB) as processes:
        def enter():
            return processes.write_text(str(os.getpid()))
        ended = subprocess.run(command, cwd=tmp_path, env=environ, preexec_fn=enter, capture_output=True, text=True)
    assert ended.returncode == 3 and "[memory] limit" in ended.stderr, (ended.returncode, ended.stderr)
    told = (tmp_path / "out/logs/rank-1.log").read_text()
    assert re.search(r"memory for windows: .* MB \(\S*/memory\.(max|limit_in_bytes)\), and", told), told
