"""A sweep's TOML file is read and checked here, and laid out as points."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from mpijoin.config.job import MAX
from mpijoin.config.kinds import quote
from mpijoin.config.load import dump_job, load_job, read_job
from mpijoin.config.toml import read_toml
from mpijoin.config.units import duration_ns, is_integer
from mpijoin.errors import JobError

FIELDS = ("job", "output", "ranks", "repeats", "seeds", "timeout", "grid", "capacity")
CAPACITY_FIELDS = ("rates", "low", "high", "step", "delay")
NAME_LENGTH = 80


@dataclass(frozen=True)
class Capacity:
    """A search that takes the place of one run. The fields in `rates` get the rate that is tried. The search begins at
    `low` and ends at `high`, in tuples per second and stream. It also ends when the highest rate that was sustained and
    the lowest that was not differ by the factor `step`. The 99th percentile of the production delay may not be above
    `delay_s`. If this is None, only the buffers count."""

    rates: tuple[str, ...]
    low: float
    high: float
    step: float
    delay_s: float | None


@dataclass(frozen=True)
class Point:
    """One combination of values. `settings` are as for --set. `name` is the name of its folder, which differs for every
    job, combination and repeat."""

    values: Mapping[str, Any]
    repeat: int
    settings: tuple[str, ...]
    name: str


@dataclass(frozen=True)
class Sweep:
    """A sweep. `ranks` is the number of ranks under mpirun or srun, and 0 stands for local slaves without MPI. One run
    may take at most `timeout_s`."""

    job: Path
    folder: Path
    ranks: int
    timeout_s: float
    points: tuple[Point, ...]
    capacity: Capacity | None

    def folder_of(self, point: Point) -> Path:
        return self.folder / "points" / point.name


def load_sweep(path: str | Path) -> Sweep:
    """Reads a sweep file. Relative paths are taken from its folder. Raises JobError with every fault, including those
    of each point's job."""
    path = Path(path)
    given = read_toml(path)
    faults = [f"{path}: {name}: no such field, there are {', '.join(FIELDS)}" for name in given if name not in FIELDS]
    faults += [f"{path}: {text}" for text in _faults(given)]
    if faults:
        raise JobError(faults)
    job, folder = path.parent / given["job"], path.parent / given["output"]
    capacity = _capacity(given["capacity"], job) if "capacity" in given else None
    points = _points(job, given, capacity)
    return Sweep(job, folder, given.get("ranks", 0), duration_ns(given.get("timeout", "1 h")) / 1e9, points, capacity)


def _faults(given: Mapping[str, Any]) -> list[str]:
    faults = [f"{name}: missing" for name in ("job", "output", "grid") if name not in given]
    faults += [
        f"{name}: got {given[name]!r}, wanted a path in quotes"
        for name in ("job", "output")
        if not isinstance(given.get(name, ""), str)
    ]
    grid = given.get("grid", {})
    if not isinstance(grid, dict) or not all(isinstance(values, list) and values for values in grid.values()):
        faults.append('[grid]: wanted lists of values, such as "left.rate" = [1000, 2000]')
    if isinstance(grid, dict) and "output.path" in grid:
        faults.append("[grid] output.path: leave it out, each point has a folder of its own")
    for name, least in (("ranks", 0), ("repeats", 1)):
        if (
            not is_integer(given.get(name, least))
            or given.get(name, least) < least
            or (given.get(name) == 1 and name == "ranks")
        ):
            faults.append(
                f"{name}: got {given[name]!r}, wanted {'0 (local), or 2 or more' if name == 'ranks' else '1 or more'}"
            )
    if not _is_list(given.get("seeds", []), is_integer):
        faults.append(f"seeds: got {given['seeds']!r}, wanted whole numbers")
    faults += _duration_faults("timeout", given.get("timeout", "1 h"))
    return faults + (_capacity_faults(given["capacity"]) if "capacity" in given else [])


def _is_list(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(fits, value))


def _duration_faults(name: str, value: Any) -> list[str]:
    try:
        duration_ns(value)
    except ValueError as error:
        return [f"{name}: {error}"]
    return []


def _capacity_faults(given: Any) -> list[str]:
    if not isinstance(given, dict):
        return [f"[capacity]: got {given!r}, wanted a table with low and high"]
    faults = [
        f"[capacity] {name}: no such field, there are {', '.join(CAPACITY_FIELDS)}"
        for name in given
        if name not in CAPACITY_FIELDS
    ]
    faults += [f"[capacity] {name}: missing" for name in ("low", "high") if name not in given]
    faults += [
        f"[capacity] {name}: got {given[name]!r}, wanted a number"
        for name in ("low", "high", "step")
        if not _is_number(given.get(name, 0))
    ]
    if not _is_list(given.get("rates", []), lambda name: isinstance(name, str)):
        faults.append(f'[capacity] rates: got {given["rates"]!r}, wanted fields, such as ["left.rate"]')
    if not faults and not 0 < given["low"] < given["high"]:
        faults.append(f"[capacity] low, high: got {given['low']} and {given['high']}, wanted 0 < low < high")
    if not faults and not given.get("step", 1.08) > 1:
        faults.append(f"[capacity] step: got {given['step']}, wanted more than 1")
    return faults + (_duration_faults("[capacity] delay", given["delay"]) if "delay" in given else [])


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _capacity(given: Mapping[str, Any], job: Path) -> Capacity:
    delay_s = duration_ns(given["delay"]) / 1e9 if "delay" in given else None
    rates = given.get("rates") or [f"{stream.section}.rate" for stream in read_job(job, ())[0].streams]
    return Capacity(tuple(rates), float(given["low"]), float(given["high"]), float(given.get("step", 1.08)), delay_s)


def _points(job: Path, given: Mapping[str, Any], capacity: Capacity | None) -> tuple[Point, ...]:
    """Returns the combinations of the grid, each for every seed and repeat. The grid's last field changes first."""
    grid = dict(given["grid"]) | ({"run.seed": given["seeds"]} if given.get("seeds") else {})
    found, faults = [], []
    for values in itertools.product(*grid.values()):
        combination = dict(zip(grid, values))
        settings = tuple(f"{name}={_toml(value)}" for name, value in combination.items())
        try:
            text = dump_job(load_job(job, settings))
            if capacity:
                _check_search(job, settings, capacity)
        except JobError as error:
            faults += [f"{', '.join(settings) or job}: {fault}" for fault in error.faults]
            continue
        for repeat in range(given.get("repeats", 1)):
            known = json.dumps([text, given.get("ranks", 0), repeat, repr(capacity)])
            found.append(Point(combination, repeat, settings, _name(settings, repeat, known)))
    twice = {point.name: ", ".join(point.settings) for point in found}
    if not faults and len(twice) < len(found):
        names = [point.name for point in found]
        faults = [f"{twice[name]}: got it twice, wanted each point once; repeats = 2 runs points again"
                  for name in twice if names.count(name) > 1]  # fmt: skip
    if faults:
        raise JobError(faults)
    return tuple(found)


def _check_search(job: Path, settings: Sequence[str], capacity: Capacity) -> None:
    """Raises JobError for what the first run of a search would find to be wrong."""
    paced = load_job(job, (*settings, *(f"{name}={capacity.low}" for name in capacity.rates)))
    if paced.run.speed == MAX:
        raise JobError([f'[capacity]: got [run] speed = "{MAX}", wanted a number: a search is about paced runs'])


def _toml(value: Any) -> str:
    """Returns a value as --set takes it.

    >>> _toml([1, {"a": "20 s"}]), _toml(True), _toml(1e-9)
    ('[1, {"a" = "20 s"}]', 'true', '1e-09')
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quote(name)} = {_toml(own)}" for name, own in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return quote(value) if isinstance(value, str) else str(value).lower()


def _name(settings: Sequence[str], repeat: int, known: str) -> str:
    """Returns a readable name. It differs whenever `known` differs."""
    words = ",".join(settings) + (f",{repeat}" if repeat else "")
    plain = re.sub(r"[^A-Za-z0-9_.=,-]+", "", words)[:NAME_LENGTH]
    return f"{plain}-{hashlib.sha256(known.encode()).hexdigest()[:8]}".lstrip("-")
