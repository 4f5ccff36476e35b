"""Feeds both streams of a replay as CSV into two FIFOs, each tuple when it is due.

    python -m peers.paced_feeder REPLAY.json STREAMS FIFOS CLOCK LAGS.json

REPLAY.json holds the fields of a Replay, FIFOS is the folder of `left` and `right`. The text was made before the
replay: to feed it is to copy it. CLOCK, a file of one int64, gets the moment at which the clock starts. LAGS.json gets
the lags of Seen and how long it all took. Environment: sql.
"""

from __future__ import annotations

import json
import mmap
import sys
import threading
import time
from pathlib import Path
from typing import Iterator

import numpy as np
import pyarrow as pa

from peers.paced_replay import Clock, Replay

SIDES = ("left", "right")
SLEEP_S = 0.002
BLOCK_ROWS = 1 << 14  # written at once at most: then lag is looked at again


class Feeder:
    """Of one stream. lags_ms: per second of the replay, the longest."""

    def __init__(self, replay: Replay, pieces: Path, fifo: Path):
        self._replay, self._pieces, self._fifo = replay, pieces, fifo
        self.lags_ms: dict[int, float] = {}

    def run(self, both_led: threading.Barrier, clock_file: np.memmap) -> None:
        clock: Clock | None = None
        with open(self._fifo, "wb", buffering=0) as fifo:
            for times, text, ends in self._blocks():
                row = 0
                while row < len(times):
                    if clock is None:
                        upto = int(np.searchsorted(times, self._replay.lead_us))
                        if upto == row:
                            both_led.wait()
                            clock = Clock(self._replay, int(clock_file[0]))
                            continue
                    else:
                        upto = self._due(clock, times, row)
                    upto = min(upto, row + BLOCK_ROWS)
                    _write_all(fifo, text[ends[row] : ends[upto]])
                    row = upto
            if clock is None:
                both_led.wait()

    def _due(self, clock: Clock, times: np.ndarray, row: int) -> int:
        """Waits until the row is due; the end of those that are."""
        due_s = float(clock.due_s(times[row]))
        while (now_s := clock.now_s()) < due_s:
            time.sleep(SLEEP_S)
        second = int(now_s)
        self.lags_ms[second] = max(self.lags_ms.get(second, 0.0), 1e3 * (now_s - due_s))
        return int(np.searchsorted(times, clock.event_us(now_s), "right"))

    def _blocks(self) -> Iterator[tuple[np.ndarray, memoryview, np.ndarray]]:
        """Of each piece the times, the text, and where each row begins and the last one ends."""
        for piece in sorted(self._pieces.glob("*.arrow")):
            times = pa.ipc.open_file(pa.memory_map(str(piece))).read_all()["ts"].to_numpy()
            times = times[: np.searchsorted(times, self._replay.until_us)]
            if len(times) == 0:
                return
            with open(piece.with_suffix(".csv"), "rb") as file:
                text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
            yield times, memoryview(text), np.concatenate([[0], ends])


def _write_all(fifo, text: memoryview) -> None:
    while len(text):
        text = text[fifo.write(text) :]


def main() -> None:
    values, streams, fifos, clock_path, lags_path = sys.argv[1:]
    replay = Replay(**json.loads(Path(values).read_text()))
    clock_file = np.memmap(clock_path, np.int64, "r+", shape=(1,))

    def start() -> None:
        clock_file[0] = time.monotonic_ns()

    begun_s = time.monotonic()
    both_led = threading.Barrier(len(SIDES), start)
    feeders = [Feeder(replay, Path(streams, side), Path(fifos, side)) for side in SIDES]
    threads = [threading.Thread(target=feeder.run, args=(both_led, clock_file)) for feeder in feeders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lags = [row for feeder in feeders for row in sorted(feeder.lags_ms.items())]
    Path(lags_path).write_text(json.dumps({"lags": lags, "wall_s": time.monotonic() - begun_s}))


if __name__ == "__main__":
    main()
