"""The kernel that counts the results among rows of a sample."""

from __future__ import annotations

from mpijoin.compiled import kernel, part
from mpijoin.store.row_kernels import GROUP, SAMPLED_KEY, SAMPLED_STREAM, SAMPLED_TIME
from mpijoin.store.state import FOREVER, TIME_MIN_VALUE


@kernel
def count_results(rows, classes, windows, sign, live, oldest, found):
    """Adds the number of results of each group to found, float64[groups], or subtracts it.

    rows: int64[k, SAMPLE_COLUMNS], by key, class, time and stream · classes: int64[k]; rows of several classes meet
    nobody · windows: int64[n] · sign: 1.0 or -1.0 · live, oldest: int64[n], used as scratch.

    A result is counted at its last row. Those that it meets are before it in its run of rows, and `live` counts them.
    """
    begin = 0
    for at in range(len(rows)):
        if at > begin and (rows[at, SAMPLED_KEY] != rows[begin, SAMPLED_KEY] or classes[at] != classes[begin]):
            begin = at
        if at == begin:
            for stream in range(len(windows)):
                live[stream], oldest[stream] = 0, begin
        own, waiting = rows[at, SAMPLED_STREAM], sign
        for stream in range(len(windows)):
            if stream != own:
                forget_old(rows, stream, at, windows[stream], live, oldest)
                waiting *= live[stream]
        live[own] += 1
        found[rows[at, GROUP]] += waiting


@part
def forget_old(rows, stream, at, window, live, oldest):
    """Leaves out of live[stream] the rows that do not wait any more for the row `at`."""
    time, row = rows[at, SAMPLED_TIME], oldest[stream]
    if window == FOREVER or time < TIME_MIN_VALUE + window:
        return
    while row < at and rows[row, SAMPLED_TIME] < time - window:
        live[stream] -= rows[row, SAMPLED_STREAM] == stream
        row += 1
    oldest[stream] = row
