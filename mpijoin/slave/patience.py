"""When a slave waits for what other producers are about to send, so that it joins the messages of an epoch at once."""

from __future__ import annotations

import math

from mpijoin.slave.slices import Messages, Unjoined

# Slaves wait for at most so long after the newest message. With 4 producers and 8 slaves on two cores they then join
# half as many slices, and take a tenth less CPU time.
PATIENCE_S = 0.05


class Patience:
    """Each slice that is joined costs some calls, however few rows it has. A slave with nothing else to do had better
    wait for all producers. It waits only for those that are behind what it has, since the others may wait for these.

    A producer for which it has waited in vain is not waited for until it sends something. It may have ended while this
    slave had no groups.
    """

    def __init__(self, producers: int, rows: int):
        """producers: so many feed this slave, if their messages are joined together · rows: so many are worth a slice
        of their own."""
        self._producers, self._rows = producers, rows
        self._epochs: dict[int, float] = {}  # of the newest message of each producer; inf: it is not waited for
        self._behind: set[int] = set()
        self._until_s = math.inf

    def came(self, message: Unjoined, rests: bool) -> None:
        """A message has come. rests: its producer has no more input."""
        if message.joint:
            self._epochs[message.producer] = math.inf if rests else message.epoch
        self._until_s = math.inf

    def waits(self, messages: Messages) -> bool:
        """Whether it waits for more, where these are all that are not joined yet."""
        if len(messages) >= self._producers:
            return False
        here = [one for one in messages if isinstance(one, Unjoined) and one.joint]
        if len(here) < len(messages) or sum(one.rows_all for one in here) >= self._rows:
            return False
        newest = max(one.epoch for one in here)
        behind = {producer for producer, epoch in self._epochs.items() if epoch < newest}
        self._behind = behind - {one.producer for one in here}
        return bool(self._behind)

    def left_s(self, now_s: float) -> float:
        """Returns for how many seconds it still waits. The first call says when the newest message has come."""
        if self._until_s == math.inf:
            self._until_s = now_s + PATIENCE_S
        left_s = self._until_s - now_s
        if left_s <= 0:
            self._epochs.update(dict.fromkeys(self._behind, math.inf))
        return left_s
