"""A throw-away Slurm of two nodes on this machine.

It has its own munge, controller and node daemons, and needs neither root nor systemd.
"""

from __future__ import annotations

import getpass
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Iterator

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "sinfo", "scancel", "squeue", "scontrol")
NODES = 2
CPUS = 4  # A node claims to have so many, however many there are.
START_S, STOP_S = 30.0, 10.0
CONF = """\
ClusterName=tests
FirstJobId={first_job}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
MpiParams=ports={mpi_low}-{mpi_high}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0,sched_min_interval=0
ReturnToService=2
KillWait=5
MinJobAge=3600
JobRequeue=1
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
TmpFS={folder}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdParameters=config_overrides
MailProg=/bin/true
{nodes}
PartitionName=tests Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=60 State=UP OverSubscribe=NO
"""


def search_path() -> str:
    """Returns a PATH that includes the folders of daemons, which are not on an ordinary user's PATH."""
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


def missing() -> list[str]:
    """Returns those programs of a Slurm that are not installed here."""
    return [name for name in NEEDED if shutil.which(name, path=search_path()) is None]


def answers() -> bool:
    """Returns whether a Slurm runs here already."""
    if shutil.which("sinfo") is None:
        return False
    return subprocess.run(["sinfo", "--noheader"], capture_output=True, timeout=60).returncode == 0


@contextmanager
def one_machine_slurm(folder: Path) -> Iterator[None]:
    """Starts a Slurm in `folder`, and ends it with all its jobs. In between, SLURM_CONF names it.

    Raises RuntimeError if a daemon does not start.
    """
    conf = _write_conf(folder)
    before = {name: os.environ.get(name) for name in ("SLURM_CONF", "PATH")}
    os.environ |= {"SLURM_CONF": str(conf), "PATH": search_path()}
    try:
        _start(folder, conf)
        yield
    finally:
        _stop(folder)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _write_conf(folder: Path) -> Path:
    folder.chmod(0o755)
    (folder / "state").mkdir()
    for number in range(NODES):
        (folder / f"spool.n{number}").mkdir()
    host, ports = socket.gethostname().split(".")[0], _free_ports(NODES + 1)
    memory_mb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20 // 2 // NODES
    node = (
        "NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory={memory}"
        " State=UNKNOWN"
    )
    nodes = [
        node.format(number=number, host=host, port=ports[1 + number], cpus=CPUS, memory=memory_mb)
        for number in range(NODES)
    ]
    low = max(ports) + 100 if max(ports) < 60_000 else 20_000
    # MPICH names shared memory by the number of the job. What a killed job has left behind must not be taken for the
    # memory of a new job, so the first number is random.
    first_job = random.randrange(1, 1 << 25)
    values = {
        "first_job": first_job,
        "host": host,
        "user": getpass.getuser(),
        "port": ports[0],
        "mpi_low": low,
        "mpi_high": low + 200,
    }
    conf = folder / "slurm.conf"
    conf.write_text(CONF.format(folder=folder, nodes="\n".join(nodes), **values))
    return conf


def _free_ports(count: int) -> list[int]:
    with_ports = [socket.socket() for _ in range(count)]
    for one in with_ports:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in with_ports]
    for one in with_ports:
        one.close()
    return ports


def _start(folder: Path, conf: Path) -> None:
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    files = {"key-file": key, "socket": folder / "munge.socket", "pid-file": folder / "munged.pid"}
    files |= {"log-file": folder / "munged.log", "seed-file": folder / "munged.seed"}
    _daemon("munged", "--force", "--num-threads=2", *(f"--{name}={path}" for name, path in files.items()))
    _daemon("slurmctld", "-f", str(conf))
    for number in range(NODES):
        _daemon("slurmd", "-N", f"n{number}", "-f", str(conf))
    deadline_s = time.monotonic() + START_S
    while _output("sinfo", "-h", "-N", "-o", "%t").split() != ["idle"] * NODES:
        if time.monotonic() > deadline_s:
            logs = "\n".join(f"{path.name}: {path.read_text()[-500:]}" for path in sorted(folder.glob("*.log")))
            raise RuntimeError(f"Slurm does not come up in {START_S:g} s\n{_output('sinfo', '-R')}\n{logs}")
        time.sleep(0.1)


def _daemon(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr or done.stdout}")


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout


def _stop(folder: Path) -> None:
    # Jobs must end first, or their steps would outlive the daemons.
    _output("scancel", "--user", getpass.getuser())
    deadline_s = time.monotonic() + STOP_S
    while time.monotonic() < deadline_s and _output("squeue", "-h", "-t", "R,CG,S,CF").strip():
        time.sleep(0.1)
    for path in [*folder.glob("slurmd.*.pid"), folder / "slurmctld.pid", folder / "munged.pid"]:
        with suppress(OSError, ValueError):
            os.kill(int(path.read_text()), signal.SIGTERM)
