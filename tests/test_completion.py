"""`mpijoin completion`, as bash uses it."""

import subprocess
from pathlib import Path

import pytest

from mpijoin.cli import main


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """What bash offers for the last of these words; it takes names of files where nothing is offered."""
    import contextlib
    import io

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(["completion"]) == 0
    script = Path(tmp_path_factory.mktemp("completion"), "mpijoin.bash")
    script.write_text(said.getvalue())

    def offered(*words):
        code = (
            f'source {script}; COMP_WORDS=(mpijoin "$@"); COMP_CWORD=$#; _mpijoin; printf "%s\\n" "${{COMPREPLY[@]}}"'
        )
        done = subprocess.run(["bash", "-uc", code, "bash", *words], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    return offered


def test_commands_options_and_values_are_offered(complete):
    assert complete("s") == ["simulate", "slurm-scripts", "sweep"]
    assert {"run", "check", "prepare", "--version"} <= set(complete(""))
    assert set(complete("run", "job.toml", "--ov")) == {"--oversubscribe", "--overwrite"}
    assert complete("sweep", "sub") == ["submit"] and complete("sweep", "submit", "x.toml", "--th") == ["--throttle"]
    assert complete("prepare", "raw.csv", "--unit", "") == ["s", "ms", "us", "ns"]
    assert "--conf" in complete("generate", "--")
    assert complete("run", "jo") == []


def test_a_value_that_is_called_like_a_command_is_none(complete):
    assert "--resume" in complete("run", "check", "--re")
