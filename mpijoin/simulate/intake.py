"""What a simulated master takes in: how many tuples of each partition arrive in each tick, but not which."""

from __future__ import annotations

import math

import numpy as np

from mpijoin.config.job import Job, SyntheticSource
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import UNIT_NS, JoinSchema
from mpijoin.generators.schedule import segments_of
from mpijoin.named import NamedTuple
from mpijoin.partitioning.scatter import BLOB_WORDS, FIXED_WORDS, Scattered
from mpijoin.partitioning.table import PartitionTable
from mpijoin.producer.intake import Intake
from mpijoin.producer.pacing import Pace
from mpijoin.producer.ticks import Ends, Tick
from mpijoin.records import PartInfo
from mpijoin.simulate.costs import Costs
from mpijoin.simulate.engine import SimulatedClock
from mpijoin.simulate.hollow import hollow_tuples
from mpijoin.simulate.keys import Matches
from mpijoin.sources.base import TIME_MAX, End, SourceCounts, Wait

NO_BLOB = np.zeros(0, np.uint8)


class ModelledTick(NamedTuple):
    """A tick, as in producer/ticks.py. counts: int64[partitions] of each stream · start: the instant where it
    begins."""

    counts: tuple[np.ndarray, ...]
    watermarks: tuple[int, ...]
    border: int
    start: int
    begins: tuple[int, ...]

    @property
    def ends(self) -> Ends:
        """No tuple to come lies below the border."""
        return Ends(self.watermarks, self.border, self.border)


class ModelledStream:
    """One synthetic stream. Its arrivals are Poisson, and its keys are those of the key model."""

    def __init__(
        self,
        source: SyntheticSource,
        stream: int,
        seed: int,
        weights: np.ndarray,
        unit_ns: int,
        share: tuple[int, int] = (0, 1),
    ):
        """share: which of how many producers reads it. Each reads an even part of the tuples of every moment."""
        number, producers = share
        self.source, self.counts = source, SourceCounts()
        self._weights = weights
        self._tuples = None if source.tuples is None else len(range(number, source.tuples, producers))
        self._key = [seed if source.seed is None else source.seed, stream, *([number] if number else [])]
        segments = segments_of(source)
        self._per_unit = np.array([segment.rate for segment in segments]) * unit_ns / 1e9 / producers
        self._starts = np.array([segment.start_ns / unit_ns for segment in segments])
        self._ends = np.append(self._starts[1:], math.inf)
        self.until = 0  # The tuples of its last tick lie before this.
        self._end = TIME_MAX if source.duration_ns is None else source.duration_ns // unit_ns

    @property
    def left(self) -> int:
        """The number of tuples still to come, or TIME_MAX if it is not known."""
        return TIME_MAX if self._tuples is None else self._tuples - self.counts.read

    def ended(self, time: int) -> bool:
        return self.left <= 0 or time >= self._end

    def arrivals(self, number: int, start: int, border: int) -> np.ndarray:
        """Returns int64[partitions]: how many tuples come in the `number`-th tick, which is [start, border)."""
        random = np.random.Generator(np.random.Philox(np.random.SeedSequence([*self._key, number])))
        end = min(border, self._end)
        drawn = int(random.poisson(self._expected(start, end)))
        total = min(drawn, self.left)
        self.until = end if total == drawn else start + -(-(end - start) * total // drawn)
        self.counts.read += total
        return random.multinomial(total, self._weights)

    def _expected(self, start: int, end: int) -> float:
        """Returns how many tuples come in [start, end) on average."""
        spans = np.minimum(self._ends, end) - np.maximum(self._starts, start)
        return float(np.maximum(0, spans) @ self._per_unit)

    def progress(self, time: int) -> float:
        if self._tuples is not None:
            return self.counts.read / max(1, self._tuples)
        return min(1.0, time / self._end) if self._end > 0 else 1.0

    def rate_per_unit(self) -> float:
        """Returns the highest rate that there will be, in tuples per time unit."""
        return float(self._per_unit.max())


def synthetic_sources(job: Job) -> list[SyntheticSource]:
    """Returns the sources of a job whose streams are all synthetic."""
    return [stream.source for stream in job.streams if isinstance(stream.source, SyntheticSource)]


class ModelledIntake:
    """Takes the place of producer/intake.py. It gives the same ticks as counts, and charges for making and
    scattering."""

    late_parts = ()  # No tuple is late.

    decoding_s = 0.0  # nothing is decoded

    def __init__(
        self,
        job: Job,
        schema: JoinSchema,
        matches: Matches,
        pace: Pace,
        clock: SimulatedClock,
        costs: Costs,
        producer: int = 0,
        producers: int = 1,
    ):
        """producer, producers: which of how many this is."""
        unit_ns = UNIT_NS[schema.unit]
        self.sources = [
            ModelledStream(source, index, job.run.seed, model.weights, unit_ns, (producer, producers))
            for index, (source, model) in enumerate(zip(synthetic_sources(job), matches.models))
        ]
        self._words = [tuple_words_of(RecordLayout(stream)) for stream in schema.streams]
        self._latenesses = tuple(schema.ticks(stream.lateness_ns) for stream in job.streams)
        self._pace, self._clock, self._costs = pace, clock, costs
        self._time = self._ticks = 0

    def next(self) -> ModelledTick | End:
        """Returns the next tick that brings tuples, or the end."""
        while not all(one.ended(self._time) for one in self.sources):
            start, border, begins = self._time, self._border(), self._watermarks()
            counts = tuple(one.arrivals(self._ticks, start, border) for one in self.sources)
            self._time, self._ticks = border, self._ticks + 1
            if all(one.ended(border) for one in self.sources):
                border = max(start + 1, *(one.until for one in self.sources))
            tuples = int(sum(one.sum() for one in counts))
            if tuples:
                self._clock.charge(tuples * self._costs.generated_ns / 1e9)
                return ModelledTick(counts, self._watermarks(), border, start, begins)
        return End()

    def _border(self) -> int:
        pace = self._pace
        length = pace.length
        if length is None:
            fastest = max(one.rate_per_unit() for one in self.sources)
            length = max(1, min(pace.length_max, round(pace.rows / len(self.sources) / fastest)))
        return (self._time // length + 1) * length

    def _watermarks(self) -> tuple[int, ...]:
        return tuple(
            TIME_MAX if one.ended(self._time) else self._time - lateness
            for one, lateness in zip(self.sources, self._latenesses)
        )

    def set_pace(self, pace: Pace) -> None:
        self._pace = pace

    def scatter(self, tick: ModelledTick, table: PartitionTable) -> tuple[Scattered, ...]:
        tuples = int(sum(one.sum() for one in tick.counts))
        self._clock.charge(tuples * self._costs.scattered_ns / 1e9)
        return tuple(self._scattered(stream, tick, table.place) for stream in range(len(tick.counts)))

    def _scattered(self, stream: int, tick: ModelledTick, place: np.ndarray) -> Scattered:
        placed = np.zeros(len(place) + 1, np.int64)
        placed[place + 1] = tick.counts[stream]
        starts = np.cumsum(placed)
        tuples = hollow_tuples(int(starts[-1]), self._words[stream], tick.start, tick.border - 1)
        return Scattered(tuples, NO_BLOB, starts, np.zeros_like(starts), np.zeros_like(place))

    def progress(self, taken: int) -> float:
        """Returns the share of the input that was taken, 0 to 1."""
        return sum(one.progress(self._time) for one in self.sources) / len(self.sources)

    def cut_late(self) -> list[PartInfo]:
        """Returns nothing, because no tuple is late."""
        return []

    def close(self) -> None:
        """Does nothing, because nothing is held open."""


class CostedIntake:
    """Wraps the real intake of a simulated master, and charges the master's clock for its work."""

    decoding_s = 0.0  # `generated_ns` includes it

    def __init__(self, intake: Intake, clock: SimulatedClock, costs: Costs):
        self._intake, self._clock, self._costs = intake, clock, costs
        self.sources = intake.sources
        self.set_pace, self.progress, self.close = intake.set_pace, intake.progress, intake.close
        self.save, self.cut_late = intake.save, intake.cut_late

    @property
    def late_parts(self) -> list[PartInfo]:
        return self._intake.late_parts

    def next(self) -> Tick | Wait | End:
        tick = self._intake.next()
        if isinstance(tick, Tick):
            self._clock.charge(
                sum(batch.rows for one in tick.batches for batch in one) * self._costs.generated_ns / 1e9
            )
        return tick

    def scatter(self, tick: Tick, table: PartitionTable) -> tuple[Scattered, ...]:
        self._clock.charge(sum(batch.rows for one in tick.batches for batch in one) * self._costs.scattered_ns / 1e9)
        return self._intake.scatter(tick, table)


def tuple_words_of(layout: RecordLayout) -> int:
    """Returns how many words a tuple of this stream has."""
    return FIXED_WORDS + (BLOB_WORDS if layout.has_blob else 0) + layout.record_words
