"""The contract between an operator and everything that drives it (`base`), and what all operators have in common that
keep their tuples in a table of the store (`stored`). Each operator is a package of its own.

Distribution, moving, checkpoints, simulation and tests know an operator by this contract alone. So a model of a join
can stand in for a join, and a new operator needs nothing new around it.
"""
