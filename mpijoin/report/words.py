"""Writes numbers in a form that people read well."""

from __future__ import annotations


def byte_unit(largest: float) -> tuple[float, str]:
    """Returns the divisor and the name of the unit in which a number of bytes reads well."""
    return next(((10.0**exponent, unit) for exponent, unit in BYTE_UNITS if largest >= 10**exponent), (1.0, "bytes"))


def count_unit(largest: float) -> tuple[float, str]:
    """Returns the divisor and the name of the unit in which a count reads well.

    >>> count_unit(2_500_000)
    (1000000.0, 'million')
    """
    return next(((10.0**exponent, unit) for exponent, unit in COUNT_UNITS if largest >= 10**exponent), (1.0, ""))


BYTE_UNITS = ((9, "GB"), (6, "MB"), (3, "KB"))
COUNT_UNITS = ((9, "billion"), (6, "million"), (3, "thousand"))


def amount(value: float) -> str:
    """Returns a count as text, in millions or billions if it is large.

    >>> amount(2_512_000), amount(31_250), amount(0.5)
    ('2.51 million', '31,250', '0.5')
    """
    divisor, unit = count_unit(abs(value)) if abs(value) >= 1e6 else (1.0, "")
    return f"{value / divisor:.3g} {unit}" if unit else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def bytes_amount(value: float) -> str:
    """Returns a number of bytes as text, in the unit in which it reads well.

    >>> bytes_amount(2_512_000), bytes_amount(300)
    ('2.51 MB', '300 bytes')
    """
    divisor, unit = byte_unit(abs(value))
    return f"{value / divisor:.3g} {unit}"


def seconds(value: float) -> str:
    """Returns a span of time as text, in the unit in which it reads well.

    A unit is kept as long as the number has no more than about three digits.

    >>> seconds(0.0421), seconds(48.2), seconds(1200), seconds(259_200)
    ('42.1 ms', '48.2 s', '20 min', '72 h')
    """
    divisor, unit = next((one for one in TIME_UNITS if abs(value) >= one[2]), TIME_UNITS[-1])[:2]
    return f"{value / divisor:.3g} {unit}" if value else "0 s"


# Each unit has its divisor in seconds, its name, and the number of seconds from which on it is used. 72 h say more than
# 3 d, and 90 s more than 1.5 min.
TIME_UNITS = (
    (86_400.0, "days", 4 * 86_400.0),
    (3600.0, "h", 2 * 3600.0),
    (60.0, "min", 600.0),
    (1.0, "s", 1.0),
    (1e-3, "ms", 1e-3),
    (1e-6, "us", 0.0),
)


def time_unit(largest_s: float) -> tuple[float, str]:
    """Returns the seconds in a unit and its name, for the unit in which an axis up to so many seconds reads well.

    >>> time_unit(90), time_unit(7200)
    ((1.0, 'second'), (60.0, 'minute'))
    """
    return next((one for one in ((3600.0, "hour"), (60.0, "minute")) if largest_s >= 10 * one[0]), (1.0, "second"))


def shortened(text: str, length: int) -> str:
    """Shortens a text to at most so many characters. It loses its middle, since both ends tell names apart.

    >>> shortened("left.window=100s", 12)
    'left.…w=100s'
    """
    if len(text) <= length:
        return text
    head = (length - 1) // 2
    return f"{text[:head]}…{text[len(text) - (length - 1 - head):]}"
