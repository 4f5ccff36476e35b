"""Joins that answer each row of the first stream once, when its window is over: with one partner, or with statistics.

`[join] match` wants of all partners the first, the last or the nearest in time. An as-of join is one of these. `[join]
reduce` wants functions over all of them. No pair is ever kept: a row waits until no partner of it can come any more,
and then looks at those that it has. So rows of the second stream wait longer than in other joins, as long as a row may
come that looks at them. As all that is known of an answer follows from the rows that are held, moves and checkpoints
need nothing of their own for it.

    operator   the operator: results leave in `expire`
    state      the arrays that its kernels share
    due        kernels that find the rows whose windows are over
    partners   kernels that find the partners of these rows
    best       kernels that choose one of them
    reduce     kernels that work out functions over all of them
    functions  says what these functions keep, and makes the code that adds a partner to them
    kernels    the two kernels that find answers, and the makers of those that a job's condition and functions need
"""
