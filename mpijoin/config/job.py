"""The job as one frozen value, made at launch and never changed: what every other module may know of the user's wishes.

Durations are integer nanoseconds (`_ns`), sizes integer bytes (`_bytes`). `load.py` makes a `Job` from TOML,
`check.py` lists its faults. The sections are named tuples and not dataclasses because every rank makes these classes
when it starts, and a frozen dataclass takes 25 times as long to make.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Mapping

from mpijoin.config.inject import Inject
from mpijoin.config.moves import PRECOPY, PTLB
from mpijoin.named import NamedTuple

AUTO = "auto"
OFF = "off"
MAX = "max"
UNBOUNDED = "unbounded"
NO_POLICY = "none"
LAZY_DISK, ACTIVE_DISK = "lazy-disk", "active-disk"
FLUX_LOAD, FLUX_MEMORY, FLUX_HYBRID = "flux-load", "flux-memory", "flux-hybrid"
OVERLAPPED, ORDERED = "overlapped", "ordered"  # what [cluster] exchange may be
SHARED, FIXED = "shared", "fixed"  # what [cluster] skew_buffer may be
GENERATIONS, ROTATE = "generations", "rotate"  # the forms of [memory] spill
LEAST_PRODUCTIVE, MOST_PRODUCTIVE, LARGEST, RANDOM = "least productive", "most productive", "largest", "random"
AT_END, WHEN_IDLE = "end", "idle"  # when [memory] cleanup is done
POISSON, B_MODEL, ZIPF = "poisson", "b-model", "zipf"
INNER, LEFT, RIGHT, FULL, SEMI, ANTI = "inner", "left", "right", "full", "semi", "anti"  # types of [join]
COUNT, AS_OUTPUT = "count", "as output"  # what `results` of a query may be; [output] may have the first of them
ALL, FIRST, LAST, NEAREST = "all", "first", "last", "nearest"  # what [join] match may be
MWAY = "mway"  # what [join] plan may be, besides a tree

NOTHING: Mapping[Any, Any] = MappingProxyType({})

STREAMS_MAX = 8  # of a job; the store and the m-way join have room for as many
SHORT_STREAMS = ("left", "right")  # [left] and [right] are short for [streams.left] and [streams.right]


def section_of(stream: str) -> str:
    """What messages call the table of a stream of this name.

    >>> section_of("left"), section_of("picks")
    ('left', 'streams.picks')
    """
    return stream if stream in SHORT_STREAMS else f"streams.{stream}"


class FileSource(NamedTuple):
    """A file, a folder or a glob of Parquet, Arrow IPC or CSV files."""

    path: str


class TableSource(NamedTuple):
    """An Arrow table handed over in Python; only `mpijoin.run` and `mpijoin.start` make these."""

    table: Any  # pyarrow.Table


class Change(NamedTuple):
    """From `start_ns` of a synthetic stream these values hold; None: as before. Named as in `SyntheticSource`."""

    start_ns: int
    rate: float | None = None
    bias: float | None = None
    exponent: float | None = None
    permute: int | None = None


class SyntheticSource(NamedTuple):
    """A stream that is made up: Poisson arrivals with keys of a b-model (WSJ, section VI-A; table 2), or others.

    The same seed gives the same rows everywhere.
    """

    rate: float = 1500.0  # tuples per second
    bias: float = 0.7  # b of the b-model of the keys, 0.5 (uniform) <= b < 1
    domain: int = 10_000_000  # keys are integers in [0, domain)
    tuples: int | None = None  # either this
    duration_ns: int | None = None  # or this ends the stream
    seed: int | None = None  # None: [run] seed
    payload_bytes: int = 0
    arrivals: str = POISSON  # or B_MODEL: bursts
    burst: float = 0.7  # b of the b-model over time
    keys: str = B_MODEL  # or ZIPF
    exponent: float = 1.0  # of Zipf's law
    # keys change places: streams of one number have the same hot keys; None: hot keys are small
    permute: int | None = None
    changes: tuple[Change, ...] = ()  # in order of time
    disorder_ns: int = 0  # tuples come up to so much after their time


class StreamJob(NamedTuple):
    """One input stream: where its rows come from, which columns are its time and key, and how long its rows wait."""

    name: str  # NAME of [streams.NAME]
    source: FileSource | TableSource | SyntheticSource
    time: str = "ts"
    time_unit: str | None = None  # "s", "ms", "us", "ns"; needed when the time column is an integer
    key: tuple[str, ...] = ("key",)
    window_ns: int | None = 0  # how long a tuple of this stream waits for partners; None: "unbounded"
    lateness_ns: int = 0
    columns: tuple[str, ...] | None = None  # payload; None: every other column
    types: Mapping[str, str] = NOTHING  # of columns of CSV files: name -> one of COLUMN_TYPES

    @property
    def section(self) -> str:
        """Its table in the job file."""
        return section_of(self.name)


class Reduced(NamedTuple):
    """One thing that is worked out of the partners of a row: its name in the results, and a function as text
    (mpijoin/conditions/calls.py)."""

    result: str
    text: str


class Join(NamedTuple):
    """Which rows and pairs are results. The types are those of SQL, with the windows as a part of the condition."""

    type: str = INNER  # or LEFT, RIGHT, FULL, SEMI, ANTI
    where: str = ""  # a condition (mpijoin/conditions); "": there is none
    match: str = ALL  # or FIRST, LAST, NEAREST: which partners of a row of the first stream make pairs
    reduce: tuple[Reduced, ...] = ()  # what is worked out of all partners of such a row, instead of pairs
    plan: str = MWAY  # or a tree of binary joins (config/plan.py), by which several streams are joined

    @property
    def alone(self) -> tuple[int, ...]:
        """The streams whose rows are results, too, if they have no partner until their windows are over."""
        return {LEFT: (0,), RIGHT: (1,), FULL: (0, 1), ANTI: (0,)}.get(self.type, ())

    @property
    def answers_rows(self) -> bool:
        """Whether each row of the first stream is answered once, when its window is over, and there are no pairs."""
        return self.match != ALL or bool(self.reduce)

    @property
    def spills_generations(self) -> bool:
        """Whether results may be found later, among generations that were spilled."""
        return not self.answers_rows

    @property
    def shown(self) -> int:
        """Of how many of the two streams results have columns."""
        return 1 if self.reduce or self.type in (SEMI, ANTI) else 2


class Query(NamedTuple):
    """One of several queries over the same two streams. Its windows are no longer than those of the streams."""

    name: str
    windows: Mapping[str, int | None] = NOTHING  # stream -> its window in ns for this query; others have their own
    type: str = INNER
    where: str = ""
    match: str = ALL
    reduce: tuple[Reduced, ...] = ()
    results: str = AS_OUTPUT  # or COUNT
    columns: tuple[str, ...] | None = None  # None: "all"

    @property
    def join(self) -> Join:
        return Join(self.type, self.where, self.match, self.reduce)


class History(NamedTuple):
    """How much of a key's past counts: so many rows, or so much time. One of the two is given."""

    rows: int | None = None  # the row itself is one of them
    span_ns: int | None = None


class Function(NamedTuple):
    """One column of an aggregate: its name in the results, which function it is, and of which column of the stream."""

    result: str
    name: str  # "count", "sum", "min", "max", "mean"
    column: str | None = None  # None: of no column; only "count"

    @property
    def text(self) -> str:
        """The function as a job file has it."""
        return f"{self.name}({self.column or ''})"


class Aggregate(NamedTuple):
    """Statistics of one stream instead of a join: for its rows, over the last rows of the same key up to them.

    The rows of a key are in the order of their times, and of their numbers where times are equal. Late rows and null
    keys do not count. Nulls are left out, as in SQL: counts are then 0, and all else is null.
    """

    history: History | None = None  # None: the job has no aggregate
    columns: tuple[Function, ...] = ()
    emit_ns: int | None = None  # the length of a period; None: "row"

    @property
    def is_on(self) -> bool:
        """Whether the job has an aggregate. If it lacks a part of it, that is a fault of its own."""
        return self != Aggregate()


class Cluster(NamedTuple):
    """How rows are spread over the slaves, how often they are sent, and how many may be on their way."""

    partitions: int = 60
    distribution_epoch_ns: int | None = None  # None: "auto"
    reorganization_epoch_ns: int = 20_000_000_000
    subgroups_asked: int | None = 1  # None: "auto"
    exchange: str = OVERLAPPED  # or ORDERED
    producers_asked: int | None = 1  # ranks that read, hash and send; rank 0 is the first of them; None: "auto"
    buffer_bytes: int = 64 << 20  # stream buffer of a slave: bounds what is sent and not yet joined
    # bounds what the master holds of rows: read ahead, ready to be sent, and held back
    master_buffer_bytes: int = 256 << 20
    slaves_min: int | None = None  # the degree of declustering follows the load from here up; None: all slaves, always
    skew_buffer: str = SHARED  # or FIXED: an even part of master_buffer for each slave

    @property
    def subgroups(self) -> int:
        """As many as are asked for. A launch chooses for "auto" (launch/sizes.py); before, it counts as one."""
        return self.subgroups_asked or 1

    @property
    def producers(self) -> int:
        """As many as are asked for; likewise."""
        return self.producers_asked or 1


class Memory(NamedTuple):
    """How much memory the rows in a slave's windows may take, and what becomes of rows that do not fit.

    "generations" is the way of LAD (sections 3 and 5), "rotate" that of Flux (section 6.1). Neither changes the answer.
    """

    limit_bytes: int | None = None  # of each slave; None: "auto"
    spill: str = OFF  # or GENERATIONS or ROTATE
    path: str | None = None  # a folder of the slave's own node; None: "auto"
    threshold: float = 0.9  # share of the limit at which a slave begins to spill
    share: float = 0.3  # of the state, that goes to the disk at once: k %
    rank: str = LEAST_PRODUCTIVE  # or MOST_PRODUCTIVE, LARGEST, RANDOM: which groups go first
    cleanup: str = WHEN_IDLE  # or AT_END
    gap_ns: int | None = None  # t_gap, between two activations of "rotate"; None: "auto"

    @property
    def spills(self) -> bool:
        """Whether rows go to the disk where memory is short; else the run ends."""
        return self.spill != OFF


class Tuning(NamedTuple):
    """How slaves keep and join rows. It changes how fast a run is, never its results."""

    theta: int | str = AUTO  # bytes, "auto" or "off"
    block_bytes: int = 4096
    result_buffer: int = 8192  # pairs the kernels may produce before they are consumed
    communication: float = 0.1  # share of a slave's time that an automatic paced epoch may spend on communication


class Balance(NamedTuple):
    """When partitions move from one slave to another, and to more or fewer slaves.

    The first parameters are named as in WSJ, sections IV-C and V-A (table 2), the next as in LAD, sections 4 and 5, the
    last as in Flux, section 5.3.
    """

    policy: str = NO_POLICY  # "threshold" (WSJ's), "balance", LAZY_DISK, ACTIVE_DISK (LAD's), FLUX_LOAD ... (Flux's)
    supplier_threshold: float = 0.5  # Th_sup
    consumer_threshold: float = 0.01  # Th_con
    growth: float = 0.5  # beta: one slave more when suppliers > beta * consumers
    load_buffer_bytes: int | None = None  # the buffer whose occupancy is f_i; None: the bytes of two epochs
    relocation_threshold: float = 0.8  # theta_r
    relocation_pause_ns: int = 45_000_000_000  # tau_m
    productivity_ratio: float = 2.0  # lambda
    imbalance_threshold: float = 1.2  # th_imb
    utilization_threshold: float = 0.9  # th_util
    collection_min_ns: int = 250_000_000  # delta_min
    move: str = PRECOPY  # or MSLB, PTLB (DCAPE, sections 4 and 3)
    spread: str = AUTO  # or OFF: whether policy BALANCE may let several slaves share a partition


class Run(NamedTuple):
    """How fast event time goes by, and what a late row means."""

    speed: float | str = MAX  # event seconds per second of the wall clock, or as fast as the slaves take it
    warmup_ns: int = 0  # the first of a run, in wall time, which the metrics leave out
    seed: int = 0
    late: str = "keep"  # or "fail"


class Output(NamedTuple):
    """Where results go, and which of them."""

    path: str = ""
    results: str = "parquet"  # "parquet", "collect", "count"
    columns: tuple[str, ...] | None = None  # None: "all"
    part_bytes: int = 512 << 20  # a part file is closed when it has grown to about this


class Checkpoint(NamedTuple):
    """When the state of a run is saved, so that --resume can go on from there.

    SIGUSR1 always saves and stops; with every, epochs or margin, Ctrl-C and SIGTERM do, too.
    """

    every_ns: int | None = None  # of wall time; None: "off"
    epochs: int | None = None  # or so many reorganization epochs
    margin_ns: int | None = None  # ... and once so long before the walltime ends, upon which the run stops
    walltime_ns: int | None = None  # of the allocation, since the run's start; None: "auto", what Slurm says
    signals: tuple[str, ...] | None = None  # that save and stop; None: "auto"
    keep: int = 2  # so many checkpoints are kept
    path: str = ""  # folder; "": checkpoint/ in the run directory

    @property
    def is_on(self) -> bool:
        """Whether the job asks for checkpoints, apart from those that a signal asks for."""
        return any(value is not None for value in (self.every_ns, self.epochs, self.margin_ns))

    @property
    def stops_at(self) -> tuple[str, ...]:
        """The signals that save and stop. By default that is SIGUSR1, which has no other use, and all three if
        checkpoints are on."""
        if self.signals is not None:
            return self.signals
        return ("SIGUSR1", "SIGTERM", "SIGINT") if self.is_on else ("SIGUSR1",)


class Job(NamedTuple):
    """The whole job. `streams` are in the order of the job file; the engine names a stream by its index in it."""

    streams: tuple[StreamJob, ...]
    join: Join = Join()
    aggregate: Aggregate = Aggregate()
    cluster: Cluster = Cluster()
    memory: Memory = Memory()
    tuning: Tuning = Tuning()
    balance: Balance = Balance()
    run: Run = Run()
    output: Output = Output()
    checkpoint: Checkpoint = Checkpoint()
    inject: Inject = Inject()
    queries: tuple[Query, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the queries."""
        return tuple(query.name for query in self.queries)

    @property
    def each(self) -> tuple[Job, ...]:
        """For each query the job that would ask only this one; the job itself if it has no queries."""
        return tuple(map(self._of_query, self.queries)) or (self,)

    def _of_query(self, query: Query) -> Job:
        windows = (query.windows.get(stream.name, stream.window_ns) for stream in self.streams)
        streams = tuple(stream._replace(window_ns=window) for stream, window in zip(self.streams, windows))
        results = COUNT if query.results == COUNT else self.output.results
        output = self.output._replace(results=results, columns=query.columns)
        return self._replace(streams=streams, join=query.join, output=output, queries=())

    @property
    def kept_whole(self) -> str:
        """What in the job keeps slaves from sharing a partition (policy/parts.py), or "" if they may. Each pair of an
        inner join is found once where the rows of one stream are dealt. A row without partner would be found by each,
        and no slave knows all partners of a row. State on disk, and what several queries share, is not dealt."""
        reasons = {
            f'[balance] spread = "{OFF}"': self.balance.spread == OFF,
            "the job has several queries": bool(self.queries),
            "the job has an aggregate": self.aggregate.is_on,
            "the job has one stream": len(self.streams) == 1,
            f'[join] type = "{self.join.type}"': self.join.type != INNER,
            f'[join] match = "{self.join.match}"': self.join.match != ALL,
            "[join] reduce": bool(self.join.reduce),
            f'[memory] spill = "{self.memory.spill}"': self.memory.spills,
        }
        return next((reason for reason, holds in reasons.items() if holds), "")

    @property
    def may_spread(self) -> bool:
        """Whether several slaves may have parts of a partition."""
        return not self.kept_whole

    @property
    def has_tracks(self) -> bool:
        """Whether two slaves may join a partition side by side."""
        return self.balance.policy != NO_POLICY and self.balance.move == PTLB

    @property
    def alone(self) -> tuple[int, ...]:
        """As of `Join.alone`, for any query."""
        return tuple(sorted({stream for one in self.each for stream in one.join.alone}))

    @property
    def counts_only(self) -> bool:
        """Whether nothing is written of any result."""
        return all(one.output.results == COUNT for one in self.each)
