"""The condition of a job in a form that Spark's workers can ask. Its code is made as for a run, but a tuple has only
the columns that the condition reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Mapping

import numpy as np

from mpijoin.conditions.code import Place, source_of
from mpijoin.conditions.kinds import kinds_of_schema
from mpijoin.conditions.tree import BOOLEAN, INTEGER, KEY_SIDE, REAL, Node, parse
from mpijoin.config.job import Job
from mpijoin.data.schema import UNIT_NS, JoinSchema
from mpijoin.errors import JobError

WHOLE = "whole"


@dataclass(frozen=True)
class Condition:
    """A condition over the tuples of two streams. source: as `source_of` writes it · reals, wholes: for each stream,
    the columns that it reads, in an order of their own; truth values are among the wholes.

    A tuple becomes one word for its time, and two for each slot: a value, and whether it is null. A slot takes a column
    of either stream, so both have the same slots.
    """

    source: str
    reals: tuple[tuple[str, ...], tuple[str, ...]]
    wholes: tuple[tuple[str, ...], tuple[str, ...]]

    @property
    def _kinds(self) -> tuple[tuple[str, tuple[tuple[str, ...], tuple[str, ...]]], ...]:
        return (REAL, self.reals), (WHOLE, self.wholes)

    @property
    def slots(self) -> list[str]:
        """Names of the slots, which the columns of a frame have, too: real_0 ..., whole_0 ..."""
        return [f"{kind}_{place}" for kind, names in self._kinds for place in range(max(map(len, names)))]

    def columns(self, side: int) -> dict[str, str | None]:
        """The columns of a stream, by their slots; None: the slot is the other stream's."""
        own = {f"{kind}_{place}": name for kind, names in self._kinds for place, name in enumerate(names[side])}
        return {slot: own.get(slot) for slot in self.slots}

    @property
    def size(self) -> int:
        """The words of a tuple."""
        return 1 + 2 * len(self.slots)

    def words(self, rows: Mapping[str, np.ndarray]) -> np.ndarray:
        """int64[n * size] of n tuples. rows: by name, time int64, and for each slot its values, int64 or float64, and
        whether they are null, as SLOT_null."""
        words = np.empty((len(rows["time"]), self.size), np.int64)
        words[:, 0] = rows["time"]
        for place, slot in enumerate(self.slots):
            words[:, 1 + 2 * place] = rows[slot].view(np.int64)
            words[:, 2 + 2 * place] = rows[f"{slot}_null"]
        return words.ravel()


def slot_type(slot: str) -> str:
    """Spark's type of a slot's values.

    >>> slot_type("real_0"), slot_type("whole_3")
    ('double', 'long')
    """
    return "double" if slot.startswith(REAL) else "long"


def condition_of(job: Job, schema: JoinSchema) -> Condition | None:
    """The job's condition, which has been checked; None: it has none.

    Raises JobError if it reads what Spark's workers cannot hand over as a number.
    """
    if not job.join.where:
        return None
    tree = parse(job.join.where, [stream.name for stream in schema.streams], kinds_of_schema(schema))
    key = schema.streams[0].keys[0].name
    columns = [node for node in _columns(tree) if node.name != "time" or node.side == KEY_SIDE]
    if odd := next((node for node in columns if node.kind not in (REAL, INTEGER, BOOLEAN)), None):
        called = "key" if odd.side == KEY_SIDE else f"{schema.streams[odd.side].name}.{odd.name}"
        known = "profile can ask about numbers, booleans and the times of the streams"
        advice = "run the job, or profile a copy of it without the condition"
        raise JobError([f"[join] where: {known}, and {called} is of another kind: {advice}"])
    kinds = {_own(node, key): node.kind for node in columns}
    reals, wholes = (
        tuple(
            tuple(sorted(name for (own, name), kind in kinds.items() if own == side and (kind == REAL) == is_real))
            for side in range(2)
        )
        for is_real in (True, False)
    )
    made = Condition("", (reals[0], reals[1]), (wholes[0], wholes[1]))
    slots = [{name: slot for slot, name in made.columns(side).items()} for side in range(2)]

    def place_of(side: int, name: str) -> Place:
        if name == "time" and side != KEY_SIDE:
            return Place(0)
        own, column = (0, key) if side == KEY_SIDE else (side, name)
        kind = kinds[own, column]
        word = 1 + 2 * made.slots.index(slots[own][column])
        form = "real" if kind == REAL else "boolean" if kind == BOOLEAN else "signed"
        return Place(word, form=form, null=(word + 1, 0))

    return Condition(source_of(tree, "holds", place_of, UNIT_NS[schema.unit]), made.reals, made.wholes)


def _columns(node: Node) -> Iterator[Node]:
    if node.op == "column":
        yield node
    for part in node.parts:
        yield from _columns(part)


def _own(node: Node, key: str) -> tuple[int, str]:
    """The stream and the column that a node reads. The key is the same on both sides: it is read from the first."""
    return (0, key) if node.side == KEY_SIDE else (node.side, node.name)
