"""Measures points that are not measured yet; each finished one is a file, so that a sweep goes on where it was
stopped."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Iterable, Iterator, Mapping, Sequence

from wsj_figures.measure import measure
from wsj_figures.points import REAL, SIMULATED, Point, Scale, job_values, key_of


class Store:
    """The finished points: one JSON file each, named by all that decides what it is (`key_of`)."""

    def __init__(self, folder: Path, scales: Mapping[str, Scale], costs_text: str):
        self._folder, self._scales, self._costs_text = folder, scales, costs_text
        folder.mkdir(parents=True, exist_ok=True)

    def has(self, point: Point) -> bool:
        return self._path(point).exists()

    def figures(self, point: Point) -> dict[str, float]:
        """As `measure` returned them. FileNotFoundError where the point is not measured."""
        return json.loads(self._path(point).read_text())["figures"]

    def keep(self, point: Point, figures: Mapping[str, float], took_s: float) -> None:
        scale = self._scales[point.side]
        path = self._path(point)
        values = {
            "point": asdict(point),
            "figures": figures,
            "took_s": round(took_s, 2),
            "job": job_values(point, scale),
        }
        path.with_suffix(".open").write_text(json.dumps(values, indent=1) + "\n")
        os.replace(path.with_suffix(".open"), path)

    def _path(self, point: Point) -> Path:
        return self._folder / f"{key_of(point, self._scales[point.side], self._costs_text)}.json"


def sweep(points: Sequence[Point], store: Store, scales: Mapping[str, Scale], processes: int) -> int:
    """Measures those that the store lacks, real ones one at a time and nothing beside them; returns how many."""
    wanted = [point for point in dict.fromkeys(points) if not store.has(point)]
    print(f"{len(wanted)} of {len(set(points))} points to measure", file=sys.stderr, flush=True)
    for side, at_once in ((SIMULATED, processes), (REAL, 1)):
        own = [point for point in wanted if point.side == side]
        started_s = time.monotonic()
        for done, (point, figures, took_s) in enumerate(_measured(own, scales[side], at_once), 1):
            store.keep(point, figures, took_s)
            left_s = (time.monotonic() - started_s) / done * (len(own) - done)
            print(
                f"{done:3} of {len(own)} {point.words}: {took_s:.1f} s; {left_s:.0f} s left",
                file=sys.stderr,
                flush=True,
            )
    return len(wanted)


def _measured(points: Iterable[Point], scale: Scale, processes: int) -> Iterator[tuple[Point, dict[str, float], float]]:
    """As they are ready: the point, its figures, and the seconds it took."""
    if processes == 1:
        yield from (_timed(point, scale) for point in points)
        return
    # A process of the pool that is stopped by Ctrl-C dies at once and silently: its point will be measured again.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), signal.signal, (signal.SIGINT, signal.SIG_DFL))
    try:
        for future in as_completed([pool.submit(_timed, point, scale) for point in points]):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _timed(point: Point, scale: Scale) -> tuple[Point, dict[str, float], float]:
    start_s = time.monotonic()
    figures = measure(point, scale)
    return point, figures, time.monotonic() - start_s
