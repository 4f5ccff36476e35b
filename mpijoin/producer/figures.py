"""What a producer tells of itself: while the run goes on, and at its end."""

from __future__ import annotations

from mpijoin.producer.core import ProducerCore
from mpijoin.producer.feed import Feed
from mpijoin.records import Fed, Feeding


def fed_of(feed: Feed, core: ProducerCore) -> Fed:
    """How far it has come."""
    sent = tuple(feed.sent.tolist())
    rows = tuple((one.read, one.late, one.null_key, one.disorder_max) for one in feed.counts())
    behind_s = core.backlog.overload_s(feed.pacing.epoch_ns) if feed.pacing.paced else 0.0
    return Fed(sent, rows, feed.intake.progress(sum(sent)), behind_s)


def feeding_of(feed: Feed, core: ProducerCore) -> Feeding:
    """What it has done. Closes its part files of late rows."""
    return Feeding(
        fed_of(feed, core),
        late=tuple(feed.intake.cut_late()),
        ticks=feed.ticks,
        buffer_bytes_max=feed.buffers.held_bytes_max,
        held_back_by=tuple((slave, times) for slave, times in core.held_back_by.items() if times),
        **feed.recorder.times_after_warmup(),
        lag_s_max=core.backlog.lag_s_max,
        behind_s_max=tuple(core.backlog.behind_s_max.items()),
        overloaded=feed.pacing.paced and core.backlog.is_overloaded(feed.pacing.epoch_ns),
        copied=tuple(feed.copied.tolist()),
    )
