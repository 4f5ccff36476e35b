"""Which points make which figure: lines of points, and what of them is drawn."""

from __future__ import annotations

from dataclasses import dataclass
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
FIXED, ADAPTIVE, ONE_SLAVE = "all slaves, fixed", "all slaves, adaptive", "a slave, fixed"
IDLE, COMM = "idle", "communication"
LEAST, MEAN, MOST = "least of a slave", "mean", "most of a slave"


@dataclass(frozen=True)
class Line:
    """metric: of the figures of a point, what is drawn over x."""

    label: str
    metric: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Figure:
    number: int
    title: str
    x: str  # RATE, SLAVES or EPOCH
    y: str  # a metric whose axis it is
    lines: Mapping[str, tuple[Line, ...]]  # by side
    log: bool = False


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
        Figure(12, "Communication of four slaves", RATE, "comm", _spread(fast)),
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
        fixed = tuple(Point(side, count) for count in counts)
        adaptive = tuple(Point(side, count, adaptive=count > 1) for count in counts)
        lines[side] = (
            Line(FIXED, "comm_sum", fixed),
            Line(ADAPTIVE, "comm_sum", adaptive),
            Line(ONE_SLAVE, "comm", fixed),
        )
    return Figure(11, "Communication over the number of slaves", SLAVES, "comm_sum", lines)


def epoch_figures(epochs_s: Mapping[str, tuple[float, ...]]) -> list[Figure]:
    points = {side: tuple(Point(side, epoch_s=epoch_s) for epoch_s in epochs_s[side]) for side in SIDES}
    delays, comms = (
        {side: (Line("4 slaves", metric, points[side]),) for side in SIDES} for metric in ("delay_s", "comm")
    )
    return [
        Figure(13, "Delay over the distribution epoch", EPOCH, "delay_s", delays),
        Figure(14, "Communication over the distribution epoch", EPOCH, "comm", comms),
    ]


def _spread(points: Mapping[str, tuple[Point, ...]]) -> dict[str, tuple[Line, ...]]:
    metrics = ((MOST, "comm_max"), (MEAN, "comm"), (LEAST, "comm_min"))
    return {side: tuple(Line(label, metric, points[side]) for label, metric in metrics) for side in SIDES}
