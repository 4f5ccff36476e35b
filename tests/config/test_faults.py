"""Everything that is wrong with a job's values: each rule one fault, all faults at once."""

import pytest

from config_jobs import faults, small
from mpijoin.config.job import Balance, Memory
from mpijoin.config.load import load_job
from mpijoin.config.rules import job_faults


def test_all_faults_come_at_once_each_with_field_value_and_rule(tmp_path):
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
    path = tmp_path / "job.toml"
    path.write_text(text)
    assert sorted(faults(path)) == sorted(
        [
            ('[left] window: got "20 parsecs", wanted a duration such as "20 s" (units: ns us ms s min h d),'
            ' or "unbounded"'),
            "[left] kye: no such field, did you mean key?",
            "[right] path: got 3, wanted a non-empty string",
            '[right] lateness: got "-1 s", wanted a duration such as "20 s" (units: ns us ms s min h d), not negative',
            (
                "[cluser]: no such section, did you mean cluster?,"
                " there are left right streams.NAME cluster memory tuning balance run output join aggregate checkpoint"
                " inject query"
            ),
            "[cluster] partitions: got 0, wanted 1 to 65535",
            '[cluster] buffer: got "1 KiB", wanted "64 KiB" to "9223372036854775807 B"',
            (
                '[tuning] theta: got "some", wanted a size such as "64 MiB" (units: B KB KiB MB MiB GB GiB),'
                ' or "auto" or "off"'
            ),
            (
                '[balance] policy: got "greedy", wanted "none" or "threshold" or "balance" or "lazy-disk" or '
                '"active-disk" or "flux-load" or "flux-memory" or "flux-hybrid"'
            ),
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
        (
            {**small(), "left": {**SYNTHETIC, "arrivals": "bursts"}},
            ['[left] arrivals: got "bursts", wanted "poisson" or "b-model"'],
        ),
        (
            {**small(), "left": {**SYNTHETIC, "burst": 0.3, "exponent": 0, "permute": -1}},
            ["burst: got 0.3", "exponent: got 0.0", "permute: got -1"],
        ),
        (
            {**small(), "left": {**SYNTHETIC, "changes": {"from": "1 s"}}},
            ['wanted a list of tables such as {from = "60 s"'],
        ),
        (
            {**small(), "left": {**SYNTHETIC, "changes": [{"from": "1 s"}]}},
            ["[left] changes: got {'from': '1 s'}, wanted a list"],
        ),
        (
            {**small(), "left": {**SYNTHETIC, "changes": [{"from": "1 s", "rate": "x"}]}},
            ['[left] changes: rate: got "x", wanted a number'],
        ),
        (
            {**small(), "left": {**SYNTHETIC, "changes": [{"from": "0 s", "bias": 0.2}]}},
            ['got from = "0 s", wanted each after', 'from "0 s": got bias = 0.2'],
        ),
        (
            {
                **small(),
                "left": {
                    **SYNTHETIC,
                    "arrivals": "b-model",
                    "changes": [{"from": "2 s", "rate": 1}, {"from": "2 s", "bias": 0.6}],
                },
            },
            ['from "2 s": a rate changes only with arrivals = "poisson"', 'got from = "2 s", wanted each after'],
        ),
        ({**small(), "left": {**SYNTHETIC, "time": "t"}}, ["[left] time: a synthetic stream has its own"]),
        ({**small(), "left": {**SYNTHETIC, "columns": ["a"]}}, ["[left] columns: got ['a'], a synthetic"]),
        (small(left__time_unit="m"), ['[left] time_unit: got "m", wanted "s" or "ms" or "us" or "ns"']),
        (small(left__key=["a", "a"], right__key=["a", "b"]), ['[left] key: got "a" 2 times']),
        (small(left__key=["a", "b"]), ["got 2 and 1 columns, wanted as many on both sides"]),
        (small(left__key=[]), ["[left] key: got an empty list"]),
        (small(left__key=3), ["[left] key: got 3, wanted a list of column names"]),
        (small(left__key="ts"), ['[left] key: got "ts", which is the time column']),
        (small(left__columns=["x", "x"]), ['[left] columns: got "x" 2 times']),
        (small(left__columns=["ts"]), ['[left] columns: got "ts", which results have anyway']),
        (small(left__columns=["key"]), ['[left] columns: got "key", which results have anyway']),
        (small(left__columns="some"), ['wanted a list of column names, or "all"']),
        (small(cluster__partitions=65536), ["wanted 1 to 65535"]),
        (small(cluster__subgroups=0), ["[cluster] subgroups: got 0"]),
        (small(cluster__distribution_epoch="0 s"), ['[cluster] distribution_epoch: got "0 s"']),
        (small(tuning__block="63 B"), ['[tuning] block: got "63 B", wanted "64 B" to "16 MiB"']),
        (small(tuning__block="17 MiB"), ['[tuning] block: got "17 MiB"']),
        (small(cluster__slaves_min=0), ["[cluster] slaves_min: got 0, wanted 1 to 65535"]),
        (small(cluster__slaves_min="none"), ['[cluster] slaves_min: got "none", wanted a whole number, or "all"']),
        (small(tuning__communication=0), ["[tuning] communication: got 0.0, wanted more than 0 and less than 1"]),
        (small(tuning__communication=1), ["[tuning] communication: got 1.0"]),
        (small(tuning__communication=float("nan")), ["[tuning] communication: got nan"]),
        (
            small(balance__relocation_threshold=1.5, balance__productivity_ratio=0.5),
            [
                "[balance] relocation_threshold: got 1.5, wanted more than 0 and at most 1",
                "[balance] productivity_ratio: got 0.5, wanted at least 1",
            ],
        ),
        (
            small(balance__imbalance_threshold=0.9, balance__utilization_threshold=1.5, balance__collection_min="0 s"),
            [
                '[balance] collection_min: got "0 s", wanted "1 ns" to',
                "[balance] imbalance_threshold: got 0.9, wanted at least 1",
                "[balance] utilization_threshold: got 1.5, wanted more than 0 and at most 1",
            ],
        ),
        (small(balance__supplier_threshold=0), ["[balance] supplier_threshold: got 0.0, wanted a number above 0"]),
        (small(balance__consumer_threshold=-1), ["[balance] consumer_threshold: got -1.0"]),
        (small(balance__growth=float("inf")), ["[balance] growth: got inf"]),
        (small(balance__growth="fast"), ['[balance] growth: got "fast", wanted a number']),
        (small(balance__growth=10**400), ["[balance] growth: got 1000"]),
        (
            small(balance__consumer_threshold=0.5),
            ["consumer_threshold, supplier_threshold: got 0.5 and 0.5, wanted the"],
        ),
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
        (
            small(inject__slow=[3]),
            ["[inject] slow: got 3, wanted a table of rank = share, such as {2 = 0.5}, or a list"],
        ),
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


WANTED_CHANGES = "wanted a list of tables such as"


@pytest.mark.parametrize(
    "document, problems",
    [
        (
            small(
                inject__slow=[
                    3,
                    {"rank": 0, "share": 1},
                    {"rank": 2},
                    {"rank": 2, "share": 7},
                    {"rank": 1, "share": "x"},
                ]
            ),
            ["got 3, wanted", "got {'rank': 2}, wanted", 'got share = "x", wanted', "got rank 0", "got 7.0 for rank 2"],
        ),
        (
            small(inject__delay=[{"rank": 1, "by": 5, "from": "x", "to": "y"}, {"rank": 1, "by": "z", "til": 3}]),
            ["got by = 5", 'got from = "x"', 'got to = "y"', "got {'rank': 1, 'by': 'z', 'til': 3}", 'got by = "z"'],
        ),
        (
            small(
                inject__memory=[
                    5,
                    {"rank": 0, "limit": "1 MB"},
                    {"rank": 2},
                    {"rank": 2, "limit": "x"},
                    {"rank": 2, "limit": "60 KB"},
                    {"rank": 1, "limit": "1 MB", "from": "2 s", "to": "1 s"},
                ]
            ),
            [
                "got 5, wanted a table of rank = limit, such as {2 = \"64 MB\"}, or a list",
                "got {'rank': 2}, wanted",
                'got limit = "x", wanted',
                "got rank 0, wanted a slave: 1 or more",
                'got "60 KB" for rank 2, wanted at least "64 KiB"',
                'got from "2 s" to "1 s" for rank 1, wanted from before to',
            ],
        ),
        (
            small(inject__slow={"a": 1, "2": "x", "0": 0.5, "3": 2}),
            ['got "a" = 1', 'got 2 = "x"', "got rank 0", "got 2.0 for rank 3"],
        ),
        (small(inject__kill={"1": -1, "b": 2, "2": 0.5}), ['got "b" = 2', "got 2 = 0.5", "got epoch -1 for rank 1"]),
        (
            {
                **small(),
                "left": {
                    **SYNTHETIC,
                    "changes": [
                        3,
                        {"from": "1 s"},
                        {"from": "x", "rate": "y"},
                        {"from": "3 s", "bias": 0.1},
                        {"from": "2 s", "rate": 5, "speed": 1},
                        {"from": "2 s", "rate": -5},
                    ],
                },
            },
            [
                f"got 3, {WANTED_CHANGES}",
                f"got {{'from': '1 s'}}, {WANTED_CHANGES}",
                'from: got "x", wanted a duration',
                'rate: got "y", wanted a number',
                f"got {{'from': '2 s', 'rate': 5, 'speed': 1}}, {WANTED_CHANGES}",
                'from "3 s": got bias = 0.1',
                'got from = "2 s", wanted each after',
                'from "2 s": got rate = -5',
            ],
        ),
        (
            small(left__columns=["a", 3, "", "b"], left__types={"a": 1, "b": "int64", "c": []}),
            ["columns: got 3 in the list", 'columns: got "" in the list', 'got "a" = 1, want', 'got "c" = [], want'],
        ),
        (small(output__columns=[1, "a", 2]), ["columns: got 1 in the list", "columns: got 2 in the list"]),
    ],
)
def test_every_bad_entry_of_a_list_or_table_is_named_beside_the_rules_for_the_others(document, problems):
    found = faults(document)
    assert len(found) == len(problems), found
    for fault, problem in zip(found, problems):
        assert problem in fault


@pytest.mark.parametrize(
    "changes, said",
    [
        (
            {"memory__threshold": 0, "memory__share": 1.01, "memory__spill": "disk", "memory__gap": "soon"},
            [
                '[memory] gap: got "soon", wanted a duration such as "20 s" (units: ns us ms s min h d), or "auto"',
                "[memory] share: got 1.01, wanted more than 0 and at most 1",
                '[memory] spill: got "disk", wanted "off" or "generations" or "rotate"',
                "[memory] threshold: got 0.0, wanted more than 0 and at most 1",
            ],
        ),
        ({"memory__threshold": float("nan")}, ["[memory] threshold: got nan, wanted more than 0 and at most 1"]),
        (
            {"memory__limit": "1 KB", "memory__rank": "newest", "memory__cleanup": "off", "memory__path": ""},
            [
                '[memory] cleanup: got "off", wanted "end" or "idle"',
                '[memory] limit: got "1 KB", wanted "64 KiB" to "9223372036854775807 B"',
                '[memory] path: got "", wanted a non-empty string, or "auto"',
                '[memory] rank: got "newest", wanted "least productive" or "most productive" or "largest" or "random"',
            ],
        ),
        ({"cluster__memory": "1 GB"}, ["[cluster] memory: no such field, did you mean the section [memory]?"]),
        ({"cluster__limit": "1 GB"}, ["[cluster] limit: no such field, did you mean [memory] limit?"]),
    ],
)
def test_faults_of_the_memory_section(changes, said):
    assert sorted(faults(small(**changes))) == said


@pytest.mark.parametrize("spill", ["off", "generations", "rotate"])
def test_memory_fields_without_effect_are_allowed(spill):
    job = load_job(small(memory__spill=spill, memory__gap="1 s", memory__threshold=1, memory__share=1))
    assert (job.memory.spills, job.memory.path, job.memory.gap_ns) == (spill != "off", None, 1_000_000_000)
    assert load_job(small()).memory == Memory()


@pytest.mark.parametrize(
    ("spill", "limit", "wanted"),
    [
        ("off", "64 KiB", None),
        ("generations", "auto", None),
        ("generations", "80 KiB", None),
        ("generations", "64 KiB", "80 KiB"),
        ("rotate", "79 KiB", "80 KiB"),
    ],
)
def test_a_memory_that_holds_no_row_of_each_stream_is_refused_where_a_run_spills(spill, limit, wanted):
    job = small(memory__spill=spill, memory__limit=limit, tuning__block="16 KiB")
    if not wanted:
        assert load_job(job).tuning.block_bytes == 16 << 10
        return
    text = f'got "{limit}" and "16 KiB", wanted a limit of "{wanted}", or smaller blocks: 2 a stream, and 1'
    assert faults(job) == [f"[memory] limit, [tuning] block: {text}"]


DOUBLED = {"balance__policy": "balance", "balance__move": "ptlb"}
OTHERWISE = 'or move = "precopy" or "mslb"'


@pytest.mark.parametrize(
    ("changes", "got"),
    [
        ({"join__type": "left"}, 'type "left", wanted type "inner"'),
        ({"join__match": "last"}, 'match "last", wanted match = "all"'),
        ({"join__reduce": {"n": "count()"}}, "functions, wanted none"),
        ({"memory__spill": "rotate"}, 'spill "rotate", wanted spill = "off"'),
        ({"left__window": "unbounded"}, 'window "unbounded" of "left", wanted one that is over some time'),
    ],
)
def test_what_moves_by_two_tracks_is_an_inner_join_whose_windows_end(changes, got):
    assert faults(small(**DOUBLED, **changes)) == [f'[balance] move: got "ptlb" and {got}, {OTHERWISE}']
    assert load_job(small(**{**DOUBLED, "balance__policy": "none"}, **changes)).balance.move == "ptlb"
    assert load_job(small(**{**DOUBLED, "balance__move": "mslb"}, **changes)).balance.move == "mslb"


@pytest.mark.parametrize("policy", ["lazy-disk", "active-disk", "flux-memory", "flux-hybrid", "balance"])
@pytest.mark.parametrize("spill", ["off", "generations", "rotate"])
def test_policies_that_spill_generations_need_them(policy, spill):
    job = load_job(small(memory__spill=spill))
    told = [one.text for one in job_faults(job._replace(balance=Balance(policy))) if "[memory] spill" in one.text]
    wanted = f'got "{policy}" and "{spill}", wanted spill = "generations" for this policy'
    is_wrong = policy.endswith("-disk") and spill != "generations"
    assert told == ([f"[balance] policy, [memory] spill: {wanted}"] if is_wrong else [])
