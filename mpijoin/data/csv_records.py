"""Finds where the records of a CSV text end, and what is wrong with its quotes. It splits as the library does, but
guesses nothing.

A quote counts where a field begins. The value goes on, over line ends too, until the next quote that is not doubled;
after that only a comma or a line end may follow. Empty lines are no records.
"""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import kernel
from mpijoin.data.batch import read_only
from mpijoin.named import NamedTuple

QUOTE, COMMA, NEWLINE, RETURN = (np.uint8(ord(sign)) for sign in '",\n\r')
PLUS, MINUS, BLANK, ZERO, NINE = (np.uint8(ord(sign)) for sign in "+- 09")
FIELD_START, PLAIN, QUOTED, CLOSING = range(4)
LEADING, AFTER_SIGN, AFTER_ZERO, OTHER = range(4)  # where in a value that may be a number
ALL = 1 << 62


class Records(NamedTuple):
    """end: just after the last whole record · found: how many records · open_quote: the place of the quote that was
    never closed, -1: none · behind: the first place where text follows a closing quote, -1: nowhere."""

    end: int
    found: int
    open_quote: int
    behind: int


def split(text: bytes | bytearray, most: int = ALL, start: int = 0, end: int | None = None) -> Records:
    """The first records of a text, or of a part of it, `most` at most; places count from `start`.

    >>> split(b'1,"two\\nlines"\\n2,one\\n3,"on').end
    20
    """
    if most == ALL and text.find(b'"', start, end) < 0:
        ends = (text.rfind(line_end, start, end) + 1 for line_end in (b"\n", b"\r"))
        return Records(next((place - start for place in ends if place), 0), -1, -1, -1)
    return Records(*_split(read_only(np.frombuffer(text, np.uint8)[start:end]), most))


@kernel
def _split(text, most):
    state, end, count, quote, behind = FIELD_START, 0, 0, -1, -1
    for i in range(len(text)):
        sign = text[i]
        if state == QUOTED:
            if sign == QUOTE:
                state = CLOSING
            continue
        if state == CLOSING:
            if sign == QUOTE:
                state = QUOTED
                continue
            if behind < 0 and sign != COMMA and sign != NEWLINE and sign != RETURN:
                behind = i
        if sign == NEWLINE or sign == RETURN:
            count += i > end
            state, end = FIELD_START, i + 1
            if count == most:
                break
        elif sign == COMMA:
            state = FIELD_START
        elif sign == QUOTE and state == FIELD_START:
            state, quote = QUOTED, i
        else:
            state = PLAIN
    return end, count, quote if state == QUOTED else -1, behind


def may_be_padded(text: memoryview) -> bool:
    """Whether any field after the first two bytes, which end one, might be a number with leading zeros. It is quick,
    and never wrong when it says no."""
    return bool(_may_be_padded(read_only(np.frombuffer(text, np.uint8))))


@kernel
def _may_be_padded(text):
    length = len(text) - 3
    # of one length: vectors compare
    two, one, here, after = text[:length], text[1 : length + 1], text[2 : length + 2], text[3:]
    found = False
    for i in range(length):
        starts = (one[i] == COMMA) | (one[i] == NEWLINE) | (one[i] == RETURN) | (one[i] == QUOTE)
        before = (two[i] == COMMA) | (two[i] == NEWLINE) | (two[i] == RETURN) | (two[i] == QUOTE) | (two[i] == BLANK)
        signed = ((one[i] == PLUS) | (one[i] == MINUS) | (one[i] == BLANK)) & before
        found |= (here[i] == ZERO) & (after[i] >= ZERO) & (after[i] <= NINE) & (starts | signed)
    return found


def first_padded(text: bytes | memoryview, columns: np.ndarray) -> tuple[int, int]:
    """Record and column of the first field that is a number with leading zeros, in columns that are looked at
    (bool[n]); (-1, -1) if there is none.

    >>> first_padded(b"007,70\\n7,70\\n8,-07\\n", np.array([False, True]))
    (2, 1)
    """
    return _first_padded(read_only(np.frombuffer(text, np.uint8)), read_only(columns))


@kernel
def _first_padded(text, columns):
    state, record, column, end, part = FIELD_START, 0, 0, 0, LEADING
    for i in range(len(text)):
        sign = text[i]
        if state == QUOTED and sign == QUOTE:
            state = CLOSING
            continue
        if state == CLOSING and sign == QUOTE:
            state = QUOTED
        elif state != QUOTED:
            if sign == NEWLINE or sign == RETURN:
                record += i > end
                state, column, end, part = FIELD_START, 0, i + 1, LEADING
                continue
            if sign == COMMA:
                state, column, part = FIELD_START, column + 1, LEADING
                continue
            if sign == QUOTE and state == FIELD_START:
                state = QUOTED
                continue
            state = PLAIN
        if part == OTHER or column >= len(columns) or not columns[column]:
            continue
        if part == AFTER_ZERO:
            if ZERO <= sign <= NINE:
                return record, column
            part = OTHER
        elif sign == ZERO:
            part = AFTER_ZERO
        elif part == LEADING and (sign == PLUS or sign == MINUS):
            part = AFTER_SIGN
        elif part != LEADING or sign != BLANK:
            part = OTHER
    return -1, -1
