"""Writes a profile as text, as JSON, and as files in a folder."""

from __future__ import annotations

import json
import textwrap
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Any, Iterator

import pyarrow as pa
import pyarrow.csv

from mpijoin.config.job import UNBOUNDED, Join
from mpijoin.config.units import format_duration
from mpijoin.pipeline.profile.advice import Advice
from mpijoin.pipeline.profile.arrivals import dispersion
from mpijoin.pipeline.profile.entropy import EntropyPlot
from mpijoin.pipeline.profile.findings import PEAK_S, Profile, Side
from mpijoin.pipeline.profile.keys import printable
from mpijoin.pipeline.profile.results import PAIRS_NAME, Expected, Sample
from mpijoin.pipeline.profile.tables import (
    Table,
    arrivals_table,
    burstiness_table,
    entropy_table,
    expected_table,
    keys_table,
)
from mpijoin.report.words import amount, bytes_amount, seconds

LABEL_WIDTH, COLUMN_WIDTH, TEXT_WIDTH = 26, 24, 120
TOP_SHOWN = 5  # keys named in the text
JSON, JOB = "profile.json", "job.toml"
TABLES = ("arrivals", "burstiness", "entropy", "keys", "expected")
FILES = (JSON, JOB, *(f"{name}.{kind}" for name in TABLES for kind in ("csv", "png")))


def tables_of(profile: Profile, bins: int) -> dict[str, Table]:
    """All tables that hold something, by the names of their files."""
    each = (
        arrivals_table(profile, bins),
        burstiness_table(profile),
        entropy_table(profile),
        keys_table(profile),
        expected_table(profile),
    )
    return {name: table for name, table in zip(TABLES, each) if all(len(column) for column in table.values())}


def write_table(table: Table, path: Path) -> None:
    """Writes a table as CSV. A nan becomes an empty field."""
    columns = {name: pa.array(column.tolist(), from_pandas=True) for name, column in table.items()}
    pyarrow.csv.write_csv(pa.table(columns), path)


def json_text(profile: Profile, advice: Advice, bins: int) -> str:
    """The profile as JSON: everything but the curves, which the CSV files have."""
    names = [side.name for side in profile.sides]
    found = {
        "streams": {side.name: _side_json(side, bins) for side in profile.sides},
        "common_keys": profile.common,
        "top_keys": [{"key": one.key} | dict(zip(names, one.tuples)) for one in profile.top],
        "expected": _expected_json(profile),
        "advice": {
            **{hint.field: {"value": hint.value, "why": hint.why} for hint in advice.hints},
            "warnings": list(advice.warnings),
        },
    }
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def _side_json(side: Side, bins: int) -> dict[str, Any]:
    extent, arrivals, keys = side.extent, side.arrivals, side.keys
    counts = arrivals.binned(bins)
    return {
        "path": side.path,
        "window": _window_text(side),
        "rows": extent.rows,
        "null_time": extent.null_time,
        "null_key": extent.null_key,
        "lateness_needed": format_duration(side.disorder_ns),
        "first": utc(arrivals.start_s),
        "last": utc(extent.last * side.tick_ns / 1e9),
        "span_s": arrivals.span_s,
        "rate_per_s": arrivals.rate,
        "peak_rate_per_s": arrivals.peak_rate(PEAK_S),
        "dispersion": {"bin_s": arrivals.span_s / len(counts), "index": dispersion(counts)},
        "hurst": arrivals.hurst,
        "time_entropy": _plot_json(arrivals.entropy),
        "keys": {
            "distinct": keys.sums.distinct,
            "top_share": keys.top_share,
            "entropy_bits": keys.entropy_bits,
            "entropy_plot": _plot_json(keys.plot),
            "b": keys.skew.bias,
            "b_by": keys.skew.method,
            "b_is_rough": not keys.skew.is_trusted,
        },
        "tuple_bytes": side.tuple_bytes,
        "window_tuples_max": side.state_tuples,
    }


def _plot_json(plot: EntropyPlot | None) -> dict[str, Any] | None:
    if plot is None or plot.line is None:
        return None
    return {
        "slope": plot.line.slope,
        "b": plot.bias,
        "r2": plot.line.r2,
        "levels": plot.fitted,
        "linear": plot.is_linear,
    }


def _expected_json(profile: Profile) -> dict[str, Any]:
    expected = profile.expected
    return {
        "type": profile.join.type,
        "where": profile.join.where,
        "match": profile.join.match,
        "reduce": {one.result: one.text for one in profile.join.reduce},
        **_number_json(expected),
        "pairs": _number_json(profile.pairs),
        "without_partner": {name: _number_json(one) for name, one in profile.alone.items()},
        "ranges": expected.ranges.count,
        "ranges_counted": expected.counted,
        "samples": [_sample_json(sample) for sample in expected.samples],
        "results_bytes_max": profile.results_bytes,
        "state_bytes_max": profile.state_bytes,
        "peak_results_per_s": profile.peak_results,
    }


def _number_json(expected: Expected) -> dict[str, Any]:
    """below: there are fewer than `results`, since a sample had none."""
    return {
        "results": ceil(expected.results) if expected.is_bound else round(expected.results),
        "exact": expected.is_exact,
        "below": expected.is_bound,
        "error_95": expected.error,
    }


def _sample_json(sample: Sample) -> dict[str, Any]:
    """stream: whose rows were drawn; None: pairs were."""
    stream = None if sample.what == PAIRS_NAME else sample.what
    counts = {"taken": sample.taken, "held": sample.held, "undecided": sample.undecided, "of": sample.of}
    return {"stream": stream, **counts}


def utc(time_s: float) -> str:
    """Seconds since 1970 as a date; as they are where no date can be that.

    >>> utc(1476403203.43)
    '2016-10-14 00:00:03.430'
    """
    try:
        return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return f"{time_s:.3f} s"


def text_of(profile: Profile, advice: Advice, bins: int) -> str:
    """The profile as text for the terminal."""
    lines = [_row("", *(side.name for side in profile.sides)).rstrip()]
    lines += [_row(label, *values) for label, values in _compared(profile, bins)]
    lines += ["", f"hottest keys: {_top_text(profile)}", *_results_lines(profile), "", "advice"]
    lines += [_wrapped(f"  {hint.field:<20} {hint.value:<9} ", hint.why) for hint in advice.hints]
    lines += [_wrapped("  beware: ", warning) for warning in advice.warnings]
    return "\n".join(lines)


def _wrapped(head: str, text: str) -> str:
    return textwrap.fill(
        text, TEXT_WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False
    )


def _row(label: str, *values: str) -> str:
    return f"{label:<{LABEL_WIDTH}}" + "".join(f"{value:>{COLUMN_WIDTH}}" for value in values)


def _compared(profile: Profile, bins: int) -> Iterator[tuple[str, list[str]]]:
    """A line with a label and the value of each stream."""
    sides = profile.sides
    yield "rows", [f"{side.extent.rows:,}" for side in sides]
    for label, name in (("without a time", "null_time"), ("without a key", "null_key")):
        if any(getattr(side.extent, name) for side in sides):
            yield label, [f"{getattr(side.extent, name):,}" for side in sides]
    yield "first (UTC)", [utc(side.arrivals.start_s) for side in sides]
    yield "last (UTC)", [utc(side.extent.last * side.tick_ns / 1e9) for side in sides]
    yield "out of order by", [format_duration(side.disorder_ns) for side in sides]
    yield "rate, tuples/s", [f"{amount(side.arrivals.rate)}" for side in sides]
    shortest = max(PEAK_S, *(side.arrivals.bin_s for side in sides))
    yield f"  in the busiest {seconds(shortest)}", [f"{amount(side.arrivals.peak_rate(PEAK_S))}" for side in sides]
    length = seconds(sides[0].arrivals.span_s / len(sides[0].arrivals.binned(bins)))
    yield f"dispersion, {length} bins", [_number(dispersion(side.arrivals.binned(bins)), ".3g") for side in sides]
    yield "Hurst estimate, rough", [_number(side.arrivals.hurst, ".2f") for side in sides]
    yield "time: slope, b", [_plot_text(side.arrivals.entropy) for side in sides]
    yield "distinct keys", [f"{side.keys.sums.distinct:,}" for side in sides]
    yield "hottest key's share", [f"{side.keys.top_share:.2%}" for side in sides]
    yield "keys: slope, b", [_skew_text(side) for side in sides]
    yield "window", [_window_text(side) for side in sides]
    yield "  most tuples held", [f"{side.state_tuples:,}" for side in sides]
    yield "bytes of a tuple", [f"{side.tuple_bytes:.3g}" for side in sides]


def _window_text(side: Side) -> str:
    return UNBOUNDED if side.window_ns is None else format_duration(side.window_ns)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _plot_text(plot: EntropyPlot) -> str:
    if plot.line is None:
        return "-"
    return f"{plot.line.slope:.4f}, {plot.bias:.3f}" + ("" if plot.is_linear else " (bent)")


def _skew_text(side: Side) -> str:
    skew, plot = side.keys.skew, side.keys.plot
    if skew.bias is None:
        return "-"
    return _plot_text(plot) if plot is not None and skew.is_trusted else f"-, {skew.bias:.2f} (rough)"


def _top_text(profile: Profile) -> str:
    named = [f"{printable(one.key)} ({one.of_all / profile.rows:.2%})" for one in profile.top[:TOP_SHOWN]]
    return f"{', '.join(named)}; keys in all streams: {profile.common:,}"


def _results_lines(profile: Profile) -> list[str]:
    peak = f"at most {amount(profile.peak_results)} per second over {seconds(profile.peak_results_s)}"
    lines = [_wrapped("results expected: ", f"{_number_text(profile.expected)}, {peak}")]
    for sample in profile.expected.samples:
        lines.append(_wrapped("  ", _sample_text(sample)))
    for name, alone in profile.alone.items():
        lines.append(f"  of them rows of {name} without partner: {_number_text(alone)}")
    if profile.join != Join():
        lines.append(f"pairs of equal keys in the windows: {_number_text(profile.pairs)}")
    lines.append(f"in the windows: at most {bytes_amount(profile.state_bytes)}")
    lines.append(f"results with all columns, before compression: at most {bytes_amount(profile.results_bytes)}")
    return lines


def _number_text(expected: Expected) -> str:
    if expected.is_exact:
        return f"{expected.results:,.0f} (exact if no row is late)"
    how = ["an estimate"] if any(not sample.is_whole for sample in expected.samples) else []
    if expected.counted < expected.ranges.count:
        how.append(f"from {expected.counted:,} of {expected.ranges.count:,} ranges of time")
    told = f"(95 %, {', '.join(how)})"
    if expected.is_bound:
        return f"below {ceil(expected.results):,} {told}"
    return f"about {expected.results:,.0f} +- {expected.error:,.0f} {told}"


def _sample_text(sample: Sample) -> str:
    is_all = sample.taken == sample.of
    drawn = f"all {sample.of:,}" if is_all else f"{sample.taken:,} sampled"
    held, of = f"{sample.held:,}" if sample.held else "none", "" if is_all else f", of {sample.of:,} in all"
    if sample.what == PAIRS_NAME:
        return f"the condition holds for {held} of {drawn} pairs{of}"
    may = f" (and {sample.undecided:,} may have one)" if sample.undecided else ""
    return f"{held} of {drawn} rows of {sample.what} with equal keys in reach have a partner{may}{of}"
