"""`mpijoin verify RUN` joins once more, with DuckDB and with other readers, and compares that with what the run wrote.

``` inputs.py source files -> DuckDB tables of rows, with what is late and why combinations.py those tables -> the rows
that belong together, how many results, and their certificate compare.py results, columns and late files: wanted against
written report.py what differs, in words ``` Shared with the engine: the job file's meaning, the names of input files
and the generator of synthetic streams.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

from mpijoin.errors import EXIT_DONE, EXIT_FAILED, InputError
from mpijoin.verify.report import Report

MEMORY_LIMIT = "2GB"  # DuckDB's own; what goes beyond it lies in a temporary folder ($TMPDIR)


def main(run_path: str | os.PathLike) -> int:
    """Verify a run and print the report; 0 when all agrees, 3 when something differs."""
    report = verify(run_path)
    print(report.text())
    return EXIT_DONE if report.ok else EXIT_FAILED


def verify(run_path: str | os.PathLike) -> Report:
    """Compare a finished run with an independent join of its inputs.

    Raises InputError when there is nothing to compare (no finished run, inputs gone or unreadable, DuckDB missing)
    and JobError when the run's job.toml cannot be read.
    """
    try:
        import duckdb
    except ImportError as error:
        raise InputError("verify needs DuckDB: pip install 'mpijoin[verify]'") from error
    from mpijoin.verify.compare import compare_run

    with tempfile.TemporaryDirectory(prefix="mpijoin-verify-") as folder:
        settings: dict[str, Any] = {
            "memory_limit": MEMORY_LIMIT,
            "temp_directory": folder,
            "preserve_insertion_order": False,
        }
        # Tables in memory spill to the folder when they outgrow the limit: twice as fast as a database file, no larger.
        with duckdb.connect(":memory:", config=settings) as database:
            return compare_run(os.fspath(run_path), database)
