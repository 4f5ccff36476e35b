"""Functions over the partners of a row give what plain Python gives, whatever the settings; sums are exact."""

import math
import random

import pyarrow as pa
import pytest

import mpijoin
import oracle
from mpijoin.errors import MpijoinError
from reduce_oracle import CALLS, OTHER_CALLS, answers

WILD = (0.1, 1e300, -1e300, 5e-324, -0.0, 0.0, math.inf, -math.inf, math.nan)
LARGE = (0, 1, 2**63 - 1, 2**63, 2**64 - 1)
TEXTS = ("", "a", "ä", "z", "a text of many blocks " * 12, "a text of many blocks " * 12 + "z")
WHERE = "right.v > left.v or right.f is null or left.s < right.s and left.at >= right.day"
DAY_MS = 86_400_000


TYPES = {
    "gap": pa.duration("s"), "t": pa.timestamp("s"), "day": pa.date32(), "at": pa.timestamp("ms"),
    "high": pa.timestamp("ms"), "small": pa.date32(), "uhi": pa.uint64(), "large": pa.uint64(), "hi": pa.float64(),
}  # fmt: skip


def made(seed):
    """Draws (the rows of two streams as dictionaries, whether keys are texts, windows in s)."""
    chance = random.Random(seed)
    span, keys, wild = chance.choice([50, 500]), chance.choice([1, 3, 50]), chance.random() < 0.5

    def some(value):
        return None if chance.random() < 0.2 else value

    streams = []
    for _ in range(2):
        times = sorted(chance.randrange(span) for _ in range(chance.choice([30, 300, 600])))
        streams.append([
            {
                "time": time, "row": row, "key": some(chance.randrange(keys)),
                "v": some(chance.randrange(-100, 10**15)),
                "f": some(chance.choice(WILD) if wild else chance.random() * 10.0 ** chance.randrange(-9, 9)),
                "u": some(chance.choice(LARGE)), "day": some(chance.randrange(-3, 3)), "s": some(chance.choice(TEXTS)),
                "at": some(chance.randrange(-3 * DAY_MS, 3 * DAY_MS)),
            }
            for row, time in enumerate(times)
        ])  # fmt: skip
    return streams, seed % 3 == 0, [chance.choice([0, 3, 40, None]) for _ in range(2)]


def table_of(rows, has_texts):
    keys = [None if row["key"] is None else str(row["key"]) if has_texts else row["key"] for row in rows]
    return pa.table({
        "ts": pa.array([row["time"] for row in rows], pa.timestamp("s")),
        "key": pa.array(keys, pa.string() if has_texts else pa.int64()),
        "v": pa.array([row["v"] for row in rows], pa.int64()),
        "f": pa.array([row["f"] for row in rows], pa.float64()),
        "u": pa.array([row["u"] for row in rows], pa.uint64()),
        "day": pa.array([row["day"] for row in rows], pa.int32()).view(pa.date32()),
        "at": pa.array([row["at"] for row in rows], pa.int64()).view(pa.timestamp("ms")),
        "s": pa.array([row["s"] for row in rows], pa.string()),
    })  # fmt: skip


def holds(left, right):
    greater = None not in (left["v"], right["v"]) and right["v"] > left["v"]
    less = None not in (left["s"], right["s"]) and left["s"].encode() < right["s"].encode()
    later = None not in (left["at"], right["day"]) and left["at"] >= right["day"] * DAY_MS
    return greater or right["f"] is None or (less and later)


def wanted(streams, windows, kind, has_condition):
    left, right = streams
    partners = {row["row"]: [] for row in left if kind == "left"}
    pairs = oracle.join([[(row["time"], row["key"], row["row"]) for row in own] for own in streams], windows)
    for one, other in pairs:
        if not has_condition or holds(left[one], right[other]):
            partners.setdefault(one, []).append(right[other])
    return {row: answers(own, left[row]) for row, own in partners.items()}


def found(table, calls):
    for name in TYPES.keys() & calls.keys():
        if pa.types.is_temporal(TYPES[name]):
            plain = table[name].combine_chunks().view(pa.int32() if name in ("day", "small") else pa.int64())
            table = table.set_column(table.column_names.index(name), name, plain)
    rows = table.select(["left_row", *calls]).to_pylist()
    assert len({row["left_row"] for row in rows}) == len(rows)
    return {row.pop("left_row"): row for row in rows}


def is_same(name, got, expected):
    if None in (got, expected):
        return got is expected
    if isinstance(expected, float) and math.isnan(expected):
        return math.isnan(got)
    if name in ("m", "fm"):  # The sum is rounded before it is divided.
        return math.isclose(got, expected, rel_tol=5e-16)
    return got == expected and math.copysign(1, got) == math.copysign(1, expected)


@pytest.mark.parametrize("seed", range(24))
def test_each_row_has_what_plain_python_gives(seed):
    chance, (streams, has_texts, windows) = random.Random(seed), made(seed)
    calls = OTHER_CALLS if has_texts else CALLS  # Of all at once, a kernel takes much longer to compile.
    kind, has_condition = chance.choice(["inner", "left"]), chance.random() < 0.5
    sides = {
        name: {
            "table": table_of(rows, has_texts), "time": "ts",
            "window": "unbounded" if window is None else f"{window} s",
        }
        for name, rows, window in zip(("left", "right"), streams, windows)
    }  # fmt: skip
    job = {
        **sides,
        "join": {"type": kind, "reduce": calls, **({"where": WHERE} if has_condition else {})},
        "cluster": {"partitions": 4},
        "tuning": {
            "theta": chance.choice([64, 4096]),
            "block": chance.choice([64, 256, 4096]),
            "result_buffer": chance.choice([1, 7, 8192]),
        },
        "inject": {"hash_bits": chance.choice([3, 64])},
    }
    done = mpijoin.run(job, slaves=chance.choice([1, 2]))
    got, expected = found(done.table(), calls), wanted(streams, windows, kind, has_condition)
    assert got.keys() == expected.keys()
    wrong = [
        (row, name, got[row][name], expected[row][name])
        for row in expected
        for name in calls
        if not is_same(name, got[row][name], expected[row][name])
    ]
    assert wrong == []
    assert done.summary["certificate"] == oracle.certificate([(row, None) for row in expected])
    types = {name: done.table().schema.field(name).type for name in calls}
    assert types == {name: TYPES.get(name, types[name]) for name in calls}


def test_a_sum_beyond_64_bits_names_function_and_row():
    sides = {
        name: {"table": pa.table({"ts": [1, 2], "key": [5, 7], "v": [2**62, 2**62]}), "time_unit": "s", "window": "9 s"}
        for name in ("left", "right")
    }
    job = {**sides, "join": {"reduce": {"n": "count()", "total": "sum(right.v + (right.v - 1))"}}}
    assert mpijoin.run(job, slaves=1).results == 2
    job["right"] = {**sides["right"], "table": pa.table({"ts": [1, 2, 2], "key": [5, 7, 7], "v": [2**62] * 3})}
    with pytest.raises(MpijoinError, match=r"total = sum\(.*\): got a sum beyond 64 bits at row 1 "):
        mpijoin.run(job, slaves=1)
