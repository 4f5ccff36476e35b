"""Ranks for tests on the simulated transport.

They have turns, or they block. In the latter case each has a thread, of which one runs at a time.
"""

import threading

from mpijoin.simulate.engine import Engine, Process, SimulatedClock
from mpijoin.transport.simulated import Disturbance, LinkCosts, Network, Stalls

FOREVER = float("inf")
REST_S = 0.1


class Ranks:
    """Ranks on one network, whose turns are functions of (endpoint, clock) that return a pause."""

    def __init__(self, turns, costs=LinkCosts(), disturbance=Disturbance()):
        self.engine = Engine()
        self.network = Network(len(turns), self.engine, costs, disturbance)
        self.processes = []
        for rank, turn in enumerate(turns):
            clock, endpoint = SimulatedClock(), self.network.endpoints[rank]
            stalls = Stalls(disturbance, 100 + rank)
            process = Process(clock, endpoint, stalls, lambda t=turn, e=endpoint, c=clock: t(e, c), REST_S)
            self.engine.processes[rank] = process
            self.processes.append(process)
        for rank, process in enumerate(self.processes):
            self.engine.add(rank, process)


class Baton(Engine):
    """An engine in which a turn of a rank lets its thread run until it sleeps."""

    def __init__(self):
        super().__init__()
        self._go, self._back = {}, threading.Semaphore(0)
        self._pause_s = {}

    def start(self, rank, endpoint, body):
        self._go[rank] = threading.Semaphore(0)
        stalls = Stalls(Disturbance(), 0)
        self.processes[rank] = Process(SimulatedClock(), endpoint, stalls, lambda: self._let_run(rank), FOREVER)
        threading.Thread(target=self._live, args=(rank, body), daemon=True).start()

    def sleep(self, rank, timeout_s):
        # Time must pass, or two ranks that wait for each other would not let it.
        self._pause_s[rank] = max(timeout_s, 1e-9)
        self._back.release()
        self._go[rank].acquire()

    def _live(self, rank, body):
        self._go[rank].acquire()
        body()
        self._pause_s[rank] = FOREVER
        self._back.release()

    def _let_run(self, rank):
        self._go[rank].release()
        self._back.acquire()
        return self._pause_s[rank]


def run_simulated(story, ranks, costs=LinkCosts(), timeout_s=60.0, disturbance=Disturbance()):
    """Runs story(endpoint) for every rank and closes the endpoints together. Raises what the first failing one raised.

    Returns the network. Its trace tells whether two runs were the same.
    """
    engine = Baton()
    network = Network(ranks, engine, costs, disturbance)
    failures, ended = [], []

    def body(endpoint):
        try:
            story(endpoint)
            endpoint.close(timeout_s)
        except BaseException as error:
            failures.append(error)
            endpoint.abort(99)
        ended.append(endpoint.rank)

    for endpoint in network.endpoints:
        engine.start(endpoint.rank, endpoint, lambda endpoint=endpoint: body(endpoint))
    for rank, process in list(engine.processes.items()):
        engine.add(rank, process)
    engine.run(lambda: len(ended) == ranks)
    if failures:
        raise failures[0]
    return network


def once(act):
    """Returns a turn that acts the first time and rests ever after."""
    left = [act]

    def turn(endpoint, clock):
        if left:
            left.pop()(endpoint, clock)
        return REST_S

    return turn
