"""The command line: what it prints, where, and with which exit code."""

import os
import signal
import subprocess
import sys
import types

import pytest

import mpijoin
from mpijoin.cli import main
from mpijoin.errors import InputError
from mpijoin.launch import command as launch
from mpijoin.launch.command import Options


@pytest.fixture
def engine(monkeypatch):
    """Stands in for a module that a command calls; keeps what it was called with."""

    def install(name, function, result):
        calls = []

        def called(*arguments):
            calls.append(arguments)
            return result

        module = types.SimpleNamespace(**{function: called})
        monkeypatch.setitem(sys.modules, f"mpijoin.{name}", module)
        monkeypatch.setattr(mpijoin, name, module, raising=False)
        return calls

    return install


def raising(error):
    def main_run(*arguments):
        raise error

    return main_run


def test_check_describes_a_sound_job_on_stdout(job_file, capsys):
    assert main(["check", job_file]) == 0
    out, err = capsys.readouterr()
    assert out.endswith("ok\n") and "1 Parquet file, 1 row; window 20 s" in out
    assert err == ""


def test_check_lists_every_fault_on_stderr(job_file, capsys):
    assert main(["check", job_file, "--set", "left.window=long", "--set", "cluster.partitions=0"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "mpijoin: 2 faults",
        '  [left] window: got "long", wanted a duration such as "20 s" (units: ns us ms s min h d), or "unbounded"',
        "  [cluster] partitions: got 0, wanted 1 to 65535",
    ]


def test_a_single_fault_is_a_single_line(job_file, capsys):
    assert main(["check", job_file, "--set", "left.time=when"]) == 2
    assert capsys.readouterr().err == 'mpijoin: [left] time: no column "when", the input has ts, key\n'


def test_run_hands_its_arguments_to_the_launcher(monkeypatch):
    calls = []
    monkeypatch.setattr(launch, "main_run", lambda *arguments: calls.append(arguments) or 75)
    assert main(["run", "j.toml", "--set", "a.b=1", "--set", "c.d=2", "--ranks", "3", "--overwrite"]) == 75
    assert main(["run", "j.toml", "--debug", "--ranks", "99", "--oversubscribe"]) == 75
    assert main(["run", "j.toml", "--resume"]) == 75
    begins = [
        ("j.toml", ["a.b=1", "c.d=2"], Options(ranks=3, overwrite=True)),
        ("j.toml", [], Options(99, True, debug=True)),
    ]
    assert calls == [*begins, ("j.toml", [], Options(resume=True))]


def test_verify_hands_over_the_folder(engine):
    calls = engine("verify", "main", 3)
    assert main(["verify", "runs/x"]) == 3
    assert calls == [("runs/x",)]


@pytest.mark.parametrize(
    "error, code, message",
    [
        (InputError("a.csv: column x"), 2, "mpijoin: a.csv: column x\n"),
        (KeyboardInterrupt(), 130, "mpijoin: stopped by Ctrl-C\n"),
        (ZeroDivisionError("oh"), 3, "mpijoin: internal error: ZeroDivisionError: oh (--debug shows where)\n"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(monkeypatch, capsys, error, code, message):
    monkeypatch.setattr(launch, "main_run", raising(error))
    assert main(["run", "j.toml"]) == code
    assert capsys.readouterr().err == message


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_disk_that_is_full_for_what_is_printed_is_told():
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "mpijoin", "check", "--fields"], stdout=full,
                              stderr=subprocess.PIPE, text=True, timeout=60)  # fmt: skip
    assert (done.returncode, done.stderr) == (3, "mpijoin: the output cannot be written: No space left on device\n")


def test_letters_that_the_locale_lacks_are_told_by_their_numbers(job_file, tmp_path):
    (tmp_path / "left.parquet").rename(tmp_path / "j\u00f6b.parquet")
    environ = os.environ | {"PYTHONIOENCODING": "ascii"}
    paths = [f"--set={side}.path=j\u00f6b.parquet" for side in ("left", "right")]
    line = [sys.executable, "-m", "mpijoin", "check", job_file, *paths]
    done = subprocess.run(line, capture_output=True, text=True, env=environ, timeout=60)
    assert done.returncode == 0 and "j\\xf6b" in done.stdout, done


def test_a_traceback_comes_only_with_debug(monkeypatch, capsys):
    monkeypatch.setattr(launch, "main_run", raising(InputError("broken")))
    assert main(["run", "j.toml", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "required: COMMAND"),
        (["joyn"], "invalid choice"),
        (["run"], "JOB.toml"),
        (["run", "j.toml", "--ranks", "0"], "wanted a whole number of slaves"),
        (["run", "j.toml", "--ranks", "x"], "wanted a whole number of slaves"),
    ],
)
def test_wrong_usage_exits_with_2(capsys, arguments, message):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["check", "--help"], ["verify", "--help"]])
def test_help_teaches_by_example_and_tells_exit_codes(capsys, arguments):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "example" in text and "exit codes:" in text


def test_the_module_runs_as_a_program(job_file):
    done = subprocess.run(
        [sys.executable, "-m", "mpijoin", "check", job_file], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout.splitlines()[-1], done.stderr) == (0, "ok", "")


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"mpijoin {mpijoin.__version__}\n"


LOADED = "import sys; from mpijoin.cli import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"


def test_check_loads_no_engine(job_file):
    """To check a job is quick because of what it does not load. How long it takes depends on the machine, too."""
    command = [sys.executable, "-c", LOADED, "check", job_file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    loaded = set(done.stderr.split())
    assert {"mpijoin.config.check", "mpijoin.launch.sizes"} <= loaded
    heavy = {"numba", "duckdb", "rich", "mpi4py", "pandas", "matplotlib", "pyarrow.dataset", "pyarrow.compute"}
    engine = {f"mpijoin.{part}" for part in ("store", "join", "slave", "producer", "sources", "collector")}
    assert not (heavy | engine) & loaded
    assert len(loaded) < 500


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, mpijoin; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert not {"numpy", "pyarrow", "numba"} & set(done.stdout.split())


def test_run_is_fetched_from_the_api_on_first_use(monkeypatch):
    api = types.SimpleNamespace(run=object(), Run=object())
    monkeypatch.setitem(sys.modules, "mpijoin.api", api)
    monkeypatch.setattr(mpijoin, "api", api, raising=False)
    fetch = mpijoin.__getattr__
    assert (fetch("run"), fetch("Run")) == (api.run, api.Run)
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        fetch("walk")
    live = types.SimpleNamespace(start=object(), LiveRun=object())
    monkeypatch.setitem(sys.modules, "mpijoin.live", live)
    monkeypatch.setattr(mpijoin, "live", live, raising=False)
    assert (fetch("start"), fetch("LiveRun")) == (live.start, live.LiveRun)


@pytest.mark.parametrize("command", ["generate", "prepare", "profile"])
def test_pipeline_commands_explain_themselves(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    said = capsys.readouterr().out
    assert end.value.code == 0 and "examples:" in said and said.count("exit codes:") == 1 and "--master" in said


def test_pipeline_commands_are_listed_without_being_loaded():
    code = (
        "import sys, mpijoin.cli as c; c._parser(['run']).format_help().index('prepare'); print('mpijoin.pipeline' in"
        " sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr


def test_a_quiet_run_says_only_what_is_wrong(job_file, capfd):
    assert main(["run", job_file, "--quiet", "--set", "output.results=count"]) == 0
    assert capfd.readouterr() == ("", "")
    assert main(["run", job_file, "--quiet", "--overwrite", "--set", "inject.fail={1=0}"]) == 3
    assert "epoch 0 has come" in capfd.readouterr().err


def test_help_says_how_srun_finds_mpi(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "srun --mpi=pmi2 -n 5 mpijoin run job.toml" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["run", ""], "JOB.toml"),
        (["verify", ""], "RUN"),
        (["report", "one", ""], "RUN"),
        (["report", "one", "-o", ""], "FOLDER"),
        (["slurm-scripts", ""], "FOLDER"),
        (["sweep", "run", ""], "SWEEP.toml"),
        (["generate", "job.toml", "-o", ""], "--output"),
    ],
)
def test_an_empty_path_is_not_the_current_folder(tmp_path, monkeypatch, capsys, arguments, named):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2 and capsys.readouterr().err == f"mpijoin: {named}: got '', wanted a path\n"
    assert not list(tmp_path.iterdir())


def test_an_output_path_that_is_a_link_to_nothing_is_called_that(tmp_path, job_file, capsys):
    (tmp_path / "out").symlink_to(tmp_path / "gone")
    assert main(["check", str(job_file), "--set", f"output.path='{tmp_path}/out'"]) == 2
    assert "cannot be a folder, it is a link to nothing: wanted" in capsys.readouterr().err


INTERRUPTED = """
import builtins, os, signal, sys

imported, asked_for = builtins.__import__, sys.argv.pop()
signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background ignores it.

def interrupted(name, *more):
    if name == asked_for:
        os.kill(os.getpid(), signal.SIGINT)
    return imported(name, *more)

from mpijoin.__main__ import process
builtins.__import__ = interrupted
process()
"""


MPI_0, MPI_1 = ({"PMI_SIZE": "2", "PMI_RANK": rank} for rank in "01")
SAID = "mpijoin: stopped by Ctrl-C\n"


@pytest.mark.parametrize(
    "module, environ, code, message",
    [
        ("mpijoin.cli", {}, -signal.SIGINT, ""),
        ("mpijoin.config.reference", {}, 130, SAID),
        ("mpijoin.config.reference", MPI_0, -signal.SIGINT, SAID),
        ("mpijoin.config.reference", MPI_1, -signal.SIGINT, ""),
    ],
)
def test_ctrl_c_shows_no_traceback_from_the_beginning_on(module, environ, code, message):
    """A rank dies of it, because a launcher ends the others then, and not if a rank leaves by itself."""
    command = [sys.executable, "-c", INTERRUPTED, "check", "--fields", module]
    done = subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (code, message)


@pytest.mark.parametrize("environ, says", [(MPI_0, True), (MPI_1, False)])
def test_one_rank_says_what_is_wrong_with_the_arguments(environ, says):
    command = [sys.executable, "-m", "mpijoin", "run", "job.toml", "--nonsense"]
    done = subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and bool(done.stderr) == says and done.stdout == ""
