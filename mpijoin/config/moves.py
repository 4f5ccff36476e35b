"""The kinds of moves of partition groups (moving/coordinator.py)."""

PRECOPY, MSLB = "precopy", "mslb"
MOVES = (PRECOPY, MSLB)
