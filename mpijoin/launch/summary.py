"""The end of a run. The ledger is checked, the files are committed, and people and programs are told what happened."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import pyarrow.parquet as pq

from mpijoin.checkpoint.manifest import remove
from mpijoin.checkpoint.totals import total
from mpijoin.config.job import COUNT, MWAY, Job
from mpijoin.config.units import plural, rounded_duration
from mpijoin.disk import sync_path
from mpijoin.errors import EXIT_DONE
from mpijoin.launch.roles import merged_schemas
from mpijoin.metrics.delay import DelayHistogram
from mpijoin.metrics.ledger import StreamCounts, Written, check_ledger
from mpijoin.named import NamedTuple
from mpijoin.progress import amount, seconds, size
from mpijoin.rank import MASTER
from mpijoin.records import Counts, Feeding, Figures, Followed, QueryCounts, SpillFigures
from mpijoin.refusals import writing
from mpijoin.sinks.parts import part_name, part_prefix
from mpijoin.sources.late import merge_late

COLLECTOR_ADVICE = (
    'the collector writes slower than slaves find results: let each slave write its own with results = "parquet", write'
    " fewer columns, or choose a faster disk"
)


class RunOutcome(NamedTuple):
    """How a run ended. A good run has a `summary`, and a bad one has a `reason` and an `error`."""

    exit_code: int
    summary: dict[str, Any]
    reason: str = ""
    error: BaseException | None = None


def summarize(
    setup: Any, master: Any, compile_s: float, own_files: list[str], further: dict | None = None
) -> RunOutcome:
    """Checks the ledger, commits the files and writes the summary. The clock stops when the last file has its name.

    `further` holds entries of the summary beside those that all runs have. Raises LedgerError and OutputError."""
    counts = [master.finished[slave].counts for slave in setup.roles.slaves]
    feedings = master.feedings
    streams = _streams(setup, feedings, master.before)
    check_ledger(streams, [*counts, master.before], _written(setup, master, total([master.before, *counts])))
    if setup.directory:
        files = [*master.earlier_results, *own_files] + [
            name for finished in master.finished.values() for name in finished.files
        ]
        files += _empty_parts(setup, files)
        setup.directory.commit(files, _merge_late(setup, feedings))
        # The checkpoints are removed once the summary is there, so the results must be on the disk before.
        if master.checkpointing and master.checkpointing.written:
            setup.directory.sync_results(files)
    summary = {**_summary(setup, master, compile_s, streams, feedings), **(further or {})}
    if setup.directory:
        setup.directory.write_summary(summary)
        setup.directory.clean()
        remove(setup.checkpoints)
    return RunOutcome(EXIT_DONE, summary)


def _empty_parts(setup: Any, files: Sequence[str]) -> list[str]:
    """Writes a file without rows for each query that has found nothing, or for a job without queries. Readers of the
    folder learn the columns from it. Returns the names of the files that were written.

    files: those that the run has written.
    """
    names = []
    for query, job, schema in zip(setup.job.names or ("",), setup.job.each, merged_schemas(setup)):
        if job.output.results == COUNT or any(file.startswith(f"{query}/" if query else "") for file in files):
            continue
        names.append(part_name(part_prefix(MASTER, query), 0))
        path = setup.directory.open_results / names[-1]
        with writing(path):
            pq.write_table(schema.empty_table(), path)
            sync_path(path)
    return names


def _merge_late(setup: Any, feedings: Sequence[Feeding]) -> list[str]:
    """Makes the files of late rows. Returns the names of the parts that they now contain."""
    names = list(dict.fromkeys(part.name for one in feedings for part in one.late))
    for stream in setup.schema.streams:
        own = [setup.directory.open_late_parts / name for name in names if name.startswith(f"{stream.name}-")]
        merge_late(own, setup.directory.open_late(stream.name), stream)
    return names


def _written(setup: Any, master: Any, whole: Counts) -> list[Written]:
    """Returns how many rows are in the output, where results are not only counted. whole: the counts of all slaves, and
    of those before."""
    collector = setup.roles.collector
    queries: Sequence[Counts | QueryCounts] = whole.queries or [whole]
    each = [
        Written(name, one.results, one.written)
        for name, job, one in zip(setup.job.names or ("",), setup.job.each, queries)
        if job.output.results != COUNT
    ]
    if collector is None:
        return each
    rows = master.collector.rows if master.collector else master.finished[collector].rows
    return [Written("", sum(one.found for one in each), whole.written + rows)]


def _streams(setup: Any, feedings: Sequence[Feeding], before: Counts) -> list[StreamCounts]:
    """Returns what producers counted for each stream. before: what slaves had counted at the checkpoint from which the
    run goes on. All that had been sent twice by then was received."""
    copied = [sum(counts) for counts in zip(before.copied, *(one.copied for one in feedings))]
    fed = [one.fed for one in feedings]
    sent = [sum(counts) for counts in zip(*(one.sent for one in fed))]
    rows = [[sum(counts) for counts in zip(*own)] for own in zip(*(one.rows for one in fed))]
    counted = zip(setup.schema.streams, rows, sent, copied)
    return [
        StreamCounts(stream.name, read, late, null, own, twice)
        for stream, (read, late, null, _), own, twice in counted
    ]


def _stream_figures(streams: Sequence[StreamCounts], feedings: Sequence[Feeding]) -> dict[str, dict[str, int]]:
    needed = [max(most for _, _, _, most in own) for own in zip(*(one.fed.rows for one in feedings))]
    return {
        one.name: {
            "read": one.read,
            "joined": one.sent,
            "sent": one.sent,
            "late": one.late,
            "null_key": one.null_key,
            "lateness_needed": lateness,
        }
        for one, lateness in zip(streams, needed)
    }


def _query_figures(job: Job, whole: Counts) -> dict[str, Any]:
    """Returns what each query has found, if the job has several."""
    found = zip(job.names, whole.queries)
    told = {name: {"results": one.results, "certificate": f"{one.certificate:016x}"} for name, one in found}
    return {"queries": told} if told else {}


def _held_back_by(feedings: Sequence[Feeding]) -> dict[str, int]:
    """Returns how often each slave made sources pause."""
    totals: dict[str, int] = {}
    for slave, times in (pair for one in feedings for pair in one.held_back_by):
        totals[str(slave)] = totals.get(str(slave), 0) + times
    return totals


def _producer_figures(one: Feeding) -> dict[str, Any]:
    times = {"cpu_s": one.cpu_s, "comm_s": one.comm_s, "idle_s": one.idle_s}
    return {"sent": list(one.fed.sent), **times, "peak_buffer_bytes": one.buffer_bytes_max}


def _slave_figures(counts: Counts, figures: Figures) -> dict[str, float]:
    own = figures._asdict()
    spilling = own.pop("spilling")
    return {**own, **spilling._asdict(), "comparisons": counts.comparisons, "results": counts.results}


def _summary(
    setup: Any, master: Any, compile_s: float, streams: Sequence[StreamCounts], feedings: Sequence[Feeding]
) -> dict[str, Any]:
    wall_s = master.rank.clock.wall_s
    tuples = sum(one.read for one in streams)
    slaves = {rank: master.finished[rank] for rank in setup.roles.slaves}
    count, whole = len(slaves), total([master.before, *(one.counts for one in slaves.values())])
    figures = {rank: _with_peak(one.figures, setup.job.tuning.block_bytes) for rank, one in slaves.items()}
    return {
        "results": whole.results,
        "certificate": f"{whole.certificate:016x}",
        **_query_figures(setup.job, whole),
        "streams": _stream_figures(streams, feedings),
        "time_unit": setup.schema.unit,
        "ranks": setup.roles.size,
        "slaves": count,
        "wall_s": round(wall_s, 4),
        "compile_s": round(compile_s, 4),
        "tuples_per_s": round(tuples / wall_s, 1) if wall_s else 0.0,
        "last_runtime_result_s": round(max(one.last_runtime_result_s for one in figures.values()), 4),
        "delay_s": DelayHistogram.of([whole.delays]).figures_s(),
        "overload": _overload(master, feedings),
        "memory": _memory(list(figures.values())),
        **_moves(master.moves),
        "splits": whole.splits,
        "merges": whole.merges,
        "declustering": master.feed.recorder.declustering.figures(count),
        "epochs": -(-max(one.ticks for one in feedings) // setup.job.cluster.subgroups),
        "peak_master_buffer_bytes": max(one.buffer_bytes_max for one in feedings),
        "held_back_by": _held_back_by(feedings),
        "checkpoints": master.checkpoints(),
        "master": master.feed.recorder.times_after_warmup(),
        "producers": len(feedings),
        "per_producer": {str(rank): _producer_figures(one) for rank, one in enumerate(feedings)},
        "per_slave": {str(rank): _slave_figures(one.counts, figures[rank]) for rank, one in slaves.items()},
        **_plans({str(rank): one.plans for rank, one in slaves.items()}),
    }


def _moves(log: Any) -> dict[str, Any]:
    """Returns how many groups changed hands and in which way, and what it took. A run that went on from a checkpoint
    knows the times of its own moves only."""
    took_us = log.took_us or [0]
    return {
        "moves": log.totals.moved,
        "move_kind": log.kind,
        "moved_bytes": log.totals.moved_bytes,
        "moves_refused": log.totals.refused,
        "spread": log.totals.spread,
        "gathered": log.totals.gathered,
        "shared": [one._asdict() for one in log.shared],
        "move_s_mean": round(sum(took_us) / len(took_us) / 1e6, 6),
        "move_s_max": max(took_us) / 1e6,
        "move_pause_s_max": log.pause_us_max / 1e6,
    }


def _plans(slaves: Mapping[str, Sequence[Followed]]) -> dict[str, Any]:
    """Returns the plans that each slave has followed, if there was a choice."""
    if not any(slaves.values()):
        return {}
    return {"plans": {slave: [one._asdict() for one in plans] for slave, plans in slaves.items()}}


def _plan_text(one: dict[str, Any]) -> str:
    return "m-way" if one["plan"] == MWAY else f"by {one['plan']}"


def _reason_text(one: dict[str, Any]) -> str:
    """Returns why a slave changed to this plan, if it knew what a tuple took."""
    took_ns, takes_ns = one["took_ns"], one["takes_ns"]
    return f" (a tuple took {took_ns:,.0f} ns, and {takes_ns:,.0f} were expected)" if took_ns else ""


def _with_peak(figures: Figures, block_bytes: int) -> Figures:
    """Returns the figures with the most memory that was in use, also between two records of the metrics."""
    return figures._replace(memory_bytes_max=max(figures.memory_bytes_max, figures.blocks_max * block_bytes))


def _memory(slaves: Sequence[Figures]) -> dict[str, Any]:
    """Returns the limit of a slave and the most that any had in use, and what all of them have spilled. The seconds are
    those of the slave that took longest, because slaves work side by side."""
    spilling = SpillFigures.together(one.spilling for one in slaves)
    return {
        "limit_bytes": min(one.memory_limit_bytes for one in slaves),
        "bytes_max": max(one.memory_bytes_max for one in slaves),
        "spills": spilling.spills,
        "spilled_bytes": spilling.spilled_bytes,
        "read_back_bytes": spilling.read_back_bytes,
        "disk_bytes_max": spilling.disk_bytes_max,
        "spill_s": round(spilling.spill_s, 4),
        "write_s": round(spilling.write_s, 4),
        "cleanup_s": round(spilling.cleanup_s, 4),
        "cleanup_results": spilling.cleanup_results,
    }


def _overload(master: Any, feedings: Sequence[Feeding]) -> dict[str, Any] | None:
    """Returns how far a paced run fell behind its time, or None at speed "max"."""
    pacing = master.feed.pacing
    if not pacing.paced:
        return None
    behind = dict(sorted((pair for one in feedings for pair in one.behind_s_max), key=lambda pair: pair[1]))
    lag_s_max = max(one.lag_s_max for one in feedings)
    return {
        "overloaded": any(one.overloaded for one in feedings),
        "behind_s_max": round(max(behind.values()), 4),
        "behind_s_end": round(max(master.core.backlog.behind_s.values()), 4),
        "slowest_slave": max(behind, key=lambda slave: (behind[slave], -slave)),
        "lag_s_max": round(lag_s_max, 4),
        "epoch_s": pacing.epoch_ns / 1e9,
    }


def summary_text(outcome: RunOutcome) -> str:
    """Returns what rank 0 prints at the end."""
    if outcome.exit_code != EXIT_DONE:
        return f"mpijoin: {outcome.reason}"
    summary = outcome.summary
    read = in_words([f"{stream['read']:,} {name}" for name, stream in summary["streams"].items()])
    lines = [
        f"{plural(summary['results'], 'result')} from {read} tuples",
        (
            f"in {_span(summary['wall_s'])} ({amount(summary['tuples_per_s'])} tuples/s) on"
            f" {plural(summary['slaves'], 'slave')}{_certificate_text(summary, summary)}"
        ),
    ]
    for name, query in summary.get("queries", {}).items():
        lines.append(f"{name}: {plural(query['results'], 'result')}{_certificate_text(summary, query)}")
    if summary["delay_s"]:
        lines.append(
            "production delay: " + ", ".join(f"{name} {value:.3f} s" for name, value in summary["delay_s"].items())
        )
    if summary["memory"]["spills"]:
        lines += _spill_texts(summary["memory"], summary["last_runtime_result_s"])
    if summary["moves"]:
        lines.append(_moves_text(summary))
    for shared in summary["shared"]:
        lines.append(
            f"partition {shared['group']} was shared by up to {plural(shared['slaves'], 'slave')}: {shared['why']}"
        )
    for slave, plans in summary.get("plans", {}).items():
        first, *later = map(_plan_text, plans)
        then = [f"{way} from its tuple {one['tuples']:,} on{_reason_text(one)}" for way, one in zip(later, plans[1:])]
        lines.append(f"slave {slave} joined {', then '.join([first, *then])}")
    if summary["overload"] and summary["overload"]["overloaded"]:
        lines.append(
            _overload_text(summary["overload"], _waits_for_collector(summary, summary["overload"]["slowest_slave"]))
        )
    for name, stream in summary["streams"].items():
        lines += _warnings(name, stream, summary["time_unit"])
    if summary["held_back_by"]:
        slowest = max(summary["held_back_by"], key=summary["held_back_by"].get)
        slow = "it joins slower than the input is read"
        if _waits_for_collector(summary, slowest):
            slow = (
                f"it waited {seconds(summary['per_slave'][slowest]['blocked_s'])} for the collector; {COLLECTOR_ADVICE}"
            )
        lines.append(f"the source had to pause for slave {slowest}: {slow}")
    if not any(stream["read"] for stream in summary["streams"].values()):
        lines.insert(0, "the input holds no rows")
    return "\n".join(lines)


def _certificate_text(summary: dict[str, Any], answer: dict[str, Any]) -> str:
    """Names the certificate of an answer, where there is one: a simulated run does not know which rows it joins."""
    return "" if summary.get("simulated") else f"; certificate {answer['certificate']}"


def _moves_text(summary: dict[str, Any]) -> str:
    moves = plural(summary["moves"], "move")
    took = f"which took {summary['move_s_mean']:.3f} s in the mean and {summary['move_s_max']:.3f} s at most"
    held = f"the input of a group was held for {summary['move_pause_s_max']:.3f} s at most"
    return f"{moves} of groups by {summary['move_kind']}, {summary['moved_bytes'] / 1e6:.3g} MB, {took}; {held}"


def _spill_texts(memory: dict[str, Any], last_runtime_result_s: float) -> list[str]:
    pushes = "1 push" if memory["spills"] == 1 else f"{memory['spills']:,} pushes"
    spilled = (
        f"spilled {size(memory['spilled_bytes'])} in {pushes}, which took {_span(memory['spill_s'])}; to write took"
        f" {_span(memory['write_s'])}, and clean-up {_span(memory['cleanup_s'])} for"
        f" {plural(memory['cleanup_results'], 'result')}"
    )
    held = (
        f"the last result before clean-up came after {_span(last_runtime_result_s)}; a slave had up to"
        f" {size(memory['bytes_max'])} of {size(memory['limit_bytes'])} in memory, and all had up to"
        f" {size(memory['disk_bytes_max'])} on disk"
    )
    return [spilled, held]


def in_words(items: Sequence[str]) -> str:
    """Returns a list as people write it.

    >>> in_words(["a"]), in_words(["a", "b"]), in_words(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    *others, last = items
    return f"{', '.join(others)} and {last}" if others else last


def _span(wall_s: float) -> str:
    """Writes a time in seconds as long as the decimals of the seconds matter."""
    return f"{wall_s:.2f} s" if wall_s < 600 else seconds(wall_s)


def _waits_for_collector(summary: dict[str, Any], slave: int | str) -> bool:
    """Whether the collector is slow rather than this slave. The slave then waited longer for the collector to take its
    results than it joined."""
    figures = summary["per_slave"][str(slave)]
    return figures["blocked_s"] > figures["busy_s"]


def _overload_text(overload: dict[str, Any], waits_for_collector: bool) -> str:
    by = f"slave {overload['slowest_slave']} by up to {overload['behind_s_max']:.1f} s"
    if overload["lag_s_max"] > overload["behind_s_max"] / 2:
        by += f", the master by {overload['lag_s_max']:.1f} s"
    return (
        f"warning: overloaded: {by} behind the clock (at the end {overload['behind_s_end']:.1f} s); "
        + (COLLECTOR_ADVICE if waits_for_collector else "use more slaves, a policy that moves groups, or a lower speed")
    )


def _warnings(name: str, stream: dict[str, int], unit: str) -> list[str]:
    lines = []
    if stream["late"]:
        enough = rounded_duration(stream["lateness_needed"], unit)
        needed = f'; lateness = "{enough}" would have covered them' if stream["lateness_needed"] else ""
        late = plural(stream["late"], "late row")
        lines.append(f"warning: {late} of {name} did not join, see late/{name}.parquet{needed}")
    if stream["null_key"]:
        says = "has no key and matches" if stream["null_key"] == 1 else "have no key and match"
        lines.append(f"{plural(stream['null_key'], 'row')} of {name} {says} nothing")
    return lines
