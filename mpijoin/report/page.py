"""The report as one page of HTML, which needs no network, no script and no other file."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from importlib import resources
from typing import Any, Sequence

import numpy as np

from mpijoin.report.findings import Headline, Verdict
from mpijoin.report.series import Table
from mpijoin.report.words import amount

VERDICT_WORDS = {"good": "ok", "look": "look", "bad": "bad"}


@dataclass(frozen=True)
class Picture:
    """A figure as it stands in the page. svg: the text that `style.svg_text` returns."""

    name: str
    title: str
    caption: str
    svg: str


@dataclass(frozen=True)
class Page:
    """What the page shows. title, subtitle and notes: plain text · tables, texts: by their headings; texts are already
    formatted."""

    title: str
    subtitle: str
    headlines: Sequence[Headline]
    verdicts: Sequence[Verdict]
    pictures: Sequence[Picture]
    notes: Sequence[str]
    tables: dict[str, Table]
    texts: dict[str, str]


def html_of(page: Page) -> str:
    """Returns the whole page."""
    css = resources.files("mpijoin.report").joinpath("page.css").read_text(encoding="utf-8")
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(page.title)}: mpijoin report</title>",
        f"<style>{css}</style></head><body>",
        f'<header><h1>{escape(page.title)}</h1><p class="what">{escape(page.subtitle)}</p></header>',
        _numbers(page.headlines),
        _verdicts(page.verdicts),
        _pictures(page.pictures),
        "".join(f'<p class="what">{escape(note)}</p>' for note in page.notes),
        *(
            f'<section><h2>{escape(name)}</h2><div class="scroll">{_table(table)}</div></section>'
            for name, table in page.tables.items()
        ),
        *(f"<section><h2>{escape(name)}</h2><pre>{escape(text)}</pre></section>" for name, text in page.texts.items()),
        "</body></html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _numbers(headlines: Sequence[Headline]) -> str:
    rows = [f"<div><dd>{escape(one.value)}</dd><dt>{escape(one.name)}</dt></div>" for one in headlines]
    return f'<dl class="numbers">{"".join(rows)}</dl>' if rows else ""


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    rows = [
        f'<li class="{one.level}"><b>{VERDICT_WORDS[one.level]}</b><span>{escape(one.text)}</span></li>'
        for one in verdicts
    ]
    return f'<ul class="verdicts">{"".join(rows)}</ul>' if rows else ""


def _pictures(pictures: Sequence[Picture]) -> str:
    if not pictures:
        return ""
    return "\n".join(["<section><h2>Figures</h2>", *map(_picture, pictures), "</section>"])


def _picture(picture: Picture) -> str:
    label = f'<svg role="img" aria-label="{escape(picture.title)}" '
    svg = picture.svg.replace("<svg ", label, 1)
    return (
        f'<figure id="{picture.name}"><h3>{escape(picture.title)}</h3>{svg}'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )


def _table(table: Table) -> str:
    """Returns the table as HTML. Two columns "what" and "value" are names and their values, and need no head."""
    if list(table) == ["what", "value"]:
        pairs = "".join(
            f"<tr>{_cell(name)}{_cell(value)}</tr>"
            for name, value in zip(*(column.tolist() for column in table.values()))
        )
        return f'<table class="pairs"><tbody>{pairs}</tbody></table>'
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in table)
    rows = ["".join(map(_cell, row)) for row in zip(*(column.tolist() for column in table.values()))]
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(f'<tr>{row}</tr>' for row in rows)}</tbody></table>"


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return f'<td class="word">{escape(value)}</td>'
    if isinstance(value, float) and np.isnan(value):
        return "<td>–</td>"
    return f"<td>{amount(value)}</td>"
