"""Which points make which figure: lines of points, and what of them is drawn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Iterable, Mapping

from wsj_figures.points import REAL, SIDES, SIMULATED, Point

RATE, SLAVES, EPOCH = "rate", "slaves", "epoch"
TUNED_RATES = {  # of the paper, tuples per second and stream, per number of slaves
    1: (500, 1000, 1250, 1500, 1750, 2000),
    2: (1000, 2000, 2500, 3000, 3500, 4000),
    3: (1500, 3000, 4000, 4500, 5000, 5500),
    4: (1000, 2000, 3000, 4000, 5000, 6000, 6500, 7000),
    5: (2000, 4000, 6000, 7000, 7500, 8000, 8500),
}
UNTUNED_RATES = (1000, 2000, 3000, 3500, 4000, 4500, 5000)
REAL_TUNED_RATES = {  # around what four slaves with a quarter of a core each sustain
    1: (500, 1000, 1500, 2000),
    2: (1000, 1500, 2000, 3000),
    3: (1500, 2250, 3000, 4500),
    4: (1000, 1750, 2500, 3000, 4000),
}
REAL_UNTUNED_RATES = (1000, 1750, 2500, 3000, 4000)
EPOCHS_S = {SIMULATED: (0.25, 0.5, 1, 2, 4), REAL: (0.25, 0.5, 1, 2, 4)}
SLAVES_MAX = {SIMULATED: 5, REAL: 4}
WITHOUT, WITH = "without tuning", "with tuning"
# How slaves are served, and what counts as communication: (label, ordered, metric). WSJ, section VI-B, has the last as
# a remedy: "the slave node can delay its connection initiation according to its position in the sequence".
EXCHANGES = (
    ("overlapped", False, "comm"),
    ("ordered", True, "wait"),
    ("ordered, slaves come later", True, "late"),
)
ADAPTIVE = "ordered, adaptive"
SUBGROUPS = (1, 2, 4)
IDLE, COMM = "idle", "communication"


# The least and the most of the slaves, behind the name of a mean.
ENDS = ("_min", "_max")


@dataclass(frozen=True)
class Line:
    """metric: of the figures of a point, what is drawn over x · has_band: it is a mean over slaves, and a band from the
    least to the most of them is drawn, too."""

    label: str
    metric: str
    points: tuple[Point, ...]
    has_band: bool = False

    @property
    def metrics(self) -> tuple[str, ...]:
        """All that is drawn."""
        return (self.metric, *(self.metric + end for end in ENDS if self.has_band))


@dataclass(frozen=True)
class Figure:
    number: int
    title: str
    x: str  # RATE, SLAVES or EPOCH
    y: str  # a metric whose axis it is
    lines: Mapping[str, tuple[Line, ...]]  # by side
    log: bool = False
    beside: tuple[Point, ...] = ()  # what its sentences speak of, beside what is drawn

    def points(self, side: str) -> list[Point]:
        """All that it needs of a side."""
        drawn = [point for line in self.lines[side] for point in line.points]
        return drawn + [point for point in self.beside if point.side == side]


def by_slaves(
    counts: Iterable[int], rates: Mapping[str, Mapping[int, tuple[float, ...]]]
) -> dict[str, tuple[Line, ...]]:
    """A line of delays per number of slaves."""
    return {
        side: tuple(
            Line(
                f"{count} slave{'s'[: count > 1]}",
                "delay_s",
                tuple(Point(side, count, rate) for rate in rates[side][count]),
            )
            for count in counts
            if count in rates[side]
        )
        for side in SIDES
    }


def figures(quick: bool = False) -> list[Figure]:
    """Figures 5 to 14; quick: few points."""
    tuned = {SIMULATED: TUNED_RATES, REAL: REAL_TUNED_RATES}
    untuned = {SIMULATED: UNTUNED_RATES, REAL: REAL_UNTUNED_RATES}
    epochs_s, slaves_max = EPOCHS_S, SLAVES_MAX
    if quick:
        tuned = {side: {count: few(rates) for count, rates in tuned[side].items()} for side in SIDES}
        untuned, epochs_s = ({side: few(values[side]) for side in SIDES} for values in (untuned, epochs_s))
        slaves_max = dict.fromkeys(SIDES, 2)
    fast = {side: tuple(Point(side, 4, rate) for rate in tuned[side][4]) for side in SIDES}
    plain = {side: tuple(Point(side, 4, rate, tuned=False) for rate in untuned[side]) for side in SIDES}
    return [
        Figure(5, "Delay, one and two slaves", RATE, "delay_s", by_slaves((1, 2), tuned), log=True),
        Figure(6, "Delay, three slaves and more", RATE, "delay_s", by_slaves((3, 4, 5), tuned), log=True),
        *tuning_figures(fast, plain),
        declustering_figure(slaves_max),
        exchange_figure(fast, quick),
        *epoch_figures(epochs_s),
    ]


def few(values: tuple[float, ...]) -> tuple[float, ...]:
    """First and last."""
    return (values[0], values[-1])


def tuning_figures(fast: Mapping[str, tuple[Point, ...]], plain: Mapping[str, tuple[Point, ...]]) -> list[Figure]:
    """7 to 10: points with and without tuning."""

    def both(metric: str) -> dict[str, tuple[Line, ...]]:
        return {side: (Line(WITHOUT, metric, plain[side]), Line(WITH, metric, fast[side])) for side in SIDES}

    def shares(points: Mapping[str, tuple[Point, ...]]) -> dict[str, tuple[Line, ...]]:
        return {side: (Line(IDLE, "idle", points[side]), Line(COMM, "comm", points[side])) for side in SIDES}

    return [
        Figure(7, "CPU time of four slaves", RATE, "cpu", both("cpu")),
        Figure(8, "Delay, four slaves", RATE, "delay_s", both("delay_s"), log=True),
        Figure(9, "Idle and communication time of four slaves, without tuning", RATE, "share", shares(plain)),
        Figure(10, "Idle and communication time of four slaves, with tuning", RATE, "share", shares(fast)),
    ]


def declustering_figure(slaves_max: Mapping[str, int]) -> Figure:
    lines = {}
    for side in SIDES:
        counts = range(1, slaves_max[side] + 1)
        own = [
            Line(label, f"{metric}_sum", tuple(Point(side, count, ordered=ordered) for count in counts))
            for label, ordered, metric in EXCHANGES
        ]
        adaptive = tuple(Point(side, count, adaptive=count > 1, ordered=True) for count in counts)
        lines[side] = (*own, Line(ADAPTIVE, "wait_sum", adaptive))
    return Figure(11, "Communication of all slaves", SLAVES, "comm_sum", lines)


def exchange_figure(fast: Mapping[str, tuple[Point, ...]], quick: bool) -> Figure:
    """12: what the slaves that communicate most and least spend. The points with sub-groups are for a sentence."""
    lines = {
        side: tuple(
            Line(label, metric, tuple(replace(point, ordered=ordered) for point in fast[side]), has_band=True)
            for label, ordered, metric in EXCHANGES
        )
        for side in SIDES
    }
    groups = () if quick else tuple(Point(side, ordered=True, subgroups=one) for side in SIDES for one in SUBGROUPS)
    return Figure(12, "Communication of four slaves: mean, least and most", RATE, "comm", lines, beside=groups)


def epoch_figures(epochs_s: Mapping[str, tuple[float, ...]]) -> list[Figure]:
    points = {side: tuple(Point(side, epoch_s=epoch_s) for epoch_s in epochs_s[side]) for side in SIDES}
    delays, comms = (
        {side: (Line("4 slaves", metric, points[side]),) for side in SIDES} for metric in ("delay_s", "comm")
    )
    return [
        Figure(13, "Delay over the distribution epoch", EPOCH, "delay_s", delays),
        Figure(14, "Communication over the distribution epoch", EPOCH, "comm", comms),
    ]
