"""What verify found, as values and as words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable

from mpijoin.config.units import plural

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SHOWN = 10  # lines of each side of a difference


@dataclass(frozen=True)
class Difference:
    """One thing that differs. `lines` are examples, at most SHOWN of each side."""

    what: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """The outcome of one verification. `results` and `certificate` are DuckDB's; `facts` and `notes` are sentences."""

    run_path: str
    results: int
    certificate: str
    facts: tuple[str, ...]
    notes: tuple[str, ...]
    differences: tuple[Difference, ...]

    @property
    def ok(self) -> bool:
        return not self.differences

    def text(self) -> str:
        """The report as verify prints it."""
        if self.ok:
            head = f"verified: {self.run_path}: {plural(self.results, 'result')}, certificate {self.certificate}"
        else:
            head = f"DIFFERENT: {self.run_path}: {len(self.differences)} of the comparisons below"
        lines = [head, *(f"  {fact}" for fact in self.facts), *(f"  note: {note}" for note in self.notes)]
        for difference in self.differences:
            lines.append(difference.what)
            lines += [f"  {line}" for line in difference.lines]
        return "\n".join(lines)


def one_row(database: DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    """The row of a query that always gives exactly one, such as a count of all rows."""
    # A result that is not read to its end would keep the connection.
    (row,) = database.execute(query).fetchall()
    return row


def two_sided(
    database: DuckDBPyConnection, what: str, unequal: str, lines_of: Callable[[str], list[str]]
) -> list[Difference]:
    """Makes one difference of the rows of the table or query `unequal`, or none when it is empty.

    Its column n says how much more often a row was wanted than found; it is negative if the row was found more often.
    `lines_of` gives the first SHOWN lines that meet an SQL condition on n.
    """
    counts: list[str] = []
    lines: list[str] = []
    for side, condition in (("missing", "n > 0"), ("unexpected", "n < 0")):
        total = one_row(database, f"SELECT coalesce(sum(abs(n)), 0)::BIGINT FROM {unequal} WHERE {condition}")
        counts.append(f"{total[0]:,} {side}")
        lines += (f"{side:<10}  {line}" for line in lines_of(condition))
    return [Difference(f"{what}: {' and '.join(counts)}", tuple(lines))] if lines else []
