"""How much memory the ranks on a node may take, and how much of it is left for a slave's windows.

The kernel kills without a word a process that exceeds the limit of its control group or of a group above it, so all of
them count, in both versions, and so does every limit that Slurm states. The smallest limit wins.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Iterator, Mapping

from mpijoin.named import NamedTuple

ROOT = Path("/")
# By kind of control groups, the files in which a limit stands: "high" slows its processes down until they are of no
# use.
LIMIT_FILES = {"cgroup": ("memory.limit_in_bytes",), "cgroup2": ("memory.max", "memory.high")}
USABLE_SHARE = 0.8  # of a node's memory at most; the rest is for the page cache and for others
RESULT_BYTES = 64 << 20  # what a slave gathers of results before they are in a file, and frees without giving it back
LEAST_BYTES = 16 << 20  # of a slave's windows, however little there is
MIB = 1 << 20


class Allowed(NamedTuple):
    """Bytes that are allowed, and by what: "the machine", the file of a control group, or a variable of Slurm."""

    octets: int
    by: str


def node_memory(environ: Mapping[str, str], root: Path = ROOT) -> Allowed:
    """The smallest of: the machine's memory, the limits of this process's control groups and those above, and Slurm's
    limits.

    root: where /proc and the mounted control groups are looked for.
    """
    machine = Allowed(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "the machine")
    return min((machine, *cgroup_limits(root), *slurm_limits(environ)), key=lambda allowed: allowed.octets)


def cgroup_limits(root: Path = ROOT) -> Iterator[Allowed]:
    """What the control groups of this process allow, its own first; nothing where there are no control groups."""
    groups = dict(_memory_groups(root))
    for kind, mounted_from, mount_point in _mounts(root):
        if kind not in groups:
            continue
        top = root / mount_point.lstrip("/")
        # What is mounted may be but a part of the hierarchy, and then the group may lie outside of what can be seen of
        # it.
        inside = os.path.relpath(groups[kind], mounted_from)
        folder = top if inside.startswith("..") else top / inside
        for level in (folder, *folder.parents):
            yield from _limits_in(level, LIMIT_FILES[kind])
            if level == top:
                break


def _memory_groups(root: Path) -> Iterator[tuple[str, str]]:
    """Kind and path of the groups that this process is in."""
    for line in _lines(root / "proc/self/cgroup"):
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            yield "cgroup2", path
        elif "memory" in controllers.split(","):
            yield "cgroup", path


def _mounts(root: Path) -> Iterator[tuple[str, str, str]]:
    """Kind, what of the hierarchy is mounted, and where, of all mounts that control memory."""
    for line in _lines(root / "proc/self/mountinfo"):
        own, _, system = line.partition(" - ")
        kind, _, options = system.split(" ", 2)
        if kind == "cgroup2" or (kind == "cgroup" and "memory" in options.split(",")):
            mounted, where = own.split(" ")[3:5]
            yield kind, mounted, where


def _limits_in(folder: Path, names: tuple[str, ...]) -> Iterator[Allowed]:
    for name in names:
        file = folder / name
        yield from (Allowed(int(text), str(file)) for text in _lines(file) if text.isdecimal())


def _lines(path: Path) -> list[str]:
    with suppress(OSError):
        return path.read_text().splitlines()
    return []


def slurm_limits(environ: Mapping[str, str]) -> Iterator[Allowed]:
    """What Slurm grants the job of this node; nothing where it sets no limit (0 says so, too)."""
    cores = _number(environ, "SLURM_CPUS_ON_NODE") or len(os.sched_getaffinity(0))
    accelerators = _number(environ, "SLURM_GPUS_ON_NODE")
    for name, times in (("SLURM_MEM_PER_NODE", 1), ("SLURM_MEM_PER_CPU", cores), ("SLURM_MEM_PER_GPU", accelerators)):
        mib = _number(environ, name) * times
        if mib:
            yield Allowed(mib * MIB, name)


def ranks_on_node(environ: Mapping[str, str], ranks: int) -> int:
    """How many of the ranks are on this node, as the launcher tells; all of them if it does not."""
    for name in ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"):
        if found := _number(environ, name):
            return min(found, ranks)
    nodes = expanded(environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    number = _number(environ, "SLURM_NODEID")
    if number < len(nodes):
        return min(nodes[number], ranks)
    return min(_number(environ, "SLURM_NTASKS_PER_NODE") or ranks, ranks)


def expanded(counts: str) -> list[int]:
    """Slurm's short form of a number per node; nothing where it is none.

    >>> expanded("4(x2),1")
    [4, 4, 1]
    """
    found = [re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", one) for one in counts.split(",")]
    return [int(one[1]) for one in found if one for _ in range(int(one[2] or 1))]


def _number(environ: Mapping[str, str], name: str) -> int:
    """0 where it is not set, or no number."""
    text = environ.get(name, "")
    return int(text) if text.isdecimal() else 0


class Needs(NamedTuple):
    """What the ranks on a node need apart from windows. own: bytes of this process, before it holds any rows ·
    processes: how many there are like it · slaves: among the ranks · master_buffer, buffer: of the job."""

    own_bytes: int
    processes: int
    slaves: int
    master_buffer_bytes: int
    buffer_bytes: int

    @property
    def total_bytes(self) -> int:
        """A message is there twice: on its way from the master, and at the slave."""
        per_slave = 2 * self.buffer_bytes + RESULT_BYTES
        return self.processes * self.own_bytes + self.master_buffer_bytes + self.slaves * per_slave


def slave_memory_bytes(node_bytes: int, ranks: int, needs: Needs) -> int:
    """`[memory] limit = "auto"`: what of a node's memory remains for the windows of each slave, at most its share of
    what is usable, and a little in any case. ranks: on this node.

    >>> slave_memory_bytes(1 << 40, 4, Needs(150 << 20, 4, 3, 256 << 20, 64 << 20)) >> 30
    204
    """
    fair = int(node_bytes * USABLE_SHARE) // ranks
    return max(LEAST_BYTES, min(fair, (node_bytes - needs.total_bytes) // needs.slaves))


def held_bytes() -> int:
    """The memory that this process holds now, pages shared with others counted in part; 0 where the system does not
    say."""
    lines = _lines(ROOT / "proc/self/smaps_rollup")
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
