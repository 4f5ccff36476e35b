"""Plans of joins over three or more streams: m-way, or a tree of binary joins (DCAPE).

`operator` is a join that works by a plan such as "((a b) c)" (config/plan.py). Its own table holds the streams'
tuples, and is all that moves, rests on disks and in checkpoints. `tree` is such a tree, and `node` one binary join of
it, over *states*: tuples that refer to tuples of the streams. States can be dropped at any time, and are then made
again from the tuples. `kernels` makes them.

With plan = "auto", each slave chooses for itself. `sample` counts the partners of some fresh tuples, `statistics` keeps
these counts and the streams' rates, `step_times` measures what the steps of plans take, `costs` says what any plan
costs by all of them, and `choice` when to change. The operator then changes group by group.
"""
