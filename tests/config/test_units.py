"""Durations and sizes: exact, and refused in a sentence."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpijoin.config import fields, injections, kinds, rules, units
from mpijoin.config.units import (
    DURATION_NS,
    INT64_MAX,
    SIZE_BYTES,
    duration_ns,
    format_duration,
    format_size,
    size_bytes,
)
from mpijoin.data import files, types


@pytest.mark.parametrize(
    "text, ns",
    [
        ("0 s", 0),
        (0, 0),
        ("1ns", 1),
        ("20 s", 20_000_000_000),
        (" 0.1 s ", 100_000_000),
        ("1.000000001 s", 1_000_000_001),
        ("5 min", 300_000_000_000),
        ("2 h", 7_200_000_000_000),
        ("1 d", 86_400_000_000_000),
        (f"{INT64_MAX} ns", INT64_MAX),
    ],
)
def test_a_duration_is_exact_nanoseconds(text, ns):
    assert duration_ns(text) == ns


@pytest.mark.parametrize(
    "value, problem",
    [
        (20, "wanted a duration"),
        (True, "got true"),
        (1.5, "got 1.5"),
        (None, "wanted a duration"),
        ("", "wanted a duration"),
        ("s", "wanted a duration"),
        ("20", "wanted a duration"),
        ("20 parsecs", "units: ns us ms s min h d"),
        ("20 S", "wanted a duration"),
        ("1e3 s", "wanted a duration"),
        ("1 s 5 ms", "wanted a duration"),
        ("٣ s", "wanted a duration"),
        ("-1 s", "not negative"),
        ("0.5 ns", "whole number of ns"),
        (f"{INT64_MAX + 1} ns", f"at most {INT64_MAX} ns"),
        ("300000 d", "at most"),
        ("9" * 5000 + " s", "..."),
    ],
)
def test_a_bad_duration_is_refused_with_what_was_got_and_wanted(value, problem):
    with pytest.raises(ValueError, match="got ") as caught:
        duration_ns(value)
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "value, size",
    [(4096, 4096), ("64 B", 64), ("4 KB", 4000), ("4 KiB", 4096), ("1.5 MB", 1_500_000), ("2 GiB", 2 << 30), (0, 0)],
)
def test_a_size_is_exact_bytes(value, size):
    assert size_bytes(value) == size


@pytest.mark.parametrize("value", ["1.5 B", "4 kb", "4 Mb", -1, "-1 B", True, 1.0, [], "9999999999 GB"])
def test_a_bad_size_is_refused(value):
    with pytest.raises(ValueError, match="got .*wanted"):
        size_bytes(value)


@given(st.integers(0, INT64_MAX) | st.sampled_from(list(DURATION_NS.values())))
def test_a_formatted_duration_reads_back(ns):
    assert duration_ns(format_duration(ns)) == ns


@given(st.integers(0, INT64_MAX) | st.sampled_from(list(SIZE_BYTES.values())))
def test_a_formatted_size_reads_back(size):
    assert size_bytes(format_size(size)) == size


def test_formats_use_the_largest_whole_unit():
    assert [format_duration(ns) for ns in (0, 90_000_000_000, 1_500)] == ["0 s", "90 s", "1500 ns"]
    assert [format_size(size) for size in (0, 64 << 20, 3_000_000)] == ["0 B", "64 MiB", "3 MB"]


@pytest.mark.parametrize("module", [units, kinds, injections, fields, rules, files, types])
def test_the_examples_in_the_docstrings_hold(module):
    assert doctest.testmod(module).failed == 0
