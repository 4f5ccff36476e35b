"""Joins with less memory than the windows need: what that costs, whether the limit holds, and what others do with it.

    python scripts/bench_spill.py --data DIR --environments DIR         all of it: half an hour
    python scripts/bench_spill.py --workloads A --budgets 50 --peers    one budget, without the others
    python scripts/bench_spill.py --quick                               small, one round: is the benchmark sound?

The first run of a workload has all the memory that it wants. The most that any of its slaves took is the state, and a
budget is so many percent of it, as `[memory] limit` of each slave. Every budget is run with both forms of `[memory]
spill`, in turns with the run in memory. DuckDB gets as its memory_limit what all slaves have together, and a folder for
what does not fit; so does DataFusion, whose symmetric hash join has no use for the folder. A time counts only if the
answer was right.

Times are by each program's own clock, from before the first file is opened to the answer. "last result" is when the
last result was found that is not one of a clean-up. Memory is the proportional set size of each rank, sampled all the
time; a slave may take its limit, 10 % of it, and 150 MB. Before the runs, `dd conv=fdatasync` writes to the disk on
which scratch is. Two rates of all slaves together are compared with that: what they write in a second of writing, and
what they spill in a second of spilling, which includes to choose, to read out and to check what goes. Groups that
rotate are read back in the same seconds, so what they read counts there as well.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Iterator, Sequence

from benching.launch import command, environment, family, pin, pss_bytes, rank_of
from peers.catalogue import PEERS, Peer, Start
from peers.environments import Absent
from peers.tables import Target, aligned, markdown
from peers.watch import Limits, machine_memory_bytes, watch
from peers.workloads import LARGE, QUICK, RECIPES, Workload, make

RANK_BYTES = 150_000_000  # Python, the libraries and the kernels of one process take so much
OVER = 1.1  # a slave may take so many times its limit, besides
PLENTY_BYTES = 2 << 30  # no workload needs so much
LEAST_BYTES = 64 << 10  # that mpijoin takes as a limit
SAMPLE_S = 0.1
DD_BYTES = 1 << 30
ROTATE = "rotate"
FORMS = ("generations", ROTATE)
MEMORY_FORM = "off"
OVER_TIME = "over {:.0f} s"
TOLD = 200  # characters of what a program says when it fails
TIMES_AT_MOST = {50: 1.6, 5: 4.0}  # by percent: so many times the time of the run in memory
DISK_SHARE = 0.5  # of what dd writes
STREAM = """\
[streams.{name}]
path = {path}
time = "ts"
time_unit = "us"
key = "key"
window = "{window_us} us"
"""


@dataclass
class Case:
    """A program on a workload with a budget.

    spill: the form of mpijoin, "" of another program · percent: of the state, 0: all memory that it wants ·
    limit_bytes: of each slave, or of the other program · runs: the summary of each run, or only its "wall_s" ·
    pss_bytes: the most of each rank · over_s: in so many seconds some slave was over its bound · trouble: why it has no
    time.
    """

    workload: str
    program: str
    spill: str
    percent: int
    limit_bytes: int
    runs: list[dict[str, Any]] = field(default_factory=list)
    pss_bytes: dict[int, int] = field(default_factory=dict)
    over_s: int = 0
    trouble: str = ""

    @property
    def best(self) -> dict[str, Any] | None:
        """The summary of the fastest run."""
        return min(self.runs, key=lambda run: run["wall_s"]) if self.runs and not self.trouble else None

    def bound_bytes(self) -> float:
        return OVER * self.limit_bytes + RANK_BYTES

    def figure(self, name: str) -> float:
        """The sum of a figure over the slaves of the fastest run."""
        return sum(slave.get(name, 0) for slave in self.best["per_slave"].values())


class Bench:
    """Runs the cases of one workload."""

    def __init__(self, workload: Workload, options: argparse.Namespace, home: Path):
        self.workload, self.options, self.home = workload, options, home
        self.scratch = home / "scratch"
        self.scratch.mkdir(exist_ok=True)
        self.cores = sorted(os.sched_getaffinity(0))[: options.cores]
        self.job = home / "job.toml"
        files = zip(workload.streams, workload.files())
        streams = (
            STREAM.format(name=name, path=json.dumps(str(path)), window_us=workload.window_us) for name, path in files
        )
        self.job.write_text("\n".join(streams))

    def in_memory(self) -> Case:
        """The run that needs no disk. All kernels are compiled before, which takes more memory than joining, and
        nothing counts that is measured then."""
        for form in (MEMORY_FORM, *self.options.forms):
            self.run(Case(self.workload.name, "mpijoin", form, 0, PLENTY_BYTES))
        case = Case(self.workload.name, "mpijoin", MEMORY_FORM, 0, PLENTY_BYTES)
        self.run(case)
        if case.trouble:
            raise SystemExit(f"{self.workload.name} in memory: {case.trouble}")
        return case

    def run(self, case: Case) -> None:
        """Runs mpijoin once and adds what came of it."""
        shutil.rmtree(self.home / "run", ignore_errors=True)
        memory = {"limit": f"{case.limit_bytes} B", "spill": case.spill, "path": str(self.scratch)}
        settings = [f"memory.{name}={json.dumps(value)}" for name, value in memory.items()]
        settings += [f"output.path={json.dumps(str(self.home / 'run'))}", 'output.results="count"']
        options = [part for setting in settings for part in ("--set", setting)]
        line = command(self.options.slaves + 1, "run", str(self.job), *options)
        with tempfile.TemporaryFile("w+") as said:
            process = subprocess.Popen(line, env=environment(), stdout=said, stderr=said, preexec_fn=pin(self.cores))
            try:
                is_late = self.sample(process, case)
            finally:
                process.kill()  # the ranks of mpirun die with it
                process.wait()
            said.seek(0)
            told = [text for text in said.read().splitlines() if text.startswith("mpijoin: ")]
        left = [path.name for path in self.scratch.iterdir()]
        if is_late or process.returncode:
            why = f"exit {process.returncode}: {told[-1][:TOLD] if told else 'without a word'}"
            case.trouble = OVER_TIME.format(self.options.limit) if is_late else why
            shutil.rmtree(self.scratch)
            self.scratch.mkdir()
            return
        summary = json.loads((self.home / "run/summary.json").read_text())
        right = self.workload.answer
        if (summary["results"], summary["certificate"]) != (right.results, right.certificate):
            case.trouble = f"wrong answer: {summary['results']:,} {summary['certificate']}"
        elif left:
            case.trouble = f"left {left} on the disk"
        case.runs.append(summary)

    def sample(self, process: subprocess.Popen, case: Case) -> bool:
        """Looks at all ranks until the run ends. Returns whether it took too long and has to be ended."""
        start, over = time.monotonic(), set()
        while process.poll() is None:
            now_s = time.monotonic() - start
            if now_s > self.options.limit:
                return True
            for one in family(process.pid):
                if (rank := rank_of(one)) >= 0:
                    held = pss_bytes(one, ("python", "mpijoin"))
                    case.pss_bytes[rank] = max(case.pss_bytes.get(rank, 0), held)
                    if rank and held > case.bound_bytes():
                        over.add(int(now_s))
            time.sleep(SAMPLE_S)
        case.over_s = max(case.over_s, len(over))
        return False

    def run_other(self, peer: Peer, case: Case) -> None:
        """Runs another program once with the memory of all slaves."""
        scratch = Path(tempfile.mkdtemp(dir=self.home))
        limits = Limits(self.options.limit, machine_memory_bytes())
        try:
            start = Start(self.workload, len(self.cores), self.options.environments, scratch)
            line = [*peer.line(start), "--memory", str(case.limit_bytes), "--scratch", str(scratch)]
            done = watch(line, self.cores, limits, {"PYTHONPATH": ""})
            case.pss_bytes[0] = max(case.pss_bytes.get(0, 0), done.pss_bytes)
            if done.over or done.exit_code:
                said = [text for text in done.errors.splitlines() if "Error" in text or "xception" in text]
                why = (said[-1] if said else f"exit {done.exit_code}")[:TOLD]
                case.trouble = OVER_TIME.format(limits.seconds) if done.over else why
                return
            found = json.loads(done.said.splitlines()[-1])
            if (found["results"], found["sum"]) != (self.workload.answer.results, self.workload.answer.sum):
                case.trouble = "wrong answer"
            case.runs.append({"wall_s": found["seconds"]})
        except Absent as absent:
            case.trouble = f"absent: {absent}"
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def cases_of(bench: Bench, memory: Case) -> Iterator[tuple[Peer | None, Case]]:
    """All cases of a workload but that in memory; those of other programs with their peers."""
    options, workload = bench.options, bench.workload
    state = max(slave["memory_bytes_max"] for slave in memory.best["per_slave"].values())
    for percent in options.budgets:
        limit = max(LEAST_BYTES, state * percent // 100)
        for form in options.forms:
            yield None, Case(workload.name, "mpijoin", form, percent, limit)
        for peer in PEERS:
            if peer.name.startswith(tuple(options.peers)) and peer.runs(workload, options.cores):
                yield peer, Case(workload.name, peer.title, "", percent, limit * options.slaves)


def compare(bench: Bench) -> Iterator[list[Case]]:
    """Runs each case once, then each again, and so on. Yields all cases after each run."""
    memory = bench.in_memory()
    pairs = [(None, memory), *cases_of(bench, memory)]
    cases = [case for _, case in pairs]
    for number in range(bench.options.rounds):
        for peer, case in pairs:
            if case.trouble or (case is memory and number == 0):
                continue
            if peer is None:
                bench.run(case)
            else:
                bench.run_other(peer, case)
            told = case.trouble or f"{case.runs[-1]['wall_s']:.2f} s"
            name = f"{case.workload} {case.percent or 'all'} {case.program} {case.spill}"
            print(f"  {number + 1}/{bench.options.rounds}  {name}: {told}", file=sys.stderr, flush=True)
            yield cases


def disk_bytes_per_s(folder: Path) -> float:
    """What dd brings to the folder's disk in a second, at best of three."""
    path, times_s = folder / "written-by-dd", []
    for _ in range(3):
        started = time.monotonic()
        line = ["dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={DD_BYTES >> 20}", "conv=fdatasync"]
        subprocess.run(line, check=True, stderr=subprocess.DEVNULL)
        times_s.append(time.monotonic() - started)
        path.unlink()
    return DD_BYTES / min(times_s)


HEAD = (
    *("budget", "program", "MB", "best s", "x memory", "last result s", "spilling s", "clean-up s", "of results"),
    *("MB written", "MB read", "most MB on disk", "MB of a slave (allowed)", "s over"),
)


def row(case: Case, memory: Case) -> list[str]:
    name = f"{case.program}, {case.spill}" if case.spill else case.program
    start = [f"{case.percent} %" if case.percent else "all", name, f"{case.limit_bytes / 1e6:.1f}"]
    if case.best is None:
        return [*start, case.trouble] + [""] * (len(HEAD) - 4)
    start += [f"{case.best['wall_s']:.2f}", f"{case.best['wall_s'] / memory.best['wall_s']:.2f}"]
    if not case.spill:
        return [*start] + [""] * (len(HEAD) - 7) + [f"{case.pss_bytes[0] / 1e6:.0f}", ""]
    last = max(slave.get("last_runtime_result_s", 0.0) for slave in case.best["per_slave"].values())
    slaves = max(held for rank, held in case.pss_bytes.items() if rank)
    seconds = [f"{last:.2f}", *(f"{case.figure(name):.2f}" for name in ("spill_s", "cleanup_s"))]
    share = case.figure("cleanup_results") / max(1, case.best["results"])
    sizes = [f"{case.figure(name) / 1e6:.1f}" for name in ("spilled_bytes", "read_back_bytes", "disk_bytes_max")]
    held = f"{slaves / 1e6:.0f} ({case.bound_bytes() / 1e6:.0f})"
    return [*start, *seconds, f"{share:.1%}", *sizes, held, str(case.over_s)]


def target(what: str, got: float, wanted: float, least: bool = False) -> Target:
    met = got >= wanted if least else got <= wanted
    return Target(what, f"{'>=' if least else '<='} {wanted:.3g}", f"{got:.3g}", "met" if met else "MISSED")


def targets(cases: Sequence[Case], disk: float) -> Iterator[Target]:
    """What the cases of one workload show."""
    memory = cases[0]
    own = [case for case in cases[1:] if case.spill]
    others = [case for case in cases if not case.spill]
    for case in own:
        what = f"{case.workload} {case.percent} % {case.spill}"
        if case.best is None:
            yield Target(what, "an answer", case.trouble, "MISSED")
            continue
        if case.percent in TIMES_AT_MOST:
            times = case.best["wall_s"] / memory.best["wall_s"]
            yield target(f"{what}: times that in memory", times, TIMES_AT_MOST[case.percent])
        if case.figure("spilled_bytes"):
            slaves = len(case.best["per_slave"])  # They write at the same time.
            written = case.figure("spilled_bytes")
            share = written / (case.figure("write_s") / slaves) / disk
            yield target(f"{what}: share of what dd writes, in writing", share, DISK_SHARE, least=True)
            moved = written + (case.spill == ROTATE) * case.figure("read_back_bytes")
            share = moved / (case.figure("spill_s") / slaves) / disk
            yield target(f"{what}: share of what dd writes, in all of spilling", share, DISK_SHARE, least=True)
        yield target(f"{what}: seconds over the bound of memory", case.over_s, 0)
        beside = [one.best["wall_s"] for one in others if one.percent == case.percent and one.best]
        if beside:
            yield target(f"{what}: seconds, beside the others' best", case.best["wall_s"], min(beside))


def text_of(cases: Sequence[Case], disk: float, table: Any) -> str:
    parts = [f"dd writes {disk / 1e6:.0f} MB/s where scratch is."]
    for workload in dict.fromkeys(case.workload for case in cases):
        own = [case for case in cases if case.workload == workload]
        parts.append(f"{workload}: {(RECIPES | LARGE)[workload].title}")
        parts.append(table([list(HEAD), *(row(case, own[0]) for case in own)]))
        parts.append("\n".join(map(str, targets(own, disk))))
    return "\n\n".join(parts)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} times fewer tuples, one round")
    known = [*RECIPES, *LARGE]
    parser.add_argument("--workloads", nargs="+", choices=known, default=["A", "J", "K", "I5"], metavar="NAME")
    parser.add_argument("--budgets", nargs="+", type=int, default=[100, 50, 20, 5], help="percent of the state")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument(
        "--peers", nargs="*", default=["duckdb", "datafusion-symmetric"], metavar="START", help="how others begin"
    )
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--slaves", type=int, default=2)
    parser.add_argument("--rounds", type=int, help="how often each case runs (default 3)")
    parser.add_argument("--limit", type=float, default=300.0, metavar="SECONDS", help="of a run (default 300)")
    parser.add_argument("--data", type=Path, help="folder for data that later calls reuse (default: a temporary one)")
    parser.add_argument("--environments", type=Path, default=Path("runs/peers"), help="of the peers")
    parser.add_argument("--json", type=Path, default=Path("runs/bench_spill.json"), help="for the figures")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the tables as Markdown")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.environments = options.environments.resolve()
    return options


def main() -> None:
    options = arguments()
    done: list[Case] = []
    options.json.parent.mkdir(parents=True, exist_ok=True)
    if options.data:
        options.data.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.data) as temporary:
        home = Path(temporary).resolve()
        disk = disk_bytes_per_s(home)
        for name in options.workloads:
            folder = options.data.resolve() if options.data else home
            workload = make(name, folder, Path(), QUICK if options.quick else 1)
            cases: list[Case] = []
            for cases in compare(Bench(workload, options, home)):
                options.json.write_text(json.dumps([asdict(case) for case in [*done, *cases]], indent=2) + "\n")
            done += cases
    print(text_of(done, disk, aligned))
    if options.markdown:
        options.markdown.write_text(text_of(done, disk, markdown) + "\n")
    print(f"written: {options.json}")


if __name__ == "__main__":
    main()
