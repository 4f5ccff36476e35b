"""Who gets what, when a checkpoint is due, what a job must keep, and the sums a run goes on with."""

import json
import random

import numpy as np
import pytest

from config_jobs import small
from mpijoin.checkpoint import totals
from mpijoin.checkpoint.assign import assign
from mpijoin.checkpoint.identity import KEPT, check_identity, identity_of
from mpijoin.checkpoint.manifest import Group, Manifest, RunState
from mpijoin.checkpoint.restore import active_slaves
from mpijoin.checkpoint.schedule import Schedule, walltime_end_s
from mpijoin.config.job import Checkpoint
from mpijoin.config.load import load_job
from mpijoin.errors import JobError
from mpijoin.metrics.delay import DelayHistogram
from mpijoin.records import PER_STREAM, Counts, MoveTotals, QueryCounts

MINUTE_NS = 60 * 10**9


def manifest(owners, sizes, slaves):
    """owners: {group: slave} · sizes: {group: bytes}."""
    groups = tuple(Group(group, slave, sizes[group], ()) for group, slave in owners.items())
    active = len(set(owners.values()))
    run = RunState((), 0, (0, 0), (0, 0), 0.0, active, tuple(slaves), 0, MoveTotals())
    return Manifest(1, {}, groups, (), (), (), Counts.nothing(2), 0, run)


def test_on_the_same_slaves_everybody_keeps_what_it_had():
    saved = manifest({0: 2, 1: 1, 3: 2, 5: 1}, dict.fromkeys(range(6), 10), (1, 2))
    owners = assign(saved, 6, (1, 2), (1, 2))
    assert [owners[group] for group in (0, 1, 3, 5)] == [2, 1, 2, 1]
    assert set(owners) == {1, 2}, "those that nobody had begun have a slave, too"


@pytest.mark.parametrize("slaves", [(1,), (1, 2), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize("seed", range(5))
def test_on_others_the_bytes_are_even_and_every_partition_has_a_slave(slaves, seed):
    chance = random.Random(seed)
    sizes = {group: chance.randint(1, 1000) for group in range(40)}
    saved = manifest({group: chance.choice([1, 2, 3]) for group in range(40)}, sizes, (1, 2, 3))
    owners = assign(saved, 43, slaves, slaves)
    assert len(owners) == 43 and set(owners) == set(slaves)
    held = [sum(sizes[group] for group in range(40) if owners[group] == slave) for slave in slaves]
    assert max(held) - min(held) <= max(sizes.values())
    assert assign(saved, 43, slaves, slaves) == owners


def test_only_active_slaves_get_groups():
    saved = manifest(dict.fromkeys(range(10), 1), dict.fromkeys(range(10), 5), (1, 2))
    owners = assign(saved, 10, (1, 2, 3, 4), (1, 2, 3))
    assert sorted(owners.count(slave) for slave in (1, 2, 3)) == [3, 3, 4]


def test_groups_without_tuples_are_spread_over_all_slaves():
    """What comes for them later would else meet one slave only."""
    sizes = {group: 100 + group if group < 4 else 0 for group in range(60)}
    owners = assign(manifest(dict.fromkeys(range(60), 1), sizes, (1, 2)), 60, (1, 2, 3, 4), (1, 2, 3, 4))
    assert max(owners.count(slave) for slave in (1, 2, 3, 4)) <= 2 * 60 / 4


def test_as_many_slaves_are_active_as_before_where_a_policy_sees_to_that():
    job = load_job(small(balance__policy="threshold", cluster__slaves_min=2))
    assert active_slaves(job, (1, 2, 3, 4), 3) == (1, 2, 3)
    assert active_slaves(job, (1, 2, 3, 4), 1) == (1, 2)
    assert active_slaves(job, (1, 2), 4) == (1, 2)
    assert active_slaves(load_job(small()), (1, 2, 3, 4), 2) == (1, 2, 3, 4)


def due(schedule, times):
    return [schedule.slot_ended(now_s) for now_s in times]


def test_a_checkpoint_is_due_every_so_often():
    schedule = Schedule(Checkpoint(every_ns=MINUTE_NS), 10, 5.0, None)
    assert due(schedule, [5.0, 64.9, 65.0, 70.0]) == [False, False, True, True]
    schedule.began(70.0)
    assert due(schedule, [129.0, 130.0]) == [False, True]


def test_a_checkpoint_is_due_after_so_many_reorganization_epochs():
    schedule = Schedule(Checkpoint(epochs=2), 3, 0.0, None)
    assert due(schedule, [0.0] * 7) == [False] * 5 + [True] * 2
    schedule.began(0.0)
    schedule.slots_per_epoch = 1
    assert due(schedule, [0.0] * 2) == [False, True]


def test_nothing_is_due_unless_asked_for():
    assert not any(due(Schedule(Checkpoint(), 1, 0.0, 100.0), [0.0, 1e9]))


def test_the_walltime_ends_soon_within_the_margin():
    schedule = Schedule(Checkpoint(margin_ns=MINUTE_NS), 1, 0.0, 1000.0)
    assert [schedule.ends_soon(time_s) for time_s in (0.0, 939.9, 940.0, 2000.0)] == [False, False, True, True]
    assert not Schedule(Checkpoint(margin_ns=MINUTE_NS), 1, 0.0, None).ends_soon(1e12)
    assert not Schedule(Checkpoint(), 1, 0.0, 1000.0).ends_soon(1e12)


def test_the_end_of_the_walltime_is_the_jobs_or_slurms():
    slurm = {"SLURM_JOB_END_TIME": "1700000000"}
    assert walltime_end_s(Checkpoint(walltime_ns=MINUTE_NS), slurm, 100.0) == 160.0
    assert walltime_end_s(Checkpoint(), slurm, 100.0) == 1700000000.0
    assert [walltime_end_s(Checkpoint(), told, 1.0) for told in ({}, {"SLURM_JOB_END_TIME": "Unknown"})] == [None, None]


CHANGES = {
    "left__window": "7 s",
    "left__lateness": "7 s",
    "left__path": "/other.parquet",
    "right__key": ["station"],
    "right__time": "when",
    "right__columns": ["more"],
    "cluster__partitions": 61,
    "tuning__block": "8 KiB",
    "run__seed": 7,
    "join__type": "full",
    "join__where": "left.time > right.time",
    "join__match": "last",
    "join__reduce": {"n": "count()"},
    "run__late": "fail",
    "output__results": "count",
    "output__columns": ["left_row"],
    "inject__hash_bits": 7,
}
# Functions are of all partners of rows, so that no job has all of these.
TOGETHER = {name: value for name, value in CHANGES.items() if name not in ("join__match", "join__reduce")}
# Of a job with one stream.
AGGREGATE = {"history": "10 min", "columns": {"n": "count()"}, "emit": "row"}
AGGREGATE_CHANGES = {"history": "5 rows", "columns": {"n": "count()", "m": "count(prob)"}, "emit": "1 s"}
FREE = {
    "cluster__distribution_epoch": "3 s",
    "cluster__reorganization_epoch": "9 s",
    "cluster__subgroups": 3,
    "memory__limit": "1 GiB",
    "cluster__buffer": "1 MiB",
    "cluster__slaves_min": 1,
    "tuning__theta": "off",
    "tuning__result_buffer": 7,
    "balance__policy": "balance",
    "run__speed": 2,
    "run__warmup": "1 s",
    "output__path": "/elsewhere",
    "output__part": "1 MB",
    "checkpoint__epochs": 3,
    "checkpoint__path": "/checkpoints",
    "inject__kill": {"1": 5},
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_job_must_keep_is_named_when_it_is_another(name):
    saved, (section, field) = identity_of(load_job(small())), name.split("__")
    with pytest.raises(JobError) as caught:
        check_identity(load_job(small(**{name: CHANGES[name]})), saved)
    (fault,) = caught.value.faults
    assert (
        fault.startswith(f"[{section}] {field}: got ") and "leave it as it was, or begin anew with --overwrite" in fault
    )


@pytest.mark.parametrize("field", AGGREGATE_CHANGES)
def test_what_an_aggregate_must_keep_is_named_when_it_is_another(field):
    def job(aggregate):
        stream = {"path": "/calls.parquet", "key": "user"}
        return load_job({"streams": {"calls": stream}, "aggregate": aggregate, "output": {"path": "/out"}})

    with pytest.raises(JobError, match=rf"\[aggregate\] {field}: got .* leave it as it was, or begin anew"):
        check_identity(job({**AGGREGATE, field: AGGREGATE_CHANGES[field]}), identity_of(job(AGGREGATE)))


def test_all_that_must_be_kept_is_tried_above():
    tried = {tuple(name.split("__")) for name in CHANGES} | {("aggregate", field) for field in AGGREGATE_CHANGES}
    assert {(section, field) for section, fields in KEPT.items() for field in fields} <= tried


def test_whether_tuples_have_flags_must_stay_as_it_was():
    by_tracks, others, none = (
        load_job(small(balance__policy=policy, balance__move=move))
        for policy, move in (("balance", "ptlb"), ("balance", "mslb"), ("none", "ptlb"))
    )
    check_identity(others, identity_of(none))
    for job, saved in ((by_tracks, others), (none, by_tracks)):
        with pytest.raises(JobError, match=r"\[balance\] move: got .*ptlb.*, but .* leave it as it was, or begin"):
            check_identity(job, identity_of(saved))


@pytest.mark.parametrize("name", FREE)
def test_what_a_job_need_not_keep_may_be_another(name):
    check_identity(load_job(small(**{name: FREE[name]})), identity_of(load_job(small())))


def test_all_changes_are_told_at_once():
    with pytest.raises(JobError) as caught:
        check_identity(load_job(small(**TOGETHER)), identity_of(load_job(small())))
    assert len(caught.value.faults) == len(TOGETHER)


def two_queries(*names):
    return load_job(small() | {"query": [{"name": name} for name in names]})


def test_queries_keep_their_order_because_marks_and_counts_go_by_it():
    check_identity(two_queries("all", "few"), identity_of(two_queries("all", "few")))
    with pytest.raises(JobError, match=r'\[\[query\]\]: got "few", "all", but the run .* has "all", "few": leave it'):
        check_identity(two_queries("few", "all"), identity_of(two_queries("all", "few")))


@pytest.mark.parametrize("section, field, others", [
    ("join", "reduce", {}),
    ("aggregate", "columns", {"history": "10 rows"}),
])  # fmt: skip
def test_functions_keep_their_order_because_columns_of_results_have_it(section, field, others):
    def job(functions):
        document = small()
        if section == "aggregate":
            document = {"streams": {"left": document["left"]}, "output": document["output"]}
        return load_job(document | {section: {field: functions, **others}})

    either, other = {"n": "count()", "m": "count()"}, {"m": "count()", "n": "count()"}
    check_identity(job(either), identity_of(job(either)))
    with pytest.raises(JobError, match=rf"\[{section}\] {field}: got .* leave it as it was, or begin anew"):
        check_identity(job(other), identity_of(job(either)))


def test_another_kind_of_source_is_refused():
    synthetic = small()
    synthetic["left"] = {"kind": "synthetic", "tuples": 100}
    with pytest.raises(JobError, match=r"\[left\] path: got none|\[left\] kind"):
        check_identity(load_job(synthetic), identity_of(load_job(small())))


def counts(certificate, delay_us, **others):
    delays = DelayHistogram()
    if delay_us:
        delays.add(np.array([delay_us]), np.array([2]))
    ones = dict.fromkeys(Counts._fields[:PER_STREAM], (1, 1, 1)) | dict.fromkeys(Counts._fields[PER_STREAM:], 1)
    queries = (QueryCounts(1, 1, certificate), QueryCounts(0, 0, 1))
    own = {"certificate": certificate, "delays": delays.compact(), "queries": queries}
    return Counts(**{**ones, **own, **others})


def test_totals_are_sums_and_what_was_held_has_moved_out():
    together = totals.total(
        [counts(5, 1000, results=10, held=(7, 1, 0)), counts((1 << 64) - 2, 3000, results=20, moved_out=(4, 1, 1))]
    )
    assert (together.results, together.certificate) == (30, 3)
    assert together.queries == (QueryCounts(2, 2, 3), QueryCounts(0, 0, 2))
    assert together.held == (0, 0, 0) and together.moved_out == (1 + 7 + 4 + 1, 1 + 1 + 1 + 1, 1 + 0 + 1 + 1)
    assert DelayHistogram.of([together.delays]).count == 4


def test_totals_of_totals_are_totals_of_all():
    some = [counts(at * 977, at * 100, results=at) for at in range(1, 5)]
    assert totals.total([totals.total(some[:2]), *some[2:]]) == totals.total(some)
    assert totals.total([Counts.nothing(3), *some]) == totals.total(some)
    whole = totals.total(some)
    assert totals.counts_of(json.loads(json.dumps(totals.plain_of(whole)))) == whole
