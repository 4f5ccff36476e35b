"""What a site gets with the package: the batch scripts, from a checkout and installed alike."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mpijoin.cli import main

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.name for path in (ROOT / "slurm").iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_scripts_are_copied_to_where_they_can_be_changed(tmp_path, capsys):
    folder = tmp_path / "new/slurm"
    assert main(["slurm-scripts", str(folder)]) == 0
    assert contents(folder) == contents(ROOT / "slurm") and os.access(folder / "chain.sh", os.X_OK)
    assert f"sbatch -n 17 {folder}/join.sbatch job.toml" in capsys.readouterr().out


def test_a_changed_script_is_not_replaced_unasked(tmp_path, capsys):
    assert main(["slurm-scripts", str(tmp_path)]) == 0
    (tmp_path / "join.sbatch").write_text("ours\n")
    (tmp_path / "chain.sh").unlink()
    assert main(["slurm-scripts", str(tmp_path)]) == 3
    assert "join.sbatch: differs from what comes with mpijoin; --overwrite replaces it" in capsys.readouterr().err
    assert (tmp_path / "join.sbatch").read_text() == "ours\n" and not (tmp_path / "chain.sh").exists()
    assert main(["slurm-scripts", str(tmp_path), "--overwrite"]) == 0
    assert contents(tmp_path) == contents(ROOT / "slurm")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The folder that the sources are built into: what a wheel would hold."""
    folder = tmp_path_factory.mktemp("build")
    sources = folder / "sources"
    sources.mkdir()
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    for name in ("mpijoin", "slurm"):
        shutil.copytree(ROOT / name, sources / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-c", "import setuptools; setuptools.setup()", "--quiet", "build_py", "--build-lib", str(folder / "built")]
    subprocess.run(build, cwd=sources, check=True, timeout=300)
    return folder / "built"


def test_what_is_installed_has_the_scripts_and_sweeps(built, tmp_path):
    def call(*arguments):
        command = [sys.executable, "-m", "mpijoin", *arguments]
        environment = os.environ | {"PYTHONPATH": str(built)}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)

    assert call("slurm-scripts", "slurm").returncode == 0
    assert sorted(contents(tmp_path / "slurm")) == NAMES and contents(tmp_path / "slurm") == contents(ROOT / "slurm")
    assert os.access(tmp_path / "slurm/chain.sh", os.X_OK)
    assert "a sweep file" in call("sweep", "--help").stdout
    assert not (built / "slurm").exists(), "the package keeps to its own name"
