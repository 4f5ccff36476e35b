"""Named tuples of our own do what Python's do."""

import copy
import inspect
import pickle
import random
import typing

import numba
import pytest

from mpijoin import named

FIELDS = ["a", "count", "index", "cls", "self", "new", "value", "x1", "é"]
BASES = (typing.NamedTuple, named.NamedTuple)


def made(base, fields, defaults):
    """A class of these fields, as Python reads it."""
    own = "".join(f"    {field}: int" + f" = {defaults.get(field)}" * (field in defaults) + "\n" for field in fields)
    methods = "    def total(self): return sum(self)\n    @property\n    def first(self): return self[0]\n"
    space = {"NamedTuple": base, "__name__": __name__}
    exec(f"class Point(NamedTuple):\n    'Some text.'\n{own}{methods}", space)
    return space["Point"]


def outcome(call):
    try:
        return call()
    except (TypeError, ValueError, AttributeError) as error:
        return type(error), str(error)


def test_all_that_can_be_done_with_one_does_the_same():
    chance = random.Random(7)
    for _ in range(300):
        fields = chance.sample(FIELDS, chance.randint(1, 6))
        without = chance.randint(0, len(fields))
        defaults = {field: chance.randint(0, 9) for field in fields[without:]}
        values = [chance.randint(0, 9) for _ in range(chance.randint(0, len(fields) + 1))]
        words = dict.fromkeys(chance.sample([*fields, "other"], chance.randint(0, 2)), 5)
        theirs, ours = (
            [
                outcome(lambda: one(*values, **words)),
                outcome(lambda: one(*values)._replace(**words)),
                outcome(lambda: one._make(values)),
                outcome(lambda: one(*values)._asdict()),
                outcome(lambda: repr(one(*values))),
                outcome(lambda: (one(*values).total(), one(*values).first)),
                outcome(lambda: [getattr(one(*values), field) for field in fields]),
                outcome(lambda: setattr(one(*values), fields[0], 1)),
                outcome(lambda: setattr(one(*values), "other", 1)),
                (one._fields, one._field_defaults, one.__match_args__, one.__doc__, one.__mro__[1:], one.__name__),
                [(name, one.default, one.kind) for name, one in inspect.signature(one).parameters.items()],
                outcome(lambda: (hash(one(*values)), one(*values) < one(*reversed(values)))),
            ]
            for one in (made(base, fields, defaults) for base in BASES)
        )
        assert theirs == ours, (fields, defaults, values, words)


class Place(named.NamedTuple):
    row: int
    column: int = 4


def test_it_is_copied_and_matched_and_goes_into_kernels():
    place = Place(3)
    assert pickle.loads(pickle.dumps(place)) == place and copy.deepcopy(place) == place == copy.copy(place)
    match place:
        case Place(row, column=4):
            assert row == 3

    @numba.njit
    def turned(one):
        return Place(one.column, one.row)

    assert turned(place) == Place(4, 3) and type(turned(place)) is Place


@pytest.mark.parametrize("base", BASES)
def test_a_field_without_a_default_does_not_follow_one_with_a_default(base):
    with pytest.raises(TypeError, match="default"):
        made(base, ["a", "x1"], {"a": 1})
