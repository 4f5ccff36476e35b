"""`python -m mpijoin`: the same as the `mpijoin` command."""

import sys

from mpijoin.cli import main

if __name__ == "__main__":
    sys.exit(main())
