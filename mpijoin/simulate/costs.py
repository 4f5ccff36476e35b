"""The costs of a machine: how long it takes for each thing that a run does. They are read from a TOML file."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from importlib import resources

from mpijoin.config.toml import read_toml
from mpijoin.errors import JobError
from mpijoin.named import NamedTuple
from mpijoin.transport.simulated import LinkCosts

FOLDER = "costs"


class Done(NamedTuple):
    """Running totals of the work that is charged for. rewritten: the tuples that splits and merges have moved."""

    inserted: int = 0
    comparisons: int = 0
    results: int = 0
    rewritten: float = 0.0


@dataclass(frozen=True)
class Costs:
    """Costs in nanoseconds of processor time on one core, except latency and bandwidth, which belong to a link.

    The fields are, in this order, the costs of: comparing two tuples · inserting one tuple and expiring it later · a
    result with its sinks · moving one tuple in a split or merge · reading out or installing one byte of a group's state
    · one call of the operator · a message and each of its bytes, at either end · making one tuple, and scattering it,
    at the master.
    """

    comparison_ns: float = 0.0
    tuple_ns: float = 0.0
    result_ns: float = 0.0
    split_tuple_ns: float = 0.0
    state_byte_ns: float = 0.0
    call_ns: float = 0.0
    message_ns: float = 0.0
    byte_ns: float = 0.0
    generated_ns: float = 0.0
    scattered_ns: float = 0.0
    latency_ns: float = 0.0
    bandwidth_bytes_per_s: float = math.inf

    @property
    def link(self) -> LinkCosts:
        return LinkCosts(self.message_ns / 1e9, self.byte_ns / 1e9, self.latency_ns / 1e9, self.bandwidth_bytes_per_s)


NAMES = tuple(field.name for field in fields(Costs))


def named_costs() -> list[str]:
    """Returns the names, as `load_costs` takes them, of the files of costs that come with mpijoin."""
    return sorted(one.name.removesuffix(".toml") for one in _folder().iterdir() if one.name.endswith(".toml"))


def load_costs(name: str) -> Costs:
    """Reads the costs from a file. Raises JobError, which says what is wrong with the file.

    name: the name of a file that comes with mpijoin, or the path of any file.
    """
    known = named_costs()
    wanted = f"wanted a file, or one of {', '.join(known)}"
    path = _folder() / f"{name}.toml" if name in known else name
    values = read_toml(path, lambda text: JobError([f"costs: {text}; {wanted}"]))
    faults = [f"costs: {name}: {fault}" for fault in _faults(values)]
    if faults:
        raise JobError(faults)
    return Costs(**{field: float(value) for field, value in values.items()})


def _faults(values: dict) -> list[str]:
    faults = [f"there is no field {field}: wanted some of {', '.join(NAMES)}" for field in values if field not in NAMES]
    for field, value in values.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if field in NAMES and not (number and 0 <= value < math.inf):
            faults.append(f"{field}: got {value!r}, wanted a number, at least 0")
    if values.get("bandwidth_bytes_per_s") == 0:
        faults.append("bandwidth_bytes_per_s: got 0, wanted more")
    return faults


def _folder():
    return resources.files("mpijoin.simulate") / FOLDER


class JoinTally:
    """Running totals of the work done. Whoever charges for it takes differences.

    rewritten: how many tuples splits and merges have moved.
    """

    def __init__(self) -> None:
        self.inserted = self.comparisons = self.results = 0
        self.rewritten = 0.0

    def look(self) -> Done:
        return Done(self.inserted, self.comparisons, self.results, self.rewritten)
