"""The windowed group-by aggregate of one stream (the operator of Flux, section 2): per row, what its history says.

The rows of a key have an order: by time, and rows of one time by their row number. It depends on no rank, producer,
arrival or move. The history of a row is made of itself and rows of its key before it:

- "100 rows": the last 100 in this order, itself included. SQL says `ROWS BETWEEN 99 PRECEDING AND CURRENT ROW` over
  `PARTITION BY key ORDER BY time, row`.
- "10 min": all rows that are no older than 10 minutes before it, and no younger than itself. Both ends count, so rows
  of the same time are in each other's history, whatever their row numbers. SQL says `RANGE BETWEEN 10 minutes PRECEDING
  AND CURRENT ROW` over `PARTITION BY key ORDER BY time`.

With `emit = "row"` every row has a result. With `emit = "10 s"` event time is cut into periods [n * 10 s, (n + 1) *
10 s), counted from time 0, and the last row of a key in a period, in the order above, has a result; no other has. Rows
that are late or have a null key have no result and are in no history.

A result is found when the watermark has passed the row's time, or with periods the end of its period, because no row
before it can come any more. So an aggregate finds its results in `expire`, and not in `probe`. They are exact whatever
the disorder. A row is kept for as long as a row to come may need it: until the watermark has passed its time by the
history, or until as many younger rows of its key have had their turn as the history counts.

Functions leave nulls out, as in SQL; without any value, all but counts are null. Counts are int64. The sum of integers
is an int64, and a sum that has none ends the run with an error. The sum of floats is the exact sum, rounded once to a
float64. A mean is the sum as a float64, divided by the count. So neither depends on any order. A NaN is larger than all
numbers.

The certificate is that of all answers (package `join`, `results`). The hash of a result of one tuple is the tuple's row
number, so it is the sum of the row numbers of the rows that have a result. It says which results there are, and not
what their values are; `mpijoin verify` compares these.

The operator keeps its rows in a table of the store, as a join does, so groups move, are saved and are reorganized in
the same way. `operator` is the operator, `functions` makes its rules of a job, `state` has what its kernels work with,
and `find` has these. They take one bucket (mini-partition-group) at a time: `gather` lists the rows that are due and
their histories, and sorts them; `slide` slides a window over them; `values` reads and `sums` adds what it holds; and
`compact` lets go of rows.
"""
