"""Simulated links: when messages arrive, in which order, and what a seed changes."""

import itertools
import json
import re

import numpy as np
import pytest

from mpijoin import progress
from mpijoin.cli import main
from mpijoin.errors import JobError
from mpijoin.signals import Terminated
from mpijoin.simulate.cluster import SimulatedCluster
from mpijoin.simulate.command import STALL_SHARE, disturbance, main_simulate
from mpijoin.transport.base import Channel
from mpijoin.transport.simulated import Disturbance, LinkCosts
from simulated_ranks import Ranks, once, run_simulated

SLAVES = 4
SIDES = ("left", "right")
TROUBLE = ("--delays", "100 ms", "--stalls", "500 ms")


def arrival_times(costs, octets, send):
    """When each of the slaves 1 to SLAVES gets its message from rank 0."""
    times = {}

    def slave(endpoint, clock):
        for _ in endpoint.poll():
            times.setdefault(endpoint.rank, clock.wall_s)
        return 0.1

    def master(endpoint, clock):
        for to in range(1, SLAVES + 1):
            send(endpoint, to, octets)

    ranks = Ranks([once(master)] + [slave] * SLAVES, costs)
    ranks.engine.run(lambda: len(times) == SLAVES)
    return [times[slave] for slave in sorted(times)], ranks


def test_messages_of_one_rank_leave_one_after_the_other():
    """WSJ, VI-B: "The communication time is not uniform across the slaves, as the tuples are distributed to the slaves,
    during a distribution epoch, in a serial order."
    """
    costs = LinkCosts(latency_s=0.5, bytes_per_s=1000.0)
    times, ranks = arrival_times(
        costs, 1000, lambda endpoint, to, octets: endpoint.hand_over(to, Channel.DATA, "", octets)
    )
    assert times == pytest.approx([1.5 + place for place in range(SLAVES)])
    waited = [process.waited_s for process in ranks.processes[1:]]
    assert waited == pytest.approx(times)


def test_both_ends_work_for_a_message():
    costs = LinkCosts(message_s=0.25, byte_s=0.001)
    times, ranks = arrival_times(
        costs, 250, lambda endpoint, to, octets: endpoint.hand_over(to, Channel.DATA, "", octets)
    )
    assert ranks.processes[0].clock.cpu_s == pytest.approx(SLAVES * 0.5)
    assert [process.clock.cpu_s for process in ranks.processes[1:]] == pytest.approx([0.5] * SLAVES)
    assert times == pytest.approx([0.5 * place + 0.5 for place in range(1, SLAVES + 1)])
    assert ranks.network.endpoints[0].stats.send_s == pytest.approx(2.0)
    assert ranks.network.endpoints[1].stats.poll_s == pytest.approx(0.5)


def test_messages_to_one_rank_share_its_link():
    costs = LinkCosts(bytes_per_s=1000.0)
    times = []

    def receiver(endpoint, clock):
        times.extend(clock.wall_s for _ in endpoint.poll())
        return 0.1

    def sender(endpoint, clock):
        endpoint.hand_over(0, Channel.STATE, "", 1000)

    ranks = Ranks([receiver, *(once(sender) for _ in range(3))], costs)
    ranks.engine.run(lambda: len(times) == 3)
    assert times == pytest.approx([1.0, 2.0, 3.0])


def chatter(seed, delay_s=0.01, stall_s=0.0, stall_every_s=0.0):
    """Three ranks send numbered messages on all channels: (arrivals of rank 0, the run's trace)."""
    arrivals = []

    def story(endpoint):
        for number in range(30):
            for channel in Channel:
                endpoint.send(0, channel, bytes_of(number))
            endpoint.wait(0.001)
        while endpoint.rank == 0 and len(arrivals) < 3 * 30 * len(Channel):
            arrivals.extend((message.source, message.channel, int(message.data[0])) for message in endpoint.poll())
            endpoint.wait(0.05)

    network = run_simulated(
        story, 3, LinkCosts(latency_s=1e-4), 60.0, Disturbance(seed, delay_s, stall_s, stall_every_s)
    )
    return arrivals, network.trace


def bytes_of(number):
    return np.full(8, number, np.uint8)


@pytest.mark.parametrize("trouble", [{"delay_s": 0.0}, {}, {"stall_s": 0.02, "stall_every_s": 0.05}])
def test_order_is_kept_in_a_lane_and_only_there(trouble):
    arrivals, _ = chatter(5, **trouble)
    lanes = {}
    for source, channel, number in arrivals:
        lanes.setdefault((source, channel), []).append(number)
    assert lanes == {(source, channel): list(range(30)) for source in range(3) for channel in Channel}
    if trouble.get("delay_s") != 0.0:
        numbers = [number for _, _, number in arrivals]
        overtaken = sum(later < sooner for sooner, later in itertools.pairwise(numbers))
        assert overtaken > 15, "delays reorder across lanes"


def test_one_seed_one_trace():
    first, again, other = chatter(1), chatter(1), chatter(2)
    assert first == again
    assert first[1] != other[1] and first[0] != other[0]


def simulated(path, *options):
    """`summary.json` of `mpijoin simulate` on a small paced job, in which one slave is slow and groups move."""
    stream = {"kind": "synthetic", "rate": 500, "duration": "30 s", "window": "5 s"}
    slow = '[{rank = 2, share = 0.003, from = "5 s", to = "20 s"}]'
    sections = [
        f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in stream.items()) for name in SIDES
    ]
    sections += ['[run]\nspeed = 1\n[balance]\npolicy = "balance"\n']
    sections += ['[cluster]\ndistribution_epoch = "500 ms"\nreorganization_epoch = "3 s"\n']
    sections += [f'[inject]\nslow = {slow}\n[output]\npath = "out"\n']
    (path / "job.toml").write_text("".join(sections))
    arguments = ["simulate", str(path / "job.toml"), "--slaves", "3", "--costs", "wsj_2005", "--overwrite", *options]
    assert main(arguments) == 0
    return json.loads((path / "out" / "summary.json").read_text())


def test_a_user_can_disturb_a_simulation_and_repeat_it(tmp_path, capsys):
    plain, first, again = (simulated(tmp_path, *trouble) for trouble in ((), TROUBLE, TROUBLE))
    told = capsys.readouterr().err
    assert "results from" in told and "certificate" not in told, "nobody knows which rows they are of"
    assert first["trace"] == again["trace"] != plain["trace"]
    assert first["moves"] > 0 and plain["moves"] > 0, "groups move, and the run ends"
    assert first["delay_s"]["mean"] > plain["delay_s"]["mean"] + 0.05, "every message takes so much longer"
    assert first["overload"]["behind_s_max"] > 0.5, "links and ranks stood still"


def test_faults_of_delays_and_stalls_are_named_together():
    with pytest.raises(JobError) as raised:
        disturbance(1, "soon", "-3 s")
    assert [fault.split(":")[0] for fault in raised.value.faults] == ["--delays", "--stalls"]
    assert disturbance(7, "20 ms", "0.5 s") == Disturbance(7, 0.02, 0.5, STALL_SHARE * 0.5)


def test_more_slaves_than_a_job_can_have_partitions_are_refused(job_file, capsys):
    assert main(["simulate", job_file, "--slaves", "65536"]) == 2
    assert "--slaves: got 65536, wanted at most 65535: no job has more partitions" in capsys.readouterr().err


COMMAND = {"costs": "wsj_2005", "overwrite": True, "delays": "0 s", "stalls": "0 s"}


def command(folder, capsys, *changes, streams=("left", "right")):
    """Runs the command on streams of one key, and returns what it says on its way."""
    stream = {"kind": "synthetic", "rate": 1000, "domain": 1, "duration": "20 s", "window": "20 s"}
    fields = "".join(f"{name} = {json.dumps(value)}\n" for name, value in stream.items())
    (folder / "job.toml").write_text("".join(f"[streams.{name}]\n{fields}" for name in streams))
    main_simulate(str(folder / "job.toml"), [f"output.path={folder / 'run'}", *changes], 2, **COMMAND)
    return capsys.readouterr().err


def test_a_limit_that_nobody_has_set_is_not_shown(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "LINE_INTERVAL_S", 0.0)
    assert re.search(r"\d [KM]?B state  load", command(tmp_path, capsys))
    assert re.search(r"\d [KM]?B of 128 MB state  load", command(tmp_path, capsys, "memory.limit=64 MB"))


def test_more_results_than_figures_can_count_are_refused(tmp_path, capsys):
    with pytest.raises(JobError, match=r"more than 9e\+18 results at one slave: shorten the windows"):
        command(tmp_path, capsys, streams="abcdef")


SMALL_JOB = '[left]\nkind = "synthetic"\ntuples = 100\n[right]\nkind = "synthetic"\ntuples = 100\n'


def test_a_simulation_that_a_signal_stops_says_which(tmp_path, monkeypatch):
    def stopped(cluster):
        raise Terminated

    (tmp_path / "job.toml").write_text(SMALL_JOB)
    monkeypatch.setattr(SimulatedCluster, "run", stopped)
    assert main(["simulate", str(tmp_path / "job.toml"), "--set", f'output.path="{tmp_path}/out"']) == 143
    failed = json.loads((tmp_path / "out" / "failed.json").read_text())
    assert (failed["exit_code"], failed["reason"]) == (143, "stopped by SIGTERM")


def test_a_simulation_without_costs_takes_no_time(tmp_path):
    (tmp_path / "job.toml").write_text(SMALL_JOB)
    (tmp_path / "costs.toml").write_text("")
    arguments = ["--costs", str(tmp_path / "costs.toml"), "--set", f'output.path="{tmp_path}/out"']
    assert main(["simulate", str(tmp_path / "job.toml"), *arguments]) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["wall_s"], summary["tuples_per_s"]) == (0.0, 0.0)
