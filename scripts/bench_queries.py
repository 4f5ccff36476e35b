"""How much longer do other types of join, and conditions, take than an inner join, and than DuckDB?

    python scripts/bench_queries.py [--tuples 5000000] [--rounds 5]

The data is workload A (benching/data.py). All cases count, on two cores, and take turns. DuckDB gets the joins as an
expert writes them: time is cut into buckets, and rows without partner are those that a semi join does not find. Its
numbers of results must be those of mpijoin. The time is the system's own, from the first file opened to the answer.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import duckdb

import mpijoin
from benching.data import WINDOW_US, Data, make_data
from peers.sql import join

TYPES = ("inner", "left", "full", "semi", "anti")
# Conditions that keep 1 % and half of the pairs, for mpijoin and as SQL over the pairs.
CONDITIONS = {
    "where 1 %": ("right.time - left.time > '590 s'", "apart > 590000000"),
    "where half": ("right.id > left.id", "other > one"),
}
CASES = (*TYPES, *CONDITIONS)
INNER_TIMES = 1.3  # a left and an anti join may take so many times as long as the inner one
PEER_TIMES = 2.0  # and must be so many times as fast as DuckDB's best


def run_engine(data: Data, kind: str) -> tuple[float, int]:
    """Returns the seconds and the number of results of a run without MPI, on two slaves."""
    stream = {"time": "ts", "time_unit": "us", "key": "key", "window": f"{WINDOW_US} us"}
    sides = {name: {**stream, "path": str(getattr(data, name))} for name in ("left", "right")}
    own = {"where": CONDITIONS[kind][0]} if kind in CONDITIONS else {"type": kind}
    job = {**sides, "join": own, "output": {"results": "count"}}
    summary = mpijoin.run(job, slaves=2).summary
    return summary["wall_s"], summary["results"]


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
    }[kind]
    with duckdb.connect(config={"threads": threads}) as database:
        start = time.perf_counter()
        row = database.execute(f"with pairs as ({pairs}) select {wanted}").fetchone()
        assert row is not None
        return time.perf_counter() - start, int(row[0])


def measure(data: Data, rounds: int, threads: int) -> dict[str, dict[str, Any]]:
    """Returns for each system and type its times and its number of results."""
    found: dict[str, dict[str, Any]] = {}
    systems = {"mpijoin": run_engine, "DuckDB": lambda data, kind: run_duckdb(data, kind, threads)}
    for _ in range(rounds):
        for kind in CASES:
            for name, run in systems.items():
                seconds, results = run(data, kind)
                case = found.setdefault(f"{name} {kind}", {"times_s": [], "results": results})
                case["times_s"].append(seconds)
    for kind in CASES:
        own, other = (found[f"{name} {kind}"]["results"] for name in systems)
        if own != other:
            raise SystemExit(f"{kind} join: mpijoin has {own} results, and DuckDB {other}")
    return found


def text_of(found: dict[str, dict[str, Any]]) -> str:
    best = {case: min(one["times_s"]) for case, one in found.items()}
    lines = [f"{'':<11}{'results':>12}{'mpijoin s':>11}{': inner':>9}{'DuckDB s':>11}{': mpijoin':>11}"]
    for kind in CASES:
        own, other = best[f"mpijoin {kind}"], best[f"DuckDB {kind}"]
        results = found[f"mpijoin {kind}"]["results"]
        lines.append(
            f"{kind:<11}{results:>12,}{own:>11.3f}{own / best['mpijoin inner']:>9.2f}{other:>11.3f}{other / own:>11.2f}"
        )
    for kind in ("left", "anti"):
        own, other = best[f"mpijoin {kind}"] / best["mpijoin inner"], best[f"DuckDB {kind}"] / best[f"mpijoin {kind}"]
        met = "met   " if own <= INNER_TIMES and other >= PEER_TIMES else "MISSED"
        wanted = f"wanted <= {INNER_TIMES}, >= {PEER_TIMES}"
        lines.append(f"{met}  {kind}: {own:.2f} x the inner join, {other:.2f} x as fast as DuckDB ({wanted})")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tuples", type=int, default=5_000_000, help="of each stream")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--home", type=Path, default=Path("runs/bench"), help="where the data lies")
    parser.add_argument("--out", type=Path, help="write all times as JSON")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, cores)
    found = measure(make_data(options.home / "data", options.tuples), options.rounds, len(cores))
    print(text_of(found))
    if options.out:
        options.out.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
