"""Conditions give what DuckDB gives, for random expressions over random values, nulls among them."""

import random

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from mpijoin.conditions.kinds import kinds_of_schema, place_in
from mpijoin.conditions.sql import sql_of
from mpijoin.conditions.tree import KEY_SIDE, ConditionError, durations_of, names_in, parse
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import Column, JoinSchema, StreamSchema
from mpijoin.join.where import kernel_of

INTEGERS = (0, 1, -1, 2, 7, -100, 2**63 - 1, -(2**63), 3_037_000_500)
REALS = (0.0, -0.0, 1.5, -2.25, 1e300, float("inf"), float("-inf"), float("nan"))
COLUMNS = {
    "i": (pa.int64(), INTEGERS),
    "b": (pa.int8(), (0, 1, -1, 127, -128)),
    "u": (pa.uint16(), (0, 1, 65535)),
    "f": (pa.float64(), REALS),
    "g": (pa.float32(), (0.0, 1.5, -2.25, float("nan"))),
    "t": (pa.bool_(), (True, False)),
    "s": (pa.string(), ("", "text")),
}
ROWS = 60
KINDS = {"integer": ("i", "b", "u"), "real": ("f", "g"), "boolean": ("t",)}


def stream(name):
    payload = tuple(Column(column, kind) for column, (kind, _) in COLUMNS.items())
    return StreamSchema(name, Column("ts", pa.int64()), 1, (Column("k", pa.int64()),), False, payload)


SCHEMA = JoinSchema((stream("left"), stream("right")), "ms")


def tables(seed):
    chance = random.Random(seed)
    for _ in range(2):
        yield pa.table({
            "time": pa.array([chance.randrange(-5000, 5000) for _ in range(ROWS)], pa.int64()),
            "key": pa.array(range(ROWS), pa.int64()),
            **{
                name: pa.array([None if chance.random() < 0.2 else chance.choice(values) for _ in range(ROWS)], kind)
                for name, (kind, values) in COLUMNS.items()
            },
        })  # fmt: skip


def kept(text, sides, compiled=True):
    """The pairs of rows of equal number that the kernel keeps, of tuples as the store has them."""
    words, slots = [np.zeros(0, np.int64)], []
    for table in sides:
        layout = RecordLayout(SCHEMA.streams[0])
        record, size, _ = layout.pack([table[name] for name in COLUMNS])
        head = np.stack([table["key"], table["time"], np.arange(ROWS), np.zeros(ROWS, np.int64), size], axis=1)
        tuples = np.concatenate([head, record], axis=1)
        slots.append(sum(map(len, words)) + tuples.shape[1] * np.arange(ROWS))
        words.append(tuples.ravel())
    left, right = slots
    keep = kernel_of(text, SCHEMA)
    with np.errstate(all="ignore"):
        found = (keep if compiled else keep.py_func)(np.concatenate(words), left, right, ROWS)
    assert ((right - left)[:found] == len(words[1])).all()
    return (left[:found] // tuples.shape[1]).tolist()


def in_duckdb(text, sides):
    tree = parse(text, ["left", "right"], kinds_of_schema(SCHEMA))
    asked = sql_of(tree, lambda side, name: f'{"r" if side == 1 else "l"}."{name}"', lambda ns: ns // 10**6)
    left, right = sides
    query = f"SELECT l.key FROM left_ l JOIN right_ r ON l.key = r.key WHERE {asked} ORDER BY 1"
    with duckdb.connect() as database:
        database.register("left_", left)
        database.register("right_", right)
        return [row[0] for row in database.execute(query).fetchall()]


def number(chance, depth):
    """A text that is a number."""
    kind = chance.random()
    if depth == 0 or kind < 0.3:
        name = chance.choice(KINDS["integer"] + KINDS["real"])
        some = [f"{chance.choice(('left', 'right'))}.{name}", str(chance.choice(INTEGERS[:6])), "0.5", "1e999", "key"]
        return chance.choice(some[:1] * 4 + some[1:])
    parts = [number(chance, depth - 1) for _ in range(2)]
    if kind < 0.7:
        return f"({parts[0]} {chance.choice('+-*/')} {parts[1]})"
    if kind < 0.8:
        return f"{chance.choice(('least', 'greatest'))}({', '.join(parts)})"
    if kind < 0.85:
        return f"(-{parts[0]})"
    return f"{chance.choice(('abs', 'sqrt', 'floor', 'ceil'))}({parts[0]})"


def span(chance):
    times = ["left.time", "right.time"]
    chance.shuffle(times)
    return chance.choice([f"({times[0]} - {times[1]})", f"abs({times[0]} - {times[1]})", "'2 s'", "'0.5 s'"])


def truth(chance, depth):
    """A text that is a truth value."""
    kind, compares = chance.random(), chance.choice(("<", "<=", ">", ">=", "==", "!="))
    if depth == 0 or kind < 0.15:
        return chance.choice(["left.t", "right.t", "left.t", "true", "left.f is null", "right.i is not null"])
    if kind < 0.45:
        return f"{number(chance, depth - 1)} {compares} {number(chance, depth - 1)}"
    if kind < 0.55:
        return f"{span(chance)} {compares} {span(chance)}"
    if kind < 0.65:
        return f"{number(chance, 0)} {chance.choice(('in', 'not in'))} (1, 2, -1, {number(chance, 0)})"
    if kind < 0.75:
        return f"(not {truth(chance, depth - 1)})"
    if kind < 0.8:
        return f"(({truth(chance, depth - 1)}) == ({truth(chance, depth - 1)}))"
    return f"({truth(chance, depth - 1)} {chance.choice(('and', 'or'))} {truth(chance, depth - 1)})"


@pytest.mark.parametrize("seed", range(12))
def test_random_conditions_are_true_where_duckdb_says_so(seed):
    text, sides = truth(random.Random(seed), 4), list(tables(seed))
    assert kept(text, sides) == in_duckdb(text, sides), text


def test_the_function_that_is_compiled_is_right_for_many_more():
    found = 0
    for seed in range(100, 300):
        text, sides = truth(random.Random(seed), 4), list(tables(seed))
        own = kept(text, sides, compiled=False)
        assert own == in_duckdb(text, sides), text
        found += 0 < len(own) < ROWS
    assert found > 80, "most are true for some pairs only"


def kinds(side, name):
    return kinds_of_schema(SCHEMA)(side, name)


@pytest.mark.parametrize(
    "text, said",
    [
        ("left.i >", "at character"),
        ("left.i = right.i", "this is no condition, equality is =="),
        ("left.i", "at character 1: left.i is integer, wanted boolean"),
        ("left.i > right.t", "at character 1: got integer > boolean, wanted two of one type"),
        ("right.b > 1 and middle.i > 1", 'at character 17: got "middle", wanted a stream: "left" or "right"'),
        ("left.missing > 1", 'at character 1: no column "missing", wanted time or one that the stream carries: i, b'),
        ("1 < left.s", 'at character 5: column "s" is string, wanted integers up to 64 bits, float'),
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
    several = left.__class__("left", left.time, 1, (Column("a", pa.int64()), Column("b", pa.int64())), True, ())
    for text in ("key == 1", "left.a == 1"):
        with pytest.raises(ConditionError, match="the key has 2 columns, wanted one"):
            parse(text, ["left", "right"], kinds_of_schema(JoinSchema((several, several), "ms")))


def test_what_a_condition_reads():
    text = "left.i > right.b and (left.time - right.time > '2 s' or key in (1, 2)) and right.f is not null"
    tree = parse(text, ["left", "right"], kinds)
    assert durations_of(tree) == [2 * 10**9]
    assert names_in(text) == {("left", "i"), ("right", "b"), ("left", "time"), ("right", "time"), ("right", "f")}
    assert names_in("left.i >") == set()
