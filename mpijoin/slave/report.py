"""What a slave reports of itself: its load when it is asked, one record for each epoch, and its totals at the end."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from mpijoin.metrics.delay import DelayHistogram, DelaysFile
from mpijoin.metrics.write import MetricsFile
from mpijoin.operators.base import Operator, Totals
from mpijoin.orders import Loads
from mpijoin.rank import Rank
from mpijoin.records import SpillFigures
from mpijoin.rundir import RunDirectory

# The cost of inserting a tuple, of finding the bucket of its partners and of expiring it, counted in comparisons. It is
# about 100 ns, and a comparison takes 0.1 ns.
TUPLE_WORK = 1000
# While a slave cleans up, no epoch ends. It then writes a record this often: the figures show a curve, and a clean-up
# of an hour takes some MB.
RECORD_S = 0.125


class LoadMeter:
    """Measures the load of a slave since the master last asked for it.

    WSJ, section IV-C: "A slave node records the buffer size at the end of each distribution epoch within current
    reorganization interval and calculate their average".
    """

    def __init__(self, rank: Rank, operator: Operator, partitions: int):
        self._rank, self._operator = rank, operator
        self._rows = np.zeros(partitions, np.int64)  # These are the rows of each group since it was last asked.
        self._compared = np.zeros(partitions, np.int64)  # These are the comparisons of each group until then.
        self._found = np.zeros(partitions, np.int64)  # ... and its results.
        self._samples, self._backlog_bytes = 0, 0
        self._wall_s, self._busy_s, self._comm_s = rank.clock.wall_s, 0.0, 0.0
        self.occupancy_bytes = 0  # This is the newest sample.

    def epoch_ended(self, backlog_bytes: int) -> None:
        """A distribution epoch has ended. backlog_bytes: how much of what arrived before is not joined yet."""
        self.occupancy_bytes = backlog_bytes
        self._samples += 1
        self._backlog_bytes += backlog_bytes

    def arrived(self, groups: np.ndarray, rows: np.ndarray) -> None:
        self._rows[groups] += rows

    def installed(self, group: int) -> None:
        """The group has come to this slave. What was compared and found in it before was not the work of this slave."""
        info = self._operator.info(np.array([group]))
        self._compared[group], self._found[group] = info.comparisons[0], info.results[0]

    def answer(
        self,
        period: int,
        groups: np.ndarray,
        backlog_bytes: int,
        busy_s: float,
        disk_bytes: np.ndarray | None = None,
    ) -> Loads:
        """Returns the load since the last call, and begins to measure anew.

        groups: int64[m], the groups of the slave · backlog_bytes: what waits to be joined now · busy_s: the time spent
        joining since the clock started · disk_bytes: int64[m], what each group has on disk; None: nothing.
        """
        wall_s, comm_s = self._rank.clock.wall_s, self._rank.comm_s
        passed_s = max(1e-9, wall_s - self._wall_s)
        busy, communication = min(1.0, (busy_s - self._busy_s) / passed_s), min(1.0, (comm_s - self._comm_s) / passed_s)
        info = self._operator.info(groups)
        work = np.maximum(0, info.comparisons - self._compared[groups]) + TUPLE_WORK * self._rows[groups]
        mean_bytes = self._backlog_bytes / self._samples if self._samples else float(backlog_bytes)
        results = np.maximum(0, info.results - self._found[groups])
        self._compared[groups], self._found[groups] = info.comparisons, info.results
        self._rows[:] = 0
        self._samples = self._backlog_bytes = 0
        self._wall_s, self._busy_s, self._comm_s = wall_s, busy_s, comm_s
        spent, memory = (mean_bytes, busy, communication), self._operator.memory()
        on_disk = np.zeros(len(groups), np.int64) if disk_bytes is None else disk_bytes
        columns = (groups, work, info.live_bytes.sum(axis=1), results, on_disk)
        return Loads(self._rank.number, period, *spent, *columns, memory.budget - memory.free, memory.budget)


class TurnMeter:
    """Adds up for how long messages waited for their turns.

    `offset_s` is what would be left if the slave came as late for each as it was served the last time: "the slave node
    can delay its connection initiation according to its position in the sequence" (WSJ, section VI-B).

    >>> turns = TurnMeter()
    >>> for waited_s in (3.0, 4.0, 3.5):
    ...     turns.came(waited_s)
    >>> turns.waited_s, turns.offset_s
    (10.5, 4.0)
    """

    def __init__(self) -> None:
        self.waited_s = self.offset_s = self._last_s = 0.0

    def came(self, waited_s: float) -> None:
        self.waited_s += waited_s
        self.offset_s += max(0.0, waited_s - self._last_s)
        self._last_s = waited_s


class EpochMeter:
    """Writes the records of a slave, and the delays of its results. What lies before `warmup_s` is left out.

    There is a record at the end of each epoch. A slave that spills or cleans up has more of them (`meanwhile`).
    """

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
        """streams: their names · part: the checkpoint from which the run goes on, or 0 if it begins."""
        self._rank, self._operator, self._warmup_s = rank, operator, warmup_s
        self._directory, self._streams, self._paced = directory, streams, paced
        self._open_files(part)
        self.delays = DelayHistogram()  # It holds the delays of all epochs.
        self.window_bytes_max = self.memory_bytes_max = 0
        self.last_runtime_result_s = 0.0
        self._runtime_results = 0  # So many results have been found that no clean-up found.
        self._occupancy_bytes = 0
        self._epoch_delays = DelayHistogram()
        self.turns = TurnMeter()
        self._last, self._joined = self._snapshot(0, SpillFigures(), operator.totals), operator.totals.joined
        self._start: dict[str, float] | None = None  # These are the times at the end of the warm-up.

    @property
    def is_warm(self) -> bool:
        return self._rank.clock.wall_s >= self._warmup_s

    def turn_came(self, waited_s: float) -> None:
        """A message has come that waited so long for its turn."""
        self.turns.came(waited_s)

    def delayed(self, delays_us: np.ndarray, counts: np.ndarray) -> None:
        """Adds counts[i] results with the delay delays_us[i], for each i."""
        if self.is_warm:
            self._epoch_delays.add(delays_us, counts)

    def epoch_ended(
        self,
        epoch: int,
        results: int,
        buffer_bytes: int,
        occupancy_bytes: int,
        busy_s: float,
        spilling: SpillFigures = SpillFigures(),
    ) -> None:
        """Writes the record of an epoch that has ended.

        results, busy_s, spilling: totals since the clock started · buffer_bytes: what is left in the buffer now.
        """
        self._occupancy_bytes = occupancy_bytes
        self._found(results, spilling)
        self._record(epoch, results, buffer_bytes, busy_s, spilling)

    @property
    def is_record_due(self) -> bool:
        """Whether the last record is so old that a long piece of work is worth another one."""
        return self._rank.clock.wall_s - self._last["wall_us"] / 1e6 >= RECORD_S

    def meanwhile(self, epoch: int, results: int, buffer_bytes: int, busy_s: float, spilling: SpillFigures) -> None:
        """Writes a record in the midst of an epoch, of what has happened since the last record.

        It is called before and after a spill, at the beginning of a clean-up, and while that goes on, whenever a record
        is due. The parameters are as in `epoch_ended`.
        """
        self._found(results, spilling)
        self._record(epoch, results, buffer_bytes, busy_s, spilling)

    def _found(self, results: int, spilling: SpillFigures) -> None:
        """Notes the time if a result was found since the last call that no clean-up found."""
        found, self._runtime_results = self._runtime_results, results - spilling.cleanup_results
        if self._runtime_results > found:
            self.last_runtime_result_s = self._rank.clock.wall_s

    def _record(self, epoch: int, results: int, buffer_bytes: int, busy_s: float, spilling: SpillFigures) -> None:
        totals, memory = self._operator.totals, self._operator.memory()
        self.window_bytes_max = max(self.window_bytes_max, totals.live_bytes)
        # The clean-up has an operator of its own over the same pool.
        memory_bytes = memory.budget - memory.free
        self.memory_bytes_max = max(self.memory_bytes_max, memory_bytes)
        now = self._snapshot(results, spilling, totals)
        change = {name: now[name] - self._last[name] for name in now}
        joined, self._joined = self._joined, totals.joined
        self._last = now
        if not self.is_warm:
            return
        self._start = self._start or self._times(busy_s)
        if (delays := self._epoch_delays).count:
            self.delays.merge(delays)
            self._epoch_delays = DelayHistogram()
        if self._metrics is None:
            return
        if delays.count and self._delays_file:
            self._delays_file.add(epoch, now["wall_us"], delays)
        self._metrics.add(
            rank=self._rank.number,
            role="slave",
            epoch=epoch,
            end_us=now["wall_us"],
            window_bytes=totals.live_bytes,
            blocks=totals.blocks,
            buffer_bytes=buffer_bytes,
            occupancy_bytes=self._occupancy_bytes,
            delay_count=delays.count,
            delay_sum_us=delays.sum_us,
            delay_p50_us=delays.quantile_us(0.5),
            delay_p95_us=delays.quantile_us(0.95),
            delay_p99_us=delays.quantile_us(0.99),
            delay_max_us=delays.max_us,
            tuples=tuple(now - last for now, last in zip(totals.joined, joined)),
            memory_bytes=memory_bytes,
            memory_limit_bytes=memory.budget,
            disk_bytes=spilling.disk_bytes,
            owed_groups=spilling.owed_groups,
            owed_bytes=spilling.owed_bytes,
            owed_generations=spilling.owed_generations,
            owed_results=spilling.owed_results,
            **change,
        )

    def cut(self, part: int) -> None:
        """Closes the files at a checkpoint, so that all records until now are whole on disk, and begins new files."""
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
        """Returns the CPU, communication, idle and busy seconds since the warm-up, or in all if there is no warm-up."""
        start = self._start if self._warmup_s else None
        return {name: value - (start[name] if start else 0.0) for name, value in self._times(busy_s).items()}

    def _times(self, busy_s: float) -> dict[str, float]:
        rank, turns = self._rank, {"turn_s": self.turns.waited_s, "turn_offset_s": self.turns.offset_s}
        return {"cpu_s": rank.clock.cpu_s, "comm_s": rank.comm_s, "idle_s": rank.idle_s, "busy_s": busy_s, **turns}

    def _snapshot(self, results: int, spilling: SpillFigures, totals: Totals) -> dict[str, int]:
        """Returns running totals. The metrics hold their differences from record to record."""
        rank, stats = self._rank, self._rank.transport.stats
        return {
            "wall_us": int(rank.clock.wall_s * 1e6),
            "cpu_us": int(rank.clock.cpu_s * 1e6),
            "comm_us": int(rank.comm_s * 1e6),
            "idle_us": int(rank.idle_s * 1e6),
            "turn_us": int(self.turns.waited_s * 1e6),
            "turn_offset_us": int(self.turns.offset_s * 1e6),
            "results": results,
            "comparisons": totals.comparisons,
            "sent_bytes": stats.sent_bytes,
            "received_bytes": stats.received_bytes,
            "splits": totals.splits,
            "merges": totals.merges,
            "expired": sum(totals.expired),
            "spills": spilling.spills,
            "spill_us": int(spilling.spill_s * 1e6),
            "write_us": int(spilling.write_s * 1e6),
            "spilled_bytes": spilling.spilled_bytes,
            "read_back_bytes": spilling.read_back_bytes,
            "cleanup_us": int(spilling.cleanup_s * 1e6),
            "cleanup_results": spilling.cleanup_results,
        }
