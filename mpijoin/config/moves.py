"""The kinds of moves of partition groups (moving/coordinator.py)."""

PRECOPY, MSLB, PTLB = "precopy", "mslb", "ptlb"
MOVES = (PRECOPY, MSLB, PTLB)

# How a further slave gets a part of a partition, and gives it back (moving/spreading.py).
PARTS = SPREAD, GATHER = "spread", "gather"
