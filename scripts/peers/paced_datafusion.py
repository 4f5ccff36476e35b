"""DataFusion's symmetric hash join of a replay: CSV from two FIFOs (the only unbounded source it has), results streamed
out.

    python -m peers.paced_datafusion REPLAY.json FIFOS CLOCK WINDOW_US CORES BATCH_ROWS SEEN.json

FIFOS and CLOCK as in paced_feeder, which runs beside it. SEEN.json gets `results` and `delays` of Seen. Environment:
sql.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from datafusion import SessionConfig, SessionContext

from peers.paced_replay import DELAY_MS_MAX, Clock, Replay

# `key` is a word of its SQL.
TABLE = """
    create unbounded external table {name} (ts bigint not null, k bigint not null, id bigint not null)
    stored as csv with order (ts asc) location '{fifo}' options ('format.has_header' 'false')"""
JOIN = """
    select greatest(l.ts, r.ts) as later from left_rows l join right_rows r
    on l.k = r.k and r.ts >= l.ts - {window_us} and r.ts <= l.ts + {window_us}"""


class Delays:
    """How many results by the second at which they were due and the delay in ms."""

    def __init__(self, replay: Replay, clock_file: np.memmap):
        self._replay, self._clock_file = replay, clock_file
        self._clock: Clock | None = None
        self.results = 0
        self._counts = np.zeros((int(replay.wall_s) + 1, DELAY_MS_MAX + 1), np.int64)

    def add(self, later_us: np.ndarray) -> None:
        """The later times of results that have just come: few ms of them are different, so that they are counted by ms
        first."""
        self.results += len(later_us)
        if self._clock is None:
            if not self._clock_file[0]:
                return
            self._clock = Clock(self._replay, int(self._clock_file[0]))
        now_ms = self._clock.now_s() * 1e3
        due_ms = (self._clock.due_s(later_us) * 1e3).astype(np.int64)
        first = max(0, int(due_ms.min()))
        counts = np.bincount(due_ms[due_ms >= first] - first)
        filled = np.flatnonzero(counts)
        due_ms = filled + first
        delays_ms = np.clip(now_ms - due_ms, 0, DELAY_MS_MAX).astype(np.int64)
        self._counts[due_ms // 1000, delays_ms] += counts[filled]

    def rows(self) -> list[list[int]]:
        seconds, delays_ms = np.nonzero(self._counts)
        return np.stack([seconds, delays_ms, self._counts[seconds, delays_ms]], axis=1).tolist()


def main() -> None:
    values, fifos, clock_path, window_us, cores, batch_rows, seen_path = sys.argv[1:]
    replay = Replay(**json.loads(Path(values).read_text()))
    settings = SessionConfig().with_target_partitions(int(cores)).with_batch_size(int(batch_rows))
    context = SessionContext(settings)
    for side in ("left", "right"):
        context.sql(TABLE.format(name=f"{side}_rows", fifo=Path(fifos, side)))
    join = context.sql(JOIN.format(window_us=window_us))
    if "SymmetricHashJoinExec" not in (plan := join.execution_plan().display_indent()):
        raise SystemExit(f"no symmetric hash join: {plan}")
    delays = Delays(replay, np.memmap(clock_path, np.int64, "r", shape=(1,)))
    for batch in join.execute_stream():
        later_us = batch.to_pyarrow().column(0).to_numpy()
        if len(later_us):
            delays.add(later_us)
    Path(seen_path).write_text(json.dumps({"results": delays.results, "delays": delays.rows()}))


if __name__ == "__main__":
    main()
