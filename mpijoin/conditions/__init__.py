"""Conditions: what `[join] where` says beyond equal keys and windows.

`tree` parses and checks a text, and never evaluates it; `calls` does so for functions over the partners of a row.
`code` makes the Python function of it that Numba compiles, and `sql` the same condition as DuckDB reads it. A condition
consists of

    NAME.column     a column that a stream carries: integers up to 64 bits (no uint64), float, double, boolean
    NAME.time       the time of its tuple, whatever else is called time
    key             the key, where it is one column of integers or booleans
    1, 2.5, true, false, "5 s"                  numbers, truth values and durations
    + - * /                                     of numbers; the difference of two times is a duration
    < <= > >= == !=, in (1, 2), not in (1, 2)   of numbers, times, durations or truth values
    and, or, not, is null, is not null
    abs, sqrt, floor, ceil, least, greatest

Logic has three values, as in SQL: what is made of a null is null, and only what is true is kept. A division is one of
doubles, by zero it gives null; so do the root of a negative number and an integer beyond 64 bits. NaN equals itself and
is larger than all numbers; least and greatest leave nulls out. All this is as in DuckDB, where it does not fail.
"""
