"""The extendible-hash directory of a modelled group.

It knows which share of the group's tuples each bucket has, and when to split or merge buckets. The rules are those of
store/directory.py (WSJ, section IV-D): a bucket above 2 theta is split, and one below theta merges with its buddy if
both together stay below 2 theta. If all buckets lie in that range, nothing changes until the group has grown above
`split_above` or shrunk below `merge_below` bytes.
"""

from __future__ import annotations

from itertools import combinations
from typing import Callable

from mpijoin.named import NamedTuple

DEPTH_MAX = 24
ENTRIES_PER_BUCKET_MAX = 16
NEVER = float("inf")


class Bucket(NamedTuple):
    """One bucket. share: of the group's tuples · cross: the chance that tuples of two streams are both in it."""

    prefix: int
    depth: int
    share: float
    cross: float


class Tuned(NamedTuple):
    """What a tuning did. moved: the tuples that changed their bucket, as a share of the group's tuples."""

    splits: int
    merges: int
    moved: float


class Directory:
    """A directory. theta: in bytes.

    shares: a function from (prefix, depth) to the share of each stream's tuples whose hash ends in this prefix.

    >>> directory = Directory(lambda prefix, depth: (0.5**depth, 0.5**depth), theta=100)
    >>> directory.tune(450, 0), directory.cross, len(directory.buckets)
    (Tuned(splits=3, merges=0, moved=2.0), 0.25, 4)
    >>> directory.tune(150, 0), directory.split_above
    (Tuned(splits=0, merges=3, moved=2.0), 200.0)
    """

    def __init__(self, shares: Callable[[int, int], tuple[float, ...]], theta: float):
        self._shares, self._theta = shares, theta
        self.buckets = {0: self._bucket(0, 0)}  # The keys are the prefixes.
        self.splits = self.merges = 0
        self._note(0.0)

    @property
    def depth(self) -> int:
        return max(bucket.depth for bucket in self.buckets.values())

    def tune(self, live_bytes: float, slack_bytes: float) -> Tuned:
        """Splits and merges buckets until none needs it any more.

        slack_bytes: how many bytes of tuples that no longer count each bucket holds.
        """
        before, moved = (self.splits, self.merges), 0.0
        while step := self._tune_once(live_bytes, slack_bytes):
            moved += step
        self._note(slack_bytes)
        return Tuned(self.splits - before[0], self.merges - before[1], moved)

    def _tune_once(self, live_bytes: float, slack_bytes: float) -> float:
        """Looks at every bucket. Returns the share of the tuples that changed their bucket."""
        moved, waiting = 0.0, sorted(self.buckets, reverse=True)
        while waiting:
            bucket = self.buckets.get(waiting.pop())
            if bucket is None:
                continue
            octets = bucket.share * live_bytes + slack_bytes
            if octets > 2 * self._theta and self._may_split(bucket):
                moved += bucket.share
                waiting += self._split(bucket)
            elif octets < self._theta:
                moved += self._merge_upward(bucket, live_bytes, slack_bytes)
        return moved

    def copy(self) -> Directory:
        """Returns a copy with buckets of its own."""
        other = Directory(self._shares, self._theta)
        other.buckets, other.splits, other.merges = dict(self.buckets), self.splits, self.merges
        other.cross, other.split_above, other.merge_below = self.cross, self.split_above, self.merge_below
        return other

    def _bucket(self, prefix: int, depth: int) -> Bucket:
        shares = self._shares(prefix, depth)
        both = [one * other for one, other in combinations(shares, 2)]
        return Bucket(prefix, depth, sum(shares) / len(shares), sum(both) / max(1, len(both)))

    def _may_split(self, bucket: Bucket) -> bool:
        deepest = self.depth
        too_wide = bucket.depth == deepest and 2 << deepest > ENTRIES_PER_BUCKET_MAX * (len(self.buckets) + 1)
        return (
            bucket.depth < DEPTH_MAX
            and not too_wide
            and 0 < self._bucket(bucket.prefix, bucket.depth + 1).share < bucket.share
        )

    def _split(self, bucket: Bucket) -> list[int]:
        prefixes = [bucket.prefix, bucket.prefix | 1 << bucket.depth]
        for prefix in prefixes:
            self.buckets[prefix] = self._bucket(prefix, bucket.depth + 1)
        self.splits += 1
        return prefixes

    def _buddy(self, bucket: Bucket) -> Bucket | None:
        if bucket.depth == 0:
            return None
        buddy = self.buckets.get(bucket.prefix ^ 1 << (bucket.depth - 1))
        return buddy if buddy is not None and buddy.depth == bucket.depth else None

    def _merge_upward(self, bucket: Bucket, live_bytes: float, slack_bytes: float) -> float:
        moved = 0.0
        while bucket.share * live_bytes + slack_bytes < self._theta:
            buddy = self._buddy(bucket)
            if buddy is None or (bucket.share + buddy.share) * live_bytes + 2 * slack_bytes >= 2 * self._theta:
                break
            for one in (bucket, buddy):
                del self.buckets[one.prefix]
            bucket = self._bucket(min(bucket.prefix, buddy.prefix), bucket.depth - 1)
            self.buckets[bucket.prefix] = bucket
            self.merges += 1
            moved += bucket.share
        return moved

    def _note(self, slack_bytes: float) -> None:
        """Works out at which sizes of the group the next tuning is due."""
        buckets = self.buckets.values()
        self.cross = sum(bucket.cross for bucket in buckets)
        room = 2 * self._theta - slack_bytes
        self.split_above = min(
            (room / one.share for one in buckets if one.share > 0 and self._may_split(one)), default=NEVER
        )
        self.merge_below = max((self._merges_below(one, slack_bytes) for one in buckets), default=0.0)

    def _merges_below(self, bucket: Bucket, slack_bytes: float) -> float:
        """Returns the bytes of the group below which this bucket merges with its buddy."""
        buddy = self._buddy(bucket)
        if buddy is None:
            return 0.0
        both = bucket.share + buddy.share
        alone = (self._theta - slack_bytes) / bucket.share if bucket.share else NEVER
        return min(alone, (2 * self._theta - 2 * slack_bytes) / both) if both else NEVER
