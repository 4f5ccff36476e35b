"""Runs `mpijoin`, except that ranks which are silent for so many seconds count as lost.

Usage: python tests/harness/run_with_little_patience.py SECONDS run JOB.toml ...
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import mpijoin.rank
from mpijoin.cli import main

if __name__ == "__main__":
    mpijoin.rank.SILENCE_S = float(sys.argv.pop(1))
    mpijoin.rank.LEAVE_S = 1.0
    sys.exit(main())
