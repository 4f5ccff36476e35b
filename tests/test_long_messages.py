"""One message that takes long to join: the run is seen to get on, and ranks that wait cost next to nothing."""

import io
import re

from mpijoin import rank
from mpijoin.config.check import resolve
from mpijoin.config.load import load_job
from mpijoin.launch.embedded import run_local
from mpijoin.launch.setup import prepare
from mpijoin.progress import Progress
from mpijoin.signals import SignalFlag

ROWS = 25_000
STREAM = {"kind": "synthetic", "rate": 1000, "domain": 1, "tuples": ROWS, "window": "1000 s"}


def test_results_comparisons_and_load_move_while_one_hot_key_is_joined(monkeypatch):
    monkeypatch.setattr(rank, "HEARTBEAT_S", 0.1)
    job = load_job({"left": STREAM, "right": STREAM, "output": {"results": "count"}})
    said = io.StringIO()
    outcome = run_local(prepare(job, resolve(job), 2), SignalFlag(), Progress(said, interval_s=0.05))
    assert outcome.summary["results"] == ROWS**2
    lines = [line for line in said.getvalue().splitlines() if "100 %" in line]
    for what in (r"(\S+ ?[kMG]?) results", r"(\S+ ?[kMG]?) comparisons", r"load (\S+) %"):
        assert len({re.search(what, line)[1] for line in lines if re.search(what, line)}) >= 3, lines
