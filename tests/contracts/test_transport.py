"""The transport contract. Each story is a function of one endpoint that every rank runs with its own.

Plain pytest runs it on three local endpoints, one thread each, and on three simulated ones, whose threads take turns in
virtual time; under `mpirun -n 3` the same file runs it over MPI (tests/mpi/test_transport_mpi.py does that).
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import traceback

import numpy as np
import pytest

from mpijoin.data.codec import part_starts
from mpijoin.errors import PeerError
from mpijoin.transport.base import Channel, Transport, octets_of, parts_of
from mpijoin.transport.guard import launched_by_mpi
from mpijoin.transport.local import LocalTransport
from mpijoin.transport.simulated import LinkCosts
from simulated_ranks import run_simulated

RANKS = 3
TIMEOUT_S = 60.0
DATA, CONTROL, RESULT, STATE = Channel


def run_on_threads(story) -> None:
    endpoints = LocalTransport.create(RANKS)
    failures: list[BaseException] = []
    closing: list[int] = []
    last: list[int] = []  # how many were closing when a rank did what it had left to do

    def rank(endpoint: LocalTransport) -> None:
        try:
            story(endpoint)
            closing.append(endpoint.rank)
            endpoint.close(TIMEOUT_S, lambda: last.append(len(closing)))
        except BaseException as error:
            failures.append(error)
            endpoint.abort(99)

    threads = [threading.Thread(target=rank, args=(endpoint,), daemon=True) for endpoint in endpoints]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * TIMEOUT_S)
        assert not thread.is_alive(), "a rank hangs"
    if failures:
        raise failures[0]
    assert last == [RANKS] * RANKS


def run_on_mpi(story, piece_bytes: int) -> None:
    from mpijoin.transport.mpi import MPI, MpiTransport

    endpoint = MpiTransport(MPI.COMM_WORLD, piece_bytes)
    assert endpoint.size == RANKS
    try:
        story(endpoint)
        last: list[bool] = []
        endpoint.close(TIMEOUT_S, lambda: last.append(MPI.Is_finalized()))
        assert last == [False]
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
        endpoint.abort(99)


@pytest.fixture(scope="module", autouse=True)
def end_mpi():
    yield
    if launched_by_mpi(os.environ):
        from mpijoin.transport.mpi import MPI

        MPI.Finalize()  # the transport leaves that to whoever hands it a communicator


SIMULATED = [
    LinkCosts(),
    LinkCosts(message_s=1e-5, byte_s=1e-9, latency_s=1e-4, bytes_per_s=1e8),
]


@pytest.fixture(params=["mpi"] if launched_by_mpi(os.environ) else ["threads", "simulated", "simulated links"])
def run(request):
    def run_story(story, piece_bytes: int = 1 << 30) -> None:
        if request.param == "mpi":
            run_on_mpi(story, piece_bytes)
        elif request.param == "threads":
            run_on_threads(story)
        else:
            run_simulated(story, RANKS, SIMULATED[request.param == "simulated links"], TIMEOUT_S)

    run_story.virtual = request.param.startswith("simulated")
    return run_story


def receive(endpoint: Transport, count: int, refuse=()) -> list:
    """The next `count` messages, or an assertion after a minute."""
    messages, deadline_s = [], time.monotonic() + TIMEOUT_S
    while len(messages) < count:
        messages += endpoint.poll(refuse)
        assert time.monotonic() < deadline_s, f"rank {endpoint.rank}: {len(messages)} of {count} messages came"
        if len(messages) < count:
            endpoint.wait(0.05)
    assert len(messages) == count
    return messages


def poll_for(endpoint: Transport, seconds: float, refuse=()) -> list:
    messages, end_s = [], time.monotonic() + seconds
    while time.monotonic() < end_s:
        messages += endpoint.poll(refuse)
        endpoint.wait(0.01)
    return messages


def numbered(number: int, size_bytes: int = 8) -> np.ndarray:
    """uint8[size_bytes] that tells its number, from its first byte to its last."""
    return np.full(-(-size_bytes // 8), number, dtype=np.int64).view(np.uint8)[:size_bytes]


def number_of(data: np.ndarray) -> int:
    return int(data[:8].view(np.int64)[0])


def test_many_small_messages_keep_their_order_per_source_and_channel(run):
    count = 3000

    def story(endpoint):
        for number in range(count):
            for to in range(RANKS):
                endpoint.send(to, Channel(number % len(Channel)), numbered(number))
        seen = {}
        for message in receive(endpoint, count * RANKS):
            seen.setdefault((message.source, message.channel), []).append(number_of(message.data))
        expected = {(s, c): list(range(c, count, len(Channel))) for s in range(RANKS) for c in Channel}
        assert seen == expected

    run(story)


def test_sizes_from_nothing_to_8_mb_arrive_whole_and_in_order(run):
    sizes = [0, 1, 8_000_000, 0, 7, 65_536, 4_000_001, 100, 300_000, 0, 2_000_000, 63]

    def story(endpoint):
        to = (endpoint.rank + 1) % RANKS
        for number, size in enumerate(sizes):
            endpoint.send(to, DATA, numbered(number, size))
        messages = receive(endpoint, len(sizes))
        assert [len(message.data) for message in messages] == sizes
        for number, message in enumerate(messages):
            assert np.array_equal(message.data, numbered(number, sizes[number]))
            assert message.data.dtype == np.uint8 and message.source == (endpoint.rank - 1) % RANKS
        assert endpoint.flush(TIMEOUT_S)

    run(story)


@pytest.mark.parametrize("piece_bytes", [1, 7, 1000, 65_536])
def test_messages_above_the_piece_limit_are_put_together_again(run, piece_bytes):
    sizes = [size for size in (0, 1, 6, 7, 8, 999, 1000, 1001, 200_000) if size <= 400 * piece_bytes]

    def story(endpoint):
        for number, size in enumerate(sizes):
            for to in range(RANKS):
                endpoint.send(to, RESULT, numbered(number, size))
        lanes = {}
        for message in receive(endpoint, len(sizes) * RANKS):
            lanes.setdefault(message.source, []).append(message.data)
        for lane in lanes.values():
            assert all(np.array_equal(data, numbered(n, sizes[n])) for n, data in enumerate(lane))
        assert sorted(lanes) == list(range(RANKS))

    run(story, piece_bytes)


@pytest.mark.parametrize("size_bytes", [16, 100_000, 3_000_000])
def test_refused_results_stay_with_their_sender_until_accepted(run, size_bytes):
    count = 5

    def story(endpoint):
        if endpoint.rank == 0:
            for refused, accepted in ((1, 2), (2, 1)):
                messages = receive(endpoint, count, refuse={refused})
                assert {message.source for message in messages} == {accepted}
                assert poll_for(endpoint, 0.05, refuse={refused}) == []
                endpoint.send(accepted, CONTROL, numbered(0))
                endpoint.send(refused, CONTROL, numbered(1))
                messages = receive(endpoint, count, refuse={accepted})
                assert [number_of(message.data) for message in messages] == list(range(count))
                assert {message.source for message in messages} == {refused}
                endpoint.barrier(TIMEOUT_S)
        else:
            for refused in (1, 2):
                for number in range(count):
                    endpoint.send(0, RESULT, numbered(number, size_bytes))
                assert number_of(receive(endpoint, 1)[0].data) == int(endpoint.rank == refused)
                endpoint.barrier(TIMEOUT_S)
                assert endpoint.flush(TIMEOUT_S) and endpoint.unsent_bytes() == 0

    run(story)


PIECE_BYTES, LARGE, SMALL = 100, 20_000, 8  # a large one is more pieces than MPI is given at once


def large_before_small(endpoint):
    """Each large message comes in many pieces and is seen in part; the small ones behind it in its lane are whole at
    once."""
    sizes = [LARGE, SMALL, 0, LARGE, LARGE, SMALL] * 3
    for channel in (DATA, RESULT):
        for number, size in enumerate(sizes):
            for to in range(RANKS):
                endpoint.send(to, channel, numbered(number, size))
    time.sleep(0.1)  # what this rank does not post cannot be taken: the others find a large one's beginning
    lanes = {}
    for message in receive(endpoint, 2 * len(sizes) * RANKS):
        lanes.setdefault((message.source, message.channel), []).append(message.data)
    for lane in lanes.values():
        assert [len(data) for data in lane] == sizes
        assert all(np.array_equal(data, numbered(number, sizes[number])) for number, data in enumerate(lane))
    assert endpoint.flush(TIMEOUT_S)


def test_no_message_overtakes_one_that_has_come_in_part(run):
    run(large_before_small, piece_bytes=PIECE_BYTES)


class Overtaking(LocalTransport):
    """A transport that hands over whole messages while a large one before them in their lane is still on its way."""

    def poll(self, refuse=()):
        self.partial = getattr(self, "partial", {})  # lane -> the large message that is not whole yet
        handed_over = []
        for message in super().poll(refuse):
            lane = (message.source, message.channel)
            if octets_of(message.data) == LARGE and lane not in self.partial:
                self.partial[lane] = message
            else:
                handed_over += [message, *([self.partial.pop(lane)] if lane in self.partial else [])]
        return handed_over


def test_a_transport_whose_messages_overtake_one_that_has_come_in_part_breaks_the_contract(monkeypatch):
    monkeypatch.setattr(LocalTransport, "create", classmethod(lambda cls, size: create(Overtaking, size)))
    with pytest.raises((AssertionError, PeerError)):
        run_on_threads(large_before_small)


create = LocalTransport.create.__func__


def test_parts_arrive_as_one_message_each_at_its_place(run):
    sizes = [(5,), (100, 0), (0, 64, 1), (7, 300_000, 0, 65_536, 63), (0,), (0, 0), (3_000_000, 2_000_000, 8)]

    def story(endpoint):
        to = (endpoint.rank + 1) % RANKS
        for number, own in enumerate(sizes):
            endpoint.send(to, DATA, tuple(numbered(number * 10 + at, size) for at, size in enumerate(own)))
            endpoint.send(to, DATA, numbered(number))
        messages = receive(endpoint, 2 * len(sizes))
        for number, own in enumerate(sizes):
            data, behind = messages[2 * number].data, messages[2 * number + 1].data
            *starts, end = part_starts(own)
            whole = np.zeros(end, np.uint8)
            for start, part in zip(part_starts(map(len, parts_of(data))), parts_of(data)):
                whole[start : start + len(part)] = part
            assert len(whole) == end and number_of(behind) == number
            for at, (start, size) in enumerate(zip(starts, own)):
                assert np.array_equal(whole[start : start + size], numbered(number * 10 + at, size))
        assert endpoint.flush(TIMEOUT_S) and endpoint.unsent_bytes() == 0
        wanted = sum(map(sum, sizes)) + 8 * len(sizes)
        assert endpoint.stats.sent_bytes == endpoint.stats.received_bytes == wanted

    run(story)
    run(story, piece_bytes=100_001)


def test_a_part_that_is_no_array_of_bytes_is_refused(run):
    def story(endpoint):
        assert octets_of((numbered(1), numbered(2, 3))) == 11
        with pytest.raises(ValueError, match=r"send of int64\[2\]: wanted contiguous uint8\[n\]"):
            endpoint.send(0, DATA, (numbered(1), np.zeros(2, np.int64)))
        assert endpoint.unsent_bytes() == 0 and endpoint.stats.sent_messages == 0

    run(story)

def test_a_message_taken_in_part_is_finished_though_its_sender_is_refused_since(run):
    size_bytes, pieces_seen_s = 20_000, 0.2
    if run.virtual:
        pytest.skip("no message is taken in part")

    def story(endpoint):
        if endpoint.rank == 1:
            for number in range(2):
                endpoint.send(0, RESULT, numbered(number, size_bytes))
            time.sleep(2 * pieces_seen_s)  # what this rank does not post cannot be taken
            assert endpoint.flush(TIMEOUT_S)
        elif endpoint.rank == 0:
            messages = poll_for(endpoint, pieces_seen_s)
            messages += receive(endpoint, max(0, 1 - len(messages)), refuse={1})
            messages += receive(endpoint, 2 - len(messages))
            for number, message in enumerate(messages):
                assert np.array_equal(message.data, numbered(number, size_bytes))

    run(story, piece_bytes=100)


def test_unsent_bytes_tell_what_the_peer_has_not_taken(run):
    def story(endpoint):
        if endpoint.rank == 1:
            for _ in range(3):
                endpoint.send(0, RESULT, numbered(0, 1000))
            assert endpoint.unsent_bytes(0) == endpoint.unsent_bytes() == 3000
            assert endpoint.unsent_bytes(2) == 0
            assert not endpoint.flush(0.05)
            endpoint.send(0, CONTROL, numbered(1))
            assert endpoint.flush(TIMEOUT_S)
            assert endpoint.unsent_bytes(0) == endpoint.unsent_bytes() == 0
        elif endpoint.rank == 0:
            receive(endpoint, 1, refuse={1})
            receive(endpoint, 3)

    run(story)


def test_flush_waits_for_empty_messages_too(run):
    def story(endpoint):
        if endpoint.rank == 1:
            endpoint.send(0, RESULT, numbered(0, 0))
            assert not endpoint.flush(0.05)
            endpoint.send(0, CONTROL, numbered(0))
            assert endpoint.flush(TIMEOUT_S)
        elif endpoint.rank == 0:
            receive(endpoint, 1, refuse={1})
            assert len(receive(endpoint, 1)[0].data) == 0

    run(story)


def test_a_stuck_result_does_not_hold_up_data_or_control(run):
    def story(endpoint):
        if endpoint.rank == 1:
            for _ in range(100):
                endpoint.send(0, RESULT, numbered(0, 200_000))
            for number in range(100):
                endpoint.send(0, DATA, numbered(number, 200_000))
                endpoint.send(0, CONTROL, numbered(number))
            receive(endpoint, 1)
        elif endpoint.rank == 0:
            messages = receive(endpoint, 200, refuse=(1,))
            for channel in (DATA, CONTROL):
                assert [number_of(m.data) for m in messages if m.channel == channel] == list(range(100))
            endpoint.send(1, CONTROL, numbered(0))
            assert {message.channel for message in receive(endpoint, 100)} == {RESULT}

    run(story)


def test_the_transport_keeps_buffers_alive_that_the_sender_has_dropped(run):
    def story(endpoint):
        for number in range(20):
            for to in range(RANKS):
                endpoint.send(to, DATA, numbered(number, 300_000))
        gc.collect()
        noise = [np.full(300_000, 255, dtype=np.uint8) for _ in range(20)]
        messages = receive(endpoint, 20 * RANKS)
        for source in range(RANKS):
            lane = [message.data for message in messages if message.source == source]
            assert all(np.array_equal(data, numbered(number, 300_000)) for number, data in enumerate(lane))
        assert all(array[0] == 255 for array in noise)

    run(story)


def test_one_buffer_may_go_to_several_ranks(run):
    def story(endpoint):
        data = numbered(endpoint.rank, 100_000)
        for to in range(RANKS):
            endpoint.send(to, DATA, data)
        for message in receive(endpoint, RANKS):
            assert np.array_equal(message.data, numbered(message.source, 100_000))

    run(story)


def test_waiting_sleeps(run):
    if run.virtual:
        pytest.skip("virtual time passes without waiting")

    def story(endpoint):
        endpoint.barrier(TIMEOUT_S)
        start_s, cpu_s = time.monotonic(), time.process_time()
        poll_for(endpoint, 1.0)
        endpoint.wait(0.5)
        share = (time.process_time() - cpu_s) / (time.monotonic() - start_s)
        assert share < 0.1, f"idle rank used {share:.0%} of a core"
        endpoint.barrier(TIMEOUT_S)

    run(story)


def test_a_message_wakes_a_sleeper_long_before_its_timeout(run):
    def story(endpoint):
        endpoint.barrier(TIMEOUT_S)
        if endpoint.rank == 0:
            start_s = time.monotonic()
            while not (messages := endpoint.poll()):
                endpoint.wait(30.0)
            assert time.monotonic() - start_s < 10.0 and len(messages) == 1
        elif endpoint.rank == 1:
            time.sleep(0.3)
            endpoint.send(0, CONTROL, numbered(0))

    run(story)


def test_barrier_waits_for_all_and_can_be_continued_after_a_timeout(run):
    def story(endpoint):
        endpoint.barrier(TIMEOUT_S)
        if endpoint.rank == 0:
            assert len(receive(endpoint, RANKS - 1)) == RANKS - 1
        else:
            with pytest.raises(PeerError, match=f"rank {endpoint.rank}.*barrier in 0.05 s"):
                endpoint.barrier(0.05)
            endpoint.send(0, CONTROL, numbered(0))
        endpoint.barrier(TIMEOUT_S)
        endpoint.barrier(TIMEOUT_S)

    run(story)


def test_ranks_that_flush_to_each_other_do_not_wait_for_ever(run):
    def story(endpoint):
        for to in range(RANKS):
            endpoint.send(to, DATA, numbered(endpoint.rank, 2_000_000))
        assert endpoint.flush(TIMEOUT_S)
        endpoint.barrier(TIMEOUT_S)
        assert sorted(m.source for m in receive(endpoint, RANKS)) == list(range(RANKS))

    run(story)


def test_what_a_barrier_took_in_ends_the_next_wait_at_once(run):
    def story(endpoint):
        if endpoint.rank == 1:
            endpoint.send(0, DATA, numbered(5))
            assert endpoint.flush(TIMEOUT_S)
        endpoint.barrier(TIMEOUT_S)
        if endpoint.rank == 0:
            start_s = time.monotonic()
            endpoint.wait(30.0)
            assert time.monotonic() - start_s < 10.0
            assert [number_of(message.data) for message in endpoint.poll()] == [5]

    run(story)


def test_close_drops_what_nobody_polled(run):
    def story(endpoint):
        for channel in Channel:
            endpoint.send((endpoint.rank + 1) % RANKS, channel, numbered(0, 1_000_000))
        endpoint.poll(refuse=range(RANKS))

    run(story)


def test_close_names_the_wait_when_a_rank_stays_away(run):
    def story(endpoint):
        if endpoint.rank != 0:
            with pytest.raises(PeerError, match=f"rank {endpoint.rank}.* in 0.1 s"):
                endpoint.close(0.1)
            endpoint.send(0, CONTROL, numbered(0))
        else:
            receive(endpoint, RANKS - 1)

    run(story)


def test_stats_count_messages_and_bytes(run):
    def story(endpoint):
        for to in range(RANKS):
            endpoint.send(to, DATA, numbered(0, 1000))
        receive(endpoint, RANKS)
        stats = endpoint.stats
        assert (stats.sent_messages, stats.sent_bytes) == (RANKS, 1000 * RANKS)
        assert (stats.received_messages, stats.received_bytes) == (RANKS, 1000 * RANKS)
        assert (stats.send_s > 0 and stats.poll_s > 0) or run.virtual  # there it costs what it was told to cost

    run(story)


def test_what_no_transport_can_carry_is_refused(run):
    def story(endpoint):
        for data in (np.zeros(3), np.zeros((2, 2), dtype=np.uint8), np.zeros(8, dtype=np.uint8)[::2]):
            with pytest.raises(ValueError, match=r"wanted contiguous uint8\[n\]"):
                endpoint.send(0, DATA, data)
        with pytest.raises(ValueError, match="send to rank 3: there are ranks 0 to 2"):
            endpoint.send(RANKS, DATA, numbered(0))
        assert endpoint.unsent_bytes() == 0

    run(story)


def test_local_abort_ends_every_endpoint_even_a_sleeping_one():
    endpoints = LocalTransport.create(RANKS)
    caught = []

    def sleeper():
        try:
            endpoints[1].wait(TIMEOUT_S)
        except PeerError as error:
            caught.append(error)

    thread = threading.Thread(target=sleeper, daemon=True)
    thread.start()
    time.sleep(0.05)
    endpoints[0].abort(7)
    thread.join(TIMEOUT_S)
    assert [error.exit_code for error in caught] == [7]
    for endpoint in endpoints:
        calls = (endpoint.poll, endpoint.unsent_bytes, lambda: endpoint.send(0, DATA, numbered(0)))
        for call in (*calls, lambda: endpoint.wait(1), lambda: endpoint.flush(1), lambda: endpoint.barrier(1)):
            with pytest.raises(PeerError, match="aborted"):
                call()
