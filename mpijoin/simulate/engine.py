"""Virtual time: a heap of events, a clock for each rank, and ranks that are called in turns when their time comes."""

from __future__ import annotations

import heapq
import math
from typing import Callable

from mpijoin.errors import SimulationError
from mpijoin.transport.simulated import SimulatedTransport, Stalls

# After so many events at one moment, ranks are taken to spin. This is at least a few thousand events for each rank.
STILL_MAX = 1 << 22


class SimulatedClock:
    """A rank's own time, with the interface of `RunClock`. It moves when the rank works, sleeps or is woken."""

    started_s = 0.0

    def __init__(self) -> None:
        self.wall_s = 0.0
        self.cpu_s = 0.0

    def start(self, started_s: float | None = None) -> None:
        """Does nothing, because all clocks began together at 0."""

    def charge(self, seconds: float) -> None:
        """Adds time during which the rank's processor worked."""
        self.wall_s += seconds
        self.cpu_s += seconds

    def sleep(self, seconds: float) -> None:
        # A sleep takes time, however short it is.
        self.wall_s = max(self.wall_s + seconds, math.nextafter(self.wall_s, math.inf))


class Process:
    """A rank that is called in turns.

    idle_s: how long it slept while nothing was on its way to it · waited_s: how long it slept while something was. The
    latter is time spent on communication, because a rank that receives blockingly would spend it there.
    """

    def __init__(
        self,
        clock: SimulatedClock,
        endpoint: SimulatedTransport,
        stalls: Stalls,
        turn: Callable[[], float],
        rest_s: float,
    ):
        """rest_s: a turn that returns this many seconds or more has nothing to do until something arrives."""
        self.clock, self.turn, self.rest_s = clock, turn, rest_s
        self.idle_s = self.waited_s = 0.0
        self.stalls = stalls
        self.next_s = math.inf  # Its next turn comes then, unless it is woken before.
        self.wakings = 0  # This tells the waking that counts from those that an earlier one has overtaken.
        self._endpoint = endpoint

    def wake(self, time_s: float) -> None:
        """Ends a sleep. Its time counts as idle, except while a message was on its way here."""
        start_s, self.clock.wall_s = self.clock.wall_s, time_s
        waited_s = max(0.0, time_s - max(start_s, self._endpoint.awaited_since()))
        self.waited_s += waited_s
        self.idle_s += time_s - start_s - waited_s


class Engine:
    """Calls what is due in the order of time. It is a `Scheduler` of transport/simulated.py.

    >>> engine, seen = Engine(), []
    >>> engine.at(2.0, lambda: seen.append("later"))
    >>> engine.at(1.0, lambda: seen.append("sooner"))
    >>> engine.run(lambda: len(seen) == 2)
    >>> seen
    ['sooner', 'later']
    """

    def __init__(self) -> None:
        self.time_s = 0.0
        self.events = 0
        self.processes: dict[int, Process] = {}
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._number = self._still = 0  # The events so far, and those at this moment.

    def at(self, time_s: float, act: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._heap, (time_s, self._number, act))

    def now_s(self, rank: int) -> float:
        return self.processes[rank].clock.wall_s

    def charge(self, rank: int, seconds: float) -> None:
        self.processes[rank].clock.charge(seconds)

    def notify(self, rank: int, time_s: float) -> None:
        process = self.processes[rank]
        time_s = max(time_s, process.clock.wall_s)
        if time_s < process.next_s:
            self._schedule(process, time_s)

    def sleep(self, rank: int, timeout_s: float) -> None:
        raise SimulationError(f"rank {rank} wanted to sleep for {timeout_s} s within a turn, which nobody could end")

    def add(self, rank: int, process: Process) -> None:
        """Adds a rank, which has its turns from now on."""
        self.processes[rank] = process
        self._schedule(process, process.clock.wall_s)

    def run(self, done: Callable[[], bool], limit_s: float = math.inf) -> None:
        """Runs until `done()`. Raises whatever turns raise.

        Raises SimulationError if nothing would ever happen again, if time stands still, or when `limit_s` of virtual
        time have passed.
        """
        while not done():
            if not self._heap:
                raise SimulationError(
                    f"at {self.time_s:.3f} s all {len(self.processes)} ranks sleep, and nothing is on its way"
                )
            time_s, _, act = heapq.heappop(self._heap)
            self._still = self._still + 1 if time_s == self.time_s else 0
            self.time_s = time_s
            if time_s > limit_s or self._still > STILL_MAX:
                spins = f"{STILL_MAX} events at one moment, {time_s} s"
                raise SimulationError(
                    spins if time_s <= limit_s else f"the run had not ended after {limit_s:g} virtual seconds"
                )
            self.events += 1
            act()

    def _schedule(self, process: Process, time_s: float) -> None:
        process.next_s = time_s
        process.wakings += 1
        waking = process.wakings
        self.at(time_s, lambda: self._take_turn(process, waking, time_s))

    def _take_turn(self, process: Process, waking: int, time_s: float) -> None:
        if waking != process.wakings:
            return  # It was woken before.
        over_s = process.stalls.over_s(time_s)
        if over_s > time_s:
            self._schedule(process, over_s)
            return
        process.wake(time_s)
        pause_s = process.turn()
        process.next_s = math.inf
        if pause_s < process.rest_s:
            self._schedule(process, process.clock.wall_s + max(0.0, pause_s))
