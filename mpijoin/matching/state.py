"""What the kernels of a matching join work with."""

from __future__ import annotations

# Entries of `rule`. MATCH: which partner is wanted · KEEPS_ALONE: 1 if a row without partner is a result, too ·
# KEY_WORDS, KEY_FIXED, KEY_VARIABLE: as in `KeyWords`; without words, keys that are stored alike are equal.
MATCH, KEEPS_ALONE, KEY_WORDS, KEY_FIXED, KEY_VARIABLE, RULE_WORDS = range(6)
FIRST, LAST, NEAREST = range(3)

# Entries of `cursor`. AT: which of the groups · ENTRY: which entry of its directory.
AT, ENTRY, CURSOR_WORDS = range(3)

# Comparisons after which a kernel returns, so that its slave can do something else between two rows.
BUDGET_MAX = 1 << 26
