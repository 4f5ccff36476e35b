"""The real join on simulated ranks: one seed is one job, one cluster, one course of events; the answer is the oracle's."""

import random
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from unittest import mock

import pyarrow as pa

import mpijoin.master.intake
import mpijoin.master.pacing
import mpijoin.master.runtime
import mpijoin.master.ticks
import mpijoin.slave.moving
import mpijoin.slave.runtime
import mpijoin.sources.base
from engine_harness import Stream, check_counts, expect, expected_rows, section, table_rows
from mpijoin.api import TableWriter
from mpijoin.config.check import resolve
from mpijoin.config.job import Delay, Inject, Slowdown
from mpijoin.config.load import load_job
from mpijoin.join.window_join import WindowJoin
from mpijoin.master.ticks import TickReader
from mpijoin.plan import Plan, Roles, merged_schema
from mpijoin.simulate.cluster import Manner, Quiet, SimulatedCluster
from mpijoin.simulate.costs import Costs
from mpijoin.slave.core import SlaveCore
from mpijoin.transport.simulated import Disturbance
from random_policy import random_policy

LIMIT_S = 100_000.0  # of virtual time: what takes longer hangs
KEYS = ((pa.int64(), (0, 1, -1, 7, 1 << 40)), (pa.string(), ("", "a", "b", "a longer one")))
PAYLOADS = ((pa.int64(), (1, -5)), (pa.string(), ("x", "y" * 90, None)))


@dataclass(frozen=True)
class Scenario:
    """Everything that a seed stands for. rows: after so few everything is cut that is cut by size; None: as it is."""

    seed: int
    sides: tuple
    sections: dict
    inject: Inject
    slaves: int
    manner: Manner
    rows: int | None
    collects: bool
    buffer_bytes: int
    master_buffer_bytes: int
    portion_bytes: int
    refusals: float  # share of the looks at its free memory at which a consumer finds none


@dataclass(frozen=True)
class Course:
    """How a scenario went."""

    summary: dict
    backlog_bytes_max: int
    trace: int
    piece_bytes_max: int


def scenario(seed):
    chance = random.Random(seed)
    key, payload = chance.choice(KEYS), chance.choice(PAYLOADS)
    sides = tuple(stream(chance, name, key, payload) for name in ("left", "right"))
    slaves = chance.choice([1, 2, 3, 3, 4, 4])
    paced = chance.random() < 0.4
    epoch = chance.choice([2, 5, 20, 100])
    sections = {
        "balance": {"policy": "none" if chance.random() < 0.15 else "balance"},  # which stands for random moves
        "cluster": {
            "partitions": chance.randint(1, 8),
            "distribution_epoch": f"{epoch} ms",
            "reorganization_epoch": f"{epoch * chance.choice([1, 1, 3])} ms",
            "subgroups": chance.randint(1, 3),
            "slaves_min": chance.randint(1, slaves),
            "memory": "16 MiB",
        },
        "tuning": {
            "theta": chance.choice(["auto", "off", "1 B", "100 B", "1 KB"]),
            "block": chance.choice(["64 B", "200 B", "4 KiB"]),
            "result_buffer": chance.choice([1, 7, 8192]),
        },
        "run": {"speed": chance.choice([0.1, 1, 100]) if paced else "max", "seed": seed},
    }
    return Scenario(
        seed,
        sides,
        sections,
        faults(chance, slaves),
        slaves,
        Manner(costs(chance), False, chance.random() < 0.3, disturbance(chance, seed), LIMIT_S),
        chance.choice([None, 1, 3, 10]),
        chance.random() < 0.3,
        chance.choice([300, 2_000, 1 << 26]),
        chance.choice([500, 5_000, 1 << 28]),
        chance.choice([1, 300, 4 << 20]),
        chance.choice([0.0, 0.0, 0.3]),
    )


def stream(chance, name, key, payload):
    files = []
    for _ in range(chance.randint(1, 1 if chance.random() < 0.8 else 2)):
        at, rows = chance.choice([0, -300, 10**6]), []
        for _ in range(chance.choice([0, 20, 100, 200])):
            at += chance.choice([0, 1, 3, 10, -8, 60])
            rows.append((at, (None if chance.random() < 0.05 else chance.choice(key[1]),), (chance.choice(payload[1]),)))
        files.append(rows)
    form = "table" if len(files) == 1 else "ipc"
    window_ns, lateness_ns = chance.choice([0, 5, 50, 400]) * 10**6, chance.choice([0, 10, 1000]) * 10**6
    return Stream(name, tuple(files), "ms", pa.int64(), (key[0],), (payload[0],), window_ns, lateness_ns, form)


def costs(chance):
    slow = chance.choice([1.0, 0.1, 0.001])

    def some(most):
        return chance.choice([0.0, chance.random() * most * slow])

    return Costs(
        comparison_ns=some(1e6),
        tuple_ns=some(1e7),
        result_ns=some(1e6),
        state_byte_ns=some(1e5),
        call_ns=some(1e5),
        message_ns=some(1e6),
        byte_ns=some(1e3),
        generated_ns=some(1e5),
        scattered_ns=some(1e5),
        latency_ns=some(1e7),
        bandwidth_bytes_per_s=chance.choice([1e4, 1e6, 1e9, 1e9]),
    )


def disturbance(chance, seed):
    stalls = chance.choice([(0.0, 0.0), (0.05, 0.5), (1.0, 3.0)])
    return Disturbance(seed, chance.choice([0.0, 0.002, 0.1]), *stalls)


def faults(chance, slaves):
    slow = tuple(
        Slowdown(rank, chance.choice([0.5, 0.05]), 0, chance.choice([None, 10**9]))
        for rank in range(1, slaves + 1)
        if chance.random() < 0.2
    )
    delay = tuple(Delay(rank, 3 * 10**8, 0, None) for rank in range(slaves + 1) if chance.random() < 0.05)
    return Inject(slow=slow, delay=delay, hash_bits=chance.choice([2, 64, 64]))


@contextmanager
def inner_sizes(made):
    """Cuts everything early, and lets a random policy move groups."""

    def policies(balance):
        return None if balance.policy == "none" else random_policy(made.seed)

    with ExitStack() as stack:

        def patch(target, name, value):
            stack.enter_context(mock.patch.object(target, name, value))

        patch(mpijoin.master.runtime, "make_policy", policies)
        moods = random.Random(made.seed)
        patch(WindowJoin, "free_bytes", property(lambda join: -1 if moods.random() < made.refusals else 1 << 24))
        patch(mpijoin.slave.moving, "PORTION_BYTES", made.portion_bytes)
        patch(mpijoin.slave.moving, "SLOT_BYTES", 3 * made.portion_bytes)
        patch(mpijoin.slave.moving, "UNSENT_BYTES_MAX", 4 * made.portion_bytes)
        if made.rows:
            patch(mpijoin.master.intake, "TickReader", partial(TickReader, part_rows=made.rows))
            patch(mpijoin.master.ticks, "READ_ROWS", made.rows)
            patch(mpijoin.slave.runtime.core, "SlaveCore", partial(SlaveCore, slice_rows=made.rows, budget=made.rows))
            patch(mpijoin.sources.base, "BLOCK_ROWS", made.rows)
        yield


def run_scenario(made, folder):
    """Runs it, and compares results, counts and ledger with the oracle; AssertionError and whatever the run raises."""
    job = load_job({**{side.name: section(side, folder) for side in made.sides}, **made.sections})
    schema = resolve(replace(job, output=replace(job.output, path="none")))
    # Smaller than any job may ask for, so that a few rows fill them.
    cluster = replace(job.cluster, buffer_bytes=made.buffer_bytes, master_buffer_bytes=made.master_buffer_bytes)
    results = "collect" if made.collects else "count"
    job = replace(job, inject=made.inject, cluster=cluster, output=replace(job.output, results=results))
    plan = Plan(job, schema, Roles(1 + made.slaves + made.collects, made.collects), None)
    writer = TableWriter(merged_schema(plan)) if made.collects else None
    with inner_sizes(made):
        simulated = SimulatedCluster(plan, made.manner, Quiet(), writer)
        watched = Watch(simulated, plan)
        summary = simulated.run().summary
    wanted = expect(*made.sides)
    check_counts(summary, wanted)
    if writer:
        assert table_rows(writer.table()) == expected_rows(*made.sides, wanted.pairs)
    course = Course(summary, watched.backlog_bytes_max, simulated.network.trace, watched.piece_bytes_max)
    assert course.backlog_bytes_max <= made.buffer_bytes + course.piece_bytes_max, "what the master sends is bounded"
    peak_bytes = summary["peak_master_buffer_bytes"]
    assert peak_bytes <= made.master_buffer_bytes + course.piece_bytes_max * made.slaves, "the master's buffer is bounded"
    return course


class Watch:
    """Looks at every slave after each of its turns, and at all that is sent as one piece."""

    def __init__(self, simulated, plan):
        self.backlog_bytes_max = self.piece_bytes_max = 0
        for rank in plan.roles.slaves:
            slave, process = simulated.roles[rank], simulated.engine.processes[rank]
            process.turn = partial(self._turn, slave)
        buffers = simulated.master.buffers
        self._add, buffers.add = buffers.add, self._added
        self._take, buffers.take = buffers.take, self._taken

    def _turn(self, slave):
        pause_s = slave.turn()
        from_master = sum(message.backlog_bytes for message in slave._core._messages if not message.own)
        self.backlog_bytes_max = max(self.backlog_bytes_max, from_master)
        return pause_s

    def _added(self, scattered):
        added = self._add(scattered)
        self.piece_bytes_max = max(self.piece_bytes_max, sum(added.octets.values()) + sum(added.held.values()))
        return added

    def _taken(self, slave, items):
        groups, pieces = self._take(slave, items)
        if items == 1:
            self.piece_bytes_max = max(self.piece_bytes_max, sum(piece.octets for piece in pieces))
        return groups, pieces
