"""The table of sentences: what the paper says, what we found on each side, whether it holds, and why where it does not."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple, Sequence

from wsj_figures.points import REAL, SIMULATED
from wsj_figures.sentences import SENTENCES, Results, Verdict

COLUMNS = ("figures", "sentence", "side", "found", "holds", "explanation")

# (name of a sentence, side) -> why it does not hold; shown only where it does not.
EXPLANATIONS: dict[tuple[str, str], str] = {}


class Row(NamedTuple):
    numbers: tuple[int, ...]
    quote: str
    side: str
    verdict: Verdict
    explanation: str


def rows_of(sides: Sequence[Results], numbers: Sequence[int]) -> list[Row]:
    """A row per sentence of these figures and side."""
    rows = []
    for sentence in SENTENCES:
        for results in sides if set(sentence.numbers) & set(numbers) else ():
            verdict = sentence.check(results)
            why = "" if verdict.holds else EXPLANATIONS.get((sentence.name, results.side), "")
            rows.append(Row(sentence.numbers, sentence.quote, results.side, verdict, why))
    return rows


def write(folder: Path, rows: Sequence[Row]) -> None:
    """table.md and table.csv."""
    cells = [
        (", ".join(map(str, row.numbers)), row.quote, row.side, row.verdict.figure, _word(row.verdict), row.explanation) for row in rows
    ]
    lines = ["| " + " | ".join(line) + " |" for line in (COLUMNS, ["---"] * len(COLUMNS), *cells)]
    (folder / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with (folder / "table.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, *cells])


def _word(verdict: Verdict) -> str:
    return "yes" if verdict.holds else "no"
