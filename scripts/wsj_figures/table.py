"""The table of sentences: what the paper says, what we found on each side, whether it holds, and why where it does
not."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple, Sequence

from wsj_figures.points import REAL, SIMULATED
from wsj_figures.sentences import SENTENCES, Results, Verdict

COLUMNS = ("figures", "sentence", "side", "found", "holds", "explanation")

# (name of a sentence, side) -> why it does not hold; shown only where it does not.
EXPLANATIONS = {
    ("sharp rise", REAL): (
        "Delays grow only as long as input comes: for 20 minutes there, for 13 s here. With the most slaves the rise of"
        " one step there is spread over two here."
    ),
    ("48 seconds", REAL): (
        "At the rate that leaves no idle time a run of 65 epochs (there: 600) is too short to fall 24 epochs behind; at"
        " the next rate it falls far behind, with tuning a third as far (Figure 8)."
    ),
    ("aggregate", REAL): (
        "One slave is overloaded by this rate: its input arrives for longer than it should, and all that time is held"
        " against the time in which it was due. From two slaves on the sum rises."
    ),
    ("less per slave", SIMULATED): (
        "One slave of many gets less, and waits while others get theirs: together that is about half of what all get,"
        " on any number of slaves. Overlapped it falls as the paper says."
    ),
    ("less per slave", REAL): (
        "Between processes of one machine a message costs next to nothing. What counts is the wait until those before"
        " have looked at theirs, which a slave with a quarter of a core does some milliseconds later."
    ),
    ("divergence", REAL): (
        "The wait is for slaves to look at what has come for them, and that takes as long for few tuples as for many."
    ),
    ("delay and epoch", REAL): (
        "An epoch costs each slave some milliseconds whatever it brings. At the shortest of these epochs (25 ms here)"
        " that alone overloads a quarter of a core; above it the delay falls with the epoch."
    ),
}
NOT_EXPLAINED = "not explained: measure again on a machine that does nothing else"


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
            why = "" if verdict.holds else EXPLANATIONS.get((sentence.name, results.side), NOT_EXPLAINED)
            rows.append(Row(sentence.numbers, sentence.quote, results.side, verdict, why))
    return rows


def write(folder: Path, rows: Sequence[Row]) -> None:
    """table.md and table.csv."""
    cells = [
        (", ".join(map(str, row.numbers)), row.quote, row.side, row.verdict.figure, _word(row.verdict), row.explanation)
        for row in rows
    ]
    lines = ["| " + " | ".join(line) + " |" for line in (COLUMNS, ["---"] * len(COLUMNS), *cells)]
    (folder / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with (folder / "table.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, *cells])


def _word(verdict: Verdict) -> str:
    return "yes" if verdict.holds else "no"
