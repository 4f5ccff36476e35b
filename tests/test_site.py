"""What a site gets with the package: the batch scripts, from a checkout and installed alike."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mpijoin.cli import main

ROOT = Path(__file__).parents[1]
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
    assert main(["slurm-scripts", str(tmp_path)]) == 2
    assert "join.sbatch: differs from what comes with mpijoin; --overwrite replaces it" in capsys.readouterr().err
    assert (tmp_path / "join.sbatch").read_text() == "ours\n" and not (tmp_path / "chain.sh").exists()
    assert main(["slurm-scripts", str(tmp_path), "--overwrite"]) == 0
    assert contents(tmp_path) == contents(ROOT / "slurm")


def test_a_full_disk_is_told_by_the_file_that_did_not_fit(small_disk, capsys):
    (small_disk / "filler").write_bytes(bytes((1 << 20) - (16 << 10)))
    assert main(["slurm-scripts", str(small_disk / "slurm")]) == 3
    said = capsys.readouterr().err
    assert f"{small_disk / 'slurm'}/" in said and "cannot be written: No space left" in said
    (small_disk / "filler").unlink()
    assert main(["slurm-scripts", str(small_disk / "slurm")]) == 0
    assert contents(small_disk / "slurm") == contents(ROOT / "slurm")


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
    build = [
        sys.executable,
        "-c",
        "import setuptools; setuptools.setup()",
        "--quiet",
        "build_py",
        "--build-lib",
        str(folder / "built"),
    ]
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


SCRIPTS = sorted((ROOT / "slurm").glob("*.sbatch"))


def run_script(script: Path, folder: Path, **environment: str) -> subprocess.CompletedProcess:
    """A batch script as far as it gets without Slurm; of the environment only what is given."""
    told = {
        "SLURM_JOB_ID": "7",
        "SLURM_SUBMIT_DIR": str(folder),
        "SLURM_ARRAY_TASK_ID": "0",
        "PATH": "/usr/bin:/bin",
    } | environment
    return subprocess.run(
        ["bash", str(script), "job.toml"], cwd=folder, env=told, capture_output=True, text=True, timeout=60
    )


def test_all_batch_scripts_find_their_environment_in_the_same_way():
    blocks = {
        re.search(r"# --- The same in every.*?\n# -{50,}\n", script.read_text(), re.DOTALL)[0] for script in SCRIPTS
    }
    assert len(SCRIPTS) == 3 and len(blocks) == 1


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_job_without_mpijoin_says_which_setting_helps(script, tmp_path):
    for environment in ({}, {"MPIJOIN_ENVIRONMENT": str(tmp_path)}):
        done = run_script(script, tmp_path, **environment)
        assert done.returncode == 2, done.stderr
        assert "no mpijoin in" in done.stderr and "MPIJOIN_ENVIRONMENT=/path/to/it" in done.stderr
    done = run_script(script, tmp_path, MPIJOIN_SITE=str(tmp_path / "gone"))
    assert done.returncode == 2 and "gone: no such file" in done.stderr


@pytest.mark.parametrize("place", ["mpijoin-site.sh", ".config/mpijoin/site.sh", "elsewhere.sh"])
def test_a_site_loads_its_modules_first(place, tmp_path):
    """The file may be as careless as those of modules and conda are, and what it exports reaches the ranks."""
    program = tmp_path / "module/bin/mpijoin"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho mpijoin of the module: $SLURM_EXPORT_ENV $*\n")
    program.chmod(0o755)
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_text(f'[ "$NOBODY_HAS_SET_THIS" ] || export MPIJOIN_ENVIRONMENT={tmp_path}/module\n')
    environment = {"HOME": str(tmp_path), "SLURM_NTASKS": "1", "SLURM_EXPORT_ENV": "NONE"}
    environment |= {"MPIJOIN_SITE": str(tmp_path / place)} if place == "elsewhere.sh" else {}
    done = run_script(ROOT / "slurm/sweep.sbatch", tmp_path, **environment)
    assert (
        done.stdout
        == f"job 7: site settings from {tmp_path / place}\nmpijoin of the module: ALL sweep point job.toml 0"
        " --launcher\n"
    )
