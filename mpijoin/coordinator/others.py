"""What the coordinator says to producers on other ranks and hears from them, as messages."""

from __future__ import annotations

from typing import Iterator

from mpijoin.directives import Directive, Notes
from mpijoin.producer import events


def told(directive: events.Directive, number: int = 0, anew: bool = False) -> Directive:
    """number, anew: of the checkpoint that it asks for, as in `Marker`."""
    return Directive(type(directive).__name__, tuple(directive), number, anew)


def heard(producer: int, notes: Notes) -> Iterator[events.Note]:
    """The notes of a producer in the order in which its core made them, as far as that matters."""
    yield events.Flowed(dict(notes.came), dict(notes.joined))
    if notes.begins:
        _, event, read_s = notes.begins
        yield events.BeginsAt(producer, event, read_s)
    if notes.slot:
        _, slots, position, due = notes.slot
        yield events.SlotEnded(producer, slots, dict(due), position)
    if notes.ended:
        yield events.InputEnded(producer)
