"""Files that nobody needs any more, to be written again.

The pages of a new file are the system's to find, and under a hypervisor that takes free memory back the first write to
a page takes up to ten times as long as later ones. A file that is written again has its pages already: a megabyte took
0.17 ms where that of a new file took 0.5 to 2.4.
"""

from __future__ import annotations

import os
from bisect import bisect_left, insort
from contextlib import suppress
from pathlib import Path

SPARE_BYTES = 64 << 20  # as much is kept at most
SUFFIX = ".spare"


class Spares:
    """Files of one folder that may be written anew. octets: of all of them."""

    def __init__(self, most_bytes: int = SPARE_BYTES):
        self._most_bytes = most_bytes
        self._files: list[tuple[int, Path]] = []  # the smallest first
        self.octets = 0

    def keep(self, path: Path, octets: int) -> bool:
        """Takes a file of this size under another name. Returns whether there is room for it; if not, it stays as it
        is. Raises OSError."""
        if self.octets + octets > self._most_bytes:
            return False
        spare = path.with_suffix(SUFFIX)
        os.replace(path, spare)
        insort(self._files, (octets, spare))
        self.octets += octets
        return True

    def take(self, path: Path, octets: int) -> int:
        """Gives a file this name: the smallest that holds so many bytes, or else the largest. Returns its size, or 0 if
        there is none. Raises OSError."""
        if not self._files:
            return 0
        at = min(bisect_left(self._files, (octets, Path())), len(self._files) - 1)
        size, spare = self._files.pop(at)
        self.octets -= size
        try:
            os.replace(spare, path)
        except FileNotFoundError:  # Somebody has removed it.
            return 0
        return size

    def drop(self) -> bool:
        """Gives the space of all of them back. Returns whether there were any."""
        dropped, self._files, self.octets = self._files, [], 0
        for _, spare in dropped:
            with suppress(OSError):
                spare.unlink()
        return bool(dropped)
