"""The pure parts of workload H: replays, verdicts, searches, data. Nothing here measures time or starts a peer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
WINDOW_US = 600_000_000


@pytest.fixture(autouse=True)
def _import_scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))


def verdict(speed, kept):
    from peers.paced_replay import Verdict

    return Verdict(speed, 0.1, 0.2, 0.0, "" if kept else "too slow")


def searched(search, capacity):
    """The speeds that a search tries where all up to `capacity` are kept."""
    tried = []
    while not search.done:
        tried.append(search.speed)
        search.tell(verdict(search.speed, search.speed <= capacity))
    return tried


@pytest.mark.parametrize("capacity", [10, 99, 100, 640, 999])
def test_a_search_finds_the_capacity_from_above_and_from_below(capacity):
    from peers.paced_replay import Search

    search = Search(100, lowest=1, highest=1000)
    searched(search, capacity)
    assert capacity / 1.1 <= search.kept.speed <= capacity


def test_a_search_ends_at_its_borders():
    from peers.paced_replay import Search

    never, always = Search(4, lowest=1, highest=1000), Search(100, lowest=1, highest=300)
    assert searched(never, 0)[-2:] == [1, 1] and never.kept is None
    assert searched(always, 5000)[-1] == 300 and always.failed is None


def test_a_speed_that_failed_once_is_tried_again():
    from peers.paced_replay import Search

    search = Search(100, lowest=1, highest=100)
    search.tell(verdict(100, kept=False))
    assert not search.done and search.failed is None
    search.tell(verdict(100, kept=True))
    assert search.done and search.kept.speed == 100


def test_a_replay_hands_over_what_its_warm_up_cannot():
    from peers.paced_replay import Clock, replay_of

    slow, fast = (replay_of(speed, WINDOW_US, 5.0, 20.0) for speed in (20, 300))
    assert (slow.lead_us, slow.until_us) == (500_000_000, 1_000_000_000)
    assert (fast.lead_us, fast.until_us) == (0, 7_500_000_000)
    assert Clock(slow, 0).due_s(np.array([480_000_000, 520_000_000])).tolist() == [-1.0, 1.0]
    assert Clock(slow, 0).event_us(1.0) == 520_000_000


def seen(delay_ms, lag_ms=lambda second: 0.0, results=2500):
    from peers.paced_replay import Seen

    delays, lags = zip(*(((second, delay_ms(second), 100), (second, lag_ms(second))) for second in range(25)))
    return Seen(results, delays, lags)


@pytest.mark.parametrize(
    "what, limit",
    [
        (dict(delay_ms=lambda second: 300), ""),
        (dict(delay_ms=lambda second: 5000 if second < 5 else 300), ""),  # the warm-up does not count
        (dict(delay_ms=lambda second: 5000 if second == 7 else 300), "p99 of the delay 5.00 s"),
        (dict(delay_ms=lambda second: 40 * second), "delays grow from 0.68 to 0.88 s"),
        (
            dict(delay_ms=lambda second: 300, lag_ms=lambda second: 40 * second),
            "lags of the input grow from 0.68 to 0.88 s",
        ),
        (dict(delay_ms=lambda second: 300, results=2499), "WRONG: 2,499 results, wanted 2,500"),
    ],
)
def test_a_verdict_names_what_was_wrong(what, limit):
    from peers.paced_replay import judge, replay_of

    said = judge(seen(**what), replay_of(200, WINDOW_US, 5.0, 20.0), 2500, delay_s_max=1.0)
    assert (said.limit, said.kept) == (limit, not limit)


def test_streams_come_in_all_formats_with_the_right_answer_at_any_time(tmp_path, monkeypatch):
    pytest.importorskip("duckdb")
    from benching import data as bench_data
    from peers import paced_data

    monkeypatch.setattr(bench_data, "RATE_PER_S", 2.0)
    monkeypatch.setattr(bench_data, "DOMAIN", 50)
    streams = paced_data.make_streams(tmp_path, 2000)
    assert streams.period == 3
    for until_us in (300_000_000, 611_500_123, 2_400_000_000):
        left, right = (streams.table(side, until_us) for side in paced_data.SIDES)
        times, others = left["ts"].to_numpy()[:, None], right["ts"].to_numpy()[None, :]
        same = left["key"].to_numpy()[:, None] == right["key"].to_numpy()[None, :]
        assert streams.results(until_us) == (same & (abs(times - others) <= WINDOW_US)).sum() > 0
        assert max(times.max(), others.max()) < until_us
        formats_agree(streams, tmp_path / str(until_us), until_us)


def formats_agree(streams, folder, until_us):
    import pyarrow.parquet as pq

    streams.arrow(folder / "arrow", until_us)
    streams.binary(folder / "binary", until_us)
    streams.slices(folder / "slices", [0, 100_000_000, until_us])
    for side in ("left", "right"):
        wanted = streams.table(side, until_us)
        pieces = [pa.ipc.open_file(str(file)).read_all() for file in sorted((folder / "arrow" / side).iterdir())]
        assert pa.concat_tables(pieces).equals(wanted)
        words = np.fromfile(folder / "binary" / f"{side}.bin", "<i8").reshape(-1, 3)
        assert words.T.tolist() == [wanted[name].to_pylist() for name in ("ts", "key", "id")]
        parts = [pq.read_table(file) for file in sorted((folder / "slices" / side).iterdir())]
        assert pa.concat_tables(parts)["id"].to_pylist() == wanted["id"].to_pylist()


def test_what_mpijoin_showed_is_read_from_its_metrics(tmp_path):
    from mpijoin.metrics.delay import DelayHistogram, DelaysFile
    from mpijoin.metrics.write import MetricsFile
    from peers.paced_systems import seen_by_mpijoin

    master, slave, delays = MetricsFile(tmp_path, 0, []), MetricsFile(tmp_path, 1, []), DelaysFile(tmp_path, 1)
    master.add(rank=0, role="master", epoch=0, end_us=1_200_000, lag_us=30_000)
    slave.add(rank=1, role="slave", epoch=0, end_us=2_100_000)
    histogram = DelayHistogram()
    histogram.add(np.array([100_000]), np.array([7]))
    delays.add(0, 2_100_000, histogram)
    for file in (master, slave, delays):
        file.close()
    found = seen_by_mpijoin(tmp_path, 7)
    assert (found.results, found.lags) == (7, [(1, 30.0)])
    [(second, delay_ms, count)] = found.delays
    assert (second, count) == (2, 7) and delay_ms == pytest.approx(100, rel=0.02)


def test_the_report_names_who_is_absent_who_keeps_nothing_and_what_was_missed():
    from bench_peers_paced import case_of, report_text, targets

    cases = [case_of(name, quick=False) for name in ("mpijoin-n2", "flink", "spark-heap", "datafusion")]
    ours, flink, spark, datafusion = cases
    ours.search.kept, ours.search.failed = verdict(500, True), verdict(550, False)
    flink.search.kept = verdict(100, True)
    spark.search.failed = verdict(0.04, False)
    datafusion.absent = "no network"
    assert [one["met"] for one in targets(cases)] == [False, True]
    text = report_text(cases, None)
    assert "| mpijoin, mpirun -n 2 | 500 | 1.50 | 0.100 | 0.200 | too slow |" in text
    assert "| absent |  |  |  | no network |" in text
    assert "MISSED: mpijoin : Flink, DataStream interval join: 5.0 (wanted 10 x)" in text
