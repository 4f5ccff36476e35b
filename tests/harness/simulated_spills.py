"""Simulated runs whose slaves have little memory and a disk: what is drawn for them, and what is to happen in them."""

from dataclasses import replace
from functools import partial

from mpijoin.config.fields import POLICIES
from mpijoin.config.job import GENERATIONS, ROTATE
from mpijoin.config.rules import GENERATION_POLICIES
from mpijoin.orders import ComputePartitions, SpillOrder
from mpijoin.policy.plan import RANKINGS
from mpijoin.spill.rotator import Rotator

BANDWIDTH_MIN = 1e6  # Bytes a second. With less, groups that move for no reason are all that a run ever does.
ROWS = {2: 250, 3: 60, 4: 25}  # Of a stream at most, by how many streams there are.
MEMORY_MIN_BYTES = 4096
SPILLS = (
    "spills", "spills that were ordered", "relocations", "moves with rows on disk", "several streams on disk",
    "clean-ups that find something", "idle clean-ups", "kept rows", "rotations", "pending input",
)  # fmt: skip


def spilling(made, chance, values):
    """The same scenario with little memory, in which slaves spill by themselves and when they are told to. values:
    those of keys and of payloads."""
    form = chance.choice([GENERATIONS, GENERATIONS, ROTATE])
    memory = {
        "spill": form,
        "threshold": chance.choice([0.02, 0.1, 0.3, 0.9]),
        "share": chance.choice([0.1, 0.3, 1.0]),
        "rank": chance.choice(RANKINGS),
        "cleanup": chance.choice(["idle", "end"]),
        "gap": chance.choice(["auto", "0 s", "50 ms"]),
    }
    policies = [one for one in POLICIES if form == GENERATIONS or one not in GENERATION_POLICIES]
    balance = {"policy": chance.choice(policies), "relocation_pause": chance.choice(["0 s", "0 s", "200 ms"])}
    balance["move"] = made.sections["balance"]["move"]
    tuning = {**made.sections["tuning"], "block": chance.choice(["64 B", "200 B", "200 B"])}
    # A group that rotates must fit into memory.
    pages = chance.choice([20, 60, 100, 300] if form == GENERATIONS else [60, 100, 300, 600])
    costs = made.manner.costs
    fast = replace(costs, bandwidth_bytes_per_s=max(costs.bandwidth_bytes_per_s, BANDWIDTH_MIN))
    return replace(
        made,
        sides=sides(made.sides, chance, values),
        sections={**made.sections, "memory": memory, "balance": balance, "tuning": tuning},
        manner=replace(made.manner, costs=fast),
        memory_bytes=max(MEMORY_MIN_BYTES, pages * int(tuning["block"].split()[0])),
        spills=True,
    )


def sides(drawn, chance, values):
    """The streams that were drawn, or two to four of which rows wait longer and meet more others."""
    count = chance.choice([2, 2, 2, 3, 4])
    if count == 2 and chance.random() < 0.3:
        return drawn
    return tuple(stream(chance, name, drawn[0], values, count) for name in ("left", "right", "third", "fourth")[:count])


def stream(chance, name, like, values, count):
    keys, payloads = values
    at, rows = 0, []
    for _ in range(ROWS[count]):
        at += chance.choice([0, 1, 3, 10, -8, 20])
        key = None if chance.random() < 0.02 else chance.choice(keys)
        rows.append((at, (key,), (chance.choice(payloads),)))
    window_ns = chance.choice([0, 30 * 10**6, 300 * 10**6, 300 * 10**6, None])
    lateness_ns = chance.choice([0, 20 * 10**6])
    return replace(like, name=name, files=(rows,), window_ns=window_ns, lateness_ns=lateness_ns, form="table")


class SpillWatch:
    """Counts in `seen` what a slave's disk is used for."""

    def __init__(self, seen, slave):
        self._seen, self._slave = seen, slave
        replaced = {slave: {"_take": self._received}}
        if isinstance(spiller := slave._spilling.spiller, Rotator):
            replaced[spiller] = {"activate": self._activated}
            replaced[spiller._rotation] = {"activated": partial(self._counted, "rotations")}
        else:
            replaced[spiller] = {"adopt": self._adopted, "clean_up": self._cleaned}
            replaced[spiller._operator] = {"drop_kept": partial(self._counted, "kept rows")}
        for thing, methods in replaced.items():
            for name, watched in methods.items():
                setattr(thing, name, partial(watched, getattr(thing, name)))

    def _counted(self, name, method, *arguments):
        self._seen[name] += 1
        return method(*arguments)

    def _received(self, take, source, message):
        self._seen["spills that were ordered"] += isinstance(message, SpillOrder)
        self._seen["relocations"] += isinstance(message, ComputePartitions)
        take(source, message)

    def _activated(self, activate, fixed, now_s):
        turn = activate(fixed, now_s)
        self._seen["pending input"] += turn.input is not None
        return turn

    def _adopted(self, adopt, group):
        self._seen["moves with rows on disk"] += group in self._slave._spilling.spiller._aside
        adopt(group)

    def _cleaned(self, clean_up, out, fixed=()):
        self._seen["idle clean-ups"] += not self._slave._spilling.spiller._has_ended
        return clean_up(out, fixed)
