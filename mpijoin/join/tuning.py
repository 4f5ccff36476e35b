"""The size of mini-partition-groups that suits this processor."""

from __future__ import annotations

GROUP_TUPLES = 680  # of both streams: 16 KB at 24 bytes each


def auto_theta(tuple_bytes: int) -> int:
    """`theta = "auto"`, in bytes, for tuples of so many bytes (mean of both streams)."""
    return GROUP_TUPLES * tuple_bytes
