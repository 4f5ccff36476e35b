"""Compares what `mpijoin profile` expected with what a run found.

    python scripts/compare_with_profile.py PROFILE RUN

It exits with 1 if the number of results lies outside what was expected.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


def compare(profile: str, run: str) -> int:
    """Prints the comparison. Returns 1 if the number of results lies outside what was expected."""
    expected = json.loads((Path(profile) / "profile.json").read_text())["expected"]
    summary = json.loads((Path(run) / "summary.json").read_text())
    predicted, found = expected["results"], summary["results"]
    error = 0 if expected["exact"] else expected["error_95"]
    state = sum(slave["window_bytes_max"] for slave in summary["per_slave"].values())
    least, most = (0, predicted) if expected["below"] else (predicted - error, predicted + error)
    how = "exact" if expected["exact"] else f"estimated, {least:,.0f} to {most:,.0f}"
    print(f"results: {predicted:,.0f} expected ({how}), {found:,} found")
    print(
        f"bytes in the windows: {expected['state_bytes_max'] / 1e6:.1f} MB expected at most, {state / 1e6:.1f} MB held"
        " in blocks"
    )
    return int(not least <= found <= most)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", metavar="PROFILE", help="the folder that `mpijoin profile` wrote")
    parser.add_argument("run", metavar="RUN", help="the folder that the run wrote")
    options = parser.parse_args()
    return compare(options.profile, options.run)


if __name__ == "__main__":
    sys.exit(main())
