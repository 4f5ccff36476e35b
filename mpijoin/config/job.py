"""The job as one frozen value, made at launch and never changed: what every other module may know of the user's wishes.

Durations are integer nanoseconds (`_ns`), sizes integer bytes (`_bytes`). `load.py` makes a `Job` from TOML,
`check.py` lists its faults.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping

AUTO = "auto"
OFF = "off"
MAX = "max"


@dataclass(frozen=True)
class FileSource:
    """A file, a folder or a glob of Parquet, Arrow IPC or CSV files."""

    path: str


@dataclass(frozen=True)
class TableSource:
    """An Arrow table handed over in Python; only `mpijoin.run` makes these."""

    table: Any  # pyarrow.Table


@dataclass(frozen=True)
class SyntheticSource:
    """Poisson arrivals with b-model keys (WSJ, section VI-A; table 2)."""

    rate: float = 1500.0  # tuples per second
    bias: float = 0.7  # b of the b-model, 0.5 (uniform) <= b < 1
    domain: int = 10_000_000  # keys are integers in [0, domain)
    tuples: int | None = None  # either this
    duration_ns: int | None = None  # or this ends the stream
    seed: int | None = None  # None: [run] seed
    payload_bytes: int = 0


@dataclass(frozen=True)
class StreamJob:
    """One input stream."""

    name: str  # "left" or "right"
    source: FileSource | TableSource | SyntheticSource
    time: str = "ts"
    time_unit: str | None = None  # "s", "ms", "us", "ns"; needed when the time column is an integer
    key: tuple[str, ...] = ("key",)
    window_ns: int = 0  # how long a tuple of this stream waits for partners
    lateness_ns: int = 0
    columns: tuple[str, ...] | None = None  # payload; None: every other column


@dataclass(frozen=True)
class Cluster:
    partitions: int = 60
    distribution_epoch_ns: int | None = None  # None: "auto"
    reorganization_epoch_ns: int = 20_000_000_000
    subgroups: int = 1
    buffer_bytes: int = 64 << 20  # stream buffer of a slave: bounds what is sent and not yet joined
    master_buffer_bytes: int = 256 << 20
    memory_bytes: int | None = None  # bounds each slave; None: "auto"


@dataclass(frozen=True)
class Tuning:
    theta: int | str = AUTO  # bytes, "auto" or "off"
    block_bytes: int = 4096
    result_buffer: int = 8192  # pairs the kernels may produce before they are consumed


@dataclass(frozen=True)
class Balance:
    policy: str = "none"


@dataclass(frozen=True)
class Run:
    speed: float | str = MAX
    seed: int = 0
    late: str = "keep"  # or "fail"


@dataclass(frozen=True)
class Output:
    path: str = ""
    results: str = "parquet"  # "parquet", "collect", "count"
    columns: tuple[str, ...] | None = None  # None: "all"
    part_bytes: int = 512 << 20  # a part file is closed when it has grown to about this


@dataclass(frozen=True)
class Inject:
    """Faults on purpose, to see the system cope."""

    slow: Mapping[int, float] = field(default_factory=dict)  # rank -> share of its speed, 0 < share <= 1
    hash_bits: int = 64  # key hashes keep this many bits: few of them force collisions
    fail: Mapping[int, int] = field(default_factory=dict)  # rank -> first epoch whose message makes it raise an error


@dataclass(frozen=True)
class Job:
    left: StreamJob
    right: StreamJob
    cluster: Cluster = Cluster()
    tuning: Tuning = Tuning()
    balance: Balance = Balance()
    run: Run = Run()
    output: Output = Output()
    inject: Inject = Inject()

    @property
    def streams(self) -> tuple[StreamJob, StreamJob]:
        return (self.left, self.right)
