"""`mpijoin slurm-scripts`: the batch scripts that come with the package, copied to where a site can change them."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from mpijoin.errors import EXIT_DONE, JobError
from mpijoin.refusals import writing

SCRIPTS = Path(__file__).with_name("slurm")  # the repository's folder slurm/, which travels with the package


def write_scripts(folder: Path, overwrite: bool) -> list[Path]:
    """Copies every script into a folder, which is made if need be; returns where they are now, in order of name.

    Raises JobError, before anything is written, if a file with other content is there and `overwrite` is not set.
    """
    scripts = sorted(path for path in SCRIPTS.iterdir() if path.is_file())
    others = [folder / path.name for path in scripts if (folder / path.name).exists()]
    changed = [path for path in others if path.read_bytes() != (SCRIPTS / path.name).read_bytes()]
    if changed and not overwrite:
        text = "differs from what comes with mpijoin; --overwrite replaces it"
        raise JobError([f"{', '.join(map(str, changed))}: {text}"])
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for path in scripts:
        _copy(path, folder / path.name)
    return [folder / path.name for path in scripts]


def _copy(script: Path, to: Path) -> None:
    aside = to.with_name(to.name + ".open")
    try:
        with writing(to):
            aside.write_bytes(script.read_bytes())
            shutil.copymode(script, aside)
            aside.replace(to)
    finally:
        with suppress(OSError):
            aside.unlink()


def main_slurm_scripts(folder: str, overwrite: bool) -> int:
    """The whole command; returns the exit code."""
    written = write_scripts(Path(folder), overwrite)
    print("\n".join(map(str, written)))
    print(f"such as: sbatch -n 17 {Path(folder) / 'join.sbatch'} job.toml; the head of each file says the rest")
    return EXIT_DONE
