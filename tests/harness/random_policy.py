"""A policy that moves and spills for no reason. Whatever it asks for, no result may change."""

import random

from mpijoin.policy.plan import RANKINGS, Gather, Move, Plan, Relocate, Spill, Spread

SHARED_MAX = 3  # Each tick has a message of its own for each group that slaves share.
OCTETS_MAX = 1 << 16  # So much goes at most where a slave chooses the groups. It is more than what most of them hold.


def random_policy(seed, moves_max=3, spills=False, spreads=True):
    """Returns a policy that moves groups to any slave, idle ones too. Sometimes one slave gives up all its groups, and
    sometimes it chooses for itself which ones to give. spills: whether slaves are told to put groups on their disks ·
    spreads: whether several get parts of one group, if the job allows it."""

    def policy(view):
        chance = random.Random(f"{seed} {view.period}")
        owned = [(group.group, slave.slave) for slave in view.slaves for group in slave.groups]
        slaves = [slave.slave for slave in view.slaves]
        if not owned and not view.spread:
            return Plan()
        changes, left = [], list(slaves)
        while len(left) > 1 and chance.random() < 0.3:
            supplier, consumer = taken(chance, left), taken(chance, left)
            changes.append(Relocate(supplier, consumer, chance.randint(1, OCTETS_MAX), chance.choice(RANKINGS)))
        if spreads and view.may_spread:
            changes += parts(chance, view, owned, left)
            changed = {change.group for change in changes if isinstance(change, (Spread, Gather))}
            owned = [one for one in owned if one[0] not in changed]
        while spills and left and chance.random() < 0.3:
            changes.append(Spill(taken(chance, left), chance.randint(1, OCTETS_MAX), chance.choice(RANKINGS)))
        changes += moves(chance, [one for one in owned if one[1] in left], left, moves_max)
        return Plan(tuple(chance.sample(changes, len(changes))))

    return policy


def parts(chance, view, owned, slaves):
    """Lets slaves get parts of some groups, or give them back."""
    members = {group: (slave,) for group, slave in owned if slave in slaves} | dict(view.spread)
    changes, shared = [], len(view.spread)
    for group, own in members.items():
        others = [slave for slave in slaves if slave not in own]
        leaving = [slave for slave in own[1:] if {own[0], slave} <= {*slaves}]
        if leaving and chance.random() < 0.5:
            changes.append(Gather(group, chance.choice(leaving), "no reason"))
        elif own[0] in slaves and others and shared < SHARED_MAX and chance.random() < 0.4:
            shared += len(own) == 1
            further = tuple(chance.sample(others, min(len(others), chance.choice((1, 1, 1, 2)))))
            changes.append(Spread(group, own[0], further, "no reason"))
    return changes


def taken(chance, slaves):
    """Takes one out of these slaves, which has a part in the plan now."""
    return slaves.pop(chance.randrange(len(slaves)))


def moves(chance, owned, slaves, moves_max):
    if len(slaves) < 2 or not owned:
        return []
    if chance.random() < 0.25:
        leaving = chance.choice(owned)[1]
        chosen = [one for one in owned if one[1] == leaving]
    else:
        chosen = chance.sample(owned, chance.randint(0, min(moves_max, len(owned))))
    return [Move(group, own, chance.choice([one for one in slaves if one != own])) for group, own in chosen]
