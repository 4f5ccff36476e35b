"""`mpijoin report RUN…`: figures of runs, from what they left in their folders, and one page that holds them all.

```
runs.py      a run directory -> its job, outcome and metrics as columns
bins.py      epochs of any length -> bins of one length
series.py    the data of each figure, as tables (CSV)
style.py     colours, sizes and lines that all figures share
draw.py      tables -> figures
figures.py   which figures there are of one run, and what their captions say
findings.py  the numbers and verdicts at the top
compare.py   several runs: what differs between their jobs, and what came out, as one table
sets.py      figures that compare them
page.py      the page; page.css how it looks
write.py     all of it, into a folder
words.py     numbers for people
```
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Sequence

from mpijoin.errors import EXIT_DONE, InputError


def main(paths: Sequence[str | os.PathLike], folder: str | os.PathLike | None = None) -> int:
    """Writes the report of these runs and says where; `folder`: default as in `write_report`. Returns the exit code."""
    report = write_report(paths, folder)
    print(f"report: {report}")
    return EXIT_DONE


def write_report(
    paths: Sequence[str | os.PathLike],
    folder: str | os.PathLike | None = None,
    capacities: Sequence[float] | None = None,
) -> Path:
    """Makes report.html and each figure as PNG and CSV; returns the path of the page.

    folder: default "report" inside the run, for several runs in the current folder · capacities: of each run, in tuples
    per second and stream, where a search has found that rate to be the highest that is sustained. InputError: a path
    that holds no run, a finished run without metrics, or matplotlib is missing. OutputError: the folder cannot be
    written.
    """
    try:
        from mpijoin.report.write import write
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "matplotlib":
            raise
        raise InputError("report needs matplotlib: pip install 'mpijoin[report]'") from error
    return write(paths, Path(folder) if folder is not None else None, capacities)
