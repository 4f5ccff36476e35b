"""The kinds of moves of partition groups (moving/coordinator.py)."""

PRECOPY, MSLB, PTLB = "precopy", "mslb", "ptlb"
MOVES = (PRECOPY, MSLB, PTLB)
