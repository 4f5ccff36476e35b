"""Runs `mpijoin`, except that every policy moves groups at random, and nothing may be pickled.

Usage: python tests/harness/run_with_random_moves.py SEED run JOB.toml ...
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(1, str(Path(__file__).parent))

import mpijoin.coordinator.start
from mpijoin.cli import main
from no_pickle import forbid_pickle
from random_policy import random_policy

if __name__ == "__main__":
    seed = int(sys.argv.pop(1))
    mpijoin.coordinator.start.make_policy = lambda *settings: random_policy(seed)
    forbid_pickle()
    sys.exit(main())
