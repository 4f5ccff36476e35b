"""Measures the master's peak buffer against WSJ, section V-B: (r t_d / 2)(1 + 1/n_g) for a stream of rate r.

    python scripts/measure_master_buffer.py

Two uniform synthetic streams are joined by four local slaves. Distribution epochs are 20 s of event time, and there are
n_g = 1, 2 and 4 sub-groups.
"""

from __future__ import annotations

import argparse

import mpijoin

RATE = 10_000  # Each stream has so many tuples per second.
EPOCH_S = 20
TUPLE_BYTES = 24  # A tuple has three words: key, time, row.


def peak_bytes(subgroups: int) -> int:
    """Returns the most bytes that waited at the master, as a run reports them."""
    stream = {"kind": "synthetic", "rate": RATE, "bias": 0.5, "domain": 1_000_000, "duration": "200 s", "window": "1 s"}
    job = {
        "left": {**stream, "seed": 1},
        "right": {**stream, "seed": 2},
        "cluster": {"distribution_epoch": f"{EPOCH_S} s", "subgroups": subgroups},
        "output": {"results": "count"},
    }
    return mpijoin.run(job, slaves=4).summary["peak_master_buffer_bytes"]


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print("n_g   measured MB   (r t_d / 2)(1 + 1/n_g), both streams, MB   ratio")
    for subgroups in (1, 2, 4):
        measured = peak_bytes(subgroups)
        formula = 2 * RATE * EPOCH_S / 2 * (1 + 1 / subgroups) * TUPLE_BYTES
        print(f"{subgroups:3}   {measured / 1e6:11.2f}   {formula / 1e6:42.2f}   {measured / formula:5.3f}")


if __name__ == "__main__":
    main()
