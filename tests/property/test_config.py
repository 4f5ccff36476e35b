"""A job that is written out and read back is the same job."""

import os
import tomllib

from hypothesis import given
from hypothesis import strategies as st

from made import made
from mpijoin.config.inject import Delay, Inject, Pressure, Slowdown
from mpijoin.config.job import (
    B_MODEL,
    POISSON,
    ZIPF,
    Balance,
    Change,
    Cluster,
    FileSource,
    Job,
    Memory,
    Output,
    Run,
    StreamJob,
    SyntheticSource,
    Tuning,
)
from mpijoin.config.load import dump_job, load_job

NAMES = st.text(min_size=1, max_size=8)
SIZES = st.integers(64 << 10, 2**62)
DURATIONS = st.integers(1, 2**62)
WINDOWS = st.none() | DURATIONS
STREAM_NAMES = st.sampled_from(["left", "right"]) | st.text("aB_7", min_size=1, max_size=4)
STREAMS = st.lists(STREAM_NAMES, min_size=1, max_size=8, unique_by=str.lower)


CHANGES = st.lists(made(Change, DURATIONS, bias=st.floats(0.5, 0.99), permute=st.integers(0, 9)), max_size=3).map(
    lambda changes: tuple(
        sorted({change.start_ns: change for change in changes}.values(), key=lambda change: change.start_ns)
    )
)


@st.composite
def stream_jobs(draw, name):
    if draw(st.booleans()):
        source = SyntheticSource(
            draw(st.floats(1e-3, 1e9)),
            draw(st.floats(0.5, 0.99)),
            draw(st.integers(1, 2**31)),
            *draw(st.sampled_from([(5, None), (None, 7)])),
            draw(st.none() | st.integers(0, 99)),
            draw(st.integers(0, 99)),
            draw(st.sampled_from([POISSON, B_MODEL])),
            draw(st.floats(0.5, 0.99)),
            draw(st.sampled_from([B_MODEL, ZIPF])),
            draw(st.floats(0.1, 9)),
            draw(st.none() | st.integers(0, 99)),
            draw(CHANGES),
            draw(st.integers(0, 2**62)),
        )
        return StreamJob(name, source, window_ns=draw(WINDOWS), lateness_ns=draw(DURATIONS))
    time, key, *columns = draw(st.lists(NAMES, min_size=2, max_size=5, unique=True))
    source = FileSource(os.path.abspath("/data/" + draw(st.text("ab *[]?é\"\\\n", min_size=1, max_size=8))))
    unit = draw(st.sampled_from([None, "s", "us"]))
    payload = draw(st.sampled_from([None, tuple(columns)]))
    return StreamJob(name, source, time, unit, (key,), draw(WINDOWS), draw(DURATIONS), payload)


SPANS = st.tuples(st.integers(0, 2**30), st.none() | st.integers(2**30 + 1, 2**62))
SLOWDOWNS = st.builds(
    lambda rank, share, span: Slowdown(rank, share, *span), st.integers(1, 9), st.floats(0.01, 1), SPANS
)
PRESSURES = st.builds(lambda rank, octets, span: Pressure(rank, octets, *span), st.integers(1, 9), SIZES, SPANS)
DELAYS = st.builds(lambda rank, by_ns, span: Delay(rank, by_ns, *span), st.integers(0, 9), st.integers(0, 2**62), SPANS)
ALWAYS_SLOW = st.dictionaries(st.integers(1, 99), st.floats(0.01, 1.0), max_size=3).map(
    lambda shares: tuple(Slowdown(rank, share) for rank, share in shares.items())
)
EPOCHS = st.dictionaries(st.integers(0, 99), st.integers(0, 99), max_size=3)
LONG_DURATIONS = st.integers(2**61, 2**62)

JOBS = made(
    Job,
    (st.just(["left", "right"]) | STREAMS).flatmap(lambda names: st.tuples(*map(stream_jobs, names))),
    cluster=made(
        Cluster,
        st.integers(1, 65535),
        st.none() | st.integers(1, 2**61),
        LONG_DURATIONS,
        st.none() | st.integers(1, 9),
        st.sampled_from(["overlapped", "ordered"]),
        st.none() | st.integers(1, 9),
        SIZES,
        SIZES,
        st.none() | st.integers(1, 99),
        st.sampled_from(["shared", "fixed"]),
    ),
    memory=made(
        Memory,
        st.none() | SIZES,
        st.sampled_from(["off", "generations", "rotate"]),
        st.none() | st.just("/scratch/π \"x\""),
        st.floats(0.001, 1.0),
        st.floats(0.001, 1.0),
        st.sampled_from(["least productive", "most productive", "largest", "random"]),
        st.sampled_from(["end", "idle"]),
        st.none() | st.just(0) | DURATIONS,
    ),
    tuning=made(
        Tuning,
        st.sampled_from(["auto", "off"]) | SIZES,
        st.integers(64, 16 << 20),
        st.integers(1, 99),
        st.floats(0.001, 0.999),
    ),
    balance=made(
        Balance,
        st.sampled_from(["none", "threshold", "balance"]),
        st.floats(1.0, 9.0),
        st.floats(0.001, 0.9),
        st.floats(0.01, 9.0),
        st.none() | SIZES,
        st.floats(0.001, 1.0),
        st.integers(0, 10**12),
        st.floats(1.0, 9.0),
    ),
    run=made(
        Run,
        st.just("max") | st.floats(1e-9, 1e9),
        st.just(0) | DURATIONS,
        st.integers(0, 2**62),
        st.sampled_from(["keep", "fail"]),
    ),
    output=made(
        Output,
        st.just("/out/π \"x\""),
        st.sampled_from(["parquet", "collect", "count"]),
        st.none() | st.lists(NAMES, min_size=1, max_size=3, unique=True).map(tuple),
        SIZES,
    ),
    inject=made(
        Inject,
        ALWAYS_SLOW | st.lists(SLOWDOWNS, max_size=3).map(tuple),
        st.lists(DELAYS, max_size=3).map(tuple),
        st.lists(PRESSURES, max_size=3).map(tuple),
        st.integers(1, 64),
        EPOCHS,
        EPOCHS,
    ),
)


def fits(job):
    """Whether a slave's memory has room for the blocks that it must at least hold."""
    least_bytes = (2 * len(job.streams) + 1) * job.tuning.block_bytes
    return not job.memory.spills or job.memory.limit_bytes is None or job.memory.limit_bytes >= least_bytes


@given(JOBS.filter(fits))
def test_a_dumped_job_reads_back_equal(job):
    assert load_job(tomllib.loads(dump_job(job))) == job
