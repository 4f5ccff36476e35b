"""What a producer records of each slot, and what of it the summary needs."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Sequence

from mpijoin.metrics.write import MetricsFile
from mpijoin.partitioning.scatter import Scattered
from mpijoin.producer.backlog import Backlog
from mpijoin.rank import Rank
from mpijoin.sources.base import SourceCounts


class Declustering:
    """How many slaves were active: the least, the mean and the most over the slots."""

    def __init__(self) -> None:
        self._slots = self._sum = self._most = 0
        self._least: int | None = None

    def add(self, active: int) -> None:
        self._slots += 1
        self._sum += active
        self._most = max(self._most, active)
        self._least = active if self._least is None else min(self._least, active)

    def figures(self, otherwise: int) -> dict[str, float]:
        """For the summary. otherwise: how many there are where nothing was recorded."""
        if self._least is None:
            return {"min": otherwise, "mean": float(otherwise), "max": otherwise}
        return {"min": self._least, "mean": round(self._sum / self._slots, 3), "max": self._most}


def kept_out_of(counts: Sequence[SourceCounts]) -> tuple[int, int]:
    """How many rows were late, and how many had no key."""
    return sum(one.late for one in counts), sum(one.null_key for one in counts)


class SlotRecorder:
    """One row of metrics/rank-<number>.parquet per slot. What lies before `warmup_s` is left out."""

    def __init__(
        self,
        rank: Rank,
        role: str,
        folder: Path | None,
        streams: Sequence[str],
        warmup_s: float,
        part: int,
        counts: Sequence[SourceCounts],
        decoding_s: Callable[[], float],
    ):
        """Times count from here on. folder: None where nothing is written · streams: their names · part: the number of
        the checkpoint from which the run goes on; 0 where it begins · counts: those of the sources until now ·
        decoding_s: CPU seconds of the sources' threads until now, which count as this rank's."""
        self._rank, self._role, self._folder, self._streams, self._warmup_s = rank, role, folder, streams, warmup_s
        self._metrics = MetricsFile(folder, rank.number, streams, part) if folder else None
        self._decoding_s = decoding_s
        self.declustering = Declustering()
        self._last, self._sent_bytes = self._times(), 0
        self._kept_out = kept_out_of(counts)
        self._warm = self._last if warmup_s == 0 else None  # times at the end of the warm-up

    def times_after_warmup(self) -> dict[str, float]:
        """CPU, communication and idle seconds of this rank since the warm-up."""
        start = self._warm or self._times()
        return dict(zip(("cpu_s", "comm_s", "idle_s"), (now - then for now, then in zip(self._times()[1:], start[1:]))))

    def slot_ended(
        self,
        epoch: int,
        scattered: Sequence[Scattered],
        counts: Sequence[SourceCounts],
        active: int,
        buffer_bytes: int,
        backlog: Backlog,
    ) -> None:
        """scattered: what came of each stream · counts: those of the sources so far · active: how many slaves have
        groups."""
        now = self._times()
        if self._warm is None and now[0] >= self._warmup_s:
            self._warm = now
            backlog.start_over()
        if self._warm is not None:
            self.declustering.add(active)
        if self._metrics is None or self._warm is None:
            return
        wall, cpu, comm, idle = (int(1e6 * (a - b)) for a, b in zip(now, self._last))
        self._last = now
        self._sent_bytes, sent_bytes = self._rank.transport.stats.sent_bytes, self._sent_bytes
        kept_out, self._kept_out = self._kept_out, kept_out_of(counts)
        self._metrics.add(
            rank=self._rank.number,
            role=self._role,
            epoch=epoch,
            end_us=int(now[0] * 1e6),
            wall_us=wall,
            cpu_us=cpu,
            comm_us=comm,
            idle_us=idle,
            tuples=tuple(int(one.starts[-1]) for one in scattered),
            sent_bytes=self._sent_bytes - sent_bytes,
            late=self._kept_out[0] - kept_out[0],
            null_key=self._kept_out[1] - kept_out[1],
            buffer_bytes=buffer_bytes,
            active=active,
            lag_us=int(1e6 * backlog.lag_s),
        )

    def cut(self, part: int) -> None:
        """A checkpoint: what was recorded so far is whole on disk, and a further file begins."""
        self.close()
        if self._folder:
            self._metrics = MetricsFile(self._folder, self._rank.number, self._streams, part)

    def close(self) -> None:
        if self._metrics:
            self._metrics.close()

    def _times(self) -> tuple[float, float, float, float]:
        rank = self._rank
        return (rank.clock.wall_s, rank.clock.cpu_s + self._decoding_s(), rank.comm_s, rank.idle_s)
