"""Job files: what is read, overridden and dumped."""

import os
import tomllib

import pyarrow as pa
import pytest

from config_jobs import SMALL, faults, small
from mpijoin.config.fields import SECTIONS, STREAM_FIELDS, SYNTHETIC_FIELDS
from mpijoin.config.inject import Delay, Inject, Pressure, Slowdown
from mpijoin.config.job import (
    Balance,
    Cluster,
    FileSource,
    Job,
    Memory,
    Output,
    Run,
    StreamJob,
    SyntheticSource,
    TableSource,
    Tuning,
)
from mpijoin.config.load import dump_job, load_job
from mpijoin.errors import JobError
from mpijoin.simulate.costs import load_costs
from mpijoin.sweep.spec import load_sweep


@pytest.fixture
def job_file(tmp_path):
    def write(text=SMALL):
        path = tmp_path / "job.toml"
        path.write_text(text)
        return str(path)

    return write


def test_a_small_file_gets_the_defaults_and_paths_of_its_own_folder(job_file, tmp_path):
    assert load_job(job_file()) == Job(
        (
            StreamJob("left", FileSource(str(tmp_path / "p.parquet"))),
            StreamJob("right", FileSource(str(tmp_path / "s/*.parquet"))),
        ),
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
                "exchange": "ordered",
                "producers": 3,
                "buffer": "1 MiB",
                "master_buffer": "2 MiB",
                "slaves_min": 2,
                "skew_buffer": "fixed",
            },
            "memory": {
                "limit": "1 GiB",
                "spill": "generations",
                "path": "scratch",
                "threshold": 0.5,
                "share": 1,
                "rank": "most productive",
                "cleanup": "end",
                "gap": "2 s",
            },
            "tuning": {"theta": "1.5 MB", "block": 64, "result_buffer": 16, "communication": 0.2},
            "balance": {
                "policy": "threshold",
                "supplier_threshold": 1,
                "consumer_threshold": 0.02,
                "growth": 0.75,
                "load_buffer": "1 MB",
                "relocation_threshold": 0.7,
                "relocation_pause": "30 s",
                "productivity_ratio": 3,
                "imbalance_threshold": 1.1,
                "utilization_threshold": 0.8,
                "collection_min": "10 ms",
            },
            "run": {"speed": 2, "warmup": "10 s", "seed": 5, "late": "fail"},
            "output": {"path": "/o", "results": "collect", "columns": ["left_row"], "part": "1 MB"},
            "inject": {
                "slow": {"2": 0.5},
                "delay": [{"rank": 1, "by": "50 ms", "to": "1 min"}],
                "memory": [{"rank": 2, "limit": "64 MB", "from": "20 s", "to": "60 s"}],
                "hash_bits": 3,
                "fail": {"1": 4},
                "kill": {"2": 6},
            },
        },
        ["right.key=key", "left.key=[\"a\"]"],
    )
    assert job == Job(
        (
            StreamJob("left", FileSource("/l"), "t", "us", ("a",), 20_000_000_000, 2_000_000, ("prob",)),
            StreamJob("right", SyntheticSource(10.0, 0.5, 7, None, 60_000_000_000, 3, 40)),
        ),
        cluster=Cluster(7, 2_000_000_000, 60_000_000_000, 2, "ordered", 3, 1 << 20, 2 << 20, 2, "fixed"),
        memory=Memory(
            1 << 30, "generations", os.path.abspath("scratch"), 0.5, 1.0, "most productive", "end", 2_000_000_000
        ),
        tuning=Tuning(1_500_000, 64, 16, 0.2),
        balance=Balance("threshold", 1.0, 0.02, 0.75, 1_000_000, 0.7, 30_000_000_000, 3.0, 1.1, 0.8, 10_000_000),
        run=Run(2.0, 10_000_000_000, 5, "fail"),
        output=Output("/o", "collect", ("left_row",), 1_000_000),
        inject=Inject(
            (Slowdown(2, 0.5),),
            (Delay(1, 50_000_000, 0, 60_000_000_000),),
            (Pressure(2, 64_000_000, 20_000_000_000, 60_000_000_000),),
            3,
            {1: 4},
            {2: 6},
        ),
    )


def test_the_field_tables_cover_every_field_of_the_sections():
    tables = [(StreamJob, STREAM_FIELDS, {"name", "source"}), (SyntheticSource, SYNTHETIC_FIELDS, set())]
    tables += [(make, fields, set()) for make, fields in SECTIONS.values()]
    for make, fields, elsewhere in tables:
        assert {field.attribute for field in fields} | elsewhere == set(make._fields)


@pytest.mark.parametrize(
    "override, section, attribute, value",
    [
        ("left.window=20 s", "left", "window_ns", 20_000_000_000),
        ('left.window="20 s"', "left", "window_ns", 20_000_000_000),
        ("left.key=station", "left", "key", ("station",)),
        ("left.columns=all", "left", "columns", None),
        ("left.columns=[]", "left", "columns", ()),
        ("cluster.partitions = 120", "cluster", "partitions", 120),
        ("memory.limit=2 GiB", "memory", "limit_bytes", 2 << 30),
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
        ("inject.memory.2=64 KiB", "inject", "memory", (Pressure(2, 65_536),)),
        ("inject.delay.0=50 ms", "inject", "delay", (Delay(0, 50_000_000),)),
        ("inject.fail={0=5}", "inject", "fail", {0: 5}),
        ("inject.kill.1=5", "inject", "kill", {1: 5}),
        ("run.late=keep", "run", "late", "keep"),
    ],
)
def test_an_override_sets_one_field(override, section, attribute, value):
    job = load_job(small(), [override])
    streams = {stream.name: stream for stream in job.streams}
    assert getattr(streams.get(section) or getattr(job, section), attribute) == value


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
    for read, before in ((load_sweep, ""), (load_costs, "costs: ")):
        with pytest.raises(JobError) as raised:
            read(str(path))
        (fault,) = raised.value.faults
        assert fault.startswith(f"{before}{path}: ") and problem in fault


def test_a_file_may_begin_with_the_mark_that_some_editors_write(tmp_path):
    path = tmp_path / "job.toml"
    path.write_bytes(b"\xef\xbb\xbf" + dump_job(load_job(small())).encode())
    assert load_job(path) == load_job(small())


def test_a_folder_in_place_of_the_job_file_is_a_fault(tmp_path):
    assert "cannot be read: Is a directory" in faults(tmp_path)[0]


def test_a_table_from_python_is_a_source_and_is_dumped_as_a_comment():
    table = pa.table({"ts": [1], "key": [1]})
    job = load_job({**small(), "left": {"table": table}})
    assert job.streams[0].source == TableSource(table)
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
    assert job.streams[0].source.path == str(folder / "p.parquet")
    assert job.streams[1].source.path == str(tmp_path / "run[[]1]" / "s/*.parquet")


def test_every_default_is_visible_in_a_dump():
    text = dump_job(load_job(small()))
    for line in ('key = "key"', 'window = "0 s"', 'columns = "all"', 'limit = "auto"', 'theta = "auto"', "slow = {}"):
        assert line + "\n" in text
    assert "# time_unit is not set\n" in text
    for line in (
        'slaves_min = "all"',
        'load_buffer = "auto"',
        'speed = "max"',
        'warmup = "0 s"',
        "delay = {}",
        "kill = {}",
    ):
        assert line + "\n" in text
    assert 'distribution_epoch = "auto"' in text and 'block = "4 KiB"' in text


def test_an_injection_for_all_of_the_run_is_dumped_as_a_table_and_others_as_a_list():
    slow = (Slowdown(2, 0.5), Slowdown(1, 0.25))
    job = load_job(small())
    text = dump_job(job._replace(inject=Inject(slow, (Delay(0, 1_000_000, 0, 2_000_000_000),))))
    assert "slow = {2 = 0.5, 1 = 0.25}\n" in text
    assert 'delay = [{rank = 0, by = "1 ms", from = "0 s", to = "2 s"}]\n' in text
    again = dump_job(job._replace(inject=Inject((Slowdown(2, 0.5), Slowdown(2, 0.25)))))
    assert 'slow = [{rank = 2, share = 0.5, from = "0 s"}, {rank = 2, share = 0.25, from = "0 s"}]\n' in again


def test_epochs_of_any_length_do_without_a_policy():
    job = load_job(small(cluster__distribution_epoch="2 s", cluster__reorganization_epoch="1 s"))
    assert job.cluster.reorganization_epoch_ns < job.cluster.distribution_epoch_ns
