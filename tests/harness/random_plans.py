"""Random trees of binary joins, as a job names them."""


def random_plan(chance, names):
    """Any tree: two neighbours in any order of the streams are joined, then again. chance: random.Random."""
    plans = chance.sample(names, len(names))
    while len(plans) > 1:
        at = chance.randrange(len(plans) - 1)
        plans[at : at + 2] = [f"({plans[at]} {plans[at + 1]})"]
    return plans[0]
