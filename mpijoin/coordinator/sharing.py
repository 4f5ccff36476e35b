"""What each producer reads: the coordinator deals the input out before the run begins, or goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Sequence

import numpy as np

from mpijoin.data.record import RecordLayout
from mpijoin.directives import Share
from mpijoin.launch.roles import RunSetup
from mpijoin.partitioning.table import PartitionTable
from mpijoin.policy.choose import first_active
from mpijoin.producer.views import never
from mpijoin.rank import MASTER, Rank
from mpijoin.sources.position import decode_position, encode_position
from mpijoin.sources.shares import deal, deal_again

if TYPE_CHECKING:
    from mpijoin.checkpoint.restore import Resumption


def owners_at_first(setup: RunSetup, resumption: Resumption | None) -> tuple[int, ...]:
    """The slave of each partition when the run begins, or goes on."""
    if resumption:
        return resumption.owners
    cluster = setup.job.cluster
    active = first_active(setup.job.balance, cluster.slaves_min, setup.roles.slaves)
    return PartitionTable.even(cluster.partitions, active).slaves


def positions_at_first(
    setup: RunSetup, resumption: Resumption | None, say: Callable[[str], object]
) -> Sequence[np.ndarray | None]:
    """The frame of each producer's share of the input; None: all of it, from its beginning. say: takes what the log
    should tell. Raises InputError."""
    producers = len(setup.roles.producers)
    if resumption is None:
        if producers == 1:
            return [None]
        return list(map(encode_position, deal(setup.job, setup.schema, producers, say)))
    if len(resumption.positions) == producers:
        return resumption.positions
    words = tuple(RecordLayout(stream).record_words for stream in setup.schema.streams)
    before = [decode_position(frame, words) for frame in resumption.positions]
    return list(map(encode_position, deal_again(before, producers)))


def share_of(setup: RunSetup, resumption: Resumption | None, position: np.ndarray | None) -> Share:
    """What a producer that is not the first is told. position: its share of the input, as in `positions_at_first`."""
    position = np.empty(0, np.uint8) if position is None else position
    manifest = resumption.manifest if resumption else None
    complete = manifest.run.complete if manifest else never(len(setup.job.streams))
    slots, part = (manifest.run.slots, manifest.number) if manifest else (0, 0)
    return Share(position, owners_at_first(setup, resumption), complete, slots, part)


def share_out(setup: RunSetup, rank: Rank, resumption: Resumption | None) -> np.ndarray | None:
    """Tells all other producers what they read. Returns the first producer's own share, as `positions_at_first`."""
    own, *others = positions_at_first(setup, resumption, rank.log.info)
    for producer, position in zip(setup.roles.producers[MASTER + 1 :], others):
        rank.send(producer, share_of(setup, resumption, position))
    return own
