"""A policy that moves groups for no reason. Whatever it asks for, no result may change."""

import random

from mpijoin.policy.plan import Move, Plan


def random_policy(seed, moves_max=3):
    """Returns a policy that moves groups to any slave, idle ones too. Sometimes one slave gives up all its groups."""

    def policy(view):
        chance = random.Random(f"{seed} {view.period}")
        owned = [(group.group, slave.slave) for slave in view.slaves for group in slave.groups]
        slaves = [slave.slave for slave in view.slaves]
        if len(slaves) < 2 or not owned:
            return Plan()
        if chance.random() < 0.25:
            leaving = chance.choice(owned)[1]
            chosen = [one for one in owned if one[1] == leaving]
        else:
            chosen = chance.sample(owned, chance.randint(0, min(moves_max, len(owned))))
        return Plan(
            tuple(Move(group, own, chance.choice([one for one in slaves if one != own])) for group, own in chosen)
        )

    return policy
