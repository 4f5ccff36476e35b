"""Several queries over one state: the same two streams are held once, and their keys are compared once.

The table keeps tuples for the windows of the streams, which are the longest. A probe finds the pairs of these windows,
and each query takes its own out of them: those in its windows for which its condition is true. A query that answers
each row of the first stream looks at the table itself, when its window is over for a row. Each has a view of the table
(`view`), with its own windows and its own bit in the flags of tuples.
"""
