"""The real join on simulated ranks.

One seed stands for one job, one cluster and one course of events. The answer must be the oracle's.
"""

import random
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial, partialmethod
from unittest import mock

import pyarrow as pa

import mpijoin.coordinator.start
import mpijoin.partitioning.buffers
import mpijoin.partitioning.runs
import mpijoin.producer.intake
import mpijoin.producer.pacing
import mpijoin.producer.ticks
import mpijoin.slave.moving
import mpijoin.sources.base
import mpijoin.sources.shares
import mpijoin.spill.spiller
import mpijoin.spill.work
from asked_queries import CONDITION, check_each, expect_each, holds, random_queries, rows_of_each
from engine_harness import Stream, check_counts, check_streams, expect, expected_rows, section, table_rows
from join_harness import fallen_counts
from mpijoin.api import TableWriter
from mpijoin.config.check import resolve
from mpijoin.config.inject import Delay, Inject, Slowdown
from mpijoin.config.job import GENERATIONS
from mpijoin.config.load import load_job
from mpijoin.config.moves import MOVES, MSLB, PTLB
from mpijoin.errors import MemoryBudgetError
from mpijoin.join.marks import MARKS
from mpijoin.launch.roles import Roles, RunSetup, merged_schemas
from mpijoin.moving import consumer, steps
from mpijoin.operators.stored import TableOperator
from mpijoin.plans.operator import PlannedJoin
from mpijoin.policy.choose import make_policy
from mpijoin.simulate.cluster import Manner, Quiet, SimulatedCluster
from mpijoin.simulate.costs import Costs
from mpijoin.sinks.collector import Writers
from mpijoin.slave.core import SlaveCore
from mpijoin.transport.simulated import Disturbance
from oracle import RANKS
from random_plans import plans_change, random_plan
from random_policy import random_policy
from simulated_expiry import Expiry
from simulated_spills import SPILLS, SpillWatch, spilling

LIMIT_S = 100_000.0  # A run that takes more virtual time hangs.
ENOUGH_BYTES = 16 << 20  # With less memory, a run may end for want of it.
SPILLING_SHARE = 0.4  # In this share of the seeds, slaves have little memory and a disk.
CONDITION_SHARE = 0.3  # of the seeds with two streams
PLANS_SHARE = 0.6  # of the seeds with three streams or more
TRACKS_SHARE = 0.25  # of the seeds with a policy; as many have groups that are spread
QUERIES_SHARE = 0.25  # of the seeds with two streams that do not spill by generations
RANDOM_SHARE = 0.85  # In this share of the seeds with a policy, it moves groups for no reason.
UNIT_ROWS = 40  # of an input that producers share
FRAME_EXTRA_BYTES = 4096  # The frames of a portion have at most so much beside tuples and blobs.
KEYS = ((pa.int64(), (0, 1, -1, 7, 1 << 40)), (pa.string(), ("", "a", "b", "a longer one")))
PAYLOADS = ((pa.int64(), (1, -5)), (pa.string(), ("x", "y" * 90, None)))


@dataclass(frozen=True)
class Scenario:
    """Everything that a seed stands for. rows: whatever is cut by size is cut after so few rows; None: as usual."""

    seed: int
    sides: tuple
    sections: dict
    inject: Inject
    slaves: int
    manner: Manner
    rows: int | None
    collects: bool
    memory_bytes: int
    buffer_bytes: int
    master_buffer_bytes: int
    portion_bytes: int
    # A consumer finds no free memory in this share of its looks, and refuses late in this share of installations.
    refusals: float
    moves_randomly: bool
    spills: bool
    producers: int = 1
    kind: str = "inner"
    match: str = "all"
    has_condition: bool = False
    queries: tuple = ()
    spreads: bool = False  # Several slaves may get parts of a group, and do so at random.

    @property
    def has_tracks(self):
        """Whether groups move by PTLB."""
        return self.sections["balance"].get("move") == PTLB


@dataclass(frozen=True)
class Course:
    """How a scenario went.

    summary: empty if it ran out of memory · seen: how often each of the things happened that the seeds are to reach.
    """

    summary: dict
    trace: int
    seen: Counter


def scenario(seed):
    """What the seed stands for. Some seeds become inner joins that spill nothing, whose groups move by PTLB or are
    spread, or both."""
    made = drawn(seed)
    has_tracks, spreads = (random.Random(f"{one} {seed}").random() < TRACKS_SHARE for one in ("tracks", "spreads"))
    if made.sections["balance"]["policy"] == "none" or not (has_tracks or spreads):
        return made
    made = plain(made)
    if spreads:
        made = replace(made, spreads=True, moves_randomly=True)
    return with_tracks(made) if has_tracks else made


def plain(made):
    """The same scenario as an inner join that spills nothing."""
    sections = {name: own for name, own in made.sections.items() if name not in ("query", "memory", "join")}
    sections["balance"] = {"policy": "balance", **({} if made.spills else sections["balance"])}
    sections["join"] = {key: own for key, own in made.sections.get("join", {}).items() if key in ("plan", "where")}
    inner = {"kind": "inner", "match": "all", "queries": (), "spills": False, "memory_bytes": ENOUGH_BYTES}
    return replace(made, sections=sections, **inner)


def with_tracks(made):
    # Windows that are long would keep most moves open until the input has ended.
    short = tuple(replace(side, window_ns=min(side.window_ns or 0, 50 * 10**6)) for side in made.sides)
    balance = {**made.sections["balance"], "move": PTLB}
    return replace(made, sides=short, sections={**made.sections, "balance": balance})


def drawn(seed):
    chance = random.Random(seed)
    key, payload = chance.choice(KEYS), chance.choice(PAYLOADS)
    sides = tuple(stream(chance, name, key, payload) for name in ("left", "right"))
    slaves = chance.choice([1, 2, 3, 3, 4, 5])
    paced = chance.random() < 0.4
    epoch = chance.choice([2, 5, 5, 20, 100])
    sections = {
        "balance": {"policy": chance.choice(["none", *["threshold", "balance"] * 3]), "move": MOVES[seed // 2 % 2]},
        "cluster": {
            "partitions": chance.randint(1, 8),
            "distribution_epoch": f"{epoch} ms",
            "reorganization_epoch": f"{epoch * chance.choice([1, 1, 3])} ms",
            "subgroups": chance.randint(1, 3),
            "slaves_min": chance.randint(1, slaves),
        },
        "tuning": {
            "theta": chance.choice(["auto", "off", "1 B", "100 B", "1 KB"]),
            "block": chance.choice(["64 B", "200 B", "4 KiB"]),
            "result_buffer": chance.choice([1, 7, 8192]),
        },
        "run": {"speed": chance.choice([0.1, 1, 100]) if paced else "max", "seed": seed},
    }
    rest = (
        chance.choice([None, 1, 3, 10]),
        chance.random() < 0.5,
        chance.choice([ENOUGH_BYTES] * 6 + [1 << 14]),
        chance.choice([300, 2_000, 1 << 26]),
        chance.choice([500, 5_000, 1 << 28]),
        chance.choice([1, 300, 4 << 20]),
        chance.choice([0.0, 0.2, 0.4]),
        chance.random() < RANDOM_SHARE,
    )
    made = Scenario(
        seed,
        sides,
        sections,
        faults(chance, slaves),
        slaves,
        Manner(costs(chance), False, chance.random() < 0.3, disturbance(chance, seed), LIMIT_S),
        *rest,
        False,
    )
    if chance.random() < SPILLING_SHARE:
        made = spilling(made, chance, (key[1], payload[1]))
    made = with_producers(made, chance.choice([1, 1, 2, 2, 3]))
    if len(made.sides) > 2 and chance.random() < PLANS_SHARE:
        plan = random_plan(chance, [side.name for side in made.sides])
        plan = plan if made.seed % 2 else "auto"
        # Most of them move with their states.
        balance = {**made.sections["balance"], "move": MOVES[made.seed % 4 > 0]}
        return replace(made, sections={**made.sections, "balance": balance, "join": {"plan": plan}})
    if len(made.sides) != 2:  # Types and conditions are about two streams.
        return made
    is_by_generations = made.spills and made.sections["memory"]["spill"] == GENERATIONS
    if chance.random() < QUERIES_SHARE and not is_by_generations:
        queries = random_queries(chance, made.sides)
        tables = [one.table(made.sides) for one in queries]
        return replace(made, queries=queries, sections={**made.sections, "query": tables})
    kind = chance.choice(["inner"] * 3 + ["left"] + list(MARKS))
    match = chance.choice(["all", "count", *RANKS]) if kind in ("inner", "left") else "all"
    if is_by_generations:  # These find pairs, and no answers of rows.
        match = "all"
    return of_type(made, kind, chance.random() < CONDITION_SHARE, match)


def of_type(made, kind, has_condition, match="all"):
    """The same scenario with a join of this type, and perhaps with a condition, or with one partner of each row, or
    with their number."""
    chosen = {"reduce": {"n": "count()"}} if match == "count" else {"match": match}
    join = {"type": kind, **chosen, **({"where": CONDITION} if has_condition else {})}
    sections = {**made.sections, "join": join}
    return replace(made, kind=kind, match=match, has_condition=has_condition, sections=sections)


def with_producers(made, producers):
    """The same scenario with so many producers. The ranks of slaves are higher by those that are not the first."""
    slow = tuple(one._replace(rank=one.rank + producers - 1) for one in made.inject.slow)
    cluster = {**made.sections["cluster"], "producers": producers}
    sections, inject = {**made.sections, "cluster": cluster}, made.inject._replace(slow=slow)
    return replace(made, producers=producers, sections=sections, inject=inject)


def stream(chance, name, key, payload):
    files = []
    for _ in range(chance.randint(1, 1 if chance.random() < 0.8 else 2)):
        at, rows = chance.choice([0, -300, 10**6]), []
        for _ in range(chance.choice([0, 20, 100, 200, 200, 300])):
            at += chance.choice([0, 1, 3, 10, -8, 60])
            rows.append(
                (at, (None if chance.random() < 0.05 else chance.choice(key[1]),), (chance.choice(payload[1]),))
            )
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
    """Cuts everything early, lets a random policy move groups, and makes memory short at times where groups come."""
    moods, memory, install = random.Random(made.seed), TableOperator.memory, TableOperator.install

    def policies(balance, memory):
        asked = make_policy(balance, memory)
        random_one = random_policy(made.seed, spills=made.spills, spreads=made.spreads)
        return random_one if asked and made.moves_randomly else asked

    def some_memory(join):
        # Watch decides when memory is short.
        return memory(join)._replace(free=-1) if getattr(join, "is_short", False) else memory(join)

    def install_or_not(join, parts, generation=None, replica=False):
        if moods.random() < made.refusals:
            raise MemoryBudgetError("no room for this group")
        return install(join, parts, generation, replica)

    with ExitStack() as stack:

        def patch(target, name, value):
            stack.enter_context(mock.patch.object(target, name, value))

        stack.enter_context(plans_change())
        patch(mpijoin.coordinator.start, "make_policy", policies)
        patch(TableOperator, "memory", some_memory)
        patch(TableOperator, "install", install_or_not)
        patch(mpijoin.spill.work, "PIECE_BYTES", made.portion_bytes)
        patch(mpijoin.spill.spiller, "PIECE_BYTES", made.portion_bytes)
        patch(mpijoin.slave.moving, "PORTION_BYTES", made.portion_bytes)
        patch(mpijoin.slave.moving, "SLOT_BYTES", 3 * made.portion_bytes)
        patch(mpijoin.partitioning.buffers, "BATCH_BYTES", made.portion_bytes)
        patch(mpijoin.partitioning.runs, "ITEM_BYTES_MIN", made.portion_bytes)
        if made.rows:
            patch(mpijoin.producer.intake, "PART_BYTES", 64 * made.rows)
            patch(mpijoin.producer.ticks, "READ_ROWS", made.rows)
            patch(SlaveCore, "__init__", partialmethod(SlaveCore.__init__, slice_rows=made.rows, budget=made.rows))
            patch(mpijoin.sources.base, "BLOCK_ROWS", made.rows)
        patch(mpijoin.sources.shares, "UNIT_ROWS", UNIT_ROWS)
        yield


def run_scenario(made, folder):
    """Runs a scenario, and compares pairs, counts and ledger with the oracle. Raises whatever the run raises."""
    setup = setup_of(made, folder)
    kept = [TableWriter(schema) for schema in merged_schemas(setup)] if made.collects else []
    with inner_sizes(made):
        simulated = SimulatedCluster(setup, made.manner, Quiet(), Writers(kept) if kept else None)
        watch = Watch(simulated, setup, made)
        try:
            summary = simulated.run().summary
        except MemoryBudgetError:
            assert made.memory_bytes < ENOUGH_BYTES
            watch.check_bounds()
            return Course({}, simulated.network.trace, watch.seen + Counter({"out of memory": 1}))
    check_results(made, summary, [table_rows(writer.table()) for writer in kept])
    watch.check_end(summary)
    return Course(summary, simulated.network.trace, watch.seen + seen_in(made, summary))


def check_results(made, summary, found):
    """Compares the summary, and the rows that were found by each query, with the oracle's answer."""
    if made.queries:
        each, whole = expect_each(made.sides, made.queries)
        check_streams(summary, whole)
        check_each(summary, each)
        rows = dict(zip(each, found))
        wanted = rows_of_each(made.sides, made.queries, each) if found else {}
        assert {name: rows[name] for name in wanted} == wanted
        return
    condition = holds if made.has_condition else None
    wanted = expect(*made.sides, kind=made.kind, holds=condition, match=made.match)
    check_counts(summary, wanted)
    if found:
        assert found == [expected_rows(made.sides, wanted, made.kind)]


def setup_of(made, folder):
    """Writes the inputs into `folder`. Returns the setup of the run."""
    streams = {side.name: section(side, folder) for side in made.sides}
    job = load_job({"streams": streams, **made.sections})
    schema = resolve(job._replace(output=job.output._replace(path="none")))
    # These are smaller than any job may ask for, so that a few rows fill them.
    sizes = {name: getattr(made, name) for name in ("buffer_bytes", "master_buffer_bytes")}
    cluster = job.cluster._replace(**sizes)
    memory = job.memory._replace(limit_bytes=made.memory_bytes, path=str(folder))
    results = "collect" if made.collects else "count"
    job = job._replace(inject=made.inject, cluster=cluster, memory=memory, output=job.output._replace(results=results))
    roles = Roles(made.producers + made.slaves + made.collects, made.collects, made.producers)
    return RunSetup(job, schema, roles, None, late=tuple(NoLate() for _ in made.sides) if made.producers > 1 else ())


class NoLate:
    """Takes late rows, and forgets them."""

    def write(self, table):
        assert table.num_rows


THINGS = (
    "moved", "refused", "cancelled", "shrinks", "grows", "idle slaves", "rank stalls", "link stalls", "overtakings",
    "slow slaves", "paced", "delays", "paused", "late", "null keys", "empty streams", "results", "collected", "splits",
    "random moves", "several queries", "several producers", "moves with several producers", "sub-groups",
    "out of memory", "changes of plan", "moves at once", "two tracks", "two tracks end",
    "moved by two tracks", "parts come", "parts leave", "parts with several producers", *SPILLS,
)  # fmt: skip


def seen_in(made, summary):
    """Counts those of THINGS that the summary and the scenario itself tell."""
    sides = list(summary["streams"].values())
    return Counter({
        "idle slaves": summary["declustering"]["min"] < summary["slaves"],
        "slow slaves": len(made.inject.slow),
        "paced": summary["overload"] is not None,
        "delays": summary["delay_s"] is not None,
        "paused": bool(summary["held_back_by"]),
        "late": sum(side["late"] for side in sides),
        "null keys": sum(side["null_key"] for side in sides),
        "empty streams": sum(side["read"] == 0 for side in sides),
        "results": summary["results"],
        "collected": made.collects,
        "splits": summary["splits"],
        "random moves": made.moves_randomly and summary["moves"] > 0,
        "several queries": len(made.queries) > 1,
        "several producers": made.producers > 1,
        "moves at once": summary["moves"] * (made.sections["balance"].get("move") == MSLB),
        "moved by two tracks": summary["moves"] * made.has_tracks,
        "parts come": summary["spread"],
        "parts leave": summary["gathered"],
        "parts with several producers": summary["gathered"] * (made.producers > 1),
        "moves with several producers": summary["moves"] * (made.producers > 1),
        "sub-groups": made.sections["cluster"]["subgroups"] > 1,
        "spills": summary["memory"]["spills"],
        "several streams on disk": len(sides) > 2 and summary["memory"]["spills"],
        "changes of plan": sum(len(plans) - 1 for plans in summary.get("plans", {}).values()),
        "clean-ups that find something": summary["memory"]["cleanup_results"] > 0,
    })  # fmt: skip


class Watch:
    """Watches a run: every slave after each turn, all that is sent as one piece, and what happens on the way."""

    def __init__(self, simulated, setup, made):
        self.seen = Counter()
        self._made, self._cluster = made, simulated
        self._slaves = [simulated.roles[rank] for rank in setup.roles.slaves]
        self._backlog_bytes_max = self._staged_bytes_max = self._piece_bytes_max = 0
        self._active = len(simulated.master.core.active)
        self._newest_s = {}
        self._counted = {}  # It is {slave: what it had counted after its last turn}.
        self._moods = random.Random(made.seed)
        self._expiry = Expiry(made)
        for rank, slave in zip(setup.roles.slaves, self._slaves):
            self._replace(simulated.engine.processes[rank], "turn", partial(self._turn, slave))
            self._replace(slave._handover._mover, "_send", self._shipped)
            self._replace(slave._handover._mover, "take", partial(self._staged, slave))
            join = slave._operator._operator  # without what charges its time
            if isinstance(join, PlannedJoin):
                self._replace(join, "_adopt", self._adopted)
            if made.spills:  # What a slave must hold may be on its disk.
                SpillWatch(self.seen, slave)
            elif made.has_tracks or made.spreads:  # Several slaves hold a group.
                self._replace(slave._handover._tracks, "joined", partial(self._doubled, slave))
            else:
                self._replace(slave._operator, "insert", self._expiry.inserted)
                self._replace(slave._operator, "expire", partial(self._expiry.expired, slave._operator))
        self._feeds = [simulated.master.feed, *(simulated.roles[rank]._feed for rank in setup.roles.producers[1:])]
        for feed in self._feeds:
            self._replace(feed.buffers, "add", self._added)
            self._replace(feed.buffers, "deliver", self._expiry.delivered)
            self._replace(feed.buffers, "take", self._taken)
        self._replace(simulated.master.moves, "closed", self._closed)
        self._replace(simulated.network, "_arrive", self._arrived)
        for name, stalls in (("rank stalls", simulated._stalls), ("link stalls", simulated.network._stalls)):
            for one in stalls:
                self._replace(one, "over_s", partial(self._stalled, name))

    def _replace(self, thing, name, watched):
        """Lets `watched` be called in place of the method, which it gets as its first argument."""
        setattr(thing, name, partial(watched, getattr(thing, name)))

    def _turn(self, slave, turn):
        pause_s = turn()
        now = slave._operator.totals
        before, self._counted[slave] = self._counted.get(slave, now), now
        fallen = fallen_counts(before, now)
        assert not fallen, f"what a slave counts only grows: {fallen}"
        from_master = sum(message.backlog_bytes for message in slave._core._messages.unjoined() if not message.own)
        self._backlog_bytes_max = max(self._backlog_bytes_max, from_master)
        self._staged_bytes_max = max(self._staged_bytes_max, slave._handover._mover.staged_bytes)
        return pause_s

    def _shipped(self, send, move, supply, frames, final=(), *marks):
        octets = sum(frame.nbytes for frame in frames)
        block_bytes = self._slaves[0]._operator._pool.page_bytes
        bound_bytes = 2 * max(self._made.portion_bytes, block_bytes) + FRAME_EXTRA_BYTES
        # A frame of rows from the disk is not cut.
        octets -= frames[-1].nbytes if self._made.spills else 0
        assert final or octets <= bound_bytes, f"a portion of {octets} bytes, wanted at most {bound_bytes}"
        send(move, supply, frames, final, *marks)

    def _adopted(self, adopt, *arrived):
        self.seen["states that travel"] += 1
        adopt(*arrived)

    def _staged(self, slave, take, state):
        """Watches a part of a group arrive. At times the slave has no room for it, and must then refuse the group."""
        join = slave._operator._operator  # This is the join itself, without what charges its time.
        join.is_short = self._moods.random() < self._made.refusals
        whole = take(state)
        mover = slave._handover._mover
        staging = mover._stagings.get(state.move)
        refused = staging is None or staging.state == consumer.REFUSED
        assert refused or mover.staged_bytes <= join.memory().free, "who has no room for a group refuses it"
        join.is_short = False
        return whole

    def _doubled(self, slave, joined, slot):
        """Watches the slot of a group that two slaves join. At times the consumer has no room for more of it."""
        join = slave._operator._operator
        join.is_short = self._moods.random() < self._made.refusals / 4
        left = joined(slot)
        join.is_short = False
        self.seen["two tracks"] += 1
        self.seen["two tracks end"] += slot.step == steps.LEAVE and left is not None
        return left

    def _added(self, add, scattered):
        added = add(scattered)
        octets = [*added.octets.values(), *added.held.values(), *(octets for _, octets in added.shared)]
        self._piece_bytes_max = max(self._piece_bytes_max, sum(octets))
        return added

    def _taken(self, take, slave, items):
        taken = take(slave, items)
        if items == 1:
            self._piece_bytes_max = max(self._piece_bytes_max, sum(piece.octets for piece in taken.pieces))
        return taken

    def _closed(self, closed, action):
        closed(action)
        self.seen[action.outcome] += 1
        active = len(self._cluster.master.core.active)
        self.seen["shrinks"] += active < self._active
        self.seen["grows"] += active > self._active
        self._active = active

    def _arrived(self, arrive, parcel, time_s):
        newest_s = self._newest_s.get(parcel.to, 0.0)
        self.seen["overtakings"] += parcel.sent_s < newest_s
        self._newest_s[parcel.to] = max(newest_s, parcel.sent_s)
        arrive(parcel, time_s)

    def _stalled(self, name, over_s, time_s):
        end_s = over_s(time_s)
        self.seen[name] += end_s > time_s
        return end_s

    def check_end(self, summary):
        """Checks that no move is open, that nothing is left at the master, and that memory kept to its bounds."""
        master = self._cluster.master
        ended = sum(master.moves.totals._replace(moved_bytes=0))
        assert master.core.open_moves == 0 and master.core.coordinator.moves.begun == ended
        assert not any(slave._handover._mover._supplies for slave in self._slaves), "no slave still supplies a group"
        assert not any(slave._handover._spreads._parts for slave in self._slaves), "no part is on its way"
        assert not any(slave._handover._tracks._tracks for slave in self._slaves), "no two slaves still join a group"
        assert not any(feed.buffers.held_bytes for feed in self._feeds), "nothing is left at a producer"
        assert self._active == len(master.core.active)
        self.check_bounds()

    def check_bounds(self):
        made, memory_bytes = self._made, self._made.memory_bytes
        most_bytes = made.buffer_bytes + self._piece_bytes_max * made.producers
        assert self._backlog_bytes_max <= most_bytes, "what producers send is bounded"
        most_bytes = made.master_buffer_bytes + self._piece_bytes_max * made.slaves
        for feed in self._feeds:
            assert feed.buffers.held_bytes_max <= most_bytes, "a producer's buffer is bounded"
        for slave in self._slaves:
            blocks_bytes = slave._operator.totals.blocks_max * slave._operator._pool.page_bytes
            assert blocks_bytes <= memory_bytes, "the state is bounded"
        assert self._staged_bytes_max <= memory_bytes, "what is staged is bounded"
