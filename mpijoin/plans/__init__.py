"""Plans of binary joins over three or more streams (DCAPE).

`operator` is a join that works by a plan such as "((a b) c)" (config/plan.py). Its own table holds the streams'
tuples, and is all that moves, rests on disks and in checkpoints. `node` is one binary join of the tree, over *states*:
tuples that refer to tuples of the streams. States can be dropped at any time, and are then made again from the tuples.
`kernels` makes them.
"""
