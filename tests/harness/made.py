"""Strategies for values of our classes."""

from hypothesis import strategies as st


def made(kind, *parts, **named):
    """As `st.builds`, but fields that are not given keep their defaults: of a named tuple it would draw them, too."""
    return st.builds(lambda *values, **others: kind(*values, **others), *parts, **named)
