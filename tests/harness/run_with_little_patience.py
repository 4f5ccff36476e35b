"""`mpijoin`, but ranks that are silent for so many seconds are lost: python tests/harness/run_with_little_patience.py
SECONDS run JOB.toml ..."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import mpijoin.rank
from mpijoin.cli import main

if __name__ == "__main__":
    mpijoin.rank.SILENCE_S = float(sys.argv.pop(1))
    mpijoin.rank.LEAVE_S = 1.0
    sys.exit(main())
