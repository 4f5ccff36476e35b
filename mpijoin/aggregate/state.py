"""What the kernels of an aggregate work with: its rule, its functions, and scratch memory for one bucket at a time."""

from __future__ import annotations

import numpy as np

from mpijoin.named import NamedTuple

# Entries of `rule`. IN_ROWS: 1 if SPAN counts rows, 0 if it is a time · PERIOD: 0 if every row has a result · RECORD:
# the word of a tuple at which its record begins · KEY_WORDS, KEY_FIXED, KEY_VARIABLE: as in `KeyWords`.
IN_ROWS, SPAN, PERIOD, RECORD, KEY_WORDS, KEY_FIXED, KEY_VARIABLE, RULE_WORDS = range(8)

# Columns of `functions`. OFFSET: of its column's value, in bytes from the start of the record · WIDTH: of the value, in
# bytes · NULL_OFFSET, NULL_BIT: of its null bit, likewise.
FUNCTION, FORM, OFFSET, WIDTH, NULL_OFFSET, NULL_BIT, FUNCTION_WORDS = range(7)
COUNT_ROWS, COUNT, SUM, MIN, MAX, MEAN = range(6)
# How the bytes of a value are to be read.
SIGNED, UNSIGNED, REAL = range(3)

# Entries of `cursor`. PHASE: FIND or FINISH · AT: which of the groups · ENTRY: which entry of its directory · STAGED,
# GIVEN: how many results of one bucket are worked out, and how many of these were handed out · LACKING: for how many
# rows the scratch memory must have room · FAULT, FAULT_SLOT: the function whose sum is too large, and the tuple at
# which it is · LISTED: how many buckets are to be rewritten.
PHASE, AT, ENTRY, STAGED, GIVEN, LACKING, FAULT, FAULT_SLOT, LISTED, CURSOR_WORDS = range(10)
FIND, FINISH = range(2)
# What a kernel returns beside DONE, BUDGET and OUT_FULL.
NO_ROOM, TOO_LARGE = 3, 4

# The flag of a tuple that no row to come can need. The first two bits belong to the store.
DEAD = 4

# An exact sum of float64s is kept as digits to the base 2**32, the lowest of which counts 2**-1074. Each digit is an
# int64 and may be of either sign. Behind them stand the lowest and the highest digit that were ever touched, and how
# many infinities and NaNs there are.
DIGITS = 68
LOWEST, HIGHEST, INFINITE, MINUS_INFINITE, NOT_NUMBERS, SUM_WORDS = range(DIGITS, DIGITS + 6)

# So many buckets at most are rewritten after one slice. What is left is rewritten after another one.
LISTED_MAX = 1024


# Of `Work`: one int64 for each row.
ROW_ARRAYS = ("slots", "keys", "first", "order", "other", "values", "queue", "given")


class Rules(NamedTuple):
    """rule: int64[RULE_WORDS] · functions: int64[f, FUNCTION_WORDS]."""

    rule: np.ndarray
    functions: np.ndarray


class Work(NamedTuple):
    """Scratch memory for the rows of one bucket, and the cursor.

    slots, keys: int64[room], of the rows that were gathered: their slot ids, and the numbers of their keys · first:
    int64[room], a tuple of each key · starts: int64[room + 1] · order, other: int64[room] · table: int64[n], n a power
    of two: where keys are looked up · values: int64[room], of one function · valid: uint8[room], 0 where that is null ·
    queue: int64[room] · given: int64[room], the rows with results, as slot ids · answers: int64[f + 1, room], their
    results, and a word with a bit for each that is null · total: int64[2, SUM_WORDS], an exact sum, and memory to round
    it · listed: int64[LISTED_MAX], buckets · bits, number: int64[1] and float64[1], the same memory · small,
    small_number: int32[1] and float32[1], likewise · cursor: int64[CURSOR_WORDS].
    """

    slots: np.ndarray
    keys: np.ndarray
    first: np.ndarray
    starts: np.ndarray
    order: np.ndarray
    other: np.ndarray
    table: np.ndarray
    values: np.ndarray
    valid: np.ndarray
    queue: np.ndarray
    given: np.ndarray
    answers: np.ndarray
    total: np.ndarray
    listed: np.ndarray
    bits: np.ndarray
    number: np.ndarray
    small: np.ndarray
    small_number: np.ndarray
    cursor: np.ndarray


def new_work(room: int, functions: int, cursor: np.ndarray, listed: np.ndarray) -> Work:
    """Returns scratch memory for so many rows in a bucket. listed: the buckets that the cursor counts as listed."""
    rows = {name: np.zeros(room, np.int64) for name in ROW_ARRAYS}
    bits, small = np.zeros(1, np.int64), np.zeros(1, np.int32)
    return Work(
        **rows,
        starts=np.zeros(room + 1, np.int64),
        table=np.zeros(1 << (2 * max(room, 1)).bit_length(), np.int64),
        valid=np.zeros(room, np.uint8),
        answers=np.zeros((functions + 1, room), np.int64),
        total=np.zeros((2, SUM_WORDS), np.int64),
        listed=listed,
        bits=bits,
        number=bits.view(np.float64),
        small=small,
        small_number=small.view(np.float32),
        cursor=cursor,
    )
