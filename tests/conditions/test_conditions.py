"""Conditions give what DuckDB gives, for random expressions over random values, nulls among them."""

import gc
import hashlib
import operator
import random
import re
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from mpijoin.compiled import kernel
from mpijoin.conditions.code import code_of, source_of
from mpijoin.conditions.kinds import kinds_of_schema, place_in
from mpijoin.conditions.sql import sql_of
from mpijoin.conditions.tree import (
    KEY_SIDE,
    ConditionError,
    Kind,
    durations_of,
    expression,
    names_in,
    parse,
    parsed_text,
)
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import Column, JoinSchema, StreamSchema
from mpijoin.join.where import kernel_of
from mpijoin.store.simd import unsigned
from mpijoin.store.state import HEAD_WORDS, NEXT, NONE, PAGE_WORDS, POOL_COUNTERS, Stored

INTEGERS = (0, 1, -1, 2, 7, -100, 2**63 - 1, -(2**63), 3_037_000_500)
LARGE = (0, 1, 7, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 100, 2**64 - 1)
REALS = (0.0, -0.0, 1.5, -2.25, 1e300, float("inf"), float("-inf"), float("nan"))
LONG = "a long text that goes on and on, from one page of the store to the next one, and then to a third one; "
TEXTS = ("", "a", "b", "aa", "z", "ä", "é€😀", "a\0", "a\0b", LONG, LONG + "a", LONG + "b", LONG[:-2], LONG * 3, "text")
SECONDS = (0, -1, 1, -86_400, 1_704_164_645, -(2**63), 2**63 - 1, 2**40)  # 2024-01-02T03:04:05
NANOSECONDS = (0, -1, 1, 10**9, -(10**9), 1_704_164_645 * 10**9, 1_704_164_645 * 10**9 + 1, -(2**63), 2**63 - 1)
COLUMNS = {
    "i": (pa.int64(), INTEGERS),
    "b": (pa.int8(), (0, 1, -1, 127, -128)),
    "u": (pa.uint16(), (0, 1, 65535)),
    "w": (pa.uint64(), LARGE),
    "f": (pa.float64(), REALS),
    "g": (pa.float32(), (0.0, 1.5, -2.25, float("nan"))),
    "t": (pa.bool_(), (True, False)),
    "s": (pa.string(), TEXTS),
    "z": (pa.dictionary(pa.int8(), pa.large_string()), TEXTS),
    "o": (pa.binary(), (b"", b"a", b"\0", b"\xff", LONG.encode())),
    "seconds": (pa.timestamp("s"), SECONDS),
    "exact": (pa.timestamp("ns"), NANOSECONDS),
    "day": (pa.date32(), (0, -1, 1, 19_724, -(2**31), 2**31 - 1)),
    "midnight": (pa.date64(), (0, -86_400_000, 19_724 * 86_400_000)),
    "utc": (pa.timestamp("us", "UTC"), (0, -1, 1_704_164_645 * 10**6, 2**63 - 1)),
    "berlin": (pa.timestamp("ms", "Europe/Berlin"), (0, -1, 1_704_164_645 * 10**3, -(2**63))),
    "clock": (pa.time32("s"), (0, 1, 11_045, 86_399)),
    "fine": (pa.time64("ns"), (0, 10**9, 11_045 * 10**9, 86_399_999_999_999)),
    "took": (pa.duration("ms"), (0, -1, 1500, 86_400_000, 2**63 - 1)),
    "d": (pa.decimal128(9, 2), ()),
}
ROWS, SMALL_PAGE = 60, 8
KINDS = {"integer": ("i", "b", "u", "w"), "real": ("f", "g"), "boolean": ("t",)}
NAIVE, ZONED = ("seconds", "exact", "day", "midnight"), ("utc", "berlin")


def stream(name):
    payload = tuple(Column(column, kind) for column, (kind, _) in COLUMNS.items())
    return StreamSchema(name, Column("ts", pa.int64()), 1, (Column("k", pa.int64()),), False, payload)


SCHEMA = JoinSchema((stream("left"), stream("right")), "ms")


def column_of(kind, values):
    """Values of times and dates are given as the numbers that are stored."""
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    return pa.array(values, kind)


def tables(seed):
    chance = random.Random(seed)
    for _ in range(2):
        yield pa.table({
            "time": pa.array([chance.randrange(-5000, 5000) for _ in range(ROWS)], pa.int64()),
            "key": pa.array(range(ROWS), pa.int64()),
            **{
                name: column_of(kind, [
                    None if not values or chance.random() < 0.2 else chance.choice(values) for _ in range(ROWS)
                ])
                for name, (kind, values) in COLUMNS.items()
            },
        })  # fmt: skip


def in_pages(blob, first):
    """Returns the bytes in small pages, of which the first one is to be page `first`, the address of each, and the page
    that follows each page. No page lies beside the one that follows it."""
    page_bytes, pages = SMALL_PAGE * 8, -(-len(blob) // (SMALL_PAGE * 8))
    order = first + np.argsort(np.arange(pages) * 7 % max(pages, 1), kind="stable")
    octets, addresses = np.zeros(pages * page_bytes, np.uint8), np.zeros(len(blob) + 1, np.int64)
    for i, page in enumerate(order.tolist()):
        part = blob[i * page_bytes : (i + 1) * page_bytes]
        addresses[i * page_bytes : i * page_bytes + len(part)] = page * page_bytes + np.arange(len(part))
        octets[(page - first) * page_bytes :][: len(part)] = part
    following = np.full(pages, NONE)
    following[order[:-1] - first] = order[1:]
    return octets.view(np.int64), addresses, following


def stored(sides):
    """Returns the rows of two tables as the store has them, and the slot ids of either side."""
    words, slots, following = [], [], []
    layout = RecordLayout(SCHEMA.streams[0])
    for table in sides:
        record, size, blob = layout.pack([table[name] for name in COLUMNS])
        first = sum(map(len, words)) // SMALL_PAGE
        paged, addresses, pages = in_pages(blob, first)
        starts = np.cumsum(size) - size
        # Nothing may be read at the address of a blob without bytes.
        address = np.where(size > 0, addresses[np.minimum(starts, len(blob))], 2**62)
        head = np.stack([table["key"], table["time"], np.arange(ROWS), address, size], axis=1)
        tuples = np.concatenate([head, record], axis=1)
        slots.append(sum(map(len, words)) + len(paged) + tuples.shape[1] * np.arange(ROWS))
        padding = -tuples.size % SMALL_PAGE
        words += [paged, tuples.ravel(), np.zeros(padding, np.int64)]
        following += [pages, np.full((tuples.size + padding) // SMALL_PAGE, NONE)]
    memory, pool = np.concatenate(words), np.zeros(POOL_COUNTERS, np.int64)
    heads = np.full((len(memory) // SMALL_PAGE, HEAD_WORDS), NONE)
    heads[:, NEXT], pool[PAGE_WORDS] = np.concatenate(following), SMALL_PAGE
    return Stored(memory, memory.view(np.uint8), heads, pool), *slots


def kept(text, sides, compiled=True):
    """The pairs of rows of equal number that the kernel keeps, of tuples as the store has them."""
    s, left, right = stored(sides)
    first, apart, width = left[0], right[0] - left[0], left[1] - left[0]
    keep = kernel_of(text, SCHEMA)
    with np.errstate(all="ignore"):
        found = (keep if compiled else keep.py_func)(s, left, right, ROWS)
    assert ((right - left)[:found] == apart).all()
    return ((left[:found] - first) // width).tolist()


def plain(array):
    """A column as `verify` has it: strings as bytes, times as numbers."""
    array = array.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_temporal(array.type):
        return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64()).cast(pa.int64())
    return array.cast(pa.large_binary()) if pa.types.is_large_string(array.type) else (
        array.cast(pa.binary()) if pa.types.is_string(array.type) else array
    )


def in_duckdb(text, sides):
    tree = parse(text, ["left", "right"], kinds_of_schema(SCHEMA))
    asked = sql_of(tree, lambda side, name: f'{"r" if side == 1 else "l"}."{name}"', 10**6)
    left, right = (pa.table({name: plain(table[name]) for name in table.column_names}) for table in sides)
    query = f"SELECT l.key FROM left_ l JOIN right_ r ON l.key = r.key WHERE {asked} ORDER BY 1"
    with duckdb.connect() as database:
        database.register("left_", left)
        database.register("right_", right)
        return [row[0] for row in database.execute(query).fetchall()]


def of_either(chance, names):
    column = chance.choice(names)
    return chance.choice(("left", "right")) + chance.choice((f".{column}", f'["{column}"]'))


def number(chance, depth):
    """A text that is a number."""
    kind = chance.random()
    if depth == 0 or kind < 0.3:
        name = chance.choice(KINDS["integer"] + KINDS["real"])
        some = [f"{chance.choice(('left', 'right'))}.{name}", str(chance.choice(INTEGERS[:6])), "0.5", "1e999", "key",
                str(chance.choice(LARGE))]
        return chance.choice(some[:1] * 4 + some[1:])
    parts = [number(chance, depth - 1) for _ in range(2)]
    if kind < 0.7:
        return f"({parts[0]} {chance.choice('+-*/')} {parts[1]})"
    if kind < 0.8:
        parts += [number(chance, 0)] if kind < 0.74 else []
        return f"{chance.choice(('least', 'greatest'))}({', '.join(parts)})"
    if kind < 0.85:
        return f"(-{parts[0]})"
    return f"{chance.choice(('abs', 'sqrt', 'floor', 'ceil'))}({parts[0]})"


def moment(chance, names):
    """A text that is a time, with a zone or without one as the columns of these names."""
    kind = chance.random()
    if kind < 0.5:
        return of_either(chance, names)
    if kind < 0.6:
        return chance.choice(("left.time", "right.time"))
    if kind < 0.8:
        zones = ("", "Z", "+01:00") if names == ZONED else ("",)
        day = chance.choice(("2024-01-02", "1969-12-31", "1970-01-01", "9999-12-31", "0001-01-01"))
        clock = chance.choice((" 00:00", "T03:04:05", "T23:59:59.999", "T00:00:00.000001"))
        return f"'{day}{clock}{chance.choice(zones)}'"
    if kind < 0.9:
        return f"({moment(chance, names[:1])} {chance.choice('+-')} {span(chance)})"
    return f"{chance.choice(('least', 'greatest'))}({of_either(chance, names)}, {moment(chance, names)})"


def span(chance):
    """A text that is a duration."""
    times = ["left.time", "right.time"]
    chance.shuffle(times)
    names = chance.choice((NAIVE, ZONED))
    return chance.choice([
        f"({times[0]} - {times[1]})", f"abs({times[0]} - {times[1]})", "'2 s'", "'0.5 s'", of_either(chance, ["took"]),
        f"({of_either(chance, names)} - {of_either(chance, names)})", "'1 d'",
        f"({of_either(chance, ['clock'])} - {of_either(chance, ['fine', 'clock'])})",
    ])  # fmt: skip


def words(chance):
    """A text that is a string."""
    literal = repr(chance.choice([*TEXTS, "A", "zz", "a" * 70]))
    return chance.choice([of_either(chance, ["s", "z", "o"])] * 3 + [literal])


def compared(chance, compares):
    """A text that compares strings, times, times of day or durations."""
    kind = chance.random()
    if kind < 0.1:
        return f"{words(chance)} {chance.choice(('in', 'not in'))} ({words(chance)}, {words(chance)}, '')"
    if kind < 0.4:
        return f"{of_either(chance, ['s', 'z', 'o'])} {compares} {words(chance)}"
    if kind < 0.5:
        return f"{of_either(chance, ['clock', 'fine'])} {compares} " + chance.choice(
            ["'03:04:05'", "'23:59:59.999999999'", "left.clock", "right.fine"]
        )
    if kind < 0.65:
        return f"{span(chance)} {compares} {span(chance)}"
    names = chance.choice((NAIVE, ZONED))
    return f"{of_either(chance, names)} {compares} {moment(chance, names)}"


def truth(chance, depth):
    """A text that is a truth value."""
    kind, compares = chance.random(), chance.choice(("<", "<=", ">", ">=", "==", "!="))
    if depth == 0 or kind < 0.15:
        of_null = f"{of_either(chance, ['f', 's', 'w', 'day', 'exact'])} is {chance.choice(('', 'not '))}null"
        return chance.choice(["left.t", "right.t", "left.t", "true", of_null, compared(chance, compares)])
    if kind < 0.35:
        return f"{number(chance, depth - 1)} {compares} {number(chance, depth - 1)}"
    if kind < 0.55:
        return compared(chance, compares)
    if kind < 0.65:
        return f"{number(chance, 0)} {chance.choice(('in', 'not in'))} (1, 2, -1, {number(chance, 0)})"
    if kind < 0.75:
        return f"(not {truth(chance, depth - 1)})"
    if kind < 0.8:
        return f"(({truth(chance, depth - 1)}) == ({truth(chance, depth - 1)}))"
    return f"({truth(chance, depth - 1)} {chance.choice(('and', 'or'))} {truth(chance, depth - 1)})"


def drawn(seed):
    """A random condition. Two numbers of which the least is to be found must be of one type."""
    chance = random.Random(seed)
    while True:
        text = truth(chance, 4)
        try:
            parse(text, ["left", "right"], kinds_of_schema(SCHEMA))
        except ConditionError as error:
            assert "integer and uint64, wanted one type" in str(error), (text, error)
        else:
            return text


@pytest.mark.parametrize("seed", range(12))
def test_random_conditions_are_true_where_duckdb_says_so(seed):
    text, sides = drawn(seed), list(tables(seed))
    assert kept(text, sides) == in_duckdb(text, sides), text


def test_the_function_that_is_compiled_is_right_for_many_more():
    found = 0
    for seed in range(100, 300):
        text, sides = drawn(seed), list(tables(seed))
        own = kept(text, sides, compiled=False)
        assert own == in_duckdb(text, sides), text
        found += 0 < len(own) < ROWS
    assert found > 80, "most are true for some pairs only"


def listed(chance):
    """A condition with a list that is long enough to be looked up in."""
    name = chance.choice(["i", "b", "u", "w", "f", "s", "z", "o", "seconds", "exact", "day", "utc", "took", "fine"])
    kind, some = COLUMNS[name]
    if name in ("s", "z", "o"):
        values = [repr(one) for one in (*TEXTS, "A", "zz", "a" * 70)]
    elif pa.types.is_temporal(kind):
        unit = {"seconds": "s", "exact": "ns", "day": "d", "utc": "us", "took": "ms", "fine": "ns"}[name]
        clocks = [f"'0{hour}:00:00.5'" for hour in range(9)] + ["'03:04:05'", "'00:00'"]
        # One of them counts as many seconds as a day of the column counts days.
        days = [f"'20{year}-01-02T03:04:05'" for year in range(20, 30)] + ["'1970-01-01'", "'1970-01-01T05:28:44'"]
        spans = [f"'{count} {unit}'" for count in range(12)] + ["'1500 ms'", "'86400 s'"]
        values = clocks if name == "fine" else spans if name == "took" else days
    else:
        values = [*map(str, {*some, *INTEGERS, *LARGE} if name != "f" else INTEGERS), *map(str, range(300, 310))]
    one = chance.choice((f"left.{name}", f"right.{name}"))
    if name in ("i", "b") and chance.random() < 0.3:
        one = f"({one} + 1)"
    own = chance.choices(values, k=chance.randrange(8, 30))
    text = f"{one} {chance.choice(('in', 'not in'))} ({', '.join(own)})"
    if chance.random() < 0.3:
        text = " or ".join(f"{value} == {one}" for value in own)
    return f"({text} {chance.choice(('and', 'or'))} {one} is not null)" if chance.random() < 0.3 else f"({text})"


COMPILED_LISTS = (2, 17, 20, 26, 34)  # of int8, of strings from a dictionary, of bytes, of uint64, and of strings


def test_long_lists_are_looked_up_and_hold_what_duckdb_says():
    found, looked_up = 0, Counter()
    for seed in range(200):
        chance = random.Random(seed)
        text, sides = " and ".join(listed(chance) for _ in range(chance.choice((1, 1, 2)))), list(tables(seed))
        own = kept(text, sides, compiled=seed in COMPILED_LISTS)
        assert own == in_duckdb(text, sides), text
        found += 0 < len(own) < ROWS
        tree = parse(text, ["left", "right"], kinds_of_schema(SCHEMA))
        source = source_of(tree, "holds", lambda *column: place_in(SCHEMA, *column), 10**6)
        looked_up.update((one, seed in COMPILED_LISTS) for one in re.findall(r"is_among\w*", source))
    assert found > 100, "most are true for some pairs only"
    for one in ("is_among", "is_among_given"):
        assert looked_up[one, False] > 20 and looked_up[one, True] > 1, looked_up


@pytest.mark.parametrize("count, are_looked_up", [(7, False), (8, True), (1000, True)])
def test_a_list_that_is_long_enough_is_one_part(count, are_looked_up):
    values = [7 * value for value in range(count)]
    text = f"left.i in ({', '.join(map(str, [*values, *values][:1000]))})"
    tree = parse(text, ["left", "right"], kinds_of_schema(SCHEMA))
    source = source_of(tree, "holds", lambda *column: place_in(SCHEMA, *column), 10**6)
    assert ("is_among(" in source) == are_looked_up and source.count("==") == (0 if are_looked_up else count)


WHOLES = [
    *(("left.i", other) for other in ("right.i", "left.i", "right.w")),
    *(("left.w", other) for other in ("right.w", "left.w", "right.i")),
    *(pair for one in ("2", "3", "(-1)", str(2**63 - 1), str(-(2**63))) for pair in (("left.i", one), (one, "left.i"))),
    *(pair for one in ("1", "2", "(-1)", str(2**63)) for pair in (("left.w", one), (one, "left.w"))),
]
ARITHMETIC = [f"{one} {op} {other}" for op in "+-*" for one, other in WHOLES]
ARITHMETIC += ["-left.i", "-left.w", "abs(left.i)", "abs(left.i - right.i)", "(left.i - right.i) + right.i"]
WORKS_OUT = """
def {name}(s, lefts, rights, values, nulls):
    words = s.words
    for row in range(len(lefts)):
        left, right = lefts[row], rights[row]
        {lines}
"""


def exact(node, row):
    """The value of an expression of integers, as Python works it out; None: null."""
    if node.op == "constant":
        return node.value
    if node.op == "column":
        return row[node.side][node.name]
    parts = [exact(part, row) for part in node.parts]
    if None in parts:
        return None
    value = {"+": operator.add, "-": operator.sub, "*": operator.mul, "abs": abs}[node.op](*parts)
    return value if -(2**63) <= value < 2**63 else None


def test_integers_beyond_64_bits_are_null_in_compiled_code():
    """The compiler may take for granted that integers with a sign do not overflow, so Python alone shows nothing."""
    nodes = [expression(parsed_text(text, "test"), ["left", "right"], kinds_of_schema(SCHEMA)) for text in ARITHMETIC]
    code = code_of(nodes, lambda *column: place_in(SCHEMA, *column), 10**6)
    ends = [
        f"values[{number}, row], nulls[{number}, row] = {value}, {null}"
        for number, (value, null) in enumerate(code.values)
    ]
    name = f"arithmetic_{hashlib.sha256(repr(code).encode()).hexdigest()[:16]}"
    space = {"np": np, "unsigned": unsigned, "__name__": __name__}
    exec(WORKS_OUT.format(name=name, lines="\n        ".join([*code.lines, *ends])), space)
    work_out, beyond = kernel(space[name]), 0
    for seed in range(20):
        sides = [table.select(["time", "key", *COLUMNS]) for table in tables(seed)]
        values, nulls = np.zeros((len(nodes), ROWS), np.int64), np.zeros((len(nodes), ROWS), np.bool_)
        work_out(*stored(sides), values, nulls)
        rows = list(zip(*(table.select(["i", "w"]).to_pylist() for table in sides)))
        wanted = [[exact(node, row) for row in rows] for node in nodes]
        found = [[None if null else value for value, null in zip(*one)] for one in zip(values.tolist(), nulls.tolist())]
        for text, own, other in zip(ARITHMETIC, found, wanted):
            assert own == other, text
        beyond += sum(one.count(None) for one in wanted)
    assert beyond > len(nodes) * ROWS * 5, "many are null"


# DuckDB itself cannot read times that are further away.
NEAR = {"seconds": 2**32, "exact": 2**61, "day": 2**17, "utc": 2**52, "berlin": 2**42, "took": 2**40}


def near(table):
    """The table, with nulls for times that DuckDB does not know."""
    for name, limit in NEAR.items():
        known = [None if number is None or abs(number) > limit else number for number in plain(table[name]).to_pylist()]
        kind = table.schema.field(name).type
        table = table.set_column(table.column_names.index(name), name, column_of(kind, known))
    return table


@pytest.mark.parametrize("text, own", [
    ("left.s < right.z", "l.s < r.z"),
    ("left.z >= right.s", "l.z >= r.s"),
    ("left.s == right.s", "l.s = r.s"),
    ("left.s > 'aa'", "l.s > 'aa'"),
    ("'é' >= left.z", "'é' >= l.z"),
    ("left.s in ('', 'ä', right.z)", "l.s in ('', 'ä', r.z)"),
    ("left.s not in ('a', right.s)", "l.s not in ('a', r.s)"),
    ("left.w < right.i", "l.w < r.i"),
    ("left.i != right.w", "l.i <> r.w"),
    ("left.w >= right.f", "l.w >= r.f"),
    ("left.w > 9223372036854775807", "l.w > 9223372036854775807"),
    ("greatest(left.w, right.w, 0.5) > 1e18", "greatest(l.w::DOUBLE, r.w::DOUBLE, 0.5) > 1e18"),
    ("least(left.w, right.i, left.f) < 0", "least(l.w::DOUBLE, r.i::DOUBLE, l.f) < 0"),
    ("left.exact < right.seconds", "l.exact < r.seconds"),
    ("left.exact == right.seconds", "l.exact = r.seconds"),
    ("left.day <= right.exact", "l.day <= r.exact"),
    ("left.day > right.midnight", "l.day > r.midnight"),
    ("left.utc < right.berlin", "l.utc < r.berlin"),
    ("left.exact > '2024-01-02T03:04:05'", "l.exact > TIMESTAMP_NS '2024-01-02 03:04:05'"),
    ("left.utc == '2024-01-02T04:04:05+01:00'", "l.utc = TIMESTAMPTZ '2024-01-02 04:04:05+01:00'"),
    ("left.day >= '1969-12-31'", "l.day >= DATE '1969-12-31'"),
    ("left.clock < right.fine", "l.clock::TIME_NS < r.fine"),
    ("left.clock == '03:04:05'", "l.clock = TIME '03:04:05'"),
    ("left.seconds - right.seconds > '1 d'", "l.seconds - r.seconds > INTERVAL 1 DAY"),
    ("left.day + '1 d' == right.day", "l.day + INTERVAL 1 DAY = r.day"),
    ("left.took > '1.5 s'", "l.took > INTERVAL 1500 MILLISECONDS"),
])  # fmt: skip
def test_strings_times_and_uint64_are_compared_as_duckdb_compares_its_own_types(text, own):
    left, right = sides = [near(table) for table in tables(len(text))]
    with duckdb.connect() as database:
        database.register("left_", left)
        database.register("right_", right)
        query = f"SELECT l.key FROM left_ l JOIN right_ r ON l.key = r.key WHERE {own} ORDER BY 1"
        wanted = [row[0] for row in database.execute(query).fetchall()]
    assert kept(text, sides, compiled=False) == wanted
    assert 0 < len(wanted) < ROWS


def kinds(side, name):
    return kinds_of_schema(SCHEMA)(side, name)


@pytest.mark.parametrize(
    "text, said",
    [
        ("left.i >", "at character 9: this is no condition"),
        ("left.i > 1 and\n left.i >", "at character 25: this is no condition"),
        ("left.i > 1 # not so\nand left.t >", "at character 33: this is no condition"),
        ("left.s == 'a\nb'", "at character 11: this is no condition"),
        ("left.t\n) or (right.t", "this is no condition"),
        (f"left.i in ({', '.join(map(str, range(1001)))})", "at character 11: got 1001 values, wanted at most 1000"),
        (f"least({', '.join(['left.i'] * 900)}) > 1", "least: got 900, wanted at most 100 arguments"),
        ("left.i == 0x" + "f" * 5000, "at character 11: got a very large number, wanted left.COLUMN"),
        ("-" * 9000 + "left.i > 1", "too many parts within parts"),
        ("left.i = right.i", "this is no condition, equality is =="),
        ("left.i", "at character 1: left.i is integer, wanted boolean"),
        ("left.i > right.t", "at character 1: got integer > boolean, wanted two of one type"),
        ("right.b > 1 and middle.i > 1", 'at character 17: got "middle", wanted a stream: "left" or "right"'),
        ("left.missing > 1", 'at character 1: no column "missing", wanted time or one that the stream carries: i, b'),
        ("1 < left.d", 'at character 5: column "d" is decimal128(9, 2), wanted integers, float, double, boolean'),
        ("left.d > 1", "times, durations, string or binary; cast it to double, or scale it and cast it to an integer"),
        ("left.s > 1", "at character 1: got string > integer, wanted two of one type"),
        ("left.i == 'x'", "at character 1: got integer == text, wanted two of one type"),
        ("left.s + 'x' == 'x'", 'at character 10: got "x", wanted a duration'),
        ("left.z == 'é' and left.z > left.i", "at character 19: got string > integer, wanted two of one type"),
        ("'\\ud800' == left.s", "at character 1: got half of a character"),
        ("least(left.s, right.s) == ''", "at character 7: left.s is string, wanted integer or uint64 or real or time"),
        ("least(left.w, right.i) > 1", "least: got integer and uint64, wanted one type"),
        ("left.exact > 'tomorrow'", "at character 14: got \"tomorrow\", wanted a time such as '2024-01-02T03:04:05'"),
        ("left.day == '2023-02-29'", "wanted a time such as"),
        ("left.exact > '2500-01-01T00:00:00.000000001'", "wanted no nanoseconds before 1678 and after 2261"),
        ("left.clock > '24:00'", "at character 14: got \"24:00\", wanted a time of day such as '03:04:05'"),
        ("left.exact > '03:04:05'", "wanted a time such as"),
        ("left.exact > left.clock", "at character 1: got time > time of day, wanted two of one type"),
        ("left.exact < right.utc", "at character 1: got a time with a zone and one without, wanted both alike"),
        ("left.exact < '2024-01-02T03:04:05Z'", "got a time with a zone and one without"),
        ("least(left.day, right.berlin) < left.time", "got a time with a zone and one without"),
        ("left.clock + '5 s' > right.clock", "at character 1: got time of day + duration, which means nothing"),
        ("left.time + right.time > left.time", "at character 1: got time + time, which means nothing"),
        ("left.time > 5", "at character 1: got time > integer, wanted two of one type"),
        ("left.time - right.time > '5 parsecs'", 'got "5 parsecs", wanted a duration'),
        ("sqrt(1, 2) > 1", "at character 1: sqrt: got 2, wanted one argument"),
        ("least(1) > 1", "least: got 1, wanted two arguments or more"),
        ("least(left.time, 1) > 1", "least: got integer and time, wanted one type"),
        ("left.i is 3", "at character 11: wanted null after is"),
        ("left.i in ()", "got an empty list"),
        ("__import__('os').system('true')", "which conditions do not know"),
        ("(lambda: 1)() > 1", "which conditions do not know"),
        ("left.i.real > 1", "which conditions do not know"),
        ("left[0] > 1", "which conditions do not know"),
        ('middle["i"] > 1', 'at character 1: got "middle", wanted a stream'),
        ('1 < left["i j"]', 'at character 5: no column "i j", wanted time or one that the stream carries'),
        ("left.i ** 2 > 1", "which conditions do not know"),
        ("99999999999999999999 > left.i", "wanted left.COLUMN or right.COLUMN, key, a number"),
        ("price > 1", 'got price, wanted left.COLUMN or right.COLUMN, key'),
        ("not left.i", "at character 5: left.i is integer, wanted boolean"),
        ("not " * 500 + "left.t", "too many parts within parts"),
        ("(" * 300 + "left.t" + ")" * 300, "this is no condition"),
    ],
)
def test_what_is_no_condition_is_told_with_its_place(text, said):
    with pytest.raises(ConditionError) as caught:
        parse(text, ["left", "right"], kinds)
    assert said in str(caught.value), caught.value


def test_the_key_may_be_named_in_each_way_and_a_column_called_key_is_not_the_key():
    payload = (Column("key", pa.int64()), Column("time", pa.int64()))
    left, right = (StreamSchema(name, Column("ts", pa.int64()), 1, (Column("k", pa.int64()),), False, payload)
                   for name in ("left", "right"))  # fmt: skip
    schema, seen = JoinSchema((left, right), "ms"), []
    for text in ("key == 1", "left.k == 1", "right.k == 1", "left.key == 1", "left.time == right.time"):
        tree = parse(text, ["left", "right"], kinds_of_schema(schema))
        seen.append((tree.parts[0].side, place_in(schema, tree.parts[0].side, tree.parts[0].name).word))
    assert seen == [(KEY_SIDE, 0), (0, 0), (1, 0), (0, 3), (0, 1)]
    keys = Column("a", pa.int64()), Column("b", pa.string())
    several = JoinSchema((StreamSchema("left", left.time, 1, keys, True, ()),) * 2, "ms")
    with pytest.raises(ConditionError, match="the key has 2 columns, wanted one; name the columns instead"):
        parse("key == 1", ["left", "right"], kinds_of_schema(several))
    assert parse("left.b > 'x'", ["left", "right"], kinds_of_schema(several)).parts[0].kind == "string"
    assert place_in(several, 0, "a").word == 5 and place_in(several, 0, "b").word == 6


def test_only_one_equals_sign_is_taken_for_a_mistake():
    advice = re.escape('this is no condition, this column is written left["from"]')
    with pytest.raises(ConditionError, match=f"at character 6: {advice}$"):
        parse("left.from >= 2 and left.i != 1 and left.b == 3", ["left", "right"], kinds)


def test_a_condition_may_go_on_in_the_next_line():
    text = "left.i > 1\n  and left.s == 'x' # so far\nor right.t"
    one_line = text.replace(" # so far", "").replace("\n", " ")
    assert parse(text, ["left", "right"], kinds) == parse(one_line, ["left", "right"], kinds)
    assert names_in(text) == {("left", "i"), ("left", "s"), ("right", "t")}
    assert parse("left.\u00b5s > 1\nand right.t", ["left", "right"], lambda side, name: Kind(
        "integer" if name == "\u00b5s" else "boolean")).parts[0].parts[0].name == "\u00b5s"  # fmt: skip


def test_names_keep_the_letters_that_they_are_written_with():
    """Python takes the micro sign for the Greek letter, but a column may be called by either."""
    micro, greek = "\u00b5_s", "\u03bc_s"
    text = f"left.{micro} > right.{greek} and 'é' == {micro}.\ufb01 and left['{micro} \ufb01'] > 1"
    assert names_in(text) == {("left", micro), ("right", greek), (micro, "\ufb01"), ("left", f"{micro} \ufb01")}
    asked = []

    def kind_of(side, name):
        asked.append(name)
        return Kind("integer")

    parse(f"left.{micro} == 1", ["left", "right"], kind_of)
    assert asked == [micro]


def test_long_texts_are_read_once_for_each_name():
    """If they were read from each of their letters on, this would take hours."""
    text = f"left.s == '{'a' * 10**6}' or " + " or ".join(["right.i > 1"] * 20)
    assert names_in(text) == {("left", "s"), ("right", "i")}


def test_what_a_condition_reads():
    text = "left.i > right.b and (left.time - right.time > '2 s' or key in (1, 2)) and right.f is not null"
    tree = parse(text, ["left", "right"], kinds)
    assert durations_of(tree) == [2 * 10**9]
    assert names_in(text) == {("left", "i"), ("right", "b"), ("left", "time"), ("right", "time"), ("right", "f")}
    assert names_in("left.i >") == set()


def test_threads_may_parse_at_the_same_time():
    """The ranks of a local run do. They take turns amid a text where the collection of garbage calls Python."""
    text = " and ".join(f"left.v > {number} + {number} * 2" for number in range(40))
    before_s, threshold, called = sys.getswitchinterval(), gc.get_threshold(), lambda phase, info: sum(range(100))
    sys.setswitchinterval(1e-6)
    gc.set_threshold(20)
    gc.callbacks.append(called)
    try:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(names_in, [text] * 400))
    finally:
        gc.callbacks.remove(called)
        gc.set_threshold(*threshold)
        sys.setswitchinterval(before_s)
    assert found == [{("left", "v")}] * 400
