"""What a run needs of compiled code is there before its clock starts, and nothing that it does not need is loaded."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mpijoin.compiled import Kernel
from mpijoin.launch import sharing, warmup
from mpijoin.launch.use import Use

ROOT = Path(__file__).parents[2]

# In a process of its own, from the least use to the most: kernels that one job has loaded are there for the next.
RUN = """
import sys
from unittest import mock

import pyarrow as pa

import mpijoin
from mpijoin.compiled import Kernel
from mpijoin.rank import Rank

loaded = []
ready = Kernel.ready


def noted(self, *arguments):
    loaded.append(self.__name__)
    return ready(self, *arguments)


Kernel.ready = noted
rows = 3000
times = [(index * 7) % 11 + index for index in range(rows)]
kinds = {"integers": list(range(5)) * (rows // 5), "text": [f"k{index % 5}" for index in range(rows)]}
meet = Rank.meet
# The windows of a run that spills are larger than its memory.
spills = {"spill": "generations", "limit": "2 MB", "threshold": 0.01, "share": 1.0, "path": sys.argv[1]}
rotates = {**spills, "spill": "rotate"}
for number, (keys, output, run, balance, memory, *kind) in enumerate((
    ("integers", "count", {}, {}, {}),
    ("integers", "parquet", {}, {}, {}),
    ("integers", "count", {"speed": 1e6}, {}, {}),
    ("integers", "count", {}, {}, rotates),
    ("text", "count", {"speed": 1e6}, {}, {}),
    ("text", "parquet", {}, {"policy": "balance"}, {}),
    ("text", "count", {}, {}, spills),
    ("integers", "count", {}, {}, {}, "anti"),
    ("text", "parquet", {"speed": 1e6}, {}, {}, "full"),
    ("integers", "count", {}, {}, {}, "left", "right.time - left.time <= '5 ms'"),
    ("integers", "count", {}, {}, {}, "aggregate"),
    ("text", "parquet", {}, {}, rotates, "aggregate"),
)):
    if kind and kind[0] != "aggregate":
        kinds["integers"] = list(range(rows))  # Some have no partner in a stream of the even rows.
    table = pa.table({"ts": times, "key": kinds[keys], "more": [str(index) for index in range(rows)]})
    stream = {"table": table, "time": "ts", "time_unit": "ms", "key": "key", "lateness": "5 ms"}
    stream["window"] = "1 s" if memory else "20 ms"
    stream["columns"] = ["more"] if keys == "text" else []
    before_the_clock = []

    def met(self, *arguments):
        meet(self, *arguments)
        if self.number == 0:
            before_the_clock[:] = loaded

    loaded.clear()
    output = {"results": output} if output == "count" else {"results": output, "path": f"{sys.argv[1]}/{number}"}
    with mock.patch.object(Rank, "meet", met):
        other = {**stream, "table": table.take(list(range(0, rows, 1 + bool(kind))))}
        job = {"left": stream, "right": other, "output": output, "run": run, "balance": balance, "memory": memory}
        if kind == ["aggregate"]:
            del job["left"], job["right"]
            job["streams"] = {"left": {name: value for name, value in stream.items() if name != "window"}}
            job["aggregate"] = {"history": "1 s" if memory else "20 ms", "columns": {"n": "count()"}}
        else:
            job["join"] = dict(zip(("type", "where"), kind))
        job["cluster"] = {"distribution_epoch": "200 ms"} if memory else {}
        done = mpijoin.run(job, slaves=2)
    assert done.results > 0 and bool(memory) == bool(done.summary["memory"]["spilled_bytes"])
    late = sorted(set(loaded[len(before_the_clock) :]))
    print(f"late: {late} first: {sorted(set(before_the_clock))}")
"""


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    environ = dict(os.environ, PYTHONPATH=str(ROOT))
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(folder)], env=environ, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_no_kernel_is_loaded_or_compiled_once_the_clock_runs(lines):
    assert len(lines) == 12 and all("late: []" in line for line in lines), "\n".join(lines)


def test_a_count_of_whole_numbers_loads_no_kernel_for_text_or_results(lines):
    assert "insert_groups" in lines[0]
    for name in (
        "_combine_bytes",
        "_put_bytes",
        "_get_bytes",
        "keep_equal_keys",
        "gather_columns",
        "gather_blobs",
        "fill_keys",
    ):
        assert name not in lines[0]


@pytest.mark.parametrize("symmetric", [False, True])
def test_what_a_stop_needs_is_compiled_beforehand_and_loaded_only_then(monkeypatch, tmp_path, symmetric):
    """Else the first stop on a machine waits for the compiler, amid a join that has been going on for long."""
    loaded, ready = [], Kernel.ready

    def entry(self, *arguments):
        loaded.append(self.__name__)
        return ready(self, *arguments)

    monkeypatch.setattr(Kernel, "entry", entry)
    monkeypatch.setattr(sharing, "cache_folder", lambda: tmp_path)  # Only of the stamps: nothing counts as compiled.
    use = Use(text=False, rows=False, stops=True, symmetric=symmetric)
    needed = {"pause_probe_mway" if symmetric else "pause_probe", "list_blocks", "copy_blocks", "count_fresh"}
    warmup.warm_up("slave", 0, use)
    assert needed <= set(loaded)
    loaded.clear()
    warmup.warm_up("slave", 0, use)
    assert "insert_groups" in loaded and not needed & set(loaded)


@pytest.mark.parametrize(
    "use, probes",
    [
        ({}, {"probe_groups", "expire_groups"}),
        ({"symmetric": True}, {"probe_groups_mway", "expire_groups"}),
        ({"aggregate": True}, {"find_results", "finish_groups"}),
    ],
    ids=["two streams", "several", "aggregate"],
)
def test_two_ranks_of_a_first_start_compile_nothing_twice(monkeypatch, tmp_path, use, probes):
    """One begins at the front, one at the back, and no set needs the large kernels of another."""
    loaded, entry = [], Kernel.entry

    def noted(self, *arguments):
        loaded.append(self.__name__)
        return entry(self, *arguments)

    monkeypatch.setattr(Kernel, "entry", noted)
    monkeypatch.setattr(sharing, "cache_folder", lambda: tmp_path)
    use = Use(text=False, rows=False, moves=True, **use)
    sets, backwards = (warmup.sets_of("slave", use, backwards) for backwards in (False, True))
    assert [one.name for one in backwards[1:]] == [one.name for one in sets[:0:-1]] and len(sets) == 5
    large, found = {"insert_groups", *probes}, []
    for one in sets:
        loaded.clear()
        one.prepare()
        found.append(large & set(loaded))
    assert sorted(map(len, found)) == [0, 0, 1, 1, 1] and set.union(*found) == large


THREADS = """
from pathlib import Path
from mpijoin import __main__, cli


def main():
    import numpy
    return len(list(Path("/proc/self/task").iterdir()))


cli.main = main
__main__.process()
"""


def test_numpy_starts_no_threads_in_a_process_of_ours():
    """They would take 0.1 s of a core each from the ranks that start beside this one."""
    environ = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")} | {
        "PYTHONPATH": str(ROOT)
    }
    assert subprocess.run([sys.executable, "-c", THREADS], env=environ, timeout=60).returncode == 1
