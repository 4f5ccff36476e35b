"""A sweep is submitted as a Slurm array of slurm/sweep.sbatch. Each point is a task."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Sequence

from mpijoin.errors import EXIT_DONE, LaunchError
from mpijoin.site import SCRIPTS
from mpijoin.sweep.run import DONE, state_of
from mpijoin.sweep.spec import Sweep

# Sites usually limit an array to so many tasks.
ARRAY_MAX = 1000


def submit_array(sweep: Sweep, path: Path, throttle: int, options: Sequence[str]) -> int:
    """Submits the points that are not done as one array. At most `throttle` of them run at once. Returns the exit code
    of sbatch.

    `path` is that of the sweep file, and `options` are for sbatch. Raises LaunchError if sbatch cannot be started.
    """
    missing = [number for number, one in enumerate(sweep.points) if state_of(sweep.folder_of(one)) != DONE]
    if not missing:
        print(f"nothing to submit: all points are done; their table: mpijoin sweep table {shlex.quote(str(path))}")
        return EXIT_DONE
    wanted = missing[:ARRAY_MAX]
    command = [
        "sbatch",
        f"--array={','.join(map(str, wanted))}%{throttle}",
        "--ntasks",
        str(max(1, sweep.ranks)),
        *options,
    ]
    command += [str(SCRIPTS / "sweep.sbatch"), str(path.absolute())]
    print(f"$ {shlex.join(command)}", flush=True)
    # The tasks run in this environment unless the user names another one.
    environment = {"MPIJOIN_ENVIRONMENT": sys.prefix} if Path(sys.prefix, "bin/mpijoin").exists() else {}
    try:
        exit_code = subprocess.run(command, env=environment | os.environ, check=False).returncode
    except OSError as error:
        raise LaunchError(
            f"sbatch does not start ({error.strerror}): submit where Slurm is, or `mpijoin sweep run`"
        ) from error
    if exit_code == EXIT_DONE:
        rest = (
            f"; {len(missing) - len(wanted)} more points wait for another `submit`"
            if len(missing) > len(wanted)
            else ""
        )
        print(f"its tasks: squeue --me{rest}")
        print(f"when they have ended: mpijoin sweep table {shlex.quote(str(path))}")
        print(f"to run failed ones again: mpijoin sweep submit {shlex.quote(str(path))}")
    return exit_code
