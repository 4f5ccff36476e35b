"""Reads what stands in quotes in a condition: a duration, a moment or a time of day, in nanoseconds, exactly."""

from __future__ import annotations

import re
from datetime import date

from mpijoin.config.units import DURATION_NS, INT64_MAX, show
from mpijoin.named import NamedTuple

SECOND_NS, DAY_NS = DURATION_NS["s"], DURATION_NS["d"]
MICROSECOND_NS = DURATION_NS["us"]
NAIVE, UTC = "", "UTC"  # zones: of times without one, and of those with one, which are all moments of UTC

_TIME = r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
_CLOCK = re.compile(_TIME)
_MOMENT = re.compile(rf"([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})(?:[T ]{_TIME}(?:(Z)|([+-])([0-9]{{2}}):?([0-9]{{2}}))?)?")


class Moment(NamedTuple):
    """ns: since 1970 · zone: None: the text does not name one, so that it means the zone of what it is compared
    with."""

    ns: int
    zone: str | None


def moment_of(text: str) -> Moment:
    """Reads a date, or a date and a time. ValueError: it is none.

    >>> moment_of("1970-01-02"), moment_of("1970-01-01T01:00:00.5+01:00")
    (Moment(ns=86400000000000, zone=None), Moment(ns=500000000, zone='UTC'))
    """
    found = _MOMENT.fullmatch(text.strip())
    try:
        if found is None:
            raise ValueError
        day, *clock, universal, sign, hours, minutes = found.groups()
        ns = (date.fromisoformat(day) - date(1970, 1, 1)).days * DAY_NS + _since_midnight(*clock)
        if sign:
            offset = _since_midnight(hours, minutes, None, None)
            ns -= offset if sign == "+" else -offset
    except ValueError:
        raise ValueError(f"got {show(text)}, wanted a time such as '2024-01-02T03:04:05' or '2024-01-02'") from None
    if ns % MICROSECOND_NS and abs(ns) > INT64_MAX:
        raise ValueError(f"got {show(text)}, wanted no nanoseconds before 1678 and after 2261")
    return Moment(ns, UTC if universal or sign else None)


def clock_of(text: str) -> int:
    """Reads a time of day, as nanoseconds since midnight. ValueError: it is none.

    >>> clock_of("00:01")
    60000000000
    """
    found = _CLOCK.fullmatch(text.strip())
    try:
        if found is None:
            raise ValueError
        return _since_midnight(*found.groups())
    except ValueError:
        raise ValueError(f"got {show(text)}, wanted a time of day such as '03:04:05'") from None


def _since_midnight(hour: str | None, minute: str | None, second: str | None, fraction: str | None) -> int:
    if int(hour or 0) > 23 or int(minute or 0) > 59 or int(second or 0) > 59:
        raise ValueError
    whole = (int(hour or 0) * 60 + int(minute or 0)) * 60 + int(second or 0)
    return whole * SECOND_NS + int((fraction or "0").ljust(9, "0"))
