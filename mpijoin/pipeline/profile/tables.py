"""The data of each figure, as columns of equal length by name. The CSV files hold the same."""

from __future__ import annotations

import numpy as np

from mpijoin.pipeline.profile.arrivals import coarser, dispersions, variances
from mpijoin.pipeline.profile.findings import Profile, Side

Table = dict[str, np.ndarray]
RESULT_POINTS_MAX = 1024


def arrivals_table(profile: Profile, bins: int) -> Table:
    """Tuples per second of each stream, over the time of all streams. from_s, to_s: since the first tuple."""
    bins = min(bins, *(len(side.arrivals.counts) for side in profile.sides))
    edges_s = np.linspace(profile.start_s, profile.end_s, bins + 1)
    since_s, length_s = edges_s - profile.start_s, profile.span_s / bins
    rates = {f"{side.name}_per_s": np.diff(side.arrivals.before(edges_s)) / length_s for side in profile.sides}
    return {"from_s": since_s[:-1], "to_s": since_s[1:], **rates}


def burstiness_table(profile: Profile) -> Table:
    """A row for each stream and length of bins: the index of dispersion, and the variance if the Hurst estimate uses
    it."""
    parts = [_burstiness(side) for side in profile.sides]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _burstiness(side: Side) -> Table:
    counts = side.arrivals.counts
    levels = np.arange(1, len(counts).bit_length())
    variance = np.full(len(levels), np.nan)
    taken, values = variances(counts)
    variance[taken - 1] = values
    return {
        "stream": np.full(len(levels), side.name),
        "bin_s": side.arrivals.span_s / 2.0**levels,
        "tuples_per_bin": counts.sum() / 2.0**levels,
        "dispersion": dispersions(counts),
        "variance": variance,
    }


def entropy_table(profile: Profile) -> Table:
    """A row for each stream, axis ("time", "key") and level: bits of entropy, and whether the line was fitted to it."""
    columns: dict[str, list] = {name: [] for name in ("stream", "axis", "level", "entropy_bits", "fitted")}
    for side in profile.sides:
        for axis, plot in (("time", side.arrivals.entropy), ("key", side.keys.plot)):
            if plot is None:
                continue
            for level, bits in enumerate(plot.entropy):
                row = (side.name, axis, level, float(bits), plot.line is not None and level <= plot.fitted)
                for column, value in zip(columns.values(), row):
                    column.append(value)
    return {name: np.array(column) for name, column in columns.items()}


def keys_table(profile: Profile) -> Table:
    """The top keys: the tuples of each stream with that key, and their share of the stream."""
    table = {"key": np.array([one.key for one in profile.top], str)}
    for number, side in enumerate(profile.sides):
        tuples = np.array([one.tuples[number] for one in profile.top], np.int64)
        table |= {side.name: tuples, f"{side.name}_share": tuples / max(1, side.extent.joinable)}
    return table


def expected_table(profile: Profile) -> Table:
    """Results per second over stretches of time, by the time of their latest tuples, and nan where none were counted;
    and the most bytes that are in the windows."""
    per_slot = profile.expected.per_slot
    per_slot = per_slot[: int(np.ceil(profile.span_s / profile.slot_s))]  # the last range may end behind the last tuple
    merged = -(-len(per_slot) // RESULT_POINTS_MAX)
    stretches = -(-len(per_slot) // merged)
    rows = np.concatenate([per_slot, np.full(stretches * merged - len(per_slot), np.nan)]).reshape(stretches, merged)
    counted = (~np.isnan(rows)).sum(axis=1)
    from_s = profile.slot_s * merged * np.arange(stretches)
    to_s = np.minimum(from_s + profile.slot_s * merged, profile.span_s)
    seconds = np.minimum(counted * profile.slot_s, to_s - from_s)
    with np.errstate(invalid="ignore"):
        results = np.where(counted > 0, np.nansum(rows, axis=1) / seconds, np.nan)
    edges_s = profile.start_s + np.append(from_s, to_s[-1])
    state = {f"{side.name}_state_bytes": side.state_within(edges_s) for side in profile.sides}
    return {"from_s": from_s, "to_s": to_s, "results_per_s": results, **state}


def coarse(values: np.ndarray, points: int) -> np.ndarray:
    """Means of neighbours, float64[points or fewer]. len(values) is a power of two, or at most `points`."""
    if len(values) <= points:
        return values
    level = points.bit_length() - 1
    return coarser(values, level) / (len(values) >> level)
