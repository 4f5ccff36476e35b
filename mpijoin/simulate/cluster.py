"""A whole run in virtual time: the master, slaves and collector of a real one, on simulated clocks and links."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence, cast

import numpy as np

from mpijoin.checkpoint.manifest import numbers_in
from mpijoin.checkpoint.restore import Resumption, drop_later, find, groups_of, install
from mpijoin.collector.runtime import CollectorRank
from mpijoin.config.inject import holds_at
from mpijoin.config.job import ALL, INNER, Change, Checkpoint, Job, StreamJob, SyntheticSource
from mpijoin.config.units import show
from mpijoin.coordinator.runtime import Master
from mpijoin.coordinator.sharing import positions_at_first, share_of
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import JoinSchema
from mpijoin.errors import JobError, ProtocolError
from mpijoin.join.tuning import mean_tuple_bytes, theta_bytes
from mpijoin.launch.collecting import new_collector
from mpijoin.launch.logs import rank_log
from mpijoin.launch.roles import RunSetup
from mpijoin.launch.setup import prepare
from mpijoin.launch.sizes import size_for
from mpijoin.launch.summary import RunOutcome, summarize
from mpijoin.operators.base import Operator
from mpijoin.producer.intake import Intake
from mpijoin.producer.runtime import Producer
from mpijoin.producer.start import pacing_of
from mpijoin.rank import MASTER, WAIT_S, Rank, describe, exit_code_of
from mpijoin.records import GroupSpans
from mpijoin.rundir import RunDirectory
from mpijoin.simulate.costed import Costed, Meter, OperatorMeter
from mpijoin.simulate.costs import Costs
from mpijoin.simulate.engine import Engine, Process, SimulatedClock
from mpijoin.simulate.intake import CostedIntake, ModelledIntake, synthetic_sources, tuple_words_of
from mpijoin.simulate.keys import match_model
from mpijoin.simulate.modelled import ModelledJoin, Shape
from mpijoin.simulate.rank import SimulatedRank
from mpijoin.slave.joining import new_operator
from mpijoin.slave.runtime import Slave
from mpijoin.spill.forms import AnySpiller, new_spiller
from mpijoin.spill.runs import Runs
from mpijoin.spill.scratch import open_scratch
from mpijoin.transport.simulated import Disturbance, Network, Stalls

# Of synthetic streams.
NOT_MODELLED = {"arrivals": "arrivals", "keys": "keys", "permute": "permute", "disorder": "disorder_ns"}
NOT_SIMULATED = "is not simulated: leave it out, or run the job for real"
# A slave has so much memory if the job does not say: "each processing node has enough memory" (WSJ, VI-A).
MEMORY_BYTES = 1 << 50


@dataclass(frozen=True)
class Manner:
    """How a run is simulated."""

    costs: Costs = Costs()
    modelled: bool = True
    """Whether a join that only counts takes the place of the real one with its tuples."""
    encodes: bool = False
    """Whether messages are encoded and parsed as on a wire."""
    disturbance: Disturbance = Disturbance()
    limit_s: float = math.inf
    """The run is given up after so much virtual time."""


class Quiet:
    """A progress display that shows nothing."""

    def update(self, make_view: Callable[[], Any]) -> None:
        """Shows nothing."""

    def close(self, final_line: str = "") -> None:
        """Shows nothing."""


def simulate(
    job: Job,
    schema: JoinSchema,
    slaves: int,
    manner: Manner = Manner(),
    overwrite: bool = False,
    progress: Any = None,
    writers: Any = None,
) -> RunOutcome:
    """Runs the job on so many simulated slaves. `summary` is that of a real run, with "simulated" true.

    progress: as `progress.Progress`, or None to show nothing · writers: what a collector writes to instead of part
    files. Raises JobError if the job cannot be simulated, and whatever ends a run.
    """
    job = simulated_job(job, manner)
    setup = prepare(job, schema, size_for(job, slaves), overwrite)
    try:
        cluster = SimulatedCluster(setup, manner, progress or Quiet(), writers)
        return _run(cluster, setup)
    finally:
        setup.release()


def _run(cluster: SimulatedCluster, setup: RunSetup) -> RunOutcome:
    try:
        return cluster.run()
    except BaseException as error:
        cluster.abandon()
        if setup.directory:
            now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            setup.directory.write_failed({"reason": describe(error), "exit_code": exit_code_of(error), "time": now})
        raise


def simulated_job(job: Job, manner: Manner) -> Job:
    """Returns the job as it is simulated. A modelled join only counts its results, and has no state to save."""
    if not manner.modelled:
        return job
    faults = [
        f'[{stream.section}]: wanted kind = "synthetic": a modelled join knows its tuples only by their distribution'
        for stream in job.streams
        if not isinstance(stream.source, SyntheticSource)
    ]
    faults += [text for stream in job.streams for text in _not_modelled(stream)]
    if job.join.where:
        faults.append(f"[join] where: {NOT_SIMULATED}")
    if job.join.match != ALL:
        faults.append(f"[join] match: got {show(job.join.match)}, {NOT_SIMULATED}")
    if job.join.reduce:
        faults.append(f"[join] reduce: {NOT_SIMULATED}")
    if job.join.type != INNER:
        faults.append(f"[join] type: got {show(job.join.type)}, {NOT_SIMULATED}")
    if job.queries:
        faults.append(f"[[query]]: {NOT_SIMULATED}")
    if job.aggregate.is_on:
        faults.append(f"[aggregate]: {NOT_SIMULATED}")
    if job.memory.spills:
        faults.append(f"[memory] spill: got {show(job.memory.spill)}, {NOT_SIMULATED}")
    if job.inject.memory:
        faults.append(f"[inject] memory: {NOT_SIMULATED}")
    if faults:
        raise JobError(faults)
    return job._replace(output=job.output._replace(results="count"), checkpoint=Checkpoint())


def _not_modelled(stream: StreamJob) -> Iterator[str]:
    """Yields a fault for each feature of a synthetic stream that the model of arrivals and keys does not have."""
    source, usual = stream.source, SyntheticSource()
    if not isinstance(source, SyntheticSource):
        return
    for name, attribute in NOT_MODELLED.items():
        if getattr(source, attribute) != getattr(usual, attribute):
            yield f"[{stream.section}] {name}: {NOT_SIMULATED}"
    if any(change != Change(change.start_ns, change.rate) for change in source.changes):
        advice = "leave the others out, or run the job for real"
        yield f"[{stream.section}] changes: only those of the rate are simulated: {advice}"


class SimulatedCluster:
    """The ranks of one run on one engine.

    With a setup that resumes, they go on from the newest checkpoint, which must be whole.
    """

    def __init__(self, setup: RunSetup, manner: Manner, progress: Any, writers: Any = None):
        job, size = setup.job, setup.roles.size
        self._setup, self._manner = setup, manner
        self._things = ExitStack()
        self.engine = Engine()
        disturbance = manner.disturbance
        self.network = Network(size, self.engine, manner.costs.link, disturbance, partial(late_s, job))
        self._stalls = [Stalls(disturbance, size + 1 + rank) for rank in range(size)]
        self._matches = match_model(synthetic_sources(job), job.cluster.partitions) if manner.modelled else None
        self._resumption = self._find() if setup.resumes else None
        self._positions = self._shares()
        ranks = [self._new_rank(number) for number in range(size)]
        self.roles = [self._new_role(rank, progress, writers) for rank in ranks]
        for number, process in list(self.engine.processes.items()):
            self.engine.add(number, process)
        self.master: Master = self.roles[MASTER]

    def run(self) -> RunOutcome:
        with self._things:
            self.engine.run(lambda: self.master.done, self._manner.limit_s)
        self.master.close()
        figures = {
            "simulated": True,
            "events": self.engine.events,
            "trace": f"{self.network.trace & (1 << 64) - 1:016x}",
        }
        return summarize(self._setup, self.master, 0.0, self._own_files(), figures)

    def abandon(self) -> None:
        for role in self.roles:
            role.abandon()

    def _find(self) -> Resumption:
        """Returns the state from which the run goes on. Removes what was written after it."""
        setup, (folder, directory) = self._setup, self._folders()
        found = find(folder, numbers_in(folder)[0], setup.job, setup.roles.slaves, directory)
        drop_later(directory, found.manifest)
        return found

    def _shares(self) -> Sequence[np.ndarray | None]:
        """Returns what each producer reads. A modelled one needs no files."""
        if self._matches:
            return [None] * len(self._setup.roles.producers)
        return positions_at_first(self._setup, self._resumption, str)

    def _folders(self) -> tuple[Path, RunDirectory]:
        """Returns the folder of the checkpoints and the run directory of a run that goes on."""
        folder, directory = self._setup.checkpoints, self._setup.directory
        if folder is None or directory is None:
            raise ProtocolError("a run that goes on has folders")
        return folder, directory

    def _own_files(self) -> list[str]:
        return [part.name for part in self._writers.close()] if self.master.collector else []

    def _new_rank(self, number: int) -> SimulatedRank:
        """Makes one rank, to which others can send. Its turns begin once it is added to the engine."""
        endpoint, clock = self.network.endpoints[number], SimulatedClock()
        clock.wall_s = self._resumption.manifest.run.elapsed_s if self._resumption else 0.0
        rank = SimulatedRank(endpoint, clock, self._setup.job.inject, self._manner.encodes)
        # A producer may sleep for a moment that is due.
        rest_s = math.inf if number in self._setup.roles.producers else WAIT_S
        rank.process = Process(clock, endpoint, self._stalls[number], lambda: self.roles[number].turn(), rest_s)
        self.engine.processes[number] = rank.process
        return rank

    def _new_role(self, rank: SimulatedRank, progress: Any, writers: Any) -> Any:
        name = self._setup.roles.name(rank.number)
        if name == "master":
            return self._master(rank, progress, writers)
        if name == "producer":
            return self._producer(rank)
        return self._slave(rank) if name == "slave" else self._collector(rank, writers)

    def _master(self, rank: SimulatedRank, progress: Any, writers: Any) -> Master:
        setup = self._setup
        if setup.directory:
            # Only the master has a log, since those of many slaves would be too many open files.
            rank.log = rank_log(setup, MASTER)
        intake = self._intake(rank, self._positions[MASTER])
        collector = None
        if setup.roles.collector == MASTER:
            self._writers = writers
            collector = new_collector(setup, writers, self._resumption)
        return Master(setup, as_rank(rank), progress, collector, intake, self._resumption)

    def _producer(self, rank: SimulatedRank) -> Producer:
        share = share_of(self._setup, self._resumption, self._positions[rank.number])
        return Producer(self._setup, as_rank(rank), share, self._intake(rank, share.position))

    def _intake(self, rank: SimulatedRank, position: np.ndarray | None) -> Intake:
        setup, job, costs = self._setup, self._setup.job, self._manner.costs
        producers = len(setup.roles.producers)
        pace, share = pacing_of(job, setup.schema, producers).pace, (rank.number, producers)
        intake: ModelledIntake | CostedIntake
        if self._matches:
            intake = ModelledIntake(job, setup.schema, self._matches, pace, rank.clock, costs, *share)
        else:
            read = Intake(job, setup.schema, setup.directory, pace, position, setup.late, *share)
            intake = CostedIntake(read, rank.clock, costs)
        return cast(Intake, intake)

    def _slave(self, rank: SimulatedRank) -> Slave:
        setup, job = self._setup, self._setup.job
        memory_bytes = job.memory.limit_bytes or MEMORY_BYTES
        operator: Operator
        meter: Meter
        spiller: AnySpiller | None = None
        if self._matches:
            modelled = ModelledJoin(modelled_shape(job, setup.schema, memory_bytes), self._matches)
            operator, meter = cast(Operator, modelled), modelled.tally  # Nobody reads its results.
        else:
            joining = new_operator(job, setup.schema, memory_bytes)
            operator, meter = joining, OperatorMeter(joining, job.cluster.partitions)
            if job.memory.spills:
                scratch = self._things.enter_context(open_scratch(job.memory.path, f"rank-{rank.number}"))
                spiller = new_spiller(job, joining, Runs(scratch, clock=lambda: rank.clock.wall_s))
        listed: tuple[GroupSpans, ...] = ()
        number = 0
        if self._resumption:
            listed, number = groups_of(self._resumption, rank.number), self._resumption.manifest.number
            install(self._folders()[0], operator, listed, spiller)
        costed = Costed(operator, meter, rank.clock, self._manner.costs)
        return Slave(setup, as_rank(rank), cast(Operator, costed), [one.group for one in listed], number, spiller)

    def _collector(self, rank: SimulatedRank, writers: Any) -> CollectorRank:
        return CollectorRank(as_rank(rank), new_collector(self._setup, writers, self._resumption))


def as_rank(rank: SimulatedRank) -> Rank:
    """Casts a simulated rank to Rank: it has the interface of a real one, without being one."""
    return cast(Rank, rank)


def modelled_shape(job: Job, schema: JoinSchema, memory_bytes: int) -> Shape:
    """Returns the sizes of the job's join."""
    tuple_bytes = tuple(8 * tuple_words_of(RecordLayout(stream)) for stream in schema.streams)
    block = job.tuning.block_bytes
    theta = theta_bytes(job.tuning.theta, mean_tuple_bytes(schema), block, streams=len(schema.streams))
    windows = tuple(schema.ticks(stream.window_ns) for stream in job.streams)
    return Shape(job.cluster.partitions, memory_bytes, block, theta, tuple_bytes, windows)


def late_s(job: Job, rank: int, time_s: float) -> float:
    """Returns by how many seconds `[inject] delay` holds back what reaches this rank now."""
    now_ns = int(time_s * 1e9)
    own = (one for one in job.inject.delay if one.rank == rank)
    return sum(one.by_ns for one in own if holds_at(one, now_ns)) / 1e9
