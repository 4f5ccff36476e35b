"""A cluster as policies see it, in a few lines.

It has slaves with speeds, groups with work, and backlogs that add up the work that is not done in time.
"""

import itertools
import random

from mpijoin.policy.view import ClusterView, GroupView, Moving, SlaveView

EPOCHS = 10  # A reorganization epoch has so many distribution epochs.
MOVE_PERIODS = 0.002  # In a real cluster, a group would be under way for so long.
BUFFER_EPOCHS = 2  # The load buffer holds the bytes of so many distribution epochs.


class ClusterModel:
    """works: the work that comes for each group in one period. A slave of speed s does s of work in a period."""

    def __init__(self, works, slaves, owners=None, slaves_min=None, noise=0.0, seed=0):
        self.works = list(works)
        self.speeds = dict.fromkeys(range(1, slaves + 1), 1.0)
        self.owners = owners or [1 + group % slaves for group in range(len(works))]
        self.backlog = [0.0] * len(works)
        self.slaves_min = slaves_min or slaves
        self.period, self.moved, self.resized = 0, {}, -1
        self.memory = self.moving = None
        # These hold for each period how many groups moved and how many slaves are active.
        self.moves, self.degrees = [], []
        self._noise, self._seed, self._random = noise, seed, random.Random(seed)

    def groups_of(self, slave):
        return [group for group, owner in enumerate(self.owners) if owner == slave]

    @property
    def active(self):
        return sorted(set(self.owners))

    def level(self, slave):
        """Returns the work that comes for the slave's groups, divided by what it can do."""
        return sum(self.works[group] for group in self.groups_of(slave)) / self.speeds[slave]

    @property
    def ideal(self):
        """The level that all active slaves would have if work could be divided at will."""
        return sum(self.works) / sum(self.speeds[slave] for slave in self.active)

    @property
    def worst(self):
        return max(self.level(slave) for slave in self.active)

    def delay(self):
        """The longest time, in periods, that newly arrived work would wait."""
        return max(
            sum(self.backlog[group] for group in self.groups_of(slave)) / self.speeds[slave] for slave in self.active
        )

    def run(self, policy, periods=1):
        for _ in range(periods):
            view = ClusterView(
                self.period,
                tuple(self._pass(slave) for slave in self.speeds),
                self.slaves_min,
                self._seed,
                dict(self.moved),
                self.resized,
                self.moving,
                memory=self.memory,
            )
            plan = policy(view)
            self.memory = plan.memory
            self._carry_out(plan)
            self.period += 1
        return self

    def _pass(self, slave):
        """Lets one period pass on one slave. Returns what the slave reports at its end."""
        groups, speed = self.groups_of(slave), self.speeds[slave]
        if not groups:
            return SlaveView(slave, False, 0.0, 0.0, 0.0, ())
        came = sum(self.works[group] for group in groups)
        before = sum(self.backlog[group] for group in groups)
        share = min(1.0, speed / max(1e-12, came + before))  # This share of what is there gets done.
        blur = max(0.0, 1 + self._noise * self._random.gauss(0, 1))
        views, after = [], 0.0
        for group in groups:
            done = (self.works[group] + self.backlog[group]) * share
            self.backlog[group] += self.works[group] - done
            after += self.backlog[group]
            views.append(GroupView(group, done / speed * blur, 1 << 20, 1e9 * done))
        load = min(1.0, sum(view.load for view in views))
        buffer = BUFFER_EPOCHS / EPOCHS * sum(self.works) / len(self.active)
        occupancy = (before + after) / 2 / buffer
        return SlaveView(slave, True, occupancy, load, 0.0, tuple(views), came / max(1e-12, came + before - after))

    def _carry_out(self, plan):
        before = len(self.active)
        self.moving = (
            Moving(len(plan.moves), len(plan.moves) << 20, MOVE_PERIODS * len(plan.moves)) if plan.moves else None
        )
        for move in plan.moves:
            assert self.owners[move.group] == move.supplier != move.consumer
            self.owners[move.group] = move.consumer
            self.moved[move.group] = self.period
        assert len({move.group for move in plan.moves}) == len(plan.moves)
        if plan.active is not None:
            assert set(self.active) <= set(plan.active)
            self.resized = self.period
        assert min(before, self.slaves_min) <= len(self.active)
        self.moves.append(len(plan.moves))
        self.degrees.append(len(self.active))

def steady_model(seed):
    """Returns a cluster in which nothing changes except by noise of up to 10 %.

    It has few groups or many, equal or not, sometimes n slaves with n + 1 groups, and fast slaves and slow ones. The
    slaves together can carry the load, and for every group there is a slave that can carry it.
    """
    chance = random.Random(seed)
    slaves = chance.choice([2, 2, 3, 4, 5, 8, 12])
    count = chance.choice([slaves + 1, slaves + 1, 2 * slaves, 2 * slaves + 1, 5 * slaves, 15 * slaves, 40 * slaves])
    works = chance.choice(
        [[1.0] * count, [chance.expovariate(1) for _ in range(count)], [1 / (n + 1) for n in range(count)]]
    )
    speeds = [chance.choice([1 / 3, 0.5, 0.7, 0.8, 2.0]) if chance.random() < 0.2 else 1.0 for _ in range(slaves)]
    scale = chance.uniform(0.2, 0.75) * sum(min(1, speed) for speed in speeds) / sum(works)
    scale = min(scale, 0.75 / max(works))
    few = chance.choice([1, max(1, slaves // 2), slaves])
    owners = [1 + group % few for group in range(count)]
    owners[:slaves] = range(1, slaves + 1)
    noise = chance.choice([0.0, 0.02, 0.05, 0.1])
    model = ClusterModel([work * scale for work in works], slaves, owners, noise=noise, seed=seed)
    model.speeds = dict(zip(model.speeds, speeds))
    return model


def slave_view(
    slave, occupancy=0.0, load=0.0, groups=(), inflow=1.0, communication=0.0, speed=1.0, state_bytes=1 << 20
):
    """Returns an active slave. groups: ids, which share its load evenly · speed: its work per busy second."""
    views = tuple(
        GroupView(group, load / len(groups), state_bytes, 1e9 * load * speed / len(groups)) for group in groups
    )
    return SlaveView(slave, True, occupancy, load, communication, views, inflow)


def idle_view(slave):
    return SlaveView(slave, False, 0.0, 0.0, 0.0, ())


def changes(degrees):
    """Returns how often the degree of declustering changed."""
    return sum(one != other for one, other in itertools.pairwise(degrees))
