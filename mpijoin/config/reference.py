"""What `mpijoin check --fields` prints: every field of the job file with its default, type, unit and meaning."""

from __future__ import annotations

import inspect
import textwrap
from typing import Any, Iterator, Sequence

from mpijoin.config.fields import SECTIONS, SOURCE_FIELDS, STREAM_FIELDS, SYNTHETIC_FIELDS, Field
from mpijoin.config.job import SHORT_STREAMS, FileSource, Query, StreamJob, SyntheticSource
from mpijoin.config.queries import QUERY, QUERY_FIELDS
from mpijoin.config.units import DURATION_NS, INT64_MAX, SIZE_BYTES, show
from mpijoin.errors import JobError

NAME_CELLS, DEFAULT_CELLS, INDENT_CELLS = 22, 11, 6
WIDE_CELLS = 76  # in fewer, what a field means stands below its name and not beside it; so, too, by a long default
BOLD, DIM, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"

HEAD = f"""\
Every field of a job file, with its default. Most jobs write only path, time, key and window of each stream, and the \
path of the output. The streams are the tables [streams.NAME], one to eight of them, in the order of the file: a name \
has letters, digits and _, and result columns begin with it. [left] and [right], in this order, are short for \
[streams.left] and [streams.right]. Durations have a unit, {" ".join(DURATION_NS)}, and so have sizes, \
{" ".join(SIZE_BYTES)}; a KB is 1000 bytes, a KiB is 1024. Strings stand in quotes."""
REQUIRED, UNSET = "required", "not set"
# What it takes to make one of these sections: a value for each that has no default.
STREAM = StreamJob("left", FileSource(""))
SYNTHETIC = SyntheticSource()
STREAM_TITLE, SYNTHETIC_TITLE = "streams", "synthetic"


def sections() -> dict[str, tuple[str, tuple[Field, ...], Any]]:
    """{title: (what the section is, its fields, an object with their defaults)}, in the order of a job file."""
    return {
        STREAM_TITLE: (_about(StreamJob), SOURCE_FIELDS + STREAM_FIELDS, STREAM),
        SYNTHETIC_TITLE: (_about(SyntheticSource), SYNTHETIC_FIELDS, SYNTHETIC),
        **{name: (_about(make), fields, make()) for name, (make, fields) in SECTIONS.items()},
        QUERY: (_about(Query), QUERY_FIELDS, Query("")),
    }


def _about(section: type) -> str:
    return " ".join((inspect.getdoc(section) or "").split())


def default_text(section: str, field: Field, defaults: Any) -> str:
    """The default as a job file would write it; "required" or "not set" if there is none.

    >>> title, (_, fields, defaults) = list(sections().items())[2]
    >>> default_text(title, fields[0], defaults), default_text(title, fields[4], defaults)
    ('60', '"64 MiB"')
    """
    if (section, field.name) in ((STREAM_TITLE, "path"), ("output", "path"), (QUERY, "name")):
        return REQUIRED
    value = getattr(defaults, field.attribute, None)
    if value == "" or (value is None and not field.kind.none_has_word):
        return UNSET
    return field.kind.write(value)


def type_text(field: Field) -> str:
    """What kind of value it is, and its unit or the words or bounds that there are.

    >>> type_text(SECTIONS["cluster"][1][0]), type_text(SECTIONS["run"][1][3])
    ('whole number, 1 to 65535 (partitions)', '"keep" or "fail"')
    """
    if field.choices:
        return " or ".join(map(show, field.choices))
    text = field.kind.called
    if field.low is not None and field.high is not None and field.high < INT64_MAX:
        text += f", {_bare(field, field.low)} to {_bare(field, field.high)}"
    elif field.low is not None and field.low > 1:
        text += f", {_bare(field, field.low)} or more"
    text += f" ({field.unit})" if field.unit else ""
    return " or ".join([f"{text}," if field.kind.words else text, *map(show, field.kind.words)])


def _bare(field: Field, bound: int) -> str:
    return field.kind.write(bound).strip('"')


def reference(wanted: str, width: int, colored: bool) -> str:
    """The text, `width` cells wide at most. wanted: one section, or "" for all. Raises JobError where there is no such
    section."""
    every = sections()
    wanted = STREAM_TITLE if wanted in SHORT_STREAMS else wanted
    if wanted and wanted not in every:
        raise JobError([f"--fields: got {show(wanted)}, wanted one of {' '.join((*SHORT_STREAMS, *every))}"])
    parts = [] if wanted else [textwrap.fill(HEAD, width)]
    parts += ["\n".join(_section(name, *every[name], width, colored)) for name in every if wanted in ("", name)]
    return "\n\n".join(parts)


def _section(name: str, about: str, fields: Sequence[Field], defaults: Any, width: int, colored: bool) -> Iterator[str]:
    titles = {
        STREAM_TITLE: "[streams.NAME], [left] and [right]",
        SYNTHETIC_TITLE: '[streams.NAME] with kind = "synthetic"',
        QUERY: f"[[{QUERY}]]",
    }
    title = titles.get(name, f"[{name}]")
    yield _styled(title, BOLD, colored)
    yield from textwrap.wrap(about, width)
    for field in fields:
        yield ""
        yield from _field(field, default_text(name, field, defaults), width, colored)


def _field(field: Field, default: str, width: int, colored: bool) -> Iterator[str]:
    head = f"  {_styled(field.name.ljust(NAME_CELLS), BOLD, colored)}{default.ljust(DEFAULT_CELLS)}"
    beside = 2 + NAME_CELLS + DEFAULT_CELLS if width >= WIDE_CELLS else INDENT_CELLS
    if width < WIDE_CELLS or len(default) >= DEFAULT_CELLS:
        yield head.rstrip()
        head = " " * beside
    kinds = [_styled(line, DIM, colored) for line in textwrap.wrap(type_text(field), width - beside)]
    for line in (*kinds, *textwrap.wrap(field.meaning, width - beside, break_on_hyphens=False)):
        yield head + line
        head = " " * beside


def _styled(text: str, style: str, colored: bool) -> str:
    return f"{style}{text}{PLAIN}" if colored else text
