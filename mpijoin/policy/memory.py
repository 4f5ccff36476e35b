"""What policy "balance" has learned from the periods before: an explicit value that it returns and is given again.

Every view is a measurement, and no measurement is believed by itself. What a group takes and how fast a slave is are
means over the periods in which nothing changed; from them follows what a slave's load should be in the next one. A load
that is close to it is averaged in. One that is not may be noise or a change, and the next period tells which: off again
to the same side, it is a change, and what was known of that slave is replaced; else it was noise, and is counted as
such. So the noise is measured too, errors of the prediction after own moves included, and who decides can ask for
differences that it does not make.

What all slaves have in common, such as a rate that rises, is followed faster, and leaves their differences as they are.
"""

from __future__ import annotations

from math import copysign, exp, log, sqrt
from types import MappingProxyType
from typing import Mapping, Sequence

from mpijoin.named import NamedTuple
from mpijoin.policy.estimate import ALIKE, Node, demand, falls_behind, node_of, speeds
from mpijoin.policy.view import ClusterView, Moving, SlaveView

PERIODS = 8  # Means are taken over about so many periods.
# The standard deviation of a slave's load from period to period, as a logarithm, is taken for no less than this.
NOISE_LEAST = 0.05
NOISE_PERIODS = 16  # The mean of its square is taken over about so many periods; the first guess counts for one.
COMMON_SHARE = 1 / 3  # So much of what all loads are off is taken for true at once.
# A load that is off by more than both of these, the latter in standard deviations, is suspect.
CHANGE, CHANGE_NOISES = 0.2, 3.0
OFF_MAX = 1.0  # A measurement that is off by more than this says no more of the noise than one that is off by this.
LEVEL_LEAST = 0.02  # Loads below this can hardly be told from each other.
IDLE_PERIODS = 64  # After about so many periods an idle slave is taken for as fast as others again.
MOVING_SHARE = 0.5  # Groups should be under way for this share of a period at most.
# A slave counts as slow if it is slower than ALIKE by so many standard deviations, of which this much is enough.
DOUBTS, DOUBT_MAX = 2.0, 0.35


class Track(NamedTuple):
    """What is known of a slave."""

    speed: float = 1.0
    """As measured, relative to others."""
    periods: int = 0
    """For how long it has been as it is."""
    suspect: float = 0.0
    """By how much its last load was off what was expected (a logarithm); 0 where it was not."""
    slow: bool = False
    """Whether its speed is reckoned with. Else it counts as 1, because a slave is not fast when its groups are of the
    cheap kind."""

    @property
    def effective(self) -> float:
        return self.speed if self.slow else 1.0

    def at(self, speed: float, periods: int, noise: float) -> Track:
        """The same slave, measured again. It becomes slow, or as fast as others again, only where noise does not
        explain it."""
        doubt = min(DOUBT_MAX, DOUBTS * noise / sqrt(max(1, periods)))
        return Track(speed, periods, 0.0, speed < ALIKE + (doubt if self.slow else -doubt))


class MovingPace(NamedTuple):
    """How much can be moved in MOVING_SHARE of a period, as far as is known."""

    groups: float = 64.0
    share: float = 0.5
    """Of the state of all groups."""
    group_periods: float = 0.0
    """For how long each of the last groups that moved was under way; 0: none has moved."""

    def after(self, moving: Moving, state_bytes: int) -> MovingPace:
        """What is known after these moves. state_bytes: of all groups. A plan that took too long cuts what the next one
        may ask for. One that asked for much and took less time lets the next one ask for more."""
        share = moving.state_bytes / max(1, state_bytes)
        factor = min(2.0, max(0.25, MOVING_SHARE / max(1e-6, moving.periods)))
        groups, most = self.groups, self.share
        if factor < 1:
            groups, most = max(1.0, min(groups, moving.groups) * factor), max(1e-3, min(most, share) * factor)
        elif moving.groups >= groups / 2 or share >= most / 2:
            groups, most = groups * factor, min(1.0, most * factor)
        return MovingPace(groups, most, moving.periods / moving.groups)


class Learned(NamedTuple):
    """What has been learned from the views so far."""

    works: Mapping[int, float] = MappingProxyType({})
    """Of each group the share of its time that it takes from a slave of speed 1."""
    slaves: Mapping[int, Track] = MappingProxyType({})
    variance: float = NOISE_LEAST**2
    """Of the noise of each load, beside what all loads have in common."""
    common_variance: float = 0.0
    """Of the noise that all loads have in common."""
    views: int = 0
    """So many views were looked at."""
    pace: MovingPace = MovingPace()
    common: float = 0.0
    """By how much all loads were off (a logarithm); 0 where that was no more than noise."""
    last: float = 0.0
    """By how much they were off, be it noise or not; 0 where that was taken for true."""
    lean: float = 0.0
    """By how much they go on to be off to the same side, as they do while the load rises."""
    has_moved: bool = False
    """Whether the last plan had moves."""
    settled: int = 0
    """For so many periods there was nothing to move, and nothing has changed."""
    grows: int = 0
    """For so many periods in a row more slaves were needed."""
    calm: int = 0
    """For so many periods in a row one slave less would have done."""

    @property
    def noise(self) -> float:
        return max(NOISE_LEAST, sqrt(self.variance))

    @property
    def common_noise(self) -> float:
        return sqrt(self.common_variance)

    def periods(self, view: ClusterView) -> int:
        """For how long every active slave has been as it is."""
        return min(self.slaves[slave.slave].periods for slave in view.active)

    def is_suspect(self, view: ClusterView) -> bool:
        """Whether some load is off, and the next period must tell whether that was noise."""
        return bool(self.common) or any(self.slaves[slave.slave].suspect for slave in view.active)

    def speed(self, slave: int) -> float:
        return self.slaves[slave].effective

    def nodes(self, view: ClusterView) -> list[Node]:
        """The active slaves as they are to be expected."""
        return [node_of(slave, self.speed(slave.slave), self.works) for slave in view.active]


def learn(view: ClusterView) -> Learned:
    """What is known after this view. What it decided then (`has_moved`, `settled`, `grows`, `calm`) is for whoever
    decides."""
    before = view.memory or Learned()
    measured, noise = speeds(view.active), before.noise
    tracks = {slave.slave: _begun(slave, before, measured) for slave in view.slaves}
    works: dict[int, float] = {}
    for slave in view.active:
        works |= _works(slave, tracks[slave.slave].effective)
    works |= before.works
    offs = [_off(slave, works, tracks[slave.slave].effective) for slave in view.active]
    suspicion = max(CHANGE, CHANGE_NOISES * noise)
    common = _take_common(offs, before, any(map(falls_behind, view.active)))
    works = {group: work * exp(common.taken) for group, work in works.items()}
    noises, settled = [], before.settled
    for slave, off in zip(view.active, offs):
        look = _Look(slave, off - common.off, measured[slave.slave], suspicion, noise, exp(common.taken - common.off))
        tracks[slave.slave], strays, replaced = look.update(tracks[slave.slave], works, before.has_moved)
        noises += strays
        settled *= not replaced
    variance = _mean_square(before.variance, noises, before.views)
    common_variance = _mean_square(before.common_variance, common.noises, before.views)
    state_bytes = sum(slave.state_bytes for slave in view.active)
    pace = before.pace.after(view.moving, state_bytes) if view.moving else before.pace
    known = before._replace(works=works, slaves=tracks, variance=variance, views=before.views + 1, pace=pace)
    known = known._replace(common_variance=common_variance, settled=settled)
    return known._replace(common=common.suspect, last=common.last, lean=common.lean)


def _mean_square(known: float, noises: Sequence[float], views: int) -> float:
    """The mean of the squares over many views, once those of one more view are added."""
    if not noises:
        return known
    mean = sum(min(OFF_MAX, abs(one)) ** 2 for one in noises) / len(noises)
    return known + (mean - known) / min(views + 2, NOISE_PERIODS)


def _begun(slave: SlaveView, before: Learned, measured: Mapping[int, float | None]) -> Track:
    """What is known of a slave before its load is looked at. The first measurement of one that has just got groups sets
    its speed."""
    track = before.slaves.get(slave.slave, Track())
    if not slave.active:
        return track.at(track.speed + (1 - track.speed) / IDLE_PERIODS, 0, before.noise)
    speed = measured[slave.slave]
    if track.periods or speed is None:
        return track
    return Track().at(speed, 0, before.noise)._replace(suspect=track.suspect)


def _works(slave: SlaveView, speed: float) -> dict[int, float]:
    """What its groups would have taken from a slave of speed 1, if they had got all that they asked for."""
    factor = demand(slave) * speed
    return {group.group: group.load * factor for group in slave.groups}


def _off(slave: SlaveView, works: Mapping[int, float], speed: float) -> float:
    """By how much its load is off what was expected (a logarithm)."""
    load = demand(slave) * sum(group.load for group in slave.groups)
    expected = sum(works[group.group] for group in slave.groups) / speed
    return log((load + LEVEL_LEAST) / (expected + LEVEL_LEAST))


class Common(NamedTuple):
    """By how much the loads of all are off together (logarithms)."""

    off: float
    taken: float
    """So much of it is taken for true."""
    suspect: float
    """Whether this was noise or a change, the next period must tell."""
    last: float
    """As in Learned."""
    lean: float
    """As in Learned."""
    noises: list[float]
    """What is now known to have been noise."""


def _take_common(offs: Sequence[float], before: Learned, urgent: bool) -> Common:
    """What to make of what all loads are off. urgent: a slave falls behind, and there is no time to see whether that
    lasts."""
    off, suspicion = common_of(offs), max(CHANGE, CHANGE_NOISES * before.common_noise)
    if abs(off) <= suspicion:
        share = max(COMMON_SHARE, 1 / (before.views + 1))
        # A load that rises or falls is off by the same again and again: noise is what differs from one period to the
        # next.
        noises = [(off - before.last) / sqrt(2)] if before.views else []
        return Common(off, off * share, 0.0, off, (1 - share) * _agreed(off, before.last), noises)
    if urgent and off > 0:
        return Common(off, off, 0.0, 0.0, 0.0, [])
    if off * before.last > 0:
        return Common(off, _agreed(off, before.last), 0.0, 0.0, 0.0, [])
    return Common(off, 0.0, off, off, 0.0, [before.common] if before.common else [])


def _agreed(one: float, other: float) -> float:
    """What two measurements say both.

    >>> _agreed(-0.3, -0.2), _agreed(0.3, -0.2)
    (-0.2, 0.0)
    """
    return copysign(min(abs(one), abs(other)), one) if one * other > 0 else 0.0


def common_of(offs: Sequence[float]) -> float:
    """The median; of two in the middle the smaller change, so that one of two slaves may change.

    >>> common_of([0.1, 2.0, 0.0]), common_of([0.4, 2.0]), common_of([])
    (0.1, 0.4, 0.0)
    """
    ordered = sorted(offs)
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    return min(middle, key=abs, default=0.0)


class _Look(NamedTuple):
    """A slave's new measurement."""

    slave: SlaveView
    off: float
    """By how much its load is off what was expected, beside what all slaves have in common."""
    speed: float | None
    """None where nothing tells."""
    suspicion: float
    """A load that is off by more than this is suspect."""
    noise: float
    scale: float
    """By this its loads are multiplied, to leave out what is common and not yet taken for true."""

    def update(self, track: Track, works: dict[int, float], has_moved: bool) -> tuple[Track, list[float], bool]:
        """What is known of the slave now, in `works` of its groups too; what is now known to have been noise; and
        whether the slave has changed."""
        if abs(self.off) <= self.suspicion:
            return self._average(track, works), [self.off, *([track.suspect] if track.suspect else [])], False
        if falls_behind(self.slave) and self.off > 0:
            return self._replace_by(1, self.off, track, works), [], True
        if track.suspect * self.off <= 0:
            return track._replace(suspect=self.off), [track.suspect] if track.suspect else [], False
        agreed = _agreed(self.off, track.suspect)
        return self._replace_by(2, agreed, track, works), [agreed] if has_moved else [], True

    def _average(self, track: Track, works: dict[int, float]) -> Track:
        periods = min(track.periods + 1, PERIODS)
        speed = track.speed if self.speed is None else track.speed * (self.speed / track.speed) ** (1 / periods)
        now = track.at(speed, periods, self.noise)
        kept = now.effective / track.effective  # a slower slave: its groups take as much of it as before
        for group, work in _works(self.slave, now.effective).items():
            known = works[group] * kept
            works[group] = known + (work * self.scale - known) / periods
        return now

    def _replace_by(self, periods: int, agreed: float, track: Track, works: dict[int, float]) -> Track:
        """It has changed, by as much as all the periods agree upon that saw it."""
        now = track.at(track.speed if self.speed is None else self.speed, periods, self.noise)
        for group, work in _works(self.slave, now.effective).items():
            works[group] = work * self.scale * exp(agreed - self.off)
        return now
