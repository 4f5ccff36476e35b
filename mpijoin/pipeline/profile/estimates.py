"""How many results there are under a condition, from a sample of pairs and rows; and how many each type of join has."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Mapping, Sequence

import numpy as np

from mpijoin.config.job import ANTI, SEMI, Join
from mpijoin.named import NamedTuple
from mpijoin.pipeline.profile.results import NORMAL_95, PAIRS_NAME, Expected, Found, Ranges, Sample, extrapolate


class Asked(NamedTuple):
    """What a sample says, float64[slots] each. taken: what was drawn · held: those of it that hold · undecided: those
    that may."""

    taken: np.ndarray
    held: np.ndarray
    undecided: np.ndarray


class Counted(NamedTuple):
    """What was counted over all slots, float64[slots] each. pairs: of equal keys in the windows · met, lone: for each
    stream that matters, tuples with and without a partner in the windows · asked_pairs, asked_rows: what a condition
    says of a sample of the pairs, and of those with a partner; None: there is no condition."""

    pairs: np.ndarray
    met: dict[int, np.ndarray]
    lone: dict[int, np.ndarray]
    asked_pairs: Asked | None = None
    asked_rows: Mapping[int, Asked] = MappingProxyType({})


def further(share: float, taken: float, of: float) -> float:
    """How far the share of hits in all may be from that in a sample, at 95 %: the farther end of Wilson's interval.

    taken: the size of the sample · of: the size of all.

    >>> round(further(0.5, 10_000, 1e9), 4), round(further(0.0, 10_000, 1e9), 6), further(0.5, 100, 100)
    (0.0098, 0.000384, 0.0)
    """
    z2 = NORMAL_95**2 / taken
    middle = (share + z2 / 2) / (1 + z2)
    half = NORMAL_95 / (1 + z2) * np.sqrt(share * (1 - share) / taken + z2 / (4 * taken))
    unseen = np.sqrt(max(0.0, 1 - taken / of))
    return float(max(middle + half - share, share - middle + half) * unseen)


def estimate(
    ranges: Ranges, chosen: np.ndarray, counted: np.ndarray, asked: Asked | None, weight: np.ndarray, what: str
) -> Expected:
    """How many of what was counted hold, if a sample of it was asked.

    ranges, chosen, weight: as `extrapolate` has them · counted: float64[slots] · asked: None if all of them hold ·
    what: a sample's name.
    """
    if asked is None:
        return extrapolate(ranges, chosen, counted, weight)
    of, taken, held, undecided = (float(one.sum()) for one in (counted, *asked))
    sample = Sample(what, round(taken), round(held), round(undecided), round(of))
    if sample.is_whole:
        return replace(extrapolate(ranges, chosen, asked.held, weight), samples=(sample,))
    share = (held + undecided / 2) / taken
    # Where many are undecided, it is they who make the share uncertain.
    off = of * (further(share, taken, of) + undecided / 2 / taken)
    seen = weight[chosen].sum() / weight.sum() if weight[chosen].any() else len(chosen) / ranges.count
    whole = 1.0 if len(chosen) == ranges.count else float(1 / seen)
    if not share:
        most = off * whole
        curve = _known(ranges, chosen, counted * off / of)
        return Expected(most, most, ranges, len(chosen), curve, (sample,), is_bound=True)
    found = extrapolate(ranges, chosen, (asked.held + asked.undecided / 2) * of / taken, weight)
    curve = _known(ranges, chosen, _leaning(counted, asked, share))
    return replace(found, error=float(np.hypot(found.error, off * whole)), per_slot=curve, samples=(sample,))


def _leaning(counted: np.ndarray, asked: Asked, share: float) -> np.ndarray:
    """How many of each slot hold, float64[slots].

    A few hits in one slot would look like a peak. So the share of each slot is drawn towards that of all slots, and the
    more so the less the slots differ beyond chance (a gamma prior of the shares, fitted by moments).
    """
    wanted, hits = asked.taken * share, asked.held + asked.undecided / 2
    by_chance = 2 * np.sqrt(2 * (wanted**2).sum() + wanted.sum())
    spread = max(0.0, ((hits - wanted) ** 2 - wanted).sum() - by_chance) / (wanted**2).sum()
    curve = counted * share * (spread * hits + 1) / (spread * wanted + 1)
    return curve * (counted.sum() * share / curve.sum())


def _known(ranges: Ranges, chosen: np.ndarray, per_slot: np.ndarray) -> np.ndarray:
    """The same, and nan where nothing was counted."""
    known = np.full((ranges.count, ranges.slots), np.nan)
    known[chosen] = per_slot.reshape(known.shape)[chosen]
    return known.ravel()


def results_of(
    join: Join,
    names: Sequence[str],
    ranges: Ranges,
    chosen: np.ndarray,
    counted: Counted,
    rows: np.ndarray,
    keyless: Sequence[int],
) -> Found:
    """The results of a join of two streams, of any type.

    names: of the streams · rows: about how many tuples there are in each range, float64[2, ranges.count] · keyless:
    rows without a key of each stream, which have no partner.
    """
    product = rows.prod(axis=0)
    pairs = estimate(ranges, chosen, counted.pairs, None, product, PAIRS_NAME)
    parts = []
    if join.type == SEMI or join.answers_rows:
        parts.append(estimate(ranges, chosen, counted.met[0], counted.asked_rows.get(0), rows[0], names[0]))
    elif join.type != ANTI:
        parts.append(estimate(ranges, chosen, counted.pairs, counted.asked_pairs, product, PAIRS_NAME))
    alone = {}
    for side in join.alone:
        own = [estimate(ranges, chosen, counted.lone[side], None, rows[side], names[side])]
        if counted.asked_rows:
            own.append(_failed(ranges, chosen, counted, side, rows[side], names[side]))
        alone[names[side]] = together(own, keyless[side])
    results = together([*parts, *alone.values()])
    if join.answers_rows and join.alone:
        # Each row is one result. That is known better than how many of them have a partner.
        results = replace(results, results=round(rows[0].sum()) + keyless[0], error=0.0, is_known=True, is_bound=False)
    return Found(pairs, results, alone)


def _failed(ranges: Ranges, chosen: np.ndarray, counted: Counted, side: int, weight: np.ndarray, name: str) -> Expected:
    """The tuples of a stream that have partners in the windows, but none for which the condition holds."""
    taken, held, undecided = counted.asked_rows[side]
    without = Asked(taken, taken - held - undecided, undecided)
    found = estimate(ranges, chosen, counted.met[side], without, weight, name)
    samples = tuple(one._replace(held=one.taken - one.held - one.undecided) for one in found.samples)
    return replace(found, samples=samples)


def together(parts: Sequence[Expected], further_rows: int = 0) -> Expected:
    """The sum of the parts, and of rows that were counted elsewhere, spread evenly over time."""
    first = parts[0]
    certain = [0.0 if part.is_bound else part.results for part in parts]
    results = sum(certain) + further_rows
    error = float(np.sqrt(sum(part.error**2 for part in parts)))
    is_bound = results == 0 and error > 0
    per_slot = np.sum([part.per_slot for part in parts], axis=0) + further_rows / len(first.per_slot)
    samples = tuple(sample for part in parts for sample in part.samples)
    return Expected(error if is_bound else results, error, first.ranges, first.counted, per_slot, samples, is_bound)
