"""The slow twin of functions over the partners of a row: plain Python, sums as exact fractions."""

import math
from fractions import Fraction


def answers(partners, own):
    """Returns what CALLS give for a left row. partners: its right rows · own: the row itself; all are dictionaries with
    time, row, v and f."""
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
    }


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
