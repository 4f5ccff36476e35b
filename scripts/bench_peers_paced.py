"""Workload H: how fast can a replay of two streams be if results must come within a second?

    python scripts/bench_peers_paced.py                       all systems: about an hour and a half
    python scripts/bench_peers_paced.py --quick               one short replay each: is the benchmark itself sound?
    python scripts/bench_peers_paced.py --peers mpijoin-n2 flink

It compares mpijoin with other systems that one could pick. Workload A (bench_data.py), repeated in time, is replayed at
`speed`, which is seconds of event time per second of the wall clock. For each system it searches for the highest speed
at which the p99 of the delay stays below a second and no backlog grows. The delay is counted from the moment when the
later tuple of a result was due to the moment when the result is counted. A backlog grows if delays or the lags of the
input are longer in the last quarter of the replay than in the quarter before.

Windows are full when delays begin to count. Event time that the warm-up does not cover is handed over before the clock
starts, for all systems alike. All processes of a system, with its feeder, run on the same two cores. Systems take
turns. A replay counts only if the number of its results is what DuckDB finds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benching.data import RATE_PER_S, WINDOW_US
from peers.environments import Absent
from peers.paced_data import make_streams
from peers.paced_replay import Search, Verdict, judge, replay_of
from peers.paced_systems import DataFusion, Flink, Mpijoin, Place, Spark, Unfinished, feeder_rate

DELAY_S_MAX = 1.0
RATIO_WANTED = 10.0
# A search goes no higher than this speed, and no lower than where it began, divided by this factor.
SPEED_MAX, SEARCHED = 8000.0, 4.0
# At this speed the warm-up of mpijoin fills the windows, so that nothing is handed over beforehand.
QUICK_SPEED = 130.0
TUPLES = 5_000_000  # The data that is repeated has so many tuples per stream.
QUICK_WARMUP_S, QUICK_SECONDS = 5.0, 4.0
NO_DELAY_MAX = float("inf")
MPIJOIN = "mpijoin"


@dataclass(frozen=True)
class System:
    """A system that replays the streams.

    speed: where its search begins · quick: a speed that it surely keeps · delay_s_max: what the p99 of its delay must
    stay below.
    """

    title: str
    program: Any
    speed: float
    quick: float
    delay_s_max: float = DELAY_S_MAX


SYSTEMS = {
    "mpijoin-local": System("mpijoin, local (two slaves)", Mpijoin(0), 4000, QUICK_SPEED),
    "mpijoin-n2": System("mpijoin, mpirun -n 2", Mpijoin(2), 4000, QUICK_SPEED),
    "mpijoin-n3": System("mpijoin, mpirun -n 3", Mpijoin(3), 5600, QUICK_SPEED),
    "flink": System("Flink, DataStream interval join", Flink("Parallel"), 30, 10),
    "flink-g1": System("Flink, the same with G1", Flink("G1"), 30, 10),
    "datafusion": System("DataFusion, symmetric hash join", DataFusion(), 400, 40),
    "spark-heap": System("Spark, state on the heap", Spark("heap"), 2, 1),
    "spark-rocksdb": System("Spark, state in RocksDB", Spark("rocksdb"), 2, 1),
    "spark-late": System("Spark, on the heap, whatever the delay", Spark("heap"), 4, 1, NO_DELAY_MAX),
}


@dataclass
class Case:
    """A system and its search. absent: why it cannot be measured · verdicts: those of all replays, in order."""

    name: str
    system: System
    search: Search
    absent: str
    verdicts: list[Verdict]

    @property
    def best(self) -> Verdict | None:
        return self.search.kept

    @property
    def limit(self) -> str:
        """What kept the system from going faster."""
        return self.search.failed.limit if self.search.failed else "nothing: the search ended"


def case_of(name: str, quick: bool) -> Case:
    system = SYSTEMS[name]
    low, begin, high = (system.quick,) * 3 if quick else (system.speed / SEARCHED, system.speed, SPEED_MAX)
    return Case(name, system, Search(begin, low, high), "", [])


def try_once(case: Case, place: Place, warmup_s: float, seconds: float) -> None:
    """Makes one replay at the speed that the search asks for."""
    replay = replay_of(case.search.speed, WINDOW_US, warmup_s, seconds)
    begun_s = time.monotonic()
    try:
        seen = case.system.program.replay(replay, place)
        verdict = judge(seen, replay, place.streams.results(replay.until_us), case.system.delay_s_max)
    except Unfinished as error:
        verdict = Verdict(replay.speed, 0.0, 0.0, 0.0, " ".join(str(error).split()))
    except Absent as error:
        case.absent = str(error)
        return
    case.verdicts.append(verdict)
    case.search.tell(verdict)
    figures = f"p50 {verdict.p50_s:6.3f}  p99 {verdict.p99_s:6.3f} s  lag {verdict.lag_s:6.3f} s"
    said = f"{case.name:<14}{verdict.speed:8.1f}  {figures}  {verdict.limit or 'kept'}"
    print(f"  {said}  ({time.monotonic() - begun_s:.0f} s)", file=sys.stderr, flush=True)


def search_all(cases: list[Case], place: Place, warmup_s: float, seconds: float) -> None:
    """Searches for the speeds of all systems in turns, so that a busy neighbour is unfair to all of them alike."""
    while waiting := [case for case in cases if not case.absent and not case.search.done]:
        for case in waiting:
            try_once(case, place, warmup_s, seconds)


def targets(cases: list[Case]) -> list[dict[str, Any]]:
    """Compares mpijoin's best launch with each peer."""
    ours = max((case.best.speed for case in cases if case.name.startswith(MPIJOIN) and case.best), default=0.0)
    found = []
    for case in cases:
        if case.name.startswith(MPIJOIN) or case.absent or not ours:
            continue
        what = f"mpijoin : {case.system.title}"
        if case.best:
            ratio = ours / case.best.speed
            found.append({"what": what, "wanted": RATIO_WANTED, "got": round(ratio, 2), "met": ratio >= RATIO_WANTED})
        else:
            what += f", which keeps no pace down to {case.search.lowest:g}"
            found.append({"what": what, "wanted": RATIO_WANTED, "met": ours >= RATIO_WANTED * case.search.lowest})
    return found


def row_of(case: Case) -> list[str]:
    if case.absent:
        return [case.system.title, "absent", "", "", "", case.absent]
    if not case.best:
        return [case.system.title, f"none from {case.search.lowest:g}", "", "", "", case.limit]
    best = case.best
    rate = f"{2 * RATE_PER_S * best.speed / 1e6:.2f}"
    return [case.system.title, f"{best.speed:,.0f}", rate, f"{best.p50_s:.3f}", f"{best.p99_s:.3f}", case.limit]


def report_text(cases: list[Case], fed_per_s: float | None) -> str:
    """Returns the report in Markdown.

    fed_per_s: how many tuples per second the CSV feeder sends if nobody makes it wait.
    """
    head = ["", "highest speed", "M tuples/s", "p50 of the delay, s", "p99, s", "at the next speed"]
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *map(row_of, cases))]
    lines.append("")
    for one in targets(cases):
        lines.append(
            f"- {'met' if one['met'] else 'MISSED'}: {one['what']}: {one.get('got', '')} (wanted {one['wanted']:g} x)"
        )
    if fed_per_s:
        lines.append(f"- DataFusion's feeder alone hands over {fed_per_s / 1e6:.1f} M tuples/s")
    return "\n".join(lines) + "\n"


def system_figures(case: Case) -> dict[str, Any]:
    return {
        "title": case.system.title,
        "program": asdict(case.system.program),
        "absent": case.absent,
        "kept": asdict(case.best) if case.best else None,
        "failed": asdict(case.search.failed) if case.search.failed else None,
        "replays": [asdict(verdict) for verdict in case.verdicts],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="one short replay of each system at a speed that it surely keeps"
    )
    parser.add_argument(
        "--peers", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), metavar="NAME", help=", ".join(SYSTEMS)
    )
    parser.add_argument("--seconds", type=float, help="of the wall clock that are measured (default 20)")
    parser.add_argument("--warmup", type=float, help="... and before them (default 5)")
    parser.add_argument("--environments", type=Path, help="folder for the peers' environments that later calls reuse")
    parser.add_argument("--data", type=Path, help="folder for data that later calls reuse (default: a temporary one)")
    figures = Path("runs/bench_peers_paced.json")
    parser.add_argument("--json", type=Path, default=figures, help="where the figures go (default %(default)s)")
    parser.add_argument("--markdown", type=Path, help="where the table goes, beside the screen")
    options = parser.parse_args()
    warmup_s = options.warmup or (QUICK_WARMUP_S if options.quick else 5.0)
    seconds = options.seconds or (QUICK_SECONDS if options.quick else 20.0)
    with tempfile.TemporaryDirectory() as temporary:
        data, environments = ((folder or Path(temporary, name)).resolve() for folder, name in
                              ((options.data, "data"), (options.environments, "environments")))
        place = Place(
            make_streams(data, TUPLES), Path(temporary, "replay"), environments, sorted(os.sched_getaffinity(0))[:2]
        )
        cases = [case_of(name, options.quick) for name in options.peers]
        search_all(cases, place, warmup_s, seconds)
        fed = feeder_rate(place) if any(case.name == "datafusion" and not case.absent for case in cases) else None
    text = report_text(cases, fed)
    print(text)
    report = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "cores": len(place.cores),
        "warmup_s": warmup_s,
        "seconds": seconds,
        "feeder_tuples_per_s": fed,
        "systems": {case.name: system_figures(case) for case in cases},
        "targets": targets(cases),
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=2) + "\n")
    if options.markdown:
        options.markdown.write_text(text)
    print(f"written: {options.json}")


if __name__ == "__main__":
    main()
