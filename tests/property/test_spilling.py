"""Joins with far less memory than their windows need give the oracle's answer, in both forms, and leave nothing on the
disk."""

import random
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

import mpijoin
from engine_harness import Stream, check_answer, compiled_once, expect, section

SEEDS = {"generations": 16, "rotate": 8}
RANKS = ("least productive", "most productive", "largest", "random")
ROWS = {2: 300, 3: 60, 4: 30}  # of a stream, by how many streams there are


@pytest.fixture(autouse=True, scope="module")
def compiled():
    with compiled_once():
        yield


def stream(chance, name, count):
    key, words = chance.choice([(pa.int64(), (1, 2, 3, 7, 1 << 40)), (pa.string(), ("a", "b", "", "a longer one"))])
    at, rows = 0, []
    for _ in range(ROWS[count]):
        at += chance.choice([0, 1, 3, 10, -8, 20])
        rows.append((at, (chance.choice(words),), ("x" * chance.choice([0, 5, 300]),)))
    window_ns, lateness_ns = chance.choice([0, 30 * 10**6, 300 * 10**6, None]), chance.choice([0, 20 * 10**6])
    return Stream(name, (rows,), "ms", pa.int64(), (key,), (pa.string(),), window_ns, lateness_ns, "table")


def memory(chance, form):
    """Of 64 KiB, the least that a slave may have, a slave uses a tenth before it spills."""
    return {
        "limit": "64 KiB",
        "spill": form,
        "threshold": chance.choice([0.02, 0.05, 0.2]),
        "share": chance.choice([0.1, 0.3, 1.0]),
        "rank": chance.choice(RANKS),
        "cleanup": chance.choice(["idle", "end"]),
    }


@pytest.mark.parametrize("form", ["generations", "rotate"])
def test_the_answer_is_the_oracles_whatever_goes_to_disk(form):
    spilled = late = 0
    for seed in range(SEEDS[form]):
        chance = random.Random(f"{form} {seed}")
        count = chance.choice([2, 2, 3, 4])
        first = stream(chance, "one", count)
        # The key's type is that of the first stream.
        streams = [first, *(stream_like(chance, first, name, count) for name in ("two", "three", "four")[: count - 1])]
        with tempfile.TemporaryDirectory() as folder:
            scratch = Path(folder) / "scratch"
            job = {
                "streams": {one.name: section(one, folder) for one in streams},
                "memory": {**memory(chance, form), "path": str(scratch)},
                "cluster": {"partitions": chance.randint(2, 8), "distribution_epoch": chance.choice(["20 ms", "1 s"])},
                "tuning": {"block": chance.choice(["200 B", "1 KiB"]), "theta": chance.choice(["auto", "500 B"])},
                "output": {"results": chance.choice(["count", "collect"])},
            }
            summary = mpijoin.run(job, slaves=chance.choice([1, 2, 3])).summary
            try:
                check_answer(summary, expect(*streams))
            except AssertionError as error:
                error.add_note(f"seed {seed}")
                raise
            spilled += summary["memory"]["spilled_bytes"] > 0
            late += summary["memory"]["cleanup_results"] > 0
            assert not list(scratch.iterdir())
    assert spilled > SEEDS[form] / 2 and (late > SEEDS[form] / 4 or form == "rotate")


def stream_like(chance, first, name, count):
    while (one := stream(chance, name, count)).key_types != first.key_types:
        pass
    return one
