"""Numbers for people."""

from __future__ import annotations


def byte_unit(largest: float) -> tuple[float, str]:
    """Divisor and name of the unit in which a number of bytes reads well."""
    return next(((10.0**exponent, unit) for exponent, unit in BYTE_UNITS if largest >= 10**exponent), (1.0, "bytes"))


def count_unit(largest: float) -> tuple[float, str]:
    """Divisor and name of the unit in which a count reads well.

    >>> count_unit(2_500_000)
    (1000000.0, 'million')
    """
    return next(((10.0**exponent, unit) for exponent, unit in COUNT_UNITS if largest >= 10**exponent), (1.0, ""))


BYTE_UNITS = ((9, "GB"), (6, "MB"), (3, "KB"))
COUNT_UNITS = ((9, "billion"), (6, "million"), (3, "thousand"))


def amount(value: float) -> str:
    """
    >>> amount(2_512_000), amount(31_250), amount(0.5)
    ('2.51 million', '31,250', '0.5')
    """
    divisor, unit = count_unit(abs(value)) if abs(value) >= 1e6 else (1.0, "")
    return f"{value / divisor:.3g} {unit}" if unit else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def bytes_amount(value: float) -> str:
    """
    >>> bytes_amount(2_512_000), bytes_amount(300)
    ('2.51 MB', '300 bytes')
    """
    divisor, unit = byte_unit(abs(value))
    return f"{value / divisor:.3g} {unit}"


def seconds(value: float) -> str:
    """
    >>> seconds(0.0421), seconds(48.2), seconds(1200)
    ('42.1 ms', '48.2 s', '1,200 s')
    """
    if abs(value) >= 1000:
        return f"{value:,.0f} s"
    return f"{value:.3g} s" if abs(value) >= 1 else f"{1e3 * value:.3g} ms"
