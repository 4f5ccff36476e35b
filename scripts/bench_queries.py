"""How much longer do other types of join, conditions, as-of joins and functions take than an inner join, and than
DuckDB?

    python scripts/bench_queries.py [--tuples 5000000] [--rounds 5] [--bias 0.7] [--cases inner anti ...]
    python scripts/bench_queries.py --several

The data is workload A (benching/data.py); with --bias 0.8 it is E, which has 1.15 billion pairs. All cases count, on
two cores, and take turns. DuckDB gets the joins as an expert writes them: time is cut into buckets, and rows without
partner are those that a semi join does not find; its own ASOF join finds the last partners, and so does Polars, where
it is installed. Numbers of results must be equal. The time is the system's own, from the first file opened to the
answer. With --several, one run asks three of these queries over one state, and takes turns with three runs that ask one
each.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Any, Callable, Sequence

import duckdb
import pyarrow.parquet as pq

import mpijoin
from benching.data import BIAS, WINDOW_US, Answer, Data, make_data, tables
from peers.sql import join

TYPES = ("inner", "left", "full", "semi", "anti")
# Conditions that keep 1 % and half of the pairs, for mpijoin and as SQL over the pairs.
CONDITIONS = {
    "where 1 %": ("right.time - left.time > '590 s'", "apart > 590000000"),
    "where half": ("right.id > left.id", "other > one"),
}
# The last partner of each row no older than the window, the number of partners of each row, and also the largest.
AS_OF, COUNT, FUNCTIONS = "as-of", "count", "functions"
REDUCED = {COUNT: {"n": "count()"}, FUNCTIONS: {"n": "count()", "most": "max(right.id)"}}
CASES = (*TYPES, *CONDITIONS, AS_OF, *REDUCED)
# How many times as long as the inner join a case may take, and how many times as fast as the best peer it must be.
WANTED = {
    "left": (1.3, 2.0), "anti": (1.3, 2.0), "where 1 %": (1.5, 0.0), AS_OF: (inf, 1.0), COUNT: (1.3, 0.0),
}  # fmt: skip


# The queries that one run asks together: all pairs, few of them, and the last partner of each row.
SEVERAL = ("inner", "where 1 %", AS_OF)
SEVERAL_MAX, SEPARATE_MAX = 1.6, 0.5  # of the time of the first query alone, and of all runs that ask one each


def sides_of(data: Data) -> dict[str, dict[str, str]]:
    stream = {"time": "ts", "time_unit": "us", "key": "key", "window": f"{WINDOW_US} us"}
    return {name: {**stream, "path": str(getattr(data, name))} for name in ("left", "right")}


def asked(kind: str) -> dict[str, Any]:
    """The fields of [join] for a case."""
    if kind in REDUCED:
        return {"type": "left", "reduce": REDUCED[kind]}
    if kind == AS_OF:
        return {"match": "last"}
    return {"where": CONDITIONS[kind][0]} if kind in CONDITIONS else {"type": kind}


def run_engine(data: Data, kind: str) -> tuple[float, int]:
    """Returns the seconds and the number of results of a run without MPI, on two slaves."""
    sides = sides_of(data)
    if kind == AS_OF:
        sides["left"]["window"] = "0 s"
    job = {**sides, "join": asked(kind), "output": {"results": "count"}}
    summary = mpijoin.run(job, slaves=2).summary
    return summary["wall_s"], summary["results"]


def run_several(data: Data, kinds: Sequence[str]) -> tuple[float, list[int]]:
    """Returns the seconds of one run that asks all of them, and the numbers of results."""
    windows = [{"left": "0 s"} if kind == AS_OF else {} for kind in kinds]
    tables = [{"name": f"q{at}", "windows": own, **asked(kind)} for at, (kind, own) in enumerate(zip(kinds, windows))]
    job = {**sides_of(data), "query": tables, "output": {"results": "count"}}
    summary = mpijoin.run(job, slaves=2).summary
    return summary["wall_s"], [one["results"] for one in summary["queries"].values()]


def measure_several(data: Data, rounds: int) -> str:
    """Returns the best times of one run that asks SEVERAL, and of runs that ask one each."""
    together: list[float] = []
    alone: dict[str, list[float]] = {kind: [] for kind in SEVERAL}
    for _ in range(rounds):
        seconds, results = run_several(data, SEVERAL)
        together.append(seconds)
        for kind, found in zip(SEVERAL, results):
            seconds, wanted = run_engine(data, kind)
            alone[kind].append(seconds)
            if found != wanted:
                raise SystemExit(f"{kind}: {found} results beside other queries, and {wanted} alone")
    best, one = min(together), min(alone[SEVERAL[0]])
    separate = sum(min(times) for times in alone.values())
    met = "met" if best <= SEVERAL_MAX * one and best < SEPARATE_MAX * separate else "MISSED"
    lines = [f"{kind:<11}{min(times):>9.3f} s" for kind, times in alone.items()]
    lines.append(f"{'together':<11}{best:>9.3f} s, {best / one:.2f} of the first, {best / separate:.2f} of all")
    return "\n".join([*lines, f"{met}: wanted at most {SEVERAL_MAX} of the first, less than {SEPARATE_MAX} of all"])


def run_duckdb(data: Data, kind: str, threads: int) -> tuple[float, int]:
    """Returns the seconds and the number of results of DuckDB."""
    left, right = f"'{data.left}'", f"'{data.right}'"
    columns = "l.id as one, r.id as other, r.ts - l.ts as apart"
    pairs = join("bucketed", "duckdb", left, right, WINDOW_US, select=columns)
    alone = "select count(*) from {table} t anti join pairs on pairs.{column} = t.id"
    lonely = [alone.format(table=table, column=column) for table, column in ((left, "one"), (right, "other"))]
    wanted = {
        "inner": "(select count(*) from pairs)",
        "left": f"(select count(*) from pairs) + ({lonely[0]})",
        "full": f"(select count(*) from pairs) + ({lonely[0]}) + ({lonely[1]})",
        "semi": "(select count(distinct one) from pairs)",
        "anti": f"({lonely[0]})",
        **{name: f"(select count(*) from pairs where {asked})" for name, (_, asked) in CONDITIONS.items()},
        AS_OF: f"(select count(*) from {left} l asof join {right} r on l.key = r.key and l.ts >= r.ts"
        f" where l.ts - r.ts <= {WINDOW_US})",
        COUNT: f"(select count(*) from (select l.id, count(one) as n from {left} l left join pairs on one = l.id"
        " group by l.id) where n >= 0)",
        FUNCTIONS: f"(select count(*) from (select l.id, count(one) as n, max(other) as most from {left} l"
        " left join pairs on one = l.id group by l.id) where n >= 0 and coalesce(most, 0) >= 0)",
    }[kind]
    with duckdb.connect(config={"threads": threads}) as database:
        start = time.perf_counter()
        row = database.execute(f"with pairs as ({pairs}) select {wanted}").fetchone()
        assert row is not None
        return time.perf_counter() - start, int(row[0])


def run_polars(data: Data, kind: str) -> tuple[float, int]:
    """Returns the seconds and the number of results of Polars' as-of join."""
    import polars

    start = time.perf_counter()
    left, right = (polars.scan_parquet(path).select("ts", "key").set_sorted("ts") for path in (data.left, data.right))
    right = right.with_columns(found=polars.col("ts"))
    joined = left.join_asof(right, on="ts", by="key", tolerance=WINDOW_US, check_sortedness=False)
    results = joined.select(polars.col("found").is_not_null().sum()).collect().item()
    return time.perf_counter() - start, results


def measure(
    data: Data, rounds: int, threads: int, cases: Sequence[str] = CASES, has_peers: bool = True
) -> dict[str, dict[str, Any]]:
    """Returns for each system and case its times and its number of results."""
    found: dict[str, dict[str, Any]] = {}
    systems: dict[str, Callable[[Data, str], tuple[float, int]]] = {"mpijoin": run_engine}
    systems |= {"DuckDB": lambda data, kind: run_duckdb(data, kind, threads)} if has_peers else {}
    for _ in range(rounds):
        for kind in cases:
            others = {"Polars": run_polars} if has_peers and kind == AS_OF and find_spec("polars") else {}
            for name, run in {**systems, **others}.items():
                seconds, results = run(data, kind)
                case = found.setdefault(f"{name} {kind}", {"times_s": [], "results": results})
                case["times_s"].append(seconds)
    for case, one in found.items():
        name, _, kind = case.partition(" ")
        own = found[f"mpijoin {kind}"]["results"]
        if one["results"] != own:
            raise SystemExit(f"{kind} join: mpijoin has {own} results, and {name} {one['results']}")
    return found


def text_of(found: dict[str, dict[str, Any]]) -> str:
    best = {case: min(one["times_s"]) for case, one in found.items()}
    lines = [f"{'':<11}{'results':>14}{'mpijoin s':>11}{': inner':>9}"]
    peers = [name for name in ("DuckDB", "Polars") if any(case.startswith(name) for case in best)]
    lines[0] += "".join(f"{f'{name} s':>11}{': mpijoin':>11}" for name in peers)
    for kind in [kind for kind in CASES if f"mpijoin {kind}" in found]:
        own, results = best[f"mpijoin {kind}"], found[f"mpijoin {kind}"]["results"]
        inner, line = own / best["mpijoin inner"], f"{kind:<11}{results:>14,}{own:>11.3f}"
        faster = {name: best[f"{name} {kind}"] / own for name in peers if f"{name} {kind}" in best}
        line += f"{inner:>9.2f}" + "".join(f"{times * own:>11.3f}{times:>11.2f}" for times in faster.values())
        inner_times, peer_times = WANTED.get(kind, (inf, 0.0))
        if kind in WANTED:
            met = inner <= inner_times and all(times >= peer_times for times in faster.values())
            line += f"   {'met' if met else 'MISSED'}: wanted <= {inner_times}, >= {peer_times}"
        lines.append(line)
    return "\n".join(lines)


def data_of(folder: Path, tuples: int, bias: float) -> Data:
    """The streams of workload A, but with keys of another bias, whose right answer is not worked out."""
    if bias == BIAS:
        return make_data(folder, tuples)
    home = folder / f"{tuples}-{bias}"
    home.mkdir(parents=True, exist_ok=True)
    files = [home / f"{name}.parquet" for name in ("left", "right")]
    if not files[1].exists():
        for file, table in zip(files, tables(tuples, bias)):
            pq.write_table(table, file)
    return Data(tuples, *files, Answer(0, 0, ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tuples", type=int, default=5_000_000, help="of each stream")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bias", type=float, default=BIAS, help="of the keys")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES, help="besides inner, which is always one")
    parser.add_argument("--several", action="store_true", help="three queries over one state against three runs")
    parser.add_argument("--no-peers", action="store_true", help="mpijoin alone")
    parser.add_argument("--home", type=Path, default=Path("runs/bench"), help="where the data lies")
    parser.add_argument("--out", type=Path, help="write all times as JSON")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, cores)
    cases = [kind for kind in CASES if kind in ("inner", *options.cases)]
    data = data_of(options.home / "data", options.tuples, options.bias)
    if options.several:
        print(measure_several(data, options.rounds))
        return
    found = measure(data, options.rounds, len(cores), cases, not options.no_peers)
    print(text_of(found))
    if options.out:
        options.out.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
