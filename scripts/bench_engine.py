"""How fast, how large and how quick to start is mpijoin? Every answer is checked before its time counts.

    python scripts/bench_engine.py                       everything on workload A (benching/data.py): about half an hour
    python scripts/bench_engine.py --quick               everything, small: is the benchmark itself sound?
    python scripts/bench_engine.py --sections slave run  some sections only

Runs are pinned to one core (slave) or two (the rest), and they alternate, so that a busy machine is unfair to all of
them alike. It prints tables and writes all times, medians, bests and targets as JSON. The yardstick is DuckDB in the
same run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benching.bench import FULL_TUPLES, QUICK_TUPLES, Bench, Section, machine, section_text
from benching.data import RATE_PER_S, WINDOW_US
from benching.launch import ROOT, command, environment, launch, pin

TUPLE_BYTES = 24
RANK_BYTES = 150_000_000  # A rank may take so much beside its windows and buffers.
LAUNCHES = {"mpirun -n 2": 2, "mpirun -n 3": 3, "local": 0}
SEISMIC = ROOT / "scripts/jobs/seismic.toml"


def slave_alone(bench: Bench) -> Section:
    data = bench.data()
    section = Section("A slave alone: messages in memory, one core", 2 * data.tuples)
    epochs = {"100 s": 8.0, "20 s": 4.0, "2 s": 1.0}
    cases = {
        f"slave, epochs of {epoch}": lambda epoch=epoch: bench.worker("bench_slave.py", 1, data, epoch)
        for epoch in epochs
    }
    for form in ("bucketed", "plain"):
        cases[f"DuckDB {form}, tables"] = lambda form=form: bench.duckdb(form, 1, data, "--in-memory")
    bench.measure(section, cases)
    rates = {case: section.tuples / section.best_s(case) / 1e6 for case in section.times_s}
    for epoch, wanted in epochs.items():
        section.at_least(f"epochs of {epoch}", rates[f"slave, epochs of {epoch}"], wanted, "M tuples/s")
    section.at_least(
        "epochs of 100 s : DuckDB bucketed", rates["slave, epochs of 100 s"] / rates["DuckDB bucketed, tables"], 2, "x"
    )
    return section


def whole_run(bench: Bench) -> Section:
    data = bench.data()
    section = Section("A whole run: Parquet in, count out, two cores", 2 * data.tuples)
    cases = {name: lambda ranks=ranks: bench.engine(data, ranks) for name, ranks in LAUNCHES.items()}
    for form in ("bucketed", "plain"):
        cases[f"DuckDB {form}"] = lambda form=form: bench.duckdb(form, 2, data)
    bench.measure(section, cases)
    best_s = section.best_s(*LAUNCHES)
    section.at_least("best launch : DuckDB bucketed", section.best_s("DuckDB bucketed") / best_s, 1.0, "x")
    section.at_least("best launch : DuckDB plain", section.best_s("DuckDB plain") / best_s, 1.4, "x")
    return section


def growth(bench: Bench) -> Section:
    small, large = bench.data(), bench.data(bench.scale)
    section = Section(
        f"Time per tuple: {small.tuples / 1e6:g} M and {large.tuples / 1e6:g} M tuples a stream, mpirun -n 2"
    )
    bench.measure(
        section, {f"{data.tuples / 1e6:g} M": lambda data=data: bench.engine(data, 2) for data in (small, large)}
    )
    per_tuple = [section.best_s(f"{data.tuples / 1e6:g} M") / data.tuples for data in (small, large)]
    section.at_most("growth of the time per tuple", 100 * (per_tuple[1] / per_tuple[0] - 1), 10, "%")
    return section


def tuning(bench: Bench) -> Section:
    data = bench.data()
    section = Section("What tuning buys: theta at 60 partitions, mpirun -n 2", 2 * data.tuples)
    thetas = ("auto", "1.5 MB", "off")
    return bench.measure(
        section,
        {f"theta {theta}": lambda theta=theta: bench.engine(data, 2, f'tuning.theta="{theta}"') for theta in thetas},
    )


def writing(bench: Bench) -> Section:
    data = bench.data()
    section = Section("Writing left_row and right_row of all results to Parquet, mpirun -n 2", 2 * data.tuples)
    rows = ('output.results="parquet"', 'output.columns=["left_row", "right_row"]')
    bench.measure(section, {"count": lambda: bench.engine(data, 2), "Parquet": lambda: bench.engine(data, 2, *rows)})
    section.at_most("Parquet : count", section.best_s("Parquet") / section.best_s("count"), 2.5, "x")
    return section


def memory(bench: Bench) -> Section:
    section = Section("Memory: proportional set size of all ranks together, synthetic streams, mpirun -n 3")
    # This run compiles the kernels that are not in the cache, because compiling takes memory, too.
    launch(SEISMIC, bench.home / "run", 3, bench.cores[:2])
    peaks = []
    for scale in (1, 10):
        # A run has three windows at least, because the state still grows in the first two.
        tuples = scale * max(bench.tuples, int(3 * RATE_PER_S * WINDOW_US / 1e6))
        source = f'kind = "synthetic"\nrate = {RATE_PER_S}\ntuples = {tuples}\nseed = '
        job = bench.job(source + "1", source + "2", f"synthetic-{tuples}")
        settings = ('output.results="count"', 'cluster.buffer="16 MiB"', 'cluster.master_buffer="64 MiB"')
        done = launch(job, bench.home / "run", 3, bench.cores[:2], settings, sample=True)
        section.times_s[f"{tuples / 1e6:g} M a stream: {done.pss_bytes / 1e6:.0f} MB"] = [done.summary["wall_s"]]
        peaks.append(done.pss_bytes / 1e6)
    windows = 2 * RATE_PER_S * WINDOW_US / 1e6 * TUPLE_BYTES
    buffers = (64 << 20) + 2 * (16 << 20)
    section.at_most("the short run", peaks[0], (2.5 * windows + buffers + 3 * RANK_BYTES) / 1e6, "MB")
    section.at_most("growth over a run ten times as long", 100 * (peaks[1] / peaks[0] - 1), 5, "%")
    return section


def starting(bench: Bench) -> Section:
    section = Section("Starting: mpijoin check, and four ranks from the command to the first joined epoch")

    def checking() -> float:
        start = time.perf_counter()
        subprocess.run(
            command(0, "check", str(SEISMIC)), env=environment(), preexec_fn=pin(bench.cores[:2]), check=True,
            stdout=subprocess.DEVNULL,
        )
        return time.perf_counter() - start

    def first_epoch(cache: Path) -> float:
        # The stamp of a warm cache lies in TMPDIR.
        extra = {"NUMBA_CACHE_DIR": str(cache), "TMPDIR": str(cache)}
        return launch(SEISMIC, bench.home / "run", 4, bench.cores[:2], extra=extra).first_epoch_s

    with tempfile.TemporaryDirectory() as cache:
        section.times_s["first start ever"] = [first_epoch(Path(cache))]
        bench.measure(section, {"mpijoin check": checking, "later starts": lambda: first_epoch(Path(cache))})
    section.at_most("mpijoin check", median(section.times_s["mpijoin check"]), 0.5, "s")
    section.at_most("first start ever", section.best_s("first start ever"), 30, "s")
    section.at_most("later starts", median(section.times_s["later starts"]), 3, "s")
    return section


SECTIONS = {
    "slave": slave_alone,
    "run": whole_run,
    "growth": growth,
    "tuning": tuning,
    "writing": writing,
    "memory": memory,
    "starting": starting,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_TUPLES:,} tuples a stream, one round")
    parser.add_argument(
        "--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS), metavar="NAME", help=", ".join(SECTIONS)
    )
    parser.add_argument("--tuples", type=lambda text: int(float(text)), help=f"per stream (default {FULL_TUPLES:,})")
    parser.add_argument("--scale", type=int, default=4, help="so many times more tuples in section growth (default 4)")
    parser.add_argument("--rounds", type=int, help="how often each case runs (default 5)")
    parser.add_argument("--data", type=Path, help="folder for data that later calls reuse (default: a temporary one)")
    parser.add_argument(
        "--json", type=Path, default=Path("runs/bench_engine.json"), help="where the figures go (default %(default)s)"
    )
    options = parser.parse_args()
    tuples = options.tuples or (QUICK_TUPLES if options.quick else FULL_TUPLES)
    rounds = options.rounds or (1 if options.quick else 5)
    with tempfile.TemporaryDirectory() as temporary:
        home = (options.data or Path(temporary)).resolve()
        home.mkdir(parents=True, exist_ok=True)
        bench = Bench(home, tuples, options.scale, rounds)
        report: dict[str, Any] = {"machine": machine(bench), "sections": {}}
        for name in options.sections:
            section = SECTIONS[name](bench)
            print(section_text(section), flush=True)
            report["sections"][name] = asdict(section)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=2) + "\n")
    print(f"written: {options.json}")


if __name__ == "__main__":
    main()
