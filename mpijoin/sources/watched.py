"""An input file that should stay what it was when the run began, to its last row."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator

from mpijoin.data.files import decoding, file_format
from mpijoin.data.ipc_messages import Cut
from mpijoin.errors import ChangedInputError, InputError
from mpijoin.sources.inputs import InputFile, input_file


class Watched:
    """`rows`: read so far, with those skipped · `wanted`: how many there should be, as far as the file itself tells."""

    def __init__(self, path: str, file: InputFile | None, skipped: int = 0, first: int = 0):
        """file: as it was when the run began; None: it begins now · skipped: rows that nobody wants, of which `first`
        come before all others. Raises InputError when it cannot be looked at."""
        self._path, self._then = path, file or input_file(path)
        self.rows, self.wanted = skipped, 0
        self._between = skipped - first  # rows that are wanted

    def fraction(self) -> float:
        """The share of the rows that has been read; those before the first range count as read."""
        return min(1.0, (self.rows - self._between) / max(1, self.wanted - self._between))

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turns the library's errors into one InputError that names the file."""
        try:
            with decoding(self._path):
                yield
        except Cut as error:
            raise self._cut_short() from error
        except InputError:
            self._check_same()
            raise

    def check_end(self) -> None:
        """Raises ChangedInputError unless the file has given all its rows and is what it was."""
        self._check_same()
        if self.rows < self.wanted:
            raise self._cut_short()

    def _check_same(self) -> None:
        try:
            now = input_file(self._path)
        except InputError as error:
            raise ChangedInputError(f"{error}; it was there when the run began, and {self._rows()}") from error
        if now != self._then:
            raise ChangedInputError(
                f"{self._path}: changed while it was read: it had {self._then}, now {now}; {self._rows()}"
            )

    def _rows(self) -> str:
        wanted = f", wanted {self.wanted}" if self.wanted else ""
        return f"got {self.rows} rows{wanted}"

    def _cut_short(self) -> ChangedInputError:
        self._check_same()
        wanted = f"{self.wanted} rows, or more" if self.wanted > self.rows else "an end behind them"
        return ChangedInputError(
            f"{self._path}: cannot be read as {file_format(self._path)} to its end: got {self.rows} rows, wanted"
            f" {wanted}; it has been cut short, or is still being written"
        )
