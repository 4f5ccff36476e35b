"""Compares mpijoin with what a user could pick instead: the same join of the same tuples on the same cores.

    python scripts/bench_peers.py --data DIR --environments DIR             all of it: hours, most for the slow peers
    python scripts/bench_peers.py --workloads A G --peers mpijoin duckdb    some workloads; peers by how they begin
    python scripts/bench_peers.py --files arrow --peers mpijoin duckdb      without decoding: Arrow files, uncompressed
    python scripts/bench_peers.py --quick                                   small, one round: is the benchmark sound?
    python scripts/bench_peers.py --workloads --earlier A.json C.json       only tables and targets of earlier calls

The workloads are in scripts/peers/workloads.py, the peers in scripts/peers/catalogue.py. Each peer runs in an
environment of its own, which is made on first use. A peer that cannot be had is in the tables as absent. Runs of the
peers alternate, and a time counts only when the answer was right.

Times are by each program's own clock, from before the first file is opened to the answer. So the start of a JVM, an
interpreter or ranks does not count. CPU seconds are over the same span. Memory is the greatest proportional set size of
all processes together. Ratios are the time of the peer, divided by the time of mpijoin's best launch. A peer that takes
more than 60 s runs once, and one that goes over --limit does not run again. The program prints tables and targets, and
writes all figures as JSON after each run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from dataclasses import asdict, replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Iterator, Sequence

from benching.launch import ROOT
from peers.catalogue import PEERS, Peer, Start
from peers.environments import Absent
from peers.tables import Case, aligned, growth_rows, markdown, rows, select, targets
from peers.watch import Limits, Watched, machine_memory_bytes, watch
from peers.workloads import QUICK, RECIPES, Missing, Workload, make, read_back

ONCE_S = 60.0  # A peer that takes longer runs only once.
# A peer that takes more than this share of the machine's memory is ended, before it takes the machine down with it.
MEMORY_SHARE = 0.85


class Trouble(Exception):
    """Says that a run gave no time that counts. kind: as Case.trouble."""

    def __init__(self, kind: str, reason: str):
        super().__init__(reason)
        self.kind = kind


class Bench:
    """What all cases share: places, cores, limits and the number of rounds."""

    def __init__(self, home: Path, environments: Path, rounds: int, limit_s: float):
        self.home, self.environments, self.rounds = home, environments, rounds
        self.limits = Limits(limit_s, MEMORY_SHARE * machine_memory_bytes())
        self.cores = sorted(os.sched_getaffinity(0))

    def compare(self, workload: Workload, peers: Sequence[Peer], cores: int) -> Iterator[list[Case]]:
        """Runs each peer once, then each again, and so on.

        Yields the cases after each run, so that a run that fails later loses none of them.
        """
        peers = [peer for peer in peers if peer.runs(workload, cores)]
        cases = [Case(workload.name, cores, peer.name, peer.title, peer.family, workload.tuples) for peer in peers]
        # The process that watches a run keeps off the cores of that run if there are others.
        os.sched_setaffinity(0, self.cores[cores:] or self.cores)
        try:
            self.warm(workload, peers, cores)
            for number in range(self.rounds):
                for peer, case in zip(peers, cases):
                    if not case.trouble and (number == 0 or case.best_s <= ONCE_S):
                        self.add_run(peer, case, workload)
                        print(
                            f"  {workload.name} {cores}  {number + 1}/{self.rounds}  {progress(case)}", file=sys.stderr
                        )
                        yield cases
        finally:
            os.sched_setaffinity(0, self.cores)

    def warm(self, workload: Workload, peers: Sequence[Peer], cores: int) -> None:
        """Makes mpijoin compile its kernels, which it does once per machine. That is not what is compared."""
        own = next((peer for peer in peers if peer.ranks is not None), None)
        if own:
            self.add_run(own, Case(workload.name, cores, own.name, own.title, own.family, workload.tuples), workload)

    def add_run(self, peer: Peer, case: Case, workload: Workload) -> None:
        """Runs a peer once, and adds what came of it to its case."""
        with tempfile.TemporaryDirectory(dir=self.home) as scratch:
            start = Start(workload, case.cores, self.environments, Path(scratch))
            try:
                self.figures(peer, case, start)
            except Trouble as trouble:
                case.trouble, case.reason, case.limit_s = trouble.kind, str(trouble), self.limits.seconds
            except Absent as absent:
                case.trouble, case.reason = "absent", str(absent)

    def figures(self, peer: Peer, case: Case, start: Start) -> None:
        line = peer.line(start)
        if start.workload.writes:
            os.sync()  # No run should pay for what another one has written.
        threads = {name: str(case.cores) for name in ("POLARS_MAX_THREADS", "PATHWAY_THREADS")}
        places = {"PYTHONPATH": str(ROOT) if peer.ranks is not None else ""}
        run = watch(line, self.cores[: case.cores], self.limits, threads | places)
        case.pss_bytes = max(case.pss_bytes, run.pss_bytes)
        said = (
            answer_of(run, self.limits) if peer.ranks is None else summary_of(run, self.limits, start.scratch / "run")
        )
        check(said, start)
        case.times_s.append(said["seconds"])
        case.cpu_s.append(said["cpu_s"])
        case.version = said["version"]


def answer_of(run: Watched, limits: Limits) -> dict[str, Any]:
    """Returns what a peer's program said last. Trouble: it did not get so far."""
    must_have_ended(run, limits)
    try:
        return json.loads(run.said.splitlines()[-1])
    except (IndexError, ValueError) as error:
        raise Trouble("failed", f"no answer: {run.said[-200:]}") from error


def summary_of(run: Watched, limits: Limits, folder: Path) -> dict[str, Any]:
    """Returns the same of mpijoin, whose clock starts with the first line of rank 0's log. Trouble: the run failed."""
    must_have_ended(run, limits)
    summary = json.loads((folder / "summary.json").read_text())
    started = datetime.strptime((folder / "logs/rank-0.log").read_text()[:23], "%Y-%m-%d %H:%M:%S,%f").timestamp()
    answer = {name: summary[name] for name in ("results", "certificate")}
    cpu_s = run.cpu_s(started, summary["wall_s"])
    return {"seconds": summary["wall_s"], "cpu_s": cpu_s, "version": version("mpijoin"), **answer}


def must_have_ended(run: Watched, limits: Limits) -> None:
    if run.over == "time":
        raise Trouble("time", f"not done after {limits.seconds:g} s")
    if run.over == "memory":
        raise Trouble("memory", f"took more than {limits.pss_bytes / 1e9:.1f} GB")
    if run.exit_code:
        lines = [line.strip() for line in (run.errors or run.said).splitlines() if line.strip()]
        raise Trouble("failed", f"exit code {run.exit_code}: {lines[-1][:200] if lines else 'no word'}")


def check(said: dict[str, Any], start: Start) -> None:
    """Checks the answer, and reads pairs that were written again. Trouble: the answer is wrong."""
    right = asdict(start.workload.answer)
    if start.workload.writes:
        folder = next(one for one in (start.scratch / "pairs", start.scratch / "run/results") if one.exists())
        try:
            said = dict(zip(("results", "sum"), read_back(folder, start.workload)))
        except ValueError as error:
            raise Trouble("wrong", str(error)) from error
    wrong = {name: said[name] for name in right if name in said and said[name] != right[name]}
    if wrong:
        raise Trouble("wrong", ", ".join(f"{name} {value}, not {right[name]}" for name, value in wrong.items()))


def progress(case: Case) -> str:
    if case.trouble:
        return f"{case.title:<34}{case.trouble}: {case.reason}"
    return f"{case.title:<34}{case.times_s[-1]:9.3f} s{case.cpu_s[-1]:9.2f} CPU s{case.pss_bytes / 1e6:8.0f} MB"


def text_of(report: dict[str, Any], style: Any) -> str:
    """Returns all tables and targets. style: markdown or aligned."""
    cases = [Case(**case) for case in report["cases"]]
    parts = [f"{report['time'][:10]}, {report['cpu']}, `{report['command']}`"]
    for workload, cores in dict.fromkeys((case.workload, case.cores) for case in cases):
        among = select(cases, workload, cores)
        size = f"{among[0].tuples / 1e6:.3g} M tuples in {report['files'].title()} files, {cores_text(cores)}"
        parts.append(f"{workload}: {report['titles'][workload]}; {size}\n\n{style(rows(among))}")
    parts += [f"{name}: absent, {reason}" for name, reason in report["missing"].items()]
    for cores in sorted({case.cores for case in cases}, reverse=True):
        if table := growth_rows(cases, cores):
            parts.append(f"Time per tuple as history grows, {cores_text(cores)}\n\n{style(table)}")
    if report["quick"]:
        parts.append("Too small for the targets.")
    else:
        parts.append("\n".join(f"{'- ' if style is markdown else ''}{target}" for target in targets(cases)))
    return "\n\n".join(parts) + "\n"


def cores_text(cores: int) -> str:
    return "one core" if cores == 1 else f"{cores} cores"


def new_report(options: argparse.Namespace) -> dict[str, Any]:
    """Returns a report that says what the figures are measured on, with the figures of earlier calls."""
    models = [
        line.partition(": ")[2] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    report = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": f"python scripts/bench_peers.py {' '.join(sys.argv[1:])}".strip(),
        "cpu": models[0] if models else platform.machine(),
        "memory_bytes": machine_memory_bytes(),
        "load_1min": os.getloadavg()[0],
        "quick": options.quick,
        "files": options.files,
        "titles": {},
        "missing": {},
        "cases": [],
    }
    for file in options.earlier:
        earlier = json.loads(file.read_text())
        if (form := earlier.get("files", "parquet")) != options.files:
            raise SystemExit(f"{file}: its figures are of {form} files, not of {options.files}: give --files {form}")
        report["cases"] += earlier["cases"]
        report["titles"] |= earlier["titles"]
        report["missing"] |= earlier["missing"]
    return report


def write(report: dict[str, Any], options: argparse.Namespace) -> None:
    cases = [Case(**case) for case in report["cases"]]
    report["targets"] = [asdict(target) for target in targets(cases)]
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=2) + "\n")
    if options.markdown:
        options.markdown.write_text(text_of(report, markdown))


def run(bench: Bench, options: argparse.Namespace, report: dict[str, Any]) -> None:
    peers = [peer for peer in PEERS if peer.name.startswith(tuple(options.peers))]
    for name in options.workloads:
        try:
            workload = make(name, bench.home, options.real, QUICK if options.quick else 1)
            workload = replace(workload, form=options.files)
        except Missing as missing:
            report["missing"][name] = str(missing)
            print(f"  {name}: absent, {missing}", file=sys.stderr, flush=True)
            continue
        report["titles"][name] = workload.title
        for cores in options.cores:
            before = report["cases"]
            for cases in bench.compare(workload, peers, cores):
                report["cases"] = [*before, *map(asdict, cases)]
                write(report, options)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} times fewer tuples, one round")
    parser.add_argument(
        "--workloads", nargs="*", choices=RECIPES, default=list(RECIPES), metavar="NAME", help=", ".join(RECIPES)
    )
    parser.add_argument(
        "--peers", nargs="+", default=[""], metavar="START", help=", ".join(peer.name for peer in PEERS)
    )
    parser.add_argument(
        "--cores", nargs="+", type=int, default=[2, 1], help="numbers of cores, one after another (default 2 1)"
    )
    parser.add_argument(
        "--files",
        choices=["parquet", "packed.parquet", "arrow"],
        default="parquet",
        help="what mpijoin, DuckDB and Polars read (default %(default)s)",
    )
    parser.add_argument("--rounds", type=int, help="how often each peer runs (default 3)")
    parser.add_argument(
        "--limit", type=float, default=600.0, metavar="SECONDS", help="of a run, starting included (default 600)"
    )
    parser.add_argument("--data", type=Path, help="folder for data that later calls reuse (default: a temporary one)")
    parser.add_argument(
        "--environments", type=Path, default=Path("runs/peers"), help="of the peers (default %(default)s)"
    )
    shared = ROOT.parent / "shared/data"
    real = shared if shared.is_dir() else ROOT / "tests/data"
    parser.add_argument(
        "--real", type=Path, default=real, help="folder of the real sets (default: ../shared/data or tests/data)"
    )
    parser.add_argument(
        "--earlier", nargs="+", type=Path, default=[], metavar="FILE", help="earlier figures to show, too"
    )
    parser.add_argument(
        "--json", type=Path, default=Path("runs/bench_peers.json"), help="for the figures (default %(default)s)"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the tables as Markdown")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    if max(options.cores) > len(os.sched_getaffinity(0)):
        parser.error(f"--cores {max(options.cores)}: there are {len(os.sched_getaffinity(0))}")
    return options


def main() -> None:
    options = arguments()
    report = new_report(options)
    with tempfile.TemporaryDirectory() as temporary:
        home = (options.data or Path(temporary)).resolve()
        home.mkdir(parents=True, exist_ok=True)
        run(Bench(home, options.environments.resolve(), options.rounds, options.limit), options, report)
    write(report, options)
    print(text_of(report, aligned))
    print(f"written: {options.json}")


if __name__ == "__main__":
    main()
