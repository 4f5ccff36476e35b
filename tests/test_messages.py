"""Messages: what is sent is what arrives, and what is none of them is refused."""

import numpy as np
import pytest

from mpijoin.data.codec import encode
from mpijoin.errors import CodecError, ProtocolError
from mpijoin.messages import (
    KINDS,
    MESSAGES,
    Columns,
    EpochEnd,
    Failed,
    Finished,
    Piece,
    Ready,
    Report,
    Restore,
    ResultRows,
    Saved,
    Slot,
    State,
    Stop,
    encode_message,
    parse,
)
from mpijoin.orders import AskLoads, ComputePartitions, Loads, Order, Partitions, SpillOrder, Step
from mpijoin.records import (
    PER_STREAM,
    Counts,
    Delays,
    Figures,
    Followed,
    GroupSpans,
    PartInfo,
    Span,
    SpillFigures,
    Transfer,
)


def columns(rows, words, blob=b""):
    return Columns(np.arange(rows * words).reshape(rows, words), np.frombuffer(blob, np.uint8))


def slot(pieces=2, last=False, streams=2):
    """Of the first stream a group has 1, 0 and 2 rows, of the others 0, 0 and 1."""
    counts = np.array([[1, 0, 2], *[[0, 0, 1]] * (streams - 1)])
    made = [Piece(counts, (columns(3, 5, b"abc" * i), *[columns(1, 3)] * (streams - 1))) for i in range(pieces)]
    return Slot(0, 7, tuple(range(-1, streams - 1)), np.array([2, 5, 9]), tuple(made), last)


@pytest.mark.parametrize("streams", [1, 2, 3, 8])
@pytest.mark.parametrize("pieces, last", [(0, True), (1, False), (3, False)])
def test_a_slot_arrives_as_it_was_sent(pieces, last, streams):
    sent = slot(pieces, last, streams)
    found = parse(encode_message(sent))
    assert (found.producer, found.epoch, found.watermarks, found.last) == (
        sent.producer,
        sent.epoch,
        sent.watermarks,
        last,
    )
    assert found.groups.tolist() == [2, 5, 9]
    assert len(found.pieces) == pieces and all(len(piece.columns) == streams for piece in found.pieces)
    for own, other in zip(sent.pieces, found.pieces):
        assert np.array_equal(own.counts, other.counts)
        for one, two in zip(own.columns, other.columns):
            assert np.array_equal(one.tuples, two.tuples) and np.array_equal(one.blob, two.blob)
    assert found.octets == sent.octets == sum(3 * 5 * 8 + 3 * i + (streams - 1) * 3 * 8 for i in range(pieces))
    assert found.rows.tolist() == [pieces, 0, (streams + 1) * pieces]


COUNTS = Counts(
    *((field, 1 << 62) for field in range(PER_STREAM)), 7, 8, (1 << 64) - 1, 9, 10, 11, Delays((3, 5), (1, 2), 3, 13, 5)
)
SPILLING = SpillFigures(2, 0.5, 0.25, 1 << 40, 1 << 39, 3, 4, 0.25, 5, 6, 7)
FIGURES = Figures(0.5, 0.25, 0.125, 1.0, 0.375, 0.125, 0.0, 100, 2, 300, 4096, 2048, 0.75, SPILLING)
PART = PartInfo("rank-1-00000.parquet", 12, 700, "0123456789abcdef")


@pytest.mark.parametrize(
    "message",
    [
        EpochEnd(3, 8, last=True),
        Report(2, 100, 5, 7, 0.25, 4096),
        Report(2, 100, 5, 7, 0.25, 4096, 0.5, 8, 8192, SPILLING),
        Report(1),
        Finished(4, COUNTS, FIGURES, files=("rank-4-00000.parquet",)),
        Finished(4, COUNTS, FIGURES, plans=(Followed(0, "mway"), Followed(70_000, "((a b) c)"))),
        Finished(4, rows=7),
        Saved(
            1, 2, COUNTS, 0, (PART,), (GroupSpans(3, 9, (Span("rank-1-00002.state", 64, 128),) * 2),),
            (Span("rank-1-00002.state", 192, 64),), 256, 0.5,
        ),
        Saved(1, 2, fault="no space"),
        Restore(2, (GroupSpans(3, 9, (Span("rank-1-00002.state", 64, 128),)),), (PART,)),
        Failed(1, 2, "left.parquet: no such file", "Traceback"),
        Stop(143, "stopped by SIGTERM"),
        Ready(0, 1.5),
        Order(3, "freeze", 17, 2),
        ComputePartitions(4, 1 << 20, "most productive"),
        Partitions(4, 1, (3, 9)),
        Partitions(5, 1, ()),
        SpillOrder(1 << 20, "least productive"),
        AskLoads(9),
        Step(3, 2, "refused", "no room", Transfer(5, 0.5)),
    ],
)
def test_plain_messages_arrive_as_they_were_sent(message):
    assert parse(encode_message(message)) == message


def test_a_report_gives_its_figures_of_spilling_back_as_a_record():
    found = parse(encode_message(Report(2, spilling=SPILLING)))
    assert isinstance(found.spilling, SpillFigures) and found.spilling.owed_groups == 6


def test_rows_arrive_as_they_were_sent():
    found = parse(encode_message(ResultRows(3, 9, 1, np.arange(5, dtype=np.uint8))))
    assert (*found[:3], found.batch.tolist()) == (3, 9, 1, [0, 1, 2, 3, 4])


def test_a_slot_of_a_paced_run_says_when_event_time_began_to_pass():
    sent = Slot(0, 1, (5, 5), np.array([1]), (), origin=(1_000_000, 0.25))
    assert parse(encode_message(sent)).origin == (1_000_000, 0.25)
    assert parse(encode_message(slot())).origin is None


def test_loads_arrive_as_they_were_sent():
    columns = (np.array([3, 9]), np.array([100, 0]), np.array([4096, 64]), np.array([7, 0]), np.array([0, 512]))
    found = parse(encode_message(Loads(2, 5, 1.5, 0.25, 0.125, *columns, 8192, 1 << 20)))
    assert (found.rank, found.period, found.backlog_bytes, found.busy, found.communication) == (2, 5, 1.5, 0.25, 0.125)
    assert [found.groups.tolist(), found.work.tolist(), found.live_bytes.tolist()] == [[3, 9], [100, 0], [4096, 64]]
    assert [found.results.tolist(), found.disk_bytes.tolist()] == [[7, 0], [0, 512]]
    assert (found.held_bytes, found.limit_bytes) == (8192, 1 << 20)


@pytest.mark.parametrize("slots", [0, 1, 3])
def test_a_part_of_a_group_arrives_as_it_was_sent(slots):
    frames = (np.arange(7, dtype=np.uint8), np.arange(1, dtype=np.uint8))
    found = parse(encode_message(State(4, 1, 17, frames, tuple(slot()._replace(epoch=at) for at in range(slots)))))
    assert (found.move, found.supplier, found.group, found.cancelled) == (4, 1, 17, False)
    assert [frame.tolist() for frame in found.frames] == [frame.tolist() for frame in frames]
    assert [one.epoch for one in found.input] == list(range(slots))
    assert all(one.octets == slot().octets and one.groups.tolist() == [2, 5, 9] for one in found.input)


def test_every_message_has_a_kind_of_its_own():
    assert {kind: KINDS[message] for kind, message in MESSAGES.items()} == {kind: kind for kind in MESSAGES}
    assert len({message.__name__ for message in KINDS}) == len(KINDS) == len(MESSAGES)


def test_an_unknown_kind_and_damaged_bytes_are_refused():
    with pytest.raises(ProtocolError, match="kind 4242, wanted one of"):
        parse(encode(4242, {}))
    with pytest.raises(CodecError):
        parse(encode_message(Stop(0))[0][:-1])
