"""Options by which the programs here join with so much memory only, and a folder for what does not fit."""

from __future__ import annotations

import argparse


def add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memory", type=int, metavar="BYTES", help="that the join may take (default: no limit)")
    parser.add_argument("--scratch", metavar="FOLDER", help="for what does not fit (default: the system's own)")


def duckdb_settings(options: argparse.Namespace) -> dict[str, str]:
    """Returns DuckDB's settings for these limits."""
    settings = {"memory_limit": f"{options.memory}B"} if options.memory else {}
    return settings | ({"temp_directory": options.scratch} if options.scratch else {})
