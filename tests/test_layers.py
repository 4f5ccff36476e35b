"""House rules: imports go downward, functions and files stay small, the quick commands load nothing heavy."""

import ast
import os
import re
import statistics
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "mpijoin"
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")

# From the bottom up; a module may import from its own level and from those before it. A folder stands for all in it
# that has no level of its own.
LEVELS = (
    (
        "errors",
        "clock",
        "compiled",
        "compiling",
        "linking",
        "disk",
        "flags",
        "limits",
        "lock",
        "machine",
        "named",
        "node_memory",
        "refusals",
        "signals",
        "site",
        "completion",
        "streams",
        "time_events",
    ),
    ("config", "data", "conditions"),
    (
        "partitioning",
        "policy",
        "operators",
        "store",
        "join",
        "aggregate",
        "matching",
        "queries",
        "plans",
        "moving",
        "generators",
    ),
    ("records", "orders", "directives", "messages"),
    ("metrics", "run_files", "rundir", "progress", "spill"),
    ("sources", "sinks", "transport", "verify", "rank", "report"),
    ("checkpoint",),
    ("launch.roles", "launch.setup", "launch.memory", "launch.sizes"),
    ("producer", "slave", "collector", "launch.sharing", "launch.use"),
    ("launch.tiny",),
    ("launch.warm_producer", "launch.warm_slave"),
    ("launch.warmup",),
    ("coordinator",),
    ("launch.summary", "launch.provenance"),
    ("launch.collecting", "launch.logs"),
    ("launch.ready",),
    ("launch.master", "launch.slave", "simulate"),
    ("launch", "api", "live", "pipeline", "sweep", "why"),
    ("cli", "__init__"),
    ("__main__",),
)
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
# What is only loaded where it is used, so that `mpijoin check` stays quick.
HEAVY = ("numba", "duckdb", "rich", "mpi4py", "matplotlib", "pyarrow.dataset", "pyspark")
# The mini-buffers are made of the pieces that messages carry; the kernels know the record and the hash, no more.
EXCEPTIONS = {
    ("partitioning/buffers.py", "messages"), ("partitioning/runs.py", "messages"),
}


def level_name(parts):
    """The name under which a module of these parts stands in LEVELS; a name of the package itself is "__init__"."""
    names = (".".join(parts[:length]) for length in (2, 1))
    return next((name for name in names if name in LEVEL), "__init__")


def name_of(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return level_name(parts) if level_name(parts) != "__init__" else parts[0]


def imports(path):
    """Dotted names of mpijoin that a file imports, inside functions too, but not those that only types need."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "mpijoin")
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "mpijoin":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path}: a relative import"


def needed(path):
    """Files of mpijoin whose names a file asks for, in annotations too, as paths."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mpijoin."):
            for name in (f"{node.module}.{alias.name}" for alias in node.names):
                parts = name.split(".")
                places = [ROOT.joinpath(*parts[:length]) for length in (len(parts), len(parts) - 1)]
                files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
                yield next(file for file in files if file.exists())


def functions(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.end_lineno - node.lineno + 1


def test_every_module_has_its_level():
    assert {name_of(path) for path in FILES} <= set(LEVEL)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_downward(path):
    own = name_of(path)
    for name in imports(path):
        other = level_name(name.split(".")[1:])
        allowed = LEVEL[other] <= LEVEL[own] or other == "__init__"
        assert allowed or (str(path.relative_to(PACKAGE)), other) in EXCEPTIONS, f"{path.name} imports {name}"


def test_imports_make_no_circle():
    """Of files, also of one package: who reads one need not have read it before. Only the package itself, whose
    interface is loaded late, is imported from everywhere, for its version."""
    try:
        tuple(TopologicalSorter({path: set(needed(path)) for path in PACKAGE.rglob("*.py")}).static_order())
    except CycleError as error:
        pytest.fail(" imports ".join(str(path.relative_to(PACKAGE)) for path in reversed(error.args[1])))


# Where decisions are made: the cores, and what they decide with.
OF_THE_PRODUCER = ("backlog", "core", "events", "lead", "pacing", "queues", "setup", "stock", "timetable", "views")
OF_THE_COORDINATOR = ("core", "events", "master", "moves", "producers", "reorganization", "saves", "setup", "spreads")
PURE = (
    *("errors", "named", "time_events", "operators.base", "partitioning.table", "policy", "moving"),
    "checkpoint.schedule",
    "config.moves",
    "slave.events",
    "slave.patience",
    "slave.rule",
    "slave.slices",
    *(f"producer.{name}" for name in OF_THE_PRODUCER),
    *(f"coordinator.{name}" for name in OF_THE_COORDINATOR),
)
OF_THE_SLAVE = ("core", "events", "patience", "rule", "slices")
DECIDING_FILES = (
    *(f"producer/{name}.py" for name in OF_THE_PRODUCER),
    *(f"coordinator/{name}.py" for name in OF_THE_COORDINATOR),
    *(f"slave/{name}.py" for name in OF_THE_SLAVE),
)
DECIDING = [PACKAGE / name for name in DECIDING_FILES] + [path for path in FILES if path.parts[-2] == "moving"]


@pytest.mark.parametrize("path", DECIDING, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_cores_know_no_outside(path):
    """No message, file, clock, thread or random source."""
    tree = ast.parse(path.read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    pure = {name for name in names for one in PURE if f"{name}.".startswith(f"mpijoin.{one}.")}
    assert names - pure <= {"__future__", "collections", "dataclasses", "itertools", "math", "typing", "numpy"}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("__init__.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_package_says_what_it_is_for(path):
    assert len(ast.get_docstring(ast.parse(path.read_text())) or "") > 60


def test_nothing_cites_what_the_project_does_not_contain():
    """A fact is said where it is needed, not by the section of a document that a reader cannot find."""
    files = [path for folder in ("mpijoin", "scripts", "slurm", "tests") for path in (ROOT / folder).rglob("*")]
    texts = {path: path.read_bytes() for path in files if path.suffix in (".py", ".md", ".sh", ".sbatch", ".toml")}
    assert len(texts) > 300
    assert [str(path.relative_to(ROOT)) for path, text in texts.items() if re.search(rb"\bDESIG[N]\b", text)] == []


def test_functions_are_short():
    lengths = {(path.name, name): length for path in FILES for name, length in functions(path)}
    assert {name: length for name, length in lengths.items() if length > 60} == {}
    assert statistics.median(lengths.values()) <= 10


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_are_short(path):
    assert len(path.read_text().splitlines()) <= 400


CODE_IN_DATA = ("pickle", "marshal", "shelve", "dill", "cloudpickle")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_that_is_read_can_run_code(path):
    tree = ast.parse(path.read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {name.split(".")[0] for name in names} & set(CODE_IN_DATA)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_error_is_caught_unnamed_and_nothing_is_left_to_do(path):
    text = path.read_text()
    handlers = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ExceptHandler)]
    assert all(handler.type is not None for handler in handlers)
    assert not [word for word in ("TODO", "FIXME", "XXX", "noqa") if word in text]


@pytest.mark.parametrize("module", ["mpijoin.cli", "mpijoin.config.check", "mpijoin.config.load", "mpijoin"])
def test_what_check_needs_is_light(module):
    code = f"import sys, {module}; print([name for name in {HEAVY} if name in sys.modules])"
    environ = dict(os.environ, PYTHONPATH=str(ROOT))
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


RUN = """
import sys
import mpijoin

stream = {"path": sys.argv[1] + "/rows.csv", "time": "ts", "time_unit": "s", "key": "key", "window": "10 s"}
output = {"path": sys.argv[1] + "/out", "results": "parquet"}
done = mpijoin.run({"left": stream, "right": stream, "output": output}, slaves=2)
print(done.results > 0, done.summary["streams"]["left"]["late"], "pandas" in sys.modules)
"""


@pytest.mark.skipif(find_spec("pandas") is None, reason="pandas is not installed")
def test_a_run_does_not_load_pandas(tmp_path):
    """pyarrow loads it in passing (see mpijoin/data/arrow.py); each rank would pay for that."""
    rows = [f"{time},{key},{time}" for time, key in zip([*range(40), 1, ""], ["k", "l", ""] * 14)]
    (tmp_path / "rows.csv").write_text("\n".join(["ts,key,name", *rows]) + "\n")
    environ = dict(os.environ, PYTHONPATH=str(ROOT))
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path)], env=environ, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.split() == ["True", "2", "False"], done.stdout + done.stderr
