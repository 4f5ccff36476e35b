"""The slow twin of functions over the partners of a row: plain Python, sums as exact fractions."""

import math
from fractions import Fraction


def answers(partners, own):
    """Returns what CALLS and OTHER_CALLS give for a left row. partners: its right rows · own: the row itself; all are
    dictionaries with time, row, v, f, u, day, at and s."""
    values, reals = known(row["v"] for row in partners), known(row["f"] for row in partners)
    doubled, own_reals = [real * 2.0 for real in reals], known(own["f"] for _ in partners)
    differences = known(None if None in (row["v"], own["v"]) else row["v"] - own["v"] for row in partners)
    forward = sorted(partners, key=lambda row: (row["time"], row["row"]))
    backward = sorted(partners, key=lambda row: (-row["time"], row["row"]))
    return {
        "n": len(partners),
        "c": len(values),
        "cb": len(differences),
        "s": sum(values) if values else None,
        "m": sum(values) / len(values) if values else None,
        "lo": min(differences, default=None),
        "hi": max(reals, key=nan_last, default=None),
        "fs": exact_sum(doubled) if doubled else None,
        "fm": exact_sum(own_reals) / len(own_reals) if own_reals else None,
        "a": next(iter(known(row["f"] for row in forward)), None),
        "z": next(iter(known(row["v"] for row in backward)), None),
        "gap": min((row["time"] - own["time"] for row in partners), default=None),
        "t": max((row["time"] for row in partners), default=None),
        "ulo": min(known(row["u"] for row in partners), default=None),
        "uhi": max(known(row["u"] for row in partners), default=None),
        "texts": len(known(row["s"] for row in partners)),
        "day": min(known(row["day"] for row in partners), default=None),
        "at": next(iter(known(row["at"] for row in backward)), None),
        "low": best(forward, "v", "f", min),
        "high": best(forward, "at", "f", max),
        "large": best(forward, "u", "day", max),
        "small": best(forward, "day", "u", min),
    }


def best(forward, name, by, choose):
    """What the partner has whose `by` is least or greatest, the first one of several. Both must be known."""
    both = [row for row in forward if None not in (row[name], row[by])]
    if not both:
        return None
    # NaN is the largest number, and of the two zeros none is less.
    return choose(both, key=lambda row: (math.isnan(row[by]), 0.0 if math.isnan(row[by]) else row[by]))[name]


CALLS = {
    "n": "count()",
    "c": "count(right.v)",
    "cb": "count(right.v > left.v)",
    "s": "sum(right.v)",
    "m": "mean(right.v)",
    "lo": "min(right.v - left.v)",
    "hi": "max(right.f)",
    "fs": "sum(right.f * 2.0)",
    "fm": "mean(left.f)",
    "a": "first(right.f)",
    "z": "last(right.v)",
    "gap": "min(right.time - left.time)",
    "t": "max(right.time)",
}
OTHER_CALLS = {
    "n": "count()",
    "ulo": "min(right.u)",
    "uhi": "max(right.u)",
    "texts": "count(right.s)",
    "day": "min(right.day)",
    "at": "last(right.at)",
    "low": "arg_min(right.v, right.f)",
    "high": "arg_max(right.at, right.f)",
    "large": "arg_max(right.u, right.day)",
    "small": "arg_min(right.day, right.u)",
}


def known(values):
    return [value for value in values if value is not None]


def nan_last(real):
    return math.isnan(real), real, math.copysign(1, real)


def exact_sum(reals):
    """The sum, rounded once."""
    if any(map(math.isnan, reals)) or {math.inf, -math.inf} <= set(reals):
        return math.nan
    infinite = [real for real in reals if math.isinf(real)]
    if infinite:
        return infinite[0]
    total = sum(map(Fraction, reals), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.copysign(math.inf, total)
