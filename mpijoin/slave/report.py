"""What a slave tells of itself: its load when it is asked, one record per epoch, and its counts at the end."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from mpijoin.messages import Loads
from mpijoin.metrics.delay import DelayHistogram, DelaysFile
from mpijoin.metrics.write import MetricsFile
from mpijoin.operators.base import Operator
from mpijoin.rank import Rank
from mpijoin.rundir import RunDirectory

# What taking in, finding the partners' bucket and expiring cost per tuple, in comparisons: some 100 ns, of 0.1 ns each.
TUPLE_WORK = 1000


class LoadMeter:
    """The load since it was last asked for (WSJ, section IV-C: "A slave node records the buffer size at the end of each
    distribution epoch within current reorganization interval and calculate their average")."""

    def __init__(self, rank: Rank, operator: Operator, partitions: int):
        self._rank, self._operator = rank, operator
        self._rows = np.zeros(partitions, np.int64)  # per group, since then
        self._compared = np.zeros(partitions, np.int64)  # per group, until then
        self._samples, self._backlog_bytes = 0, 0
        self._wall_s, self._busy_s, self._comm_s = rank.clock.wall_s, 0.0, 0.0
        self.occupancy_bytes = 0  # the newest sample

    def epoch_ended(self, backlog_bytes: int) -> None:
        """A distribution epoch has ended, and so much of what came before it is not joined."""
        self.occupancy_bytes = backlog_bytes
        self._samples += 1
        self._backlog_bytes += backlog_bytes

    def arrived(self, groups: np.ndarray, rows: np.ndarray) -> None:
        self._rows[groups] += rows

    def installed(self, group: int) -> None:
        """What was compared in it before was not this slave's work."""
        self._compared[group] = self._operator.info(np.array([group])).comparisons[0]

    def answer(self, period: int, groups: np.ndarray, backlog_bytes: int, busy_s: float) -> Loads:
        """groups: int64[m], those it has · backlog_bytes: now · busy_s: joining, since the clock started."""
        wall_s, comm_s = self._rank.clock.wall_s, self._rank.comm_s
        passed_s = max(1e-9, wall_s - self._wall_s)
        busy, communication = min(1.0, (busy_s - self._busy_s) / passed_s), min(1.0, (comm_s - self._comm_s) / passed_s)
        info = self._operator.info(groups)
        work = np.maximum(0, info.comparisons - self._compared[groups]) + TUPLE_WORK * self._rows[groups]
        mean_bytes = self._backlog_bytes / self._samples if self._samples else float(backlog_bytes)
        self._compared[groups] = info.comparisons
        self._rows[:] = 0
        self._samples = self._backlog_bytes = 0
        self._wall_s, self._busy_s, self._comm_s = wall_s, busy_s, comm_s
        return Loads(
            self._rank.number, period, mean_bytes, busy, communication, groups, work, info.live_bytes.sum(axis=1)
        )


class EpochMeter:
    """One record per epoch, and the delays of its results. What lies before `warmup_s` is left out."""

    def __init__(
        self,
        rank: Rank,
        operator: Operator,
        directory: RunDirectory | None,
        streams: Sequence[str],
        warmup_s: float,
        paced: bool,
        part: int = 0,
    ):
        """streams: their names · part: of the checkpoint from which the run goes on, 0: it begins."""
        self._rank, self._operator, self._warmup_s = rank, operator, warmup_s
        self._directory, self._streams, self._paced = directory, streams, paced
        self._open_files(part)
        self.delays = DelayHistogram()  # of all epochs
        self.window_bytes_max = 0
        self._epoch_delays = DelayHistogram()
        self._last, self._joined = self._snapshot(0), operator.totals.joined
        self._start: dict[str, float] | None = None  # times at the end of the warm-up

    @property
    def is_warm(self) -> bool:
        return self._rank.clock.wall_s >= self._warmup_s

    def delayed(self, delays_us: np.ndarray, counts: np.ndarray) -> None:
        """counts[i] results are delays_us[i] late."""
        if self.is_warm:
            self._epoch_delays.add(delays_us, counts)

    def epoch_ended(self, epoch: int, results: int, buffer_bytes: int, occupancy_bytes: int, busy_s: float) -> None:
        """results, busy_s: since the clock started · buffer_bytes: what is left in the buffer now."""
        totals = self._operator.totals
        self.window_bytes_max = max(self.window_bytes_max, totals.live_bytes)
        now = self._snapshot(results)
        change = {name: now[name] - self._last[name] for name in now}
        joined, self._joined = self._joined, totals.joined
        self._last = now
        if not self.is_warm:
            return
        self._start = self._start or self._times(busy_s)
        delays, self._epoch_delays = self._epoch_delays, DelayHistogram()
        self.delays.merge(delays)
        if self._metrics is None:
            return
        if delays.count and self._delays_file:
            self._delays_file.add(epoch, delays)
        self._metrics.add(
            rank=self._rank.number,
            role="slave",
            epoch=epoch,
            end_us=now["wall_us"],
            window_bytes=totals.live_bytes,
            blocks=totals.blocks,
            buffer_bytes=buffer_bytes,
            occupancy_bytes=occupancy_bytes,
            delay_count=delays.count,
            delay_sum_us=delays.sum_us,
            delay_p50_us=delays.quantile_us(0.5),
            delay_p95_us=delays.quantile_us(0.95),
            delay_p99_us=delays.quantile_us(0.99),
            delay_max_us=delays.max_us,
            tuples=tuple(now - last for now, last in zip(totals.joined, joined)),
            **change,
        )

    def cut(self, part: int) -> None:
        """A checkpoint: what was recorded so far is whole on disk, and further files begin."""
        self.close()
        self._open_files(part)

    def _open_files(self, part: int) -> None:
        folder = self._directory.metrics if self._directory else None
        self._metrics = MetricsFile(folder, self._rank.number, self._streams, part) if folder else None
        self._delays_file = DelaysFile(folder, self._rank.number, part) if folder and self._paced else None

    def close(self) -> None:
        for file in (self._metrics, self._delays_file):
            if file:
                file.close()

    def times_after_warmup(self, busy_s: float) -> dict[str, float]:
        """CPU, communication, idle and busy seconds since the warm-up; all there are where it took no time."""
        start = self._start if self._warmup_s else None
        return {name: value - (start[name] if start else 0.0) for name, value in self._times(busy_s).items()}

    def _times(self, busy_s: float) -> dict[str, float]:
        rank = self._rank
        return {"cpu_s": rank.clock.cpu_s, "comm_s": rank.comm_s, "idle_s": rank.idle_s, "busy_s": busy_s}

    def _snapshot(self, results: int) -> dict[str, int]:
        """Running totals of which the metrics give the differences per epoch."""
        rank, stats, totals = self._rank, self._rank.transport.stats, self._operator.totals
        return {
            "wall_us": int(rank.clock.wall_s * 1e6),
            "cpu_us": int(rank.clock.cpu_s * 1e6),
            "comm_us": int(rank.comm_s * 1e6),
            "idle_us": int(rank.idle_s * 1e6),
            "results": results,
            "comparisons": totals.comparisons,
            "sent_bytes": stats.sent_bytes,
            "received_bytes": stats.received_bytes,
            "splits": totals.splits,
            "merges": totals.merges,
            "expired": sum(totals.expired),
        }
