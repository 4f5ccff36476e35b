"""Shows the pairs of P and S picks that a run of scripts/jobs/seismic.toml found.

    python scripts/seismic_report.py RUN
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS_SHOWN = 8
BAR_WIDTH = 50
# In the upper crust each second between P and S is about so much distance: 1 / (1/3.5 km/s - 1/6.0 km/s).
KM_PER_S = 8.0

MEANING = f"""\
P and S waves leave a quake together, and P travels faster: the later S follows P, the farther away the quake.
Each second of S-P is about {KM_PER_S:.0f} km. So the column "km" is how far from its station the quake was, and three
stations together locate it: this join is the first step of every earthquake catalogue.

- The hill at the left is the aftershocks: most broke within some 30 km of the stations. In less than about a second
  lie also pairs that are one wave picked twice: few quakes break so close to a station.
- The flat tail at the right is chance: two different quakes, seen by the same station. The longer the window, the
  more of those; a narrower one is one line of the job file.
"""


def report(run: str) -> None:
    summary = json.loads((Path(run) / "summary.json").read_text())
    pairs = pq.read_table(Path(run) / "results").sort_by([("left_time", "ascending"), ("right_time", "ascending")])
    print(rows_text(pairs))
    print(counts_text(pairs, summary))
    print(histogram_text(first_delays_s(pairs)))
    print(MEANING)


def delays_s(pairs: pa.Table) -> np.ndarray:
    """Returns float64[n]: the seconds from P to S of each pair."""
    return (pairs["right_time"].to_numpy() - pairs["left_time"].to_numpy()) / 1e6


def first_delays_s(pairs: pa.Table) -> np.ndarray:
    """Returns float64[m]: the seconds from each P pick that found S picks to the first of these.

    `pairs` must be in the order of time.
    """
    _, first = np.unique(pairs["left_row"].to_numpy(), return_index=True)
    return delays_s(pairs)[first]


def rows_text(pairs: pa.Table) -> str:
    head = pairs.slice(0, ROWS_SHOWN)
    lines = [
        f"the first {head.num_rows} of {pairs.num_rows:,} pairs:",
        f"{'station':<10}{'P':<14}{'S':<14}{'S-P, s':>8}{'km':>8}",
    ]
    columns = (
        head["key"].to_pylist(),
        *(_clock_times(head[name]) for name in ("left_time", "right_time")),
        delays_s(head),
    )
    for station, p_time, s_time, delay_s in zip(*columns):
        lines.append(f"{station:<10}{p_time:<14}{s_time:<14}{delay_s:8.2f}{delay_s * KM_PER_S:8.1f}")
    return "\n".join(lines) + "\n"


def _clock_times(times_us: pa.ChunkedArray) -> list[str]:
    """Returns the times of day, to the millisecond."""
    moments = times_us.to_numpy().astype("datetime64[us]").astype("datetime64[ms]")
    return [str(moment)[11:] for moment in moments]


def counts_text(pairs: pa.Table, summary: dict) -> str:
    p_picks, s_picks = (stream["read"] for stream in summary["streams"].values())
    paired = len(first_delays_s(pairs))
    return f"{paired:,} of {p_picks:,} P picks found at least one of the {s_picks:,} S picks.\n"


def histogram_text(delays: np.ndarray) -> str:
    counts = np.bincount(delays.astype(int), minlength=20)
    lines = ["seconds from a P pick to its first S pick:"]
    for second, count in enumerate(counts):
        bar = "#" * round(BAR_WIDTH * count / counts.max()) if count else ""
        lines.append(f"{second:3d}-{second + 1:<3d}{count:8,d}  {bar}".rstrip())
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN", help="the folder that the run wrote")
    report(parser.parse_args().run)


if __name__ == "__main__":
    main()
