"""Measures what a network costs: the same job with MPI over shared memory, over TCP, and over a slower network.

    python scripts/bench_tcp.py [--workload A] [--rounds N] [--data DIR] [--quick]

The network is made of two network namespaces with a pair of virtual interfaces between them: the master in one, both
slaves in the other. `tc` limits each direction to 1 Gbit/s, and adds 0.2 ms where the kernel has netem (the kernel
option NET_SCH_NETEM). This needs root; what cannot be set up is left out, and the output says why. TCP is that of
MPICH: libfabric's provider "tcp", and no shared memory between ranks. Ways take turns, and all must give
the right answer. "Own" is the time from the first row read to the last result, "CPU" that of all ranks in this time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Iterator, Mapping

from benching.launch import ROOT, Launched, launch
from peers.catalogue import STREAM
from peers.tables import aligned
from peers.workloads import QUICK, Workload, make

RANKS = 3
TCP = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "MPIR_CVAR_NOLOCAL": "1"}
# The namespaces, their interfaces, and the addresses of these.
SIDES = (("mpijoin-master", "mpijoin-veth0", "10.231.7.1"), ("mpijoin-slaves", "mpijoin-veth1", "10.231.7.2"))
# A bucket of 256 KB holds four of the largest packets that a virtual interface passes on.
RATE = "tbf rate 1gbit burst 256kb latency 100ms"
DELAY = "netem delay 200us limit 100000"
CARRIER_S, LOOK_S = 5.0, 0.01  # An interface may take so long until it is up, and is looked at so often.


class Refused(Exception):
    """The machine cannot be set up like this; the message says why."""


@dataclass
class Way:
    """A way in which ranks talk. apart: in two namespaces · shapes: the queueing disciplines of the interfaces between
    them, outermost first."""

    title: str
    environ: Mapping[str, str] = field(default_factory=dict)
    apart: bool = False
    shapes: tuple[str, ...] = ()
    runs: list[Launched] = field(default_factory=list)


def ways() -> list[Way]:
    return [
        Way("shared memory"),
        Way("TCP", TCP),
        Way("TCP, two namespaces", TCP, True),
        Way("TCP, two namespaces, 1 Gbit/s", TCP, True, (RATE,)),
        Way("TCP, two namespaces, 1 Gbit/s, 0.2 ms", TCP, True, (RATE, DELAY)),
    ]


def tool(*words: str) -> str:
    """Runs a command, and returns what it says. Refused: it failed."""
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except OSError as error:
        raise Refused(f"{words[0]}: {error.strerror}") from error
    if done.returncode:
        raise Refused(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


@contextmanager
def network(shapes: tuple[str, ...]) -> Iterator[None]:
    """Two namespaces with an interface each, until the block ends. Refused: they cannot be made here."""
    (first, veth0, _), (second, veth1, _) = SIDES
    with ExitStack() as made:
        for name in (first, second):
            tool("ip", "netns", "add", name)
            made.callback(tool, "ip", "netns", "del", name)
        tool("ip", "link", "add", veth0, "netns", first, "type", "veth", "peer", "name", veth1, "netns", second)
        for name, veth, address in SIDES:
            tool("ip", "-n", name, "address", "add", f"{address}/24", "dev", veth)
            # An address of IPv6 is not ready at once, and ranks that take it wait for each other for ever.
            tool("ip", "netns", "exec", name, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6")
            for device in ("lo", veth):
                tool("ip", "-n", name, "link", "set", device, "up")
            for depth, shape in enumerate(shapes, 1):
                parent = ("root",) if depth == 1 else ("parent", f"{depth - 1}:")
                tool("tc", "-n", name, "qdisc", "add", "dev", veth, *parent, "handle", f"{depth}:", *shape.split())
        wait_for_carriers()
        yield


def wait_for_carriers() -> None:
    """An interface is not up at once when it is told so, and MPI does not start on one that is not. Refused: it never
    comes."""
    end_s = time.monotonic() + CARRIER_S
    for name, veth, _ in SIDES:
        while "state UP" not in tool("ip", "-n", name, "-oneline", "link", "show", "dev", veth):
            if time.monotonic() > end_s:
                raise Refused(f"{veth} is not up after {CARRIER_S} s")
            time.sleep(LOOK_S)


def command_apart(ranks: int, *arguments: str) -> list[str]:
    """Returns the command of mpijoin with rank 0 in one namespace and all others in the other."""
    program = [sys.executable, "-m", "mpijoin", *arguments]
    # Where the interface is not named, a rank may announce the address of its own loopback, and the others call it in
    # vain for ever.
    first, second = (["ip", "netns", "exec", name, "env", f"FI_TCP_IFACE={veth}", *program] for name, veth, _ in SIDES)
    mpirun = str(Path(sys.executable).with_name("mpirun"))
    return [mpirun, "-n", "1", *first, ":", "-n", str(ranks - 1), *second]


def run(way: Way, job: Path, output: Path, workload: Workload) -> Launched:
    """Runs the job once. Refused: the network cannot be made here · SystemExit: the run failed, or its answer is
    wrong."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    settings = ('output.results="count"',)
    with network(way.shapes) if way.apart else ExitStack():
        line = command_apart if way.apart else None
        done = launch(job, output, RANKS, cores, settings, way.environ, line=line)
    for name in ("results", "certificate"):
        if done.summary[name] != getattr(workload.answer, name):
            raise SystemExit(f"{way.title}: {name} {done.summary[name]}, wanted {getattr(workload.answer, name)}")
    return done


def measure(workload: Workload, job: Path, output: Path, rounds: int) -> tuple[list[Way], list[str]]:
    """Runs all ways in turns. Returns those that could be set up, and why others could not. The first run of each does
    not count, because it fills caches."""
    here, refused = [], []
    for way in ways():
        try:
            run(way, job, output, workload)
            here.append(way)
        except Refused as reason:
            refused.append(f"{way.title}: not measured: {reason}")
    for number in range(rounds):
        for way in here:
            way.runs.append(run(way, job, output, workload))
            print(f"  {number + 1}/{rounds}  {way.title:<40}{way.runs[-1].summary['wall_s']:7.2f} s", file=sys.stderr)
    return here, refused


def cpu_s(summary: Mapping[str, Any]) -> float:
    """Returns the CPU seconds of all ranks."""
    ranks = [*summary["per_producer"].values(), *summary["per_slave"].values()]
    return float(sum(one["cpu_s"] for one in ranks))


def table(here: list[Way], workload: Workload) -> list[list[str]]:
    """Returns a row per way; wall and CPU are those for a million tuples of the own time."""
    head = ["", "whole, best s", "own, best s", "own, median s", "wall ms per M", "CPU ms per M", "of these the master"]
    millions, rows = workload.tuples / 1e6, [head]
    for way in here:
        own = [one.summary["wall_s"] for one in way.runs]
        spent, masters = ([of(one.summary) for one in way.runs] for of in (cpu_s, _master_cpu_s))
        per_million = (min(own), median(spent), median(masters))
        rows.append([
            way.title, f"{min(one.wall_s for one in way.runs):.2f}", f"{min(own):.2f}", f"{median(own):.2f}",
            *(f"{1e3 * seconds / millions:.1f}" for seconds in per_million),
        ])  # fmt: skip
    return rows


def _master_cpu_s(summary: Mapping[str, Any]) -> float:
    return float(summary["per_producer"]["0"]["cpu_s"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="A", help="one of scripts/peers/workloads.py (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each way runs (default %(default)s)")
    parser.add_argument("--data", type=Path, help="folder for data that later calls reuse (default: a temporary one)")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} times fewer tuples, one round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        home = (options.data or Path(temporary)).resolve()
        home.mkdir(parents=True, exist_ok=True)
        workload = make(options.workload, home, ROOT / "tests/data", QUICK if options.quick else 1)
        job = Path(temporary, "job.toml")
        files = zip(workload.streams, workload.files())
        job.write_text("\n".join(STREAM.format(side=s, path=f'"{p}"', window_us=workload.window_us) for s, p in files))
        rounds = 1 if options.quick else options.rounds
        here, refused = measure(workload, job, Path(temporary, "run"), rounds)
        print(aligned(table(here, workload)), *refused, sep="\n")


if __name__ == "__main__":
    main()
