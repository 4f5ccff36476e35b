"""Files of CSV whose last quote is never closed.

Where line breaks may stand between quotes, such a quote takes all lines behind it into one field. Spark's parser closes
it at the file's end without a word: a file that was cut off would give a row that nobody wrote, and a quote too many
would swallow rows. Unlike in `data.csv_records`, text behind a closing quote goes on with the field, as it does there.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Sequence

import numpy as np

from mpijoin.compiled import kernel
from mpijoin.errors import InputError
from mpijoin.pipeline.prepare.packed import chunks
from mpijoin.sources.csv_reader import UNCLOSED

BOM = b"\xef\xbb\xbf"
QUOTE, LF = ord('"'), ord("\n")
# Where a walk through a file is. A field that began without a quote is plain, and so is one that goes on behind its
# closing quote: quotes in it mean themselves. CLOSED: behind a quote that closes the field, unless another one follows.
START, PLAIN, QUOTED, CLOSED = range(4)
STATE, MATCHED, LINE, OPENED = range(4)  # MATCHED: bytes of a delimiter that were just seen · OPENED: line of the quote
WALKERS = 16


def check_quotes(paths: Sequence[str], delimiter: str) -> None:
    """Raises InputError with the place of the first quote that is never closed."""
    pool, end = ThreadPoolExecutor(WALKERS), Event()
    try:
        for path, line in zip(paths, pool.map(lambda path: open_quote(path, delimiter, end), paths)):
            if line is not None:
                raise InputError(f"{path}:{line}: {UNCLOSED}")
    finally:
        end.set()  # Ctrl-C need not wait for large files.
        pool.shutdown(cancel_futures=True)


def open_quote(path: str, delimiter: str, end: Event | None = None) -> int | None:
    """The line, from 1, in which the quote opens that is never closed; None if all are, or `end` was set meanwhile."""
    at = np.array([START, 0, 1, 0])
    separator = np.frombuffer(delimiter.encode(), np.uint8)
    for number, chunk in enumerate(chunks(path)):
        if end and end.is_set():
            return None
        octets = np.frombuffer(chunk, np.uint8)
        walk(octets[len(BOM) :] if number == 0 and chunk.startswith(BOM) else octets, separator, at)
    return int(at[OPENED]) if at[STATE] == QUOTED else None


@kernel
def walk(octets, delimiter, at):
    """Goes on through a file. octets: uint8[n], its next bytes · delimiter: uint8[1 to 4] · at: int64[4], where the
    walk is."""
    state, matched, line, opened = at[STATE], at[MATCHED], at[LINE], at[OPENED]
    for i in range(len(octets)):
        octet = octets[i]
        line += octet == LF
        if state == QUOTED:
            if octet == QUOTE:
                state = CLOSED
        elif octet == QUOTE and state != PLAIN:
            opened = line if state == START else opened
            state = QUOTED
        elif octet == LF:
            state, matched = START, 0
        else:
            state = PLAIN
            matched = matched + 1 if octet == delimiter[matched] else int(octet == delimiter[0])
            if matched == len(delimiter):
                state, matched = START, 0
    at[STATE], at[MATCHED], at[LINE], at[OPENED] = state, matched, line, opened
