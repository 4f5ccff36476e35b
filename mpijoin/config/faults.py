"""What is wrong with a job."""

from __future__ import annotations

from mpijoin.named import NamedTuple


class Fault(NamedTuple):
    """One thing that is wrong: `fields` are those involved, as "section.field"; `text` is the sentence for the user.

    unread: nothing is known of what the job says about these fields; the `Job` has their defaults.
    """

    fields: tuple[str, ...]
    text: str
    unread: bool = False


def fault(section: str, name: str, problem: str) -> Fault:
    """The usual fault, of one field.

    >>> fault("cluster", "partitions", "got 0, wanted at least 1").text
    '[cluster] partitions: got 0, wanted at least 1'
    """
    return Fault((f"{section}.{name}",), f"[{section}] {name}: {problem}")
