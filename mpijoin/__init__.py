"""mpijoin joins two streams over a sliding time window, as an ordinary MPI job.

`mpijoin.run(job)` does it from Python in one process; the command line is `mpijoin run JOB.toml`.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "run"]


def __getattr__(name: str) -> Any:
    # Late, so that `mpijoin check` and `mpijoin --help` do not pay for loading the engine.
    if name in ("run", "Run"):
        from mpijoin import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
