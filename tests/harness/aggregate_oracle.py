"""The slow twin of the aggregate: for each row it looks through all others, and adds with Python's exact sums."""

import math
from typing import NamedTuple


class Row(NamedTuple):
    """values: {column: a number or None}."""

    time: int
    key: object
    row: int
    values: dict


class History(NamedTuple):
    rows: int | None = None
    span: int | None = None


def aggregate(rows, history, functions, period=None):
    """Returns {row number: the answers of its result}. functions: (name, column) each."""
    found = {}
    for own in rows:
        same = sorted(((o.time, o.row, o.values) for o in rows if o.key == own.key), key=lambda one: one[:2])
        if period is not None and any(
            (time, row) > (own.time, own.row) and time // period == own.time // period for time, row, _ in same
        ):
            continue
        found[own.row] = tuple(answer(name, [values.get(column) for values in past(same, own, history)], column)
                               for name, column in functions)
    return found


def past(same, own, history):
    """Returns the values of all rows in the history of one. same: (time, row, values) of its key, in order."""
    if history.rows is not None:
        before = [values for time, row, values in same if (time, row) <= (own.time, own.row)]
        return before[-history.rows :]
    return [values for time, _, values in same if own.time - history.span <= time <= own.time]


def answer(name, values, column):
    if column is None:
        return len(values)
    values = [value for value in values if value is not None]
    if name == "count":
        return len(values)
    if not values:
        return None
    if name in ("min", "max"):
        return extreme(name, values)
    total = exact_sum(values)
    return float(total) / len(values) if name == "mean" else total


def exact_sum(values):
    if all(isinstance(value, int) for value in values):
        return sum(values)
    infinities = {value for value in values if math.isinf(value)}
    if any(math.isnan(value) for value in values) or len(infinities) == 2:
        return math.nan
    return infinities.pop() if infinities else math.fsum(values)


def extreme(name, values):
    """The smallest or the largest value. A NaN is larger than all numbers, and 0.0 than -0.0."""

    def order(value):
        if isinstance(value, int):
            return (False, value, 1)
        return (math.isnan(value), 0 if math.isnan(value) else value, math.copysign(1, value))

    return (min if name == "min" else max)(values, key=order)


def same(found, wanted):
    """Whether two answers are equal to the last bit; all NaNs are equal."""
    if isinstance(found, float) and isinstance(wanted, float):
        if math.isnan(found) or math.isnan(wanted):
            return math.isnan(found) and math.isnan(wanted)
        return found.hex() == wanted.hex() or found == wanted == 0
    return type(found) is type(wanted) and found == wanted
