"""`mpijoin report RUN…`: it draws figures of runs from what they left in their folders, and puts them on one page.

```
runs.py      reads a run directory: the job, the outcome and the metrics as columns
bins.py      turns epochs of any length into bins of one length
series.py    makes the data of each figure, as tables (CSV)
style.py     has the colours, sizes and lines that all figures share
spilling.py  makes the data of the figures about state that went to the disk
plans.py     makes the data of the figure of the slaves' plans
draw.py      turns tables into figures, draw_spilling.py those about such state, and draw_plans.py that of plans
figures.py   decides which figures a run gets, and writes their captions
findings.py  finds the numbers and verdicts at the top
compare.py   compares several runs: how their jobs differ, and their outcomes as one table
sets.py      draws figures that compare several runs
page.py      builds the page; page.css says how it looks
write.py     writes all of it into a folder
words.py     writes numbers in a form that people read well
```
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Sequence

from mpijoin.errors import EXIT_DONE, InputError


def main(paths: Sequence[str | os.PathLike], folder: str | os.PathLike | None = None) -> int:
    """Writes the report of these runs and prints its path. Returns the exit code. folder: as in `write_report`."""
    report = write_report(paths, folder)
    print(f"report: {report}")
    return EXIT_DONE


def write_report(
    paths: Sequence[str | os.PathLike],
    folder: str | os.PathLike | None = None,
    capacities: Sequence[float] | None = None,
    without: Sequence[str] = (),
) -> Path:
    """Writes report.html, and each figure as PNG and CSV. Returns the path of the page.

    folder: the default is "report" inside the run, or in the current folder if there are several runs · capacities: the
    capacity of each run in tuples per second and stream, if a search has found that rate to be the highest that is
    sustained · without: sentences about runs that are not here, which come first on the page. Raises InputError if a
    path holds no run, if a finished run has no metrics, or if matplotlib is missing. Raises OutputError if the
    folder cannot be written.
    """
    try:
        from mpijoin.report.write import write
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "matplotlib":
            raise
        raise InputError("report needs matplotlib: pip install 'mpijoin[report]'") from error
    return write(paths, Path(folder) if folder is not None else None, capacities, without)
