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
_NO_WAITING = (
    "A slave takes what has arrived when it has joined what came before, and messages are sent without waiting for the"
    " one before: a slave served later does not wait longer, it joins meanwhile. The paper counts that wait as"
    " communication."
)
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
    ("adaptive", SIMULATED): (
        "The bytes are the same on any number of slaves; what more slaves cost is messages, a tenth of a per cent of"
        " the time. In the paper slaves also wait for their turns, and count it as communication; here they join"
        " meanwhile."
    ),
    ("not uniform", SIMULATED): _NO_WAITING,
    ("not uniform", REAL): _NO_WAITING,
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
