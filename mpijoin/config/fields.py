"""The job file as a table: which fields each section has, how each is read, written, and bounded."""

from __future__ import annotations

from typing import NamedTuple

from mpijoin.config.changes import CHANGES
from mpijoin.config.injections import DELAY, EPOCHS, SLOW
from mpijoin.config.job import (
    AUTO,
    B_MODEL,
    NO_POLICY,
    OFF,
    POISSON,
    ZIPF,
    Balance,
    Checkpoint,
    Cluster,
    Inject,
    Output,
    Run,
    Tuning,
)
from mpijoin.config.kinds import ALL_OR_NAMES, DURATION, INTEGER, KEY, NAMES, NUMBER, SIZE, SPEED, TEXT, Kind, or_word
from mpijoin.config.units import INT64_MAX


class Field(NamedTuple):
    """One field. `low` and `high` bound numbers, both ends allowed; `choices` lists the words there are."""

    name: str  # in the job file
    attribute: str  # in the dataclass
    kind: Kind
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()


TIME_UNITS = ("s", "ms", "us", "ns")
POLICIES = (NO_POLICY, "threshold", "balance")

STREAM_FIELDS = (
    Field("time", "time", TEXT),
    Field("time_unit", "time_unit", TEXT, choices=TIME_UNITS),
    Field("key", "key", KEY),
    Field("window", "window_ns", DURATION, 0, INT64_MAX),
    Field("lateness", "lateness_ns", DURATION, 0, INT64_MAX),
    Field("columns", "columns", ALL_OR_NAMES),
)
SYNTHETIC_FIELDS = (
    Field("rate", "rate", NUMBER),
    Field("bias", "bias", NUMBER),
    # A key is (bits * domain) >> width, which must fit 64 bits.
    Field("domain", "domain", INTEGER, 1, 2**31),
    # Row numbers have 40 bits within one file.
    Field("tuples", "tuples", INTEGER, 0, 2**40),
    Field("duration", "duration_ns", DURATION, 0, INT64_MAX),
    Field("seed", "seed", INTEGER, 0, INT64_MAX),
    Field("payload_bytes", "payload_bytes", INTEGER, 0, 2**20),
    Field("arrivals", "arrivals", TEXT, choices=(POISSON, B_MODEL)),
    Field("burst", "burst", NUMBER),
    Field("keys", "keys", TEXT, choices=(B_MODEL, ZIPF)),
    Field("exponent", "exponent", NUMBER),
    Field("permute", "permute", INTEGER),
    Field("changes", "changes", CHANGES),
    Field("disorder", "disorder_ns", DURATION, 0, INT64_MAX),
)
SECTIONS = {
    "cluster": (
        Cluster,
        (
            Field("partitions", "partitions", INTEGER, 1, 65535),
            Field("distribution_epoch", "distribution_epoch_ns", or_word(DURATION, {AUTO: None}), 1, INT64_MAX),
            Field("reorganization_epoch", "reorganization_epoch_ns", DURATION, 1, INT64_MAX),
            Field("subgroups", "subgroups", INTEGER, 1, 65535),
            Field("buffer", "buffer_bytes", SIZE, 64 << 10, INT64_MAX),
            Field("master_buffer", "master_buffer_bytes", SIZE, 64 << 10, INT64_MAX),
            Field("memory", "memory_bytes", or_word(SIZE, {AUTO: None}), 64 << 10, INT64_MAX),
            Field("slaves_min", "slaves_min", or_word(INTEGER, {"all": None}), 1, 65535),
        ),
    ),
    "tuning": (
        Tuning,
        (
            Field("theta", "theta", or_word(SIZE, {AUTO: AUTO, OFF: OFF}), 1, INT64_MAX),
            Field("block", "block_bytes", SIZE, 64, 16 << 20),
            Field("result_buffer", "result_buffer", INTEGER, 1, 2**24),
            Field("communication", "communication", NUMBER),
        ),
    ),
    "balance": (
        Balance,
        (
            Field("policy", "policy", TEXT, choices=POLICIES),
            Field("supplier_threshold", "supplier_threshold", NUMBER),
            Field("consumer_threshold", "consumer_threshold", NUMBER),
            Field("growth", "growth", NUMBER),
            Field("load_buffer", "load_buffer_bytes", or_word(SIZE, {AUTO: None}), 1, INT64_MAX),
        ),
    ),
    "run": (
        Run,
        (
            Field("speed", "speed", SPEED),
            Field("warmup", "warmup_ns", DURATION, 0, INT64_MAX),
            Field("seed", "seed", INTEGER, 0, INT64_MAX),
            Field("late", "late", TEXT, choices=("keep", "fail")),
        ),
    ),
    "output": (
        Output,
        (
            Field("path", "path", TEXT),
            Field("results", "results", TEXT, choices=("parquet", "collect", "count")),
            Field("columns", "columns", ALL_OR_NAMES),
            Field("part", "part_bytes", SIZE, 1, INT64_MAX),
        ),
    ),
    "checkpoint": (
        Checkpoint,
        (
            Field("every", "every_ns", or_word(DURATION, {OFF: None}), 1, INT64_MAX),
            Field("epochs", "epochs", or_word(INTEGER, {OFF: None}), 1, INT64_MAX),
            Field("margin", "margin_ns", or_word(DURATION, {OFF: None}), 1, INT64_MAX),
            Field("walltime", "walltime_ns", or_word(DURATION, {AUTO: None}), 1, INT64_MAX),
            Field("signals", "signals", or_word(NAMES, {AUTO: None})),
            Field("keep", "keep", INTEGER, 1, 1000),
            Field("path", "path", TEXT),
        ),
    ),
    "inject": (
        Inject,
        (
            Field("slow", "slow", SLOW),
            Field("delay", "delay", DELAY),
            Field("hash_bits", "hash_bits", INTEGER, 1, 64),
            Field("fail", "fail", EPOCHS),
            Field("kill", "kill", EPOCHS),
        ),
    ),
}
