"""Conditions: what `[join] where` says beyond equal keys and windows.

`tree` parses and checks a text, and never evaluates it; `calls` does so for functions over the partners of a row, and
`literals` reads what stands in quotes. `kinds` knows the columns. `lower` makes integers of all times. Of what is left
`code` makes the Python function that Numba compiles, in which long `lists` are looked up in, and `sql` the same
condition as DuckDB reads it. A condition consists of

    NAME.column     a column that a stream carries, or one of its key: integers, float, double, boolean, string, binary,
                    dates, timestamps, times of day and durations of every unit; no decimals, and none with parts
    NAME["a column"]                            the same, of any name
    NAME.time       the time of its tuple, whatever else is called time
    key             the key, where it is one column
    1, 2.5, true, false                         numbers and truth values
    '5 s', '2024-01-02T03:04:05', '03:04', 'x'  what the other side of a comparison is: a duration, a time, a string
    + - * /                                     of numbers
    + -                                         of times and durations; the difference of two times is a duration
    < <= > >= == !=, in (1, 2), not in (1, 2)   of numbers, strings, or spans of time of one kind; at most 1000 values
    and, or, not, is null, is not null
    abs, sqrt, floor, ceil, least, greatest     of numbers; abs, least and greatest also of spans of time

Logic has three values, as in SQL: what is made of a null is null, and only what is true is kept. A division is one of
doubles, by zero it gives null; so do the root of a negative number and an integer beyond 64 bits. NaN equals itself and
is larger than all numbers; least and greatest leave nulls out. All this is as in DuckDB, where it does not fail.

An integer is compared with a float as doubles, and a uint64 with other integers exactly; all other arithmetic gives
int64. Strings are compared byte by byte, so that "B" comes before "a", and "a" before "aa".

A date is the midnight with which it begins. Spans of time are compared exactly, whatever their units; what is added up
has the finest of these. Times with a zone are moments of UTC, whichever zone that is. They are not compared with times
that have none, for nobody knows where these were; a time in quotes without a zone goes with both, and so do times of a
stream that are integers, which count from 1970.
"""
