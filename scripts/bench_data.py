"""Makes the data of workload A. The benchmarks make it for themselves where they do not find it.

    python scripts/bench_data.py FOLDER [TUPLES]

It writes left.parquet, right.parquet and answer.json, the right answer, to FOLDER/TUPLES, and prints that path. Data
that is there already is used again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benching.data import make_data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the data goes")
    tuples = "per stream, such as 1e6 (default: 5,000,000)"
    parser.add_argument(
        "tuples", type=lambda text: int(float(text)), nargs="?", default=5_000_000, metavar="TUPLES", help=tuples
    )
    options = parser.parse_args()
    print(make_data(options.folder, options.tuples))


if __name__ == "__main__":
    main()
