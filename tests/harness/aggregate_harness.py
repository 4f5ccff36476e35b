"""Random streams for the aggregate, and holders among which its groups move, with settings that change no answer."""

import math
import random
from typing import NamedTuple

import numpy as np
import pyarrow as pa

import aggregate_oracle as oracle
from join_harness import EVER, NEVER, Stream, groups_of, walk
from mpijoin.aggregate.functions import rules_of
from mpijoin.aggregate.operator import Setup, WindowAggregate
from mpijoin.config.job import Aggregate, Function
from mpijoin.config.job import History as JobHistory
from mpijoin.data.arrow import one_array
from mpijoin.data.batch import read_only
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import Column, JoinSchema, StreamSchema
from mpijoin.operators.base import Out, Progress
from mpijoin.partitioning.hashing import hash_keys
from mpijoin.store.insert import Fresh
from mpijoin.store.pool import new_pool

COLUMNS = {
    "f8": pa.float64(),
    "i8": pa.int64(),
    "f4": pa.float32(),
    "i1": pa.int8(),
    "u8": pa.uint64(),
    "text": pa.string(),
}
NUMBERS = ("f8", "i8", "f4", "i1", "u8")
REALS = (0.0, -0.0, 1e300, -1e300, 0.1, 5e-324, math.inf, -math.inf, math.nan, 2.0**53, 1.0, -3.5)


class Case(NamedTuple):
    """A stream, what is aggregated over it, and settings that change no answer."""

    rows: list
    history: oracle.History
    functions: tuple
    period: int | None
    hashed: bool
    partitions: int
    block: int
    theta: int
    out: int
    holders: int
    lateness: int


def case(seed):
    chance = random.Random(seed)
    functions = [("count", None)]
    for _ in range(chance.randint(1, 6)):
        functions.append((chance.choice(("count", "sum", "min", "max", "mean")), chance.choice(NUMBERS)))
    histories = [oracle.History(rows=chance.choice([1, 2, 3, 10, 500]))]
    histories.append(oracle.History(span=chance.choice([0, 1, 5, 20, 1000, EVER])))
    lateness = chance.choice([0, 3, 15])
    return Case(
        rows_of(chance, chance.choice([1, 30, 120, 400]), lateness),
        chance.choice(histories),
        tuple(dict.fromkeys(functions)),
        chance.choice([None, None, 1, 7, 50]),
        chance.random() < 0.4,
        chance.choice([1, 3, 5]),
        chance.choice([64, 256, 1024, 4096]),
        chance.choice([1, 500, 5000, 1 << 40]),
        chance.choice([1, 5, 1000]),
        chance.choice([1, 2, 3]),
        lateness,
    )


def rows_of(chance, count, lateness):
    """Rows in the order in which they come. They are up to `lateness` older than the newest one before them."""
    keys, start = chance.choice([1, 3, 40]), chance.choice([0, -50, 10**15])
    rows, newest, step, wild = [], start, chance.choice([1, 4]), chance.random() < 0.5
    for row in range(count):
        newest += chance.randint(0, step)
        time = newest - chance.randint(0, lateness)
        rows.append(oracle.Row(time, chance.randrange(keys), row, values_of(chance, row, wild)))
    return rows


def values_of(chance, row, wild):
    real = chance.choice(REALS) if wild else chance.uniform(-1, 1) * 10.0 ** chance.randint(-20, 20)
    values = {
        "f8": real,
        "i8": chance.choice([chance.randint(-9, 9), (1 << 53) + 1, -(1 << 54)]),
        "f4": float(np.float32(chance.uniform(-5, 5))),
        "i1": chance.randint(-128, 127),
        "u8": chance.choice([0, chance.randint(0, 1 << 54)]),
        "text": "long " * (row % 9),
    }
    return {name: None if chance.random() < 0.2 else value for name, value in values.items()}


def schema_of(case):
    key = Column("k", pa.string() if case.hashed else pa.int64())
    payload = tuple(Column(name, kind) for name, kind in COLUMNS.items() if case.hashed or name != "text")
    return JoinSchema((StreamSchema("ev", Column("ts", pa.int64()), 1, (key,), case.hashed, payload),), "ns")


def aggregate_of(case):
    columns = tuple(Function(f"a{i}", *one) for i, one in enumerate(case.functions))
    return Aggregate(JobHistory(case.history.rows, case.history.span), columns, case.period)


class Holders:
    """Operators over the same groups, each of which one of them holds, and the results that all have found."""

    def __init__(self, case, number=None):
        self.case, self.schema = case, schema_of(case)
        self.layout = RecordLayout(self.schema.streams[0])
        rules = rules_of(aggregate_of(case), self.schema)
        names = tuple(map(str, case.functions))
        setup = Setup(case.partitions, case.theta, self.layout.record_words, self.layout.has_blob, rules, names)
        self.stream = Stream(0, self.layout.record_words, self.layout.has_blob, setup.stream.flagged)
        self.operators = [
            WindowAggregate(setup, new_pool(1 << 22, case.block, setup.stream.tuple_words))
            for _ in range(case.holders)
        ]
        self.outs = [Out(1, case.out, answers=len(case.functions) + 1) for _ in self.operators]
        self.owner = [group % case.holders for group in range(case.partitions)]
        self.found, self.times = {}, []

    def insert(self, rows):
        """Inserts rows as a message would bring them, each into its group."""
        if not rows:
            return
        tuples, blob, group = self.encode(rows)
        for own in range(self.case.partitions):
            chosen = read_only(np.ascontiguousarray(tuples[group == own]))
            operator = self.operators[self.owner[own]]
            bounds = np.array([[0, len(chosen)]])
            assert operator.insert(groups_of(own), 0, Fresh(chosen, read_only(blob)), bounds).groups == 1

    def encode(self, rows):
        keys = np.array([row.key for row in rows], np.int64)
        # Two keys of three have the same hash, so that keys themselves must be compared.
        words = np.ascontiguousarray(keys // 3 if self.case.hashed else keys)
        columns = [one_array(pa.array([f"key {row.key}" for row in rows]))] if self.case.hashed else []
        columns += [
            one_array(pa.array([row.values[one.name] for row in rows], one.type))
            for one in self.schema.streams[0].payload
        ]
        record, size, blob = self.layout.pack(columns, len(rows))
        head = [words, np.array([row.time for row in rows]), np.array([row.row for row in rows])]
        head += [np.cumsum(size) - size, size] if self.layout.has_blob else []
        group = (hash_keys(words) >> np.uint64(32)) % np.uint64(self.case.partitions)
        return np.column_stack([*head, record]), blob, group.astype(np.int64)

    def expire(self, watermark, per_group=False):
        for number, operator in enumerate(self.operators):
            groups = groups_of(*(group for group, owner in enumerate(self.owner) if owner == number))
            assert operator.probe(groups, 1, self.outs[number]) is Progress.DONE
            marks = np.full((len(groups), 1), watermark) if per_group else (watermark,)
            while operator.expire(groups, marks, self.outs[number]) is not Progress.DONE:
                self.consume(operator, self.outs[number], watermark)
            assert self.outs[number].count == 0

    def consume(self, operator, out, watermark):
        slots, *answers, nulls = out.filled.tolist()
        assert slots
        for at, slot in enumerate(slots):
            _, time, row = operator.words[slot : slot + 3].tolist()
            assert time < watermark or watermark == EVER, "a result before its watermark"
            assert row not in self.found, "a result twice"
            words = [value(own[at], kind) for own, kind in zip(answers, self.kinds)]
            self.found[row] = tuple(None if nulls[at] >> i & 1 else word for i, word in enumerate(words))
        out.clear()

    @property
    def kinds(self):
        """Which answers are unsigned, signed or floats."""
        kinds = []
        for name, column in self.case.functions:
            is_float = name == "mean" or (column in ("f8", "f4") and name != "count")
            kinds.append("f" if is_float else "u" if column == "u8" and name in ("min", "max") else "i")
        return kinds

    def move(self, group, consumer):
        """Hands a group over as a slave does: what is sealed first, then the rest."""
        supplier, self.owner[group] = self.operators[self.owner[group]], consumer
        frames = supplier.get(group, 0, 1)
        since, _ = supplier.reached(frames)
        frames += supplier.get(group, since)
        supplier.drop(group)
        assert self.operators[consumer].install([frame.copy() for frame in frames]) == group

    def check(self):
        """Walks through all groups."""
        for number, operator in enumerate(self.operators):
            for group, owner in enumerate(self.owner):
                if owner == number and operator._started[group]:
                    walk(operator._table, group, [self.stream])


def value(word, kind):
    if kind == "f":
        return float(np.array([word], np.int64).view(np.float64)[0])
    return word % (1 << 64) if kind == "u" else word


def wanted(case):
    return oracle.aggregate(case.rows, case.history, case.functions, case.period)


def run(case, seed, per_group=False):
    """Feeds the stream in random parts, with watermarks that hold, and moves groups in between."""
    chance, holders, at = random.Random(f"run {seed}"), Holders(case), 0
    while at < len(case.rows):
        end = at + chance.choice([1, 5, 50, 1000])
        holders.insert(case.rows[at:end])
        newest = max(row.time for row in case.rows[:end])
        watermark = chance.choice([NEVER, newest - case.lateness - chance.choice([0, 0, 4])])
        holders.expire(watermark, per_group)
        holders.check()
        for group in range(case.partitions):
            if case.holders > 1 and chance.random() < 0.4:
                holders.move(group, chance.choice([i for i in range(case.holders) if i != holders.owner[group]]))
        at = end
    holders.expire(EVER, per_group)
    return holders
