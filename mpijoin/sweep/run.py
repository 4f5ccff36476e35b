"""This module runs points, each in its own folder. A point that is done is not run again. A point that fails is
recorded, and does not stop the others."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Sequence

from mpijoin.config.kinds import quote
from mpijoin.config.units import plural
from mpijoin.errors import JobError
from mpijoin.lock import LOCKS, take, user_of
from mpijoin.progress import seconds
from mpijoin.refusals import writing
from mpijoin.sweep.capacity import NoCapacity, highest, is_sustained, mean_epoch_s
from mpijoin.sweep.spec import Capacity, Point, Sweep

DONE, FAILED, MISSING = "done", "failed", "missing"
RESULT, REASON = "point.json", "failed.json"
# A run has so much time to leave after it was asked to.
STOP_S = 20.0


def state_of(folder: Path) -> str:
    if result_of(folder) is not None:
        return DONE
    return FAILED if (folder / REASON).exists() else MISSING


def result_of(folder: Path) -> dict[str, Any] | None:
    """Returns what is kept of a point that is done. Returns None if there is none, if it is damaged, or if its run is
    gone: the point then counts as never run."""
    found = _read(folder / RESULT)
    return found if (folder / str(found.get("run")) / "summary.json").is_file() else None


def reason_of(folder: Path) -> str:
    """Returns why a point failed."""
    return str(_read(folder / REASON).get("reason", "no reason recorded"))


def _read(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    return {}


def run_points(
    sweep: Sweep, points: Sequence[Point], launcher: Sequence[str], again: bool, is_quiet: bool = False
) -> int:
    """Runs the points that are not done, and failed ones only if `again`. Returns how many failed now. With `is_quiet`
    it prints only those that fail."""
    wanted = [
        point for point in points if state_of(sweep.folder_of(point)) in ((MISSING, FAILED) if again else (MISSING,))
    ]
    left_out = sum(state_of(sweep.folder_of(point)) == FAILED for point in points) if not again else 0
    if not is_quiet:
        hint = f"; {left_out} failed before: --again runs them again" if left_out else ""
        print(f"{len(wanted)} of {plural(len(points), 'point')} to run{hint}", file=sys.stderr, flush=True)
    started_s, failed = time.monotonic(), 0
    for number, point in enumerate(wanted, 1):
        reason = run_point(sweep, point, launcher)
        failed += reason is not None
        left_s = (time.monotonic() - started_s) / number * (len(wanted) - number)
        outcome = "done" if reason is None else f"failed: {reason}"
        line = f"{number:4} of {len(wanted)} {point.name}: {outcome}; {seconds(left_s)} left"
        if reason is not None or not is_quiet:
            print(line, file=sys.stderr, flush=True)
    return failed


def run_point(sweep: Sweep, point: Point, launcher: Sequence[str]) -> str | None:
    """Runs one point. Returns None, or the reason why it failed, which is also written to its folder. After
    KeyboardInterrupt the point looks as if it had never begun. Raises JobError if somebody else runs it, and
    OutputError if its folder cannot be written."""
    folder = sweep.folder_of(point)
    lock = take(folder, f"point {point.name}")
    try:
        return _run_locked(sweep, point, launcher, folder)
    finally:
        lock.release()


def _run_locked(sweep: Sweep, point: Point, launcher: Sequence[str], folder: Path) -> str | None:
    with writing(folder):
        for run in folder.iterdir():
            # A sweep that was killed may have left a run that goes on.
            if run.is_dir() and (user := user_of(run)):
                raise JobError([f"point {point.name}: {run} is in use by {user}"])
        _clear(folder)
    start_s = time.monotonic()
    try:
        found = (
            _search(sweep, point, launcher, sweep.capacity)
            if sweep.capacity
            else _run(sweep, point, launcher, folder / "run")
        )
    except RunFailed as error:
        _write(folder / REASON, {"reason": str(error), "values": dict(point.values), "repeat": point.repeat})
        return str(error)
    except KeyboardInterrupt:
        _clear(folder)
        raise
    _write(
        folder / RESULT,
        {"values": dict(point.values), "repeat": point.repeat, "took_s": time.monotonic() - start_s, **found},
    )
    return None


def _clear(folder: Path) -> None:
    """Removes all that earlier runs have left, but not the lock."""
    locks = set(folder.glob(LOCKS))
    for item in set(folder.iterdir()) - locks:
        shutil.rmtree(item, ignore_errors=True) if item.is_dir() else item.unlink(missing_ok=True)


class RunFailed(Exception):
    """A run has failed. The text is its reason."""


def _run(sweep: Sweep, point: Point, launcher: Sequence[str], output: Path, more: Sequence[str] = ()) -> dict[str, str]:
    settings = [*point.settings, *more, f"output.path={quote(str(output.absolute()))}"]
    options = [part for setting in settings for part in ("--set", setting)]
    command = [*launcher, sys.executable, "-m", "mpijoin", "run", str(sweep.job), "--overwrite", *options]
    with open(output.parent / "log.txt", "a+", encoding="utf-8") as log:
        log.write(f"$ {shlex.join(command)}\n")
        log.flush()
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=os.environ)
        try:
            code = process.wait(sweep.timeout_s)
        except subprocess.TimeoutExpired:
            _stop(process)
            raise RunFailed(f"not done after {sweep.timeout_s:g} s") from None
        except KeyboardInterrupt:
            _stop(process)
            raise
    if code or not (output / "summary.json").exists():
        raise RunFailed(_reason(output, code))
    return {"run": output.name}


def _stop(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _reason(output: Path, code: int) -> str:
    """Returns the reason that the run itself gave, or else the last line of its log."""
    if (output / "failed.json").exists():
        return json.loads((output / "failed.json").read_text())["reason"]
    lines = (output.parent / "log.txt").read_text(errors="replace").strip().splitlines()
    return f"exit code {code}: {lines[-1] if lines else 'no word'}"


def _search(sweep: Sweep, point: Point, launcher: Sequence[str], search: Capacity) -> dict[str, float | str | bool]:
    """Searches for the paper's "capacity" (WSJ, section VI-A). Returns the highest sustained rate, whether it is
    [capacity] high itself, and the name of the run at this rate."""
    folder, sustained_runs = sweep.folder_of(point), {}

    def sustained(rate: float) -> bool:
        output = folder / f"rate-{rate:.0f}"
        _run(sweep, point, launcher, output, [f"{field}={rate}" for field in search.rates])
        # Without results there are no delays, and the buffers alone decide.
        delays_s = json.loads((output / "summary.json").read_text())["delay_s"]
        in_time = search.delay_s is None or delays_s is None or delays_s["p99"] <= search.delay_s
        held = in_time and is_sustained(output, mean_epoch_s(output))
        if held:
            sustained_runs[rate] = output.name
        return held

    try:
        rate = highest(sustained, search.low, search.high, search.step)
    except NoCapacity as error:
        raise RunFailed(str(error)) from error
    return {"run": sustained_runs[rate], "capacity": rate, "capacity_at_least": rate == search.high}


def _write(path: Path, values: dict) -> None:
    aside = path.with_suffix(".open")
    aside.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    os.replace(aside, path)
