"""Job files: what is read, what is refused, and that a dumped job reads back equal."""

import os
import tomllib
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpijoin.config.fields import SECTIONS, STREAM_FIELDS, SYNTHETIC_FIELDS
from mpijoin.config.job import (
    Balance,
    Cluster,
    Delay,
    FileSource,
    Inject,
    Job,
    Output,
    Run,
    Slowdown,
    StreamJob,
    SyntheticSource,
    TableSource,
    Tuning,
)
from mpijoin.config.load import dump_job, load_job
from mpijoin.errors import JobError

SMALL = """
[left]
path = "p.parquet"
[right]
path = "s/*.parquet"
[output]
path = "out"
"""


@pytest.fixture
def job_file(tmp_path):
    def write(text=SMALL):
        path = tmp_path / "job.toml"
        path.write_text(text)
        return str(path)

    return write


def small(**changes):
    """A sound job as a dict, with "section__field" replaced."""
    document = {"left": {"path": "/l.parquet"}, "right": {"path": "/r.parquet"}, "output": {"path": "/out"}}
    for name, value in changes.items():
        section, field = name.split("__")
        document.setdefault(section, {})[field] = value
    return document


def faults(job, overrides=()):
    with pytest.raises(JobError) as caught:
        load_job(job, overrides)
    assert caught.value.exit_code == 2
    return caught.value.faults


def test_a_small_file_gets_the_defaults_and_paths_of_its_own_folder(job_file, tmp_path):
    assert load_job(job_file()) == Job(
        left=StreamJob("left", FileSource(str(tmp_path / "p.parquet"))),
        right=StreamJob("right", FileSource(str(tmp_path / "s/*.parquet"))),
        output=Output(path=str(tmp_path / "out")),
    )


def test_every_field_of_the_format_is_read():
    job = load_job(
        {
            "left": {
                "path": "/l",
                "time": "t",
                "time_unit": "us",
                "key": ["a", "b"],
                "window": "20 s",
                "lateness": "2 ms",
                "columns": ["prob"],
            },
            "right": {
                "kind": "synthetic",
                "rate": 10,
                "bias": 0.5,
                "domain": 7,
                "duration": "1 min",
                "seed": 3,
                "payload_bytes": 40,
            },
            "cluster": {
                "partitions": 7,
                "distribution_epoch": "2 s",
                "reorganization_epoch": "1 min",
                "subgroups": 2,
                "buffer": "1 MiB",
                "master_buffer": "2 MiB",
                "memory": "1 GiB",
                "slaves_min": 2,
            },
            "tuning": {"theta": "1.5 MB", "block": 64, "result_buffer": 16, "communication": 0.2},
            "balance": {
                "policy": "threshold",
                "supplier_threshold": 1,
                "consumer_threshold": 0.02,
                "growth": 0.75,
                "load_buffer": "1 MB",
            },
            "run": {"speed": 2, "warmup": "10 s", "seed": 5, "late": "fail"},
            "output": {"path": "/o", "results": "collect", "columns": ["left_row"], "part": "1 MB"},
            "inject": {
                "slow": {"2": 0.5},
                "delay": [{"rank": 1, "by": "50 ms", "to": "1 min"}],
                "hash_bits": 3,
                "fail": {"1": 4},
                "kill": {"2": 6},
            },
        },
        ["right.key=key", "left.key=[\"a\"]"],
    )
    assert job == Job(
        left=StreamJob("left", FileSource("/l"), "t", "us", ("a",), 20_000_000_000, 2_000_000, ("prob",)),
        right=StreamJob("right", SyntheticSource(10.0, 0.5, 7, None, 60_000_000_000, 3, 40)),
        cluster=Cluster(7, 2_000_000_000, 60_000_000_000, 2, 1 << 20, 2 << 20, 1 << 30, 2),
        tuning=Tuning(1_500_000, 64, 16, 0.2),
        balance=Balance("threshold", 1.0, 0.02, 0.75, 1_000_000),
        run=Run(2.0, 10_000_000_000, 5, "fail"),
        output=Output("/o", "collect", ("left_row",), 1_000_000),
        inject=Inject((Slowdown(2, 0.5),), (Delay(1, 50_000_000, 0, 60_000_000_000),), 3, {1: 4}, {2: 6}),
    )


def test_the_field_tables_cover_every_attribute_of_the_dataclasses():
    tables = [(StreamJob, STREAM_FIELDS, {"name", "source"}), (SyntheticSource, SYNTHETIC_FIELDS, set())]
    tables += [(make, fields, set()) for make, fields in SECTIONS.values()]
    for make, fields, elsewhere in tables:
        assert {field.attribute for field in fields} | elsewhere == set(make.__dataclass_fields__)


@pytest.mark.parametrize(
    "override, section, attribute, value",
    [
        ("left.window=20 s", "left", "window_ns", 20_000_000_000),
        ('left.window="20 s"', "left", "window_ns", 20_000_000_000),
        ("left.key=station", "left", "key", ("station",)),
        ("left.columns=all", "left", "columns", None),
        ("left.columns=[]", "left", "columns", ()),
        ("cluster.partitions = 120", "cluster", "partitions", 120),
        ("cluster.memory=2 GiB", "cluster", "memory_bytes", 2 << 30),
        ("tuning.theta=off", "tuning", "theta", "off"),
        ("cluster.slaves_min=2", "cluster", "slaves_min", 2),
        ("cluster.slaves_min=all", "cluster", "slaves_min", None),
        ("balance.load_buffer=1 MB", "balance", "load_buffer_bytes", 1_000_000),
        ("balance.load_buffer=auto", "balance", "load_buffer_bytes", None),
        ("run.speed=0.5", "run", "speed", 0.5),
        ("run.speed=max", "run", "speed", "max"),
        ("inject.slow={2=0.5}", "inject", "slow", (Slowdown(2, 0.5),)),
        ("inject.slow.3=1", "inject", "slow", (Slowdown(3, 1.0),)),
        ('inject.slow=[{rank=2, share=0.3, from="1 s"}]', "inject", "slow", (Slowdown(2, 0.3, 1_000_000_000),)),
        ("inject.delay.0=50 ms", "inject", "delay", (Delay(0, 50_000_000),)),
        ("inject.fail={0=5}", "inject", "fail", {0: 5}),
        ("inject.kill.1=5", "inject", "kill", {1: 5}),
        ("run.late=keep", "run", "late", "keep"),
    ],
)
def test_an_override_sets_one_field(override, section, attribute, value):
    assert getattr(getattr(load_job(small(), [override]), section), attribute) == value


def test_an_override_leaves_the_callers_dict_alone():
    document = small(inject__slow={"1": 0.5})
    load_job(document, ["inject.slow.2=0.25", "left.window=1 s"])
    assert document == small(inject__slow={"1": 0.5})


def test_an_override_of_a_path_is_relative_to_the_job_file_too(job_file, tmp_path):
    assert load_job(job_file(), ["output.path=other"]).output.path == str(tmp_path / "other")


@pytest.mark.parametrize(
    "override, problem",
    [
        ("left.window", "wanted section.field=value"),
        ("window=1 s", "wanted section.field=value"),
        ("left..window=1 s", "wanted section.field=value"),
        ('left.key=["a"', "the value is not TOML"),
        ("left.window.deeper=1", 'got {\'deeper\': 1}'),
        ("left.path.deeper=1", "path is not a table"),
        ("run.seed=1\nlate = 2", "wanted a whole number"),
    ],
)
def test_a_bad_override_is_a_fault(override, problem):
    (fault,) = faults(small(), [override])
    assert problem in fault


def test_all_faults_come_at_once_each_with_field_value_and_rule(job_file):
    text = """
[left]
path = "p.parquet"
window = "20 parsecs"
kye = "a"
[right]
path = 3
lateness = "-1 s"
[cluser]
[cluster]
partitions = 0
buffer = "1 KiB"
[tuning]
theta = "some"
[balance]
policy = "greedy"
[run]
speed = -2.0
warmup = 3
partitions = 4
[output]
results = "csv"
"""
    assert sorted(faults(job_file(text))) == sorted(
        [
            '[left] window: got "20 parsecs", wanted a duration such as "20 s" (units: ns us ms s min h d)',
            "[left] kye: no such field, did you mean key?",
            "[right] path: got 3, wanted a non-empty string",
            '[right] lateness: got "-1 s", wanted a duration such as "20 s" (units: ns us ms s min h d), not negative',
            "[cluser]: no such section, did you mean cluster?,"
            " there are left right cluster tuning balance run output inject",
            "[cluster] partitions: got 0, wanted 1 to 65535",
            '[cluster] buffer: got "1 KiB", wanted "64 KiB" to "9223372036854775807 B"',
            '[tuning] theta: got "some", wanted a size such as "64 MiB" (units: B KB KiB MB MiB GB GiB),'
            ' or "auto" or "off"',
            '[balance] policy: got "greedy", wanted "none" or "threshold" or "balance"',
            '[run] speed: got -2.0, wanted more than 0 seconds of event time per second, or "max"',
            '[run] warmup: got 3, wanted a duration such as "20 s" (units: ns us ms s min h d)',
            "[run] partitions: no such field, did you mean [cluster] partitions?",
            "[output] path: missing: wanted the folder that the run writes",
            '[output] results: got "csv", wanted "parquet" or "collect" or "count"',
        ]
    )


SYNTHETIC = {"kind": "synthetic", "tuples": 10}


@pytest.mark.parametrize(
    "document, problems",
    [
        ({"output": {"path": "/o"}}, ["[left]: missing section", "[right]: missing section"]),
        (small(left__path=""), ["[left] path: got"]),
        ({**small(), "left": {}}, ["[left] path: missing"]),
        ({**small(), "left": 3}, ["[left]: got 3, wanted a table"]),
        ({**small(), "cluster": [1]}, ["[cluster]: got [1], wanted a table"]),
        (small(left__kind="file"), ["[left] path, kind: got 2", 'wanted "synthetic"']),
        (small(left__kind="synthetic"), ["[left] path, kind: got 2 of them", "[left] tuples, duration: got neither"]),
        (small(left__rate=3), ['[left] rate: is for kind = "synthetic" only']),
        ({**small(), "left": {"table": "no table"}}, ['[left] table: got "no table", wanted a pyarrow.Table']),
        ({**small(), "left": {**SYNTHETIC, "duration": "1 s"}}, ["[left] tuples, duration: got both"]),
        ({**small(), "left": {**SYNTHETIC, "bias": 0.4}}, ["[left] bias: got 0.4"]),
        ({**small(), "left": {**SYNTHETIC, "bias": 1.0}}, ["[left] bias: got 1.0"]),
        ({**small(), "left": {**SYNTHETIC, "rate": 0}}, ["[left] rate: got 0.0"]),
        ({**small(), "left": {**SYNTHETIC, "rate": float("nan")}}, ["[left] rate: got nan"]),
        ({**small(), "left": {**SYNTHETIC, "domain": 0}}, ["[left] domain: got 0, wanted 1 to"]),
        ({**small(), "left": {**SYNTHETIC, "tuples": True}}, ["[left] tuples: got true, wanted a whole number"]),
        ({**small(), "left": {**SYNTHETIC, "rate": "x"}}, ['[left] rate: got "x", wanted a number']),
        ({**small(), "left": {**SYNTHETIC, "time": "t"}}, ["[left] time: a synthetic stream has its own"]),
        ({**small(), "left": {**SYNTHETIC, "columns": ["a"]}}, ["[left] columns: got ['a'], a synthetic"]),
        (small(left__time_unit="m"), ['[left] time_unit: got "m", wanted "s" or "ms" or "us" or "ns"']),
        (small(left__key=["a", "a"], right__key=["a", "b"]), ['[left] key: got "a" 2 times']),
        (small(left__key=["a", "b"]), ["got 2 and 1 columns, wanted as many on both sides"]),
        (small(left__key=[]), ["[left] key: got an empty list"]),
        (small(left__key=3), ["[left] key: got 3, wanted a list of column names"]),
        (small(left__key="ts"), ["[left] key: got \"ts\", which is the time column"]),
        (small(left__columns=["x", "x"]), ['[left] columns: got "x" 2 times']),
        (small(left__columns=["ts"]), ['[left] columns: got "ts", which results have anyway']),
        (small(left__columns=["key"]), ['[left] columns: got "key", which results have anyway']),
        (small(left__columns="some"), ['wanted a list of column names, or "all"']),
        (small(cluster__partitions=65536), ["wanted 1 to 65535"]),
        (small(cluster__subgroups=0), ["[cluster] subgroups: got 0"]),
        (small(cluster__distribution_epoch="0 s"), ["[cluster] distribution_epoch: got \"0 s\""]),
        (small(tuning__block="63 B"), ['[tuning] block: got "63 B", wanted "64 B" to "16 MiB"']),
        (small(tuning__block="17 MiB"), ['[tuning] block: got "17 MiB"']),
        (small(cluster__slaves_min=0), ['[cluster] slaves_min: got 0, wanted 1 to 65535']),
        (small(cluster__slaves_min="none"), ['[cluster] slaves_min: got "none", wanted a whole number, or "all"']),
        (small(tuning__communication=0), ["[tuning] communication: got 0.0, wanted more than 0 and less than 1"]),
        (small(tuning__communication=1), ["[tuning] communication: got 1.0"]),
        (small(tuning__communication=float("nan")), ["[tuning] communication: got nan"]),
        (small(balance__supplier_threshold=0), ["[balance] supplier_threshold: got 0.0, wanted a number above 0"]),
        (small(balance__consumer_threshold=-1), ["[balance] consumer_threshold: got -1.0"]),
        (small(balance__growth=float("inf")), ["[balance] growth: got inf"]),
        (small(balance__growth="fast"), ['[balance] growth: got "fast", wanted a number']),
        (small(balance__growth=10**400), ["[balance] growth: got 1000"]),
        (small(balance__consumer_threshold=0.5), ["consumer_threshold, supplier_threshold: got 0.5 and 0.5, wanted the"]),
        (small(balance__load_buffer=0), ['[balance] load_buffer: got "0 B", wanted "1 B" to']),
        (small(balance__load_buffer="some"), ['wanted a size such as "64 MiB"']),
        (
            small(balance__policy="balance", cluster__distribution_epoch="2 s", cluster__reorganization_epoch="1 s"),
            ['epoch: got "2 s" and "1 s", wanted the second at least as long as the first for policy "balance"'],
        ),
        (small(run__speed="fast"), ['[run] speed: got "fast", wanted a number, or "max"']),
        (small(run__speed=0), ["[run] speed: got 0.0, wanted more than 0"]),
        (small(run__speed=float("inf")), ["[run] speed: got inf"]),
        (small(run__speed=float("nan")), ["[run] speed: got nan"]),
        (small(run__speed=True), ["[run] speed: got true"]),
        (small(run__warmup="-1 s"), ['[run] warmup: got "-1 s"']),
        (small(run__late="drop"), ['[run] late: got "drop", wanted "keep" or "fail"']),
        (small(output__columns=[]), ["[output] columns: got an empty list"]),
        (small(output__columns=["key", "key"]), ['[output] columns: got "key" 2 times']),
        (small(inject__slow=3), ["[inject] slow: got 3, wanted a table"]),
        (small(inject__slow={"a": 1}), ['[inject] slow: got "a" = 1']),
        (small(inject__slow={"0": 0.5}), ["[inject] slow: got rank 0"]),
        (small(inject__slow={"1": 0}), ["[inject] slow: got 0.0 for rank 1"]),
        (small(inject__slow={"1": 1.5}), ["[inject] slow: got 1.5 for rank 1"]),
        (small(inject__slow=[3]), ["[inject] slow: got 3, wanted a table of rank = share, such as {2 = 0.5}, or a list"]),
        (small(inject__slow=[{"rank": 2}]), ["[inject] slow: got {'rank': 2}, wanted"]),
        (small(inject__slow=[{"rank": "2", "share": 1}]), ["[inject] slow: got {'rank': '2', 'share': 1}, wanted"]),
        (small(inject__slow=[{"rank": 2, "share": 1, "till": 3}]), ["[inject] slow: got {'rank': 2, 'share': 1, 't"]),
        (small(inject__slow=[{"rank": 2, "share": 1, "to": 3}]), ["[inject] slow: got to = 3, wanted a table"]),
        (small(inject__slow=[{"rank": 0, "share": 1}]), ["[inject] slow: got rank 0, wanted a slave: 1 or more"]),
        (
            small(inject__slow=[{"rank": 2, "share": 1, "from": "3 s", "to": "3 s"}]),
            ['[inject] slow: got from "3 s" to "3 s" for rank 2, wanted from before to'],
        ),
        (small(inject__delay={"1": 50}), ["[inject] delay: got 1 = 50, wanted a table of rank = by, such as {2 = "]),
        (small(inject__delay=[{"rank": -1, "by": "1 s"}]), ["[inject] delay: got rank -1, wanted 0 or more"]),
        (
            small(inject__delay=[{"rank": 1, "by": "1 s", "from": "3 s", "to": 0}]),
            ['[inject] delay: got from "3 s" to "0 s" for rank 1'],
        ),
        (small(inject__kill={"2": -1}), ["[inject] kill: got epoch -1 for rank 2, wanted 0 or more"]),
        (small(inject__fail=3), ["[inject] fail: got 3, wanted a table of rank = epoch, such as {2 = 5}"]),
        (small(inject__fail={"2": 0.5}), ["[inject] fail: got 2 = 0.5"]),
        (small(inject__fail={"2": -1}), ["[inject] fail: got epoch -1 for rank 2, wanted 0 or more"]),
        (small(inject__hash_bits=65), ["[inject] hash_bits: got 65"]),
    ],
)
def test_each_rule_is_one_fault(document, problems):
    found = faults(document)
    assert len(found) == len(problems), found
    for fault, problem in zip(found, problems):
        assert problem in fault


@pytest.mark.parametrize(
    "content, problem",
    [(b"[left", "is not TOML"), (b"\xff", "is not TOML"), (None, "cannot be read: No such file")],
)
def test_a_file_that_is_no_job_is_one_fault(tmp_path, content, problem):
    path = tmp_path / "job.toml"
    if content is not None:
        path.write_bytes(content)
    (fault,) = faults(path)
    assert fault.startswith(str(path)) and problem in fault


def test_a_folder_in_place_of_the_job_file_is_a_fault(tmp_path):
    assert "cannot be read: Is a directory" in faults(tmp_path)[0]


def test_a_table_from_python_is_a_source_and_is_dumped_as_a_comment():
    table = pa.table({"ts": [1], "key": [1]})
    job = load_job({**small(), "left": {"table": table}})
    assert job.left.source == TableSource(table)
    assert '[left]\n# kind = "table"\n' in dump_job(job)


def test_a_dict_needs_no_output_path():
    document = small()
    del document["output"]
    job = load_job(document)
    assert job.output.path == ""
    assert load_job(tomllib.loads(dump_job(job))) == job


def test_a_glob_keeps_special_characters_of_the_job_files_folder(tmp_path):
    folder = tmp_path / "run[1]"
    folder.mkdir()
    (folder / "job.toml").write_text(SMALL)
    job = load_job(folder / "job.toml")
    assert job.left.source.path == str(folder / "p.parquet")
    assert job.right.source.path == str(tmp_path / "run[[]1]" / "s/*.parquet")


def test_every_default_is_visible_in_a_dump():
    text = dump_job(load_job(small()))
    for line in ('key = "key"', 'window = "0 s"', 'columns = "all"', 'memory = "auto"', 'theta = "auto"', "slow = {}"):
        assert line + "\n" in text
    assert "# time_unit is not set\n" in text
    for line in ('slaves_min = "all"', 'load_buffer = "auto"', 'speed = "max"', 'warmup = "0 s"', "delay = {}", "kill = {}"):
        assert line + "\n" in text
    assert 'distribution_epoch = "auto"' in text and 'block = "4 KiB"' in text


def test_an_injection_for_all_of_the_run_is_dumped_as_a_table_and_others_as_a_list():
    slow = (Slowdown(2, 0.5), Slowdown(1, 0.25))
    job = load_job(small())
    text = dump_job(replace(job, inject=Inject(slow, (Delay(0, 1_000_000, 0, 2_000_000_000),))))
    assert "slow = {2 = 0.5, 1 = 0.25}\n" in text
    assert 'delay = [{rank = 0, by = "1 ms", from = "0 s", to = "2 s"}]\n' in text
    again = dump_job(replace(job, inject=Inject((Slowdown(2, 0.5), Slowdown(2, 0.25)))))
    assert 'slow = [{rank = 2, share = 0.5, from = "0 s"}, {rank = 2, share = 0.25, from = "0 s"}]\n' in again


def test_epochs_of_any_length_do_without_a_policy():
    job = load_job(small(cluster__distribution_epoch="2 s", cluster__reorganization_epoch="1 s"))
    assert job.cluster.reorganization_epoch_ns < job.cluster.distribution_epoch_ns


NAMES = st.text(min_size=1, max_size=8)
SIZES = st.integers(64 << 10, 2**62)
DURATIONS = st.integers(1, 2**62)


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
        )
        return StreamJob(name, source, window_ns=draw(DURATIONS), lateness_ns=draw(DURATIONS))
    time, key, *columns = draw(st.lists(NAMES, min_size=2, max_size=5, unique=True))
    source = FileSource(os.path.abspath("/data/" + draw(st.text("ab *[]?é\"\\\n", min_size=1, max_size=8))))
    unit = draw(st.sampled_from([None, "s", "us"]))
    payload = draw(st.sampled_from([None, tuple(columns)]))
    return StreamJob(name, source, time, unit, (key,), draw(DURATIONS), draw(DURATIONS), payload)


SPANS = st.tuples(st.integers(0, 2**30), st.none() | st.integers(2**30 + 1, 2**62))
SLOWDOWNS = st.builds(lambda rank, share, span: Slowdown(rank, share, *span), st.integers(1, 9), st.floats(0.01, 1), SPANS)
DELAYS = st.builds(lambda rank, by_ns, span: Delay(rank, by_ns, *span), st.integers(0, 9), st.integers(0, 2**62), SPANS)
ALWAYS_SLOW = st.dictionaries(st.integers(1, 99), st.floats(0.01, 1.0), max_size=3).map(
    lambda shares: tuple(Slowdown(rank, share) for rank, share in shares.items())
)
EPOCHS = st.dictionaries(st.integers(0, 99), st.integers(0, 99), max_size=3)
LONG_DURATIONS = st.integers(2**61, 2**62)

JOBS = st.builds(
    Job,
    left=stream_jobs("left"),
    right=stream_jobs("right"),
    cluster=st.builds(
        Cluster,
        st.integers(1, 65535),
        st.none() | st.integers(1, 2**61),
        LONG_DURATIONS,
        st.integers(1, 9),
        SIZES,
        SIZES,
        st.none() | SIZES,
        st.none() | st.integers(1, 99),
    ),
    tuning=st.builds(
        Tuning,
        st.sampled_from(["auto", "off"]) | SIZES,
        st.integers(64, 16 << 20),
        st.integers(1, 99),
        st.floats(0.001, 0.999),
    ),
    balance=st.builds(
        Balance,
        st.sampled_from(["none", "threshold", "balance"]),
        st.floats(1.0, 9.0),
        st.floats(0.001, 0.9),
        st.floats(0.01, 9.0),
        st.none() | SIZES,
    ),
    run=st.builds(
        Run,
        st.just("max") | st.floats(1e-9, 1e9),
        st.just(0) | DURATIONS,
        st.integers(0, 2**62),
        st.sampled_from(["keep", "fail"]),
    ),
    output=st.builds(
        Output,
        st.just("/out/π \"x\""),
        st.sampled_from(["parquet", "collect", "count"]),
        st.none() | st.lists(NAMES, min_size=1, max_size=3, unique=True).map(tuple),
        SIZES,
    ),
    inject=st.builds(
        Inject,
        ALWAYS_SLOW | st.lists(SLOWDOWNS, max_size=3).map(tuple),
        st.lists(DELAYS, max_size=3).map(tuple),
        st.integers(1, 64),
        EPOCHS,
        EPOCHS,
    ),
)


@given(JOBS)
def test_a_dumped_job_reads_back_equal(job):
    assert load_job(tomllib.loads(dump_job(job))) == job
