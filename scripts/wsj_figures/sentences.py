"""What the paper says of its figures, each sentence with the check that tells whether our points agree."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

from wsj_figures.plan import (
    EPOCHS_S,
    REAL_TUNED_RATES,
    REAL_UNTUNED_RATES,
    SLAVES_MAX,
    SUBGROUPS,
    TUNED_RATES,
    UNTUNED_RATES,
)
from wsj_figures.points import EPOCH_S, SIMULATED, Point

SUSTAINED_EPOCHS = 1.25  # a mean delay of more distribution epochs is that of a system that falls behind
SHARP = 5.0  # a step by more than this factor
NEAR_ZERO = 0.1  # idle time, as a share
PAPER_KNEES = 4000, 6000  # tuples/s/stream at which four slaves have no idle time left, without and with tuning
REAL_KNEES = 2500, 4000  # at the scale of the real runs


@dataclass(frozen=True)
class Verdict:
    """figure: what was found, in words and numbers · holds: whether that is what the sentence says."""

    figure: str
    holds: bool


class Results:
    """The points of one side, by what the sentences speak of. Delays count in distribution epochs of the side.

    top, later: the rates at which idle time is to have ended, without and with tuning.
    """

    def __init__(self, side: str, figures: Callable[[Point], Mapping[str, float]], epoch_scale: float):
        """figures: of a point, as `measure` returns them · epoch_scale: seconds here per second of the paper's
        epochs."""
        self.side, self._figures, self._epoch_scale = side, figures, epoch_scale
        self.tuned_rates = TUNED_RATES if side == SIMULATED else REAL_TUNED_RATES
        self.untuned_rates = UNTUNED_RATES if side == SIMULATED else REAL_UNTUNED_RATES
        self.epochs_s = EPOCHS_S[side]
        self.top, self.later = PAPER_KNEES if side == SIMULATED else REAL_KNEES
        self.slaves = range(1, SLAVES_MAX[side] + 1)

    def of(self, metric: str, **point: Any) -> float:
        return self._figures(Point(self.side, **point))[metric]

    def epochs(self, **point: Any) -> float:
        """Mean delay in distribution epochs."""
        return self.of("delay_s", **point) / (EPOCH_S * self._epoch_scale)

    def capacity(self, slaves: int) -> float:
        """The highest rate, with tuning, of which the mean delay is still some epochs."""
        rates = self.tuned_rates[slaves]
        return max((rate for rate in rates if self.epochs(slaves=slaves, rate=rate) <= SUSTAINED_EPOCHS), default=0)


@dataclass(frozen=True)
class Sentence:
    """name: for `EXPLANATIONS` · numbers: of the figures it speaks of · quote: the paper's words."""

    name: str
    numbers: tuple[int, ...]
    quote: str
    check: Callable[[Results], Verdict]


def sharp_rise(results: Results) -> Verdict:
    steps = {}
    for slaves, rates in results.tuned_rates.items():
        delays = [results.epochs(slaves=slaves, rate=rate) for rate in rates]
        steps[slaves] = max(later / earlier for earlier, later in itertools.pairwise(delays))
    found = ", ".join(f"x {step:.0f} ({slaves})" for slaves, step in steps.items())
    return Verdict(f"largest step between neighbouring rates, by slaves: {found}", min(steps.values()) > SHARP)


def flat_before(results: Results) -> Verdict:
    spans = {}
    for slaves, rates in results.tuned_rates.items():
        delays = [results.epochs(slaves=slaves, rate=rate) for rate in rates if rate <= results.capacity(slaves)]
        spans[slaves] = max(delays, default=float("nan")) / min(delays, default=float("nan"))
    found = ", ".join(f"x {span:.2f} ({slaves})" for slaves, span in spans.items())
    return Verdict(
        f"from the lowest to the highest sustained rate, by slaves: {found}", all(span < 2 for span in spans.values())
    )


def more_slaves_more_rate(results: Results) -> Verdict:
    capacities = [results.capacity(slaves) for slaves in results.tuned_rates]
    found = ", ".join(f"{rate:g} ({slaves})" for slaves, rate in zip(results.tuned_rates, capacities))
    ends = all(rate < results.tuned_rates[slaves][-1] for slaves, rate in zip(results.tuned_rates, capacities))
    return Verdict(f"highest sustained rate measured, by slaves: {found}", ends and _rises(capacities))


def cpu_rises_sharply(results: Results) -> Verdict:
    low, high = results.untuned_rates[0], results.top
    growth = results.of("cpu", rate=high, tuned=False) / results.of("cpu", rate=low, tuned=False)
    ratio = results.of("cpu", rate=high, tuned=False) / results.of("cpu", rate=high)
    found = f"CPU time x {growth:.1f} for a rate x {high / low:g}; at {high} {ratio:.2f} times that with tuning"
    return Verdict(found, growth > 1.25 * high / low and ratio > 1.2)


def untuned_delay(results: Results) -> Verdict:
    delay_s, epochs = (
        results.of("delay_s", rate=results.top, tuned=False),
        results.epochs(rate=results.top, tuned=False),
    )
    if results.side == SIMULATED:
        return Verdict(f"{delay_s:.1f} s (fitted)", 0.8 < delay_s / 48 < 1.25)
    return Verdict(
        f"{epochs:.1f} distribution epochs at {results.top} (the paper's: 24)", epochs > 2 * SUSTAINED_EPOCHS
    )


def tuned_delay(results: Results) -> Verdict:
    delay_s, epochs = results.of("delay_s", rate=results.top), results.epochs(rate=results.top)
    found = f"{delay_s:.2f} s, {epochs:.2f} distribution epochs, at {results.top} (the paper's: 1)"
    return Verdict(found, 0.5 < epochs <= SUSTAINED_EPOCHS)


def idle_ends_untuned(results: Results) -> Verdict:
    return _idle_ends(results, results.top, results.untuned_rates, tuned=False)


def idle_ends_tuned(results: Results) -> Verdict:
    return _idle_ends(results, results.later, results.tuned_rates[4], tuned=True)


def _idle_ends(results: Results, wanted: float, rates: Sequence[float], tuned: bool) -> Verdict:
    idle = {rate: results.of("idle", rate=rate, tuned=tuned) for rate in rates}
    found = ", ".join(f"{share:.0%} at {rate:g}" for rate, share in idle.items() if rate >= 0.4 * wanted)
    before = [share for rate, share in idle.items() if rate <= 0.7 * wanted]
    return Verdict(f"idle {found}", idle[wanted] < NEAR_ZERO and min(before) > NEAR_ZERO)


def tuning_is_no_communication(results: Results) -> Verdict:
    shared = [rate for rate in results.untuned_rates if rate in results.tuned_rates[4] and rate < results.top]
    ratios = [results.of("comm", rate=rate) / results.of("comm", rate=rate, tuned=False) for rate in shared]
    found = ", ".join(f"{ratio:.2f} at {rate:g}" for rate, ratio in zip(shared, ratios))
    return Verdict(f"communication with tuning over that without: {found}", max(ratios) < 1.15)


def not_uniform(results: Results) -> Verdict:
    rate = results.capacity(4)
    (least, most), own = _ends(results, "wait", rate, True), _ends(results, "comm", rate, False)
    found = f"at {rate:g} from {least:.2%} to {most:.2%} of a slave's time; overlapped {own[0]:.2%} to {own[1]:.2%}"
    return Verdict(found, most > 1.1 * least)


def diverges(results: Results) -> Verdict:
    rates = [rate for rate in results.tuned_rates[4] if rate <= results.capacity(4)]
    spans = [most - least for least, most in (_ends(results, "wait", rate, True) for rate in rates)]
    found = ", ".join(f"{span:.3%} at {rate:g}" for rate, span in zip(rates, spans))
    return Verdict(f"most less least: {found}", spans[-1] > 1.5 * spans[0])


def coming_later_evens(results: Results) -> Verdict:
    rate = results.capacity(4)
    before, after = (most - least for least, most in (_ends(results, one, rate, True) for one in ("wait", "late")))
    found = f"most less least at {rate:g}: {before:.3%}, and {after:.3%} if slaves come later"
    return Verdict(found, after < before / 2)


def subgroups_wait_less(results: Results) -> Verdict:
    waits = []
    for groups in SUBGROUPS:
        own = {"ordered": True, "subgroups": groups}
        waits.append(results.of("wait", **own) - results.of("comm", **own))
    found = ", ".join(f"{wait:.3%} ({groups})" for groups, wait in zip(SUBGROUPS, waits))
    return Verdict(f"wait for the turn, of a slave's time, by sub-groups: {found}", _rises(waits[::-1]))


def _ends(results: Results, metric: str, rate: float, ordered: bool) -> tuple[float, float]:
    """The least and the most of a slave."""
    own = {"rate": rate, "ordered": ordered}
    return results.of(f"{metric}_min", **own), results.of(f"{metric}_max", **own)


def less_per_slave(results: Results) -> Verdict:
    shares = [results.of("wait", slaves=slaves, ordered=True) for slaves in results.slaves]
    overlapped = [results.of("comm", slaves=slaves) for slaves in results.slaves]
    found = f"of a slave's time, for {results.slaves[0]} to {results.slaves[-1]} slaves: {_list(shares)}"
    return Verdict(f"{found}; overlapped {_list(overlapped)}", _rises(shares[::-1]))


def aggregate_rises(results: Results) -> Verdict:
    sums = [results.of("wait_sum", slaves=slaves, ordered=True) for slaves in results.slaves]
    return Verdict(f"of all slaves: {_list(sums)}; x {sums[-1] / sums[0]:.2f} from first to last", _rises(sums))


def adaptive_is_less(results: Results) -> Verdict:
    own = {"slaves": results.slaves[-1], "ordered": True}
    fixed, adaptive = (results.of("wait_sum", **own, adaptive=one) for one in (False, True))
    active = results.of("active", **own, adaptive=True)
    found = f"{adaptive:.2%} with {active:.1f} of {own['slaves']} slaves active, fixed {fixed:.2%}"
    return Verdict(found, adaptive < 0.9 * fixed)


def delay_follows_epoch(results: Results) -> Verdict:
    delays = [results.of("delay_s", epoch_s=epoch_s) for epoch_s in results.epochs_s]
    found = ", ".join(f"{delay_s:.3g} s" for delay_s in delays)
    return Verdict(f"{found} at t_d = {', '.join(f'{epoch_s:g}' for epoch_s in results.epochs_s)} s", _rises(delays))


def communication_against_epoch(results: Results) -> Verdict:
    shares = [results.of("comm", epoch_s=epoch_s) for epoch_s in results.epochs_s]
    found = f"{_list(shares)} at t_d = {', '.join(f'{epoch_s:g}' for epoch_s in results.epochs_s)} s"
    return Verdict(found, _rises(shares[::-1]))


def _rises(values: Sequence[float]) -> bool:
    return all(later > earlier for earlier, later in itertools.pairwise(values))


def _list(shares: Sequence[float]) -> str:
    return ", ".join(f"{share:.2%}" for share in shares)


SENTENCES = (
    Sentence(
        "sharp rise",
        (5, 6),
        "Given a number of slave nodes, the average delay increases sharply at a point where the applied load "
        "overloads the whole system.",
        sharp_rise,
    ),
    Sentence(
        "flat before",
        (5, 6),
        "Before such a saturation point, the average delay shows very little variations with the increase in "
        "stream rates.",
        flat_before,
    ),
    Sentence(
        "capacity",
        (5, 6),
        "the stream arrival rate which overloads the system increases as more and more slave nodes are added in "
        "the system",
        more_slaves_more_rate,
    ),
    Sentence(
        "CPU time",
        (7,),
        "Without fine tuning, the average CPU time required to process the joins increases sharply with the "
        "increase in the stream rates.",
        cpu_rises_sharply,
    ),
    Sentence(
        "48 seconds",
        (8,),
        "without fine tuning, the average delay is around 48 sec for a per-stream rate of 4000 tuples/sec",
        untuned_delay,
    ),
    Sentence(
        "2 seconds",
        (6, 8),
        "with fine tuning, the average delay for the same system [...] drops to around 2 seconds",
        tuned_delay,
    ),
    Sentence(
        "idle at 4000",
        (9,),
        "Without partition tuning, the idle time for the system drops near to zero for an arrival rate of 4000 "
        "tuples/sec/stream.",
        idle_ends_untuned,
    ),
    Sentence(
        "idle at 6000",
        (10,),
        "with fine grained partition tuning, the idle time for the slave nodes is near to zero while the "
        "arrival rate is 6000 tuples/sec/stream",
        idle_ends_tuned,
    ),
    Sentence(
        "tuning is local",
        (9, 10),
        "Such a fine grained tuning incurs no communication overhead as evident from Figure 9 and Figure 10.",
        tuning_is_no_communication,
    ),
    Sentence(
        "less per slave",
        (11,),
        "The communication time decreases with the increase in degree of declustering",
        less_per_slave,
    ),
    Sentence("aggregate", (11,), "however aggregate overhead over all the slaves increases linearly", aggregate_rises),
    Sentence(
        "adaptive",
        (11,),
        "With adaptive parallelism, the aggregate communication overhead is significantly lower while compared to "
        "non-adaptive counterpart",
        adaptive_is_less,
    ),
    Sentence(
        "not uniform",
        (12,),
        "The communication time is not uniform across the slaves, as the tuples are distributed to the slaves, "
        "during a distribution epoch, in a serial order.",
        not_uniform,
    ),
    Sentence(
        "divergence",
        (12,),
        "The divergence in communication overhead across the slaves increases with an increase in arrival rates.",
        diverges,
    ),
    Sentence(
        "coming later",
        (12,),
        "Such divergence across the slave nodes can be minimized by maintaining a fixed order while distributing "
        "tuples across the slaves; now, the slave node can delay its connection initiation according to its position "
        "in the sequence.",
        coming_later_evens,
    ),
    Sentence(
        "sub-groups",
        (12,),
        "As the tuples are sent to every node in a serial order, such an approach might increase average idle time in "
        "waiting for the tuples. [...] To minimize such an overhead, we divide the slave into a number of groups",
        subgroups_wait_less,
    ),
    Sentence(
        "delay and epoch",
        (13,),
        "As the distribution epoch decreases, the average delay also decreases due to the decrease in the "
        "wait time at the master node.",
        delay_follows_epoch,
    ),
    Sentence(
        "communication and epoch",
        (14,),
        "with the decrease in the distribution epoch, the communication overhead increases",
        communication_against_epoch,
    ),
)
