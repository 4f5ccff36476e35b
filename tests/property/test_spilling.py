"""Joins of any type with far less memory than their windows need give the oracle's answer, in both forms, and leave
nothing on the disk."""

import random
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import mpijoin
from checkpoint_harness import Manner, Work, check, lay_out, simulate
from engine_harness import Stream, check_answer, compiled_once, expect, section
from mpijoin.join.marks import MARKS
from mpijoin.spill.rotator import Rotator
from oracle import RANKS as MATCHES
from simulated_engine import CONDITION, holds

SEEDS = {"generations": 16, "rotate": 16}
STOPPED_SEEDS = 4  # of either form
STOPS = 8  # at most, of a run
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
    """Of 64 KiB, the least that a slave may have, a slave uses a tenth before it spills. A group that rotates must fit
    into it."""
    return {
        "limit": "64 KiB" if form == "generations" else "256 KiB",
        "spill": form,
        "threshold": chance.choice([0.02, 0.05, 0.2] if form == "generations" else [0.002, 0.01, 0.05]),
        "share": chance.choice([0.1, 0.3, 1.0]),
        "rank": chance.choice(RANKS),
        "cleanup": chance.choice(["idle", "end"]),
    }


def operator(chance, form, count):
    """What is to be found: a section of the job, and what the oracle has to know of it."""
    if count != 2 or chance.random() < 0.2:
        return {}, {}
    kind = chance.choice(list(MARKS))
    match = chance.choice(["all", "count", *MATCHES]) if kind == "left" and form == "rotate" else "all"
    join = {"type": kind, **({"reduce": {"n": "count()"}} if match == "count" else {"match": match})}
    if has_condition := chance.random() < 0.3:
        join["where"] = CONDITION.replace("right", "two").replace("left", "one")
    return {"join": join}, {"kind": kind, "match": match, "holds": holds if has_condition else None}


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
            section_of_join, told = operator(chance, form, count)
            job = {
                **section_of_join,
                "streams": {one.name: section(one, folder) for one in streams},
                "memory": {**memory(chance, form), "path": str(scratch)},
                "cluster": {"partitions": chance.randint(2, 8), "distribution_epoch": chance.choice(["20 ms", "1 s"])},
                "tuning": {"block": chance.choice(["200 B", "1 KiB"]), "theta": chance.choice(["auto", "500 B"])},
                "output": {"results": chance.choice(["count", "collect"])},
            }
            summary = mpijoin.run(job, slaves=chance.choice([1, 2, 3])).summary
            try:
                check_answer(summary, expect(*streams, **told))
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


@pytest.mark.parametrize("form", ["generations", "rotate"])
def test_a_run_that_is_stopped_again_and_again_gives_the_oracles_answer(form, monkeypatch):
    """What is on disk goes on in a checkpoint: generations, and groups that rotate with the input that is pending for
    them, also if that is just being joined."""
    seen = Counter()
    watch(monkeypatch, seen)
    for seed in range(STOPPED_SEEDS):
        chance = random.Random(f"stopped {form} {seed}")
        kept = {
            "cluster": {"partitions": chance.randint(6, 20), "distribution_epoch": "20 ms"},
            "tuning": {"block": "200 B"},
            "output": {"results": "count"},
        }
        with tempfile.TemporaryDirectory() as folder:
            prepared = lay_out(Work(tuple(long_stream(chance, name) for name in ("left", "right")), kept), folder)
            path, stops, summary = Path(folder) / "run", 0, None
            while summary is None:
                stop = chance.choice([50, 200, 500]) if stops < STOPS else None
                made = Manner(chance.choice([1, 2, 3]), little(chance, form), 40, chance.randrange(1 << 30))
                summary, _ = simulate(prepared, made, path, chance, resumes=stops > 0, stop=stop)
                stops += summary is None
            check(prepared, path, summary)
            seen["stops"] += stops
            seen["spilled"] += summary["memory"]["spilled_bytes"] > 0
    assert seen["stops"] > 3 * STOPPED_SEEDS and seen["spilled"]
    assert form == "generations" or min(seen["pending"], seen["while pending input is joined"]) > 0, seen


def little(chance, form):
    memory = {"limit": "64 KiB", "spill": form, "threshold": chance.choice([0.1, 0.3]), "share": 0.3, "gap": "0 s"}
    return {"memory": memory, "balance": {"policy": chance.choice(["none", "balance"])}}


def watch(monkeypatch, seen):
    """Counts what happens to groups that rotate."""
    adopt, settle = Rotator.adopt, Rotator.settle

    def adopting(self, group):
        adopt(self, group)
        seen["pending"] += group in self._rotation.pending

    def settling(self):
        activation = self._activation
        seen["while pending input is joined"] += activation is not None and activation.reading is not None
        settle(self)

    monkeypatch.setattr(Rotator, "adopt", adopting)
    monkeypatch.setattr(Rotator, "settle", settling)


def long_stream(chance, name):
    at, rows = 0, []
    for _ in range(1500):
        at += chance.choice([0, 1, 3, -1])
        rows.append((at, (chance.randrange(60),), ("x" * chance.choice([0, 40]),)))
    window_ns = chance.choice([200 * 10**6, 500 * 10**6, None])
    return Stream(name, (rows,), "ms", pa.int64(), (pa.int64(),), (pa.string(),), window_ns, 10 * 10**6, "table")
